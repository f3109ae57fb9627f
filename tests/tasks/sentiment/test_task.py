"""The sentiment task on a tiny treebank: classes, supervision, vectors and training."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from markdown_pages import table_below

import treemem
from treemem.data.loader import BatchOptions
from treemem.errors import GraphError, ParseError, RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig, every_network
from treemem.networks.word_vectors import WordVectors
from treemem.runs import TrainingOptions, evaluate, fit, load_recipe
from treemem.runs.data_sets import DataSets
from treemem.runs.study_file import StudyFolder
from treemem.schedule import TreeBatch
from treemem.task import task_folder
from treemem.tasks.sentiment import Sentiment, SentimentDataOptions, read_treebank, read_word_vectors
from treemem.tasks.sentiment.task import PhraseLogits

# Beside the checkout, in a folder of data that the project does not ship.
PUBLISHED = Path(__file__).parents[4] / "shared" / "data" / "sst"
TRAIN = """(4 (2 A) (4 (4 good) (2 film)))
(0 (2 A) (0 (0 bad) (2 film)))
(2 (2 A) (2 film))
(3 (1 (2 not) (0 bad)) (2 X))
(1 (1 (2 not) (4 good)) (2 X))
"""
DEV = "(4 (4 good) (2 film))\n(0 (0 bad) (2 film))\n(2 film)\n"
TEST = "(3 (3 Good) (2 story))\n(1 (1 bad) (2 story))\n(2 (2 A) (2 story))\n"
VECTORS = "good 1 0 0.5\nbad -1 0 0.5\nstory 0 1 0.25\nunused 9 9 9\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "trees"
    place.mkdir()
    for name, text in (("train", TRAIN), ("dev", DEV), ("test", TEST)):
        (place / f"{name}.txt").write_text(text)
    return place


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.txt"
    path.write_text(VECTORS)
    return path


def test_splits_are_those_of_the_files_and_two_classes_leave_out_neutral_sentences(folder: Path) -> None:
    task = Sentiment(path=str(folder), classes=2)
    examples = task.examples(task.make_data(SentimentDataOptions()).forest)
    labels = [examples.targets["label"][examples.part(split)].tolist() for split in ("train", "validation", "test")]
    assert labels == [[1, 0, 1, 0], [1, 0], [1, 0]]
    first = examples.targets_of(np.array([0]))["nodes"]
    assert first.tolist() == [-1, 1, -1, 1, 1]
    five = Sentiment(path=str(folder))
    examples = five.examples(five.make_data(SentimentDataOptions()).forest)
    assert examples.targets["label"].tolist() == [4, 0, 2, 3, 1, 4, 0, 2, 3, 1, 2]
    assert examples.targets_of(np.array([0]))["nodes"].tolist() == [2, 4, 2, 4, 4]


def test_phrases_of_training_sentences_become_examples(folder: Path) -> None:
    task = Sentiment(path=str(folder), classes=2, supervision="root")
    data = task.make_data(SentimentDataOptions(phrases=True)).forest
    examples = task.examples(data)
    words = data.tokens("leaves").strings()
    train = [(" ".join(words[place]), int(examples.targets["label"][place])) for place in examples.part("train")]
    assert train[:3] == [("good", 1), ("good film", 1), ("A good film", 1)]
    assert len(train) == 12
    assert len(examples.part("validation")) == 2


def test_a_word_is_known_if_it_is_frequent_or_has_a_vector(folder: Path, vectors: Path) -> None:
    assert Sentiment(path=str(folder)).vocabulary.leaves == ("<unk>", "A", "good", "film", "bad", "not", "X")
    assert Sentiment(path=str(folder), least_count=3).vocabulary.leaves == ("<unk>", "A", "film")
    known = Sentiment(path=str(folder), vectors=str(vectors), least_count=3).vocabulary
    assert known.leaves == ("<unk>", "A", "good", "film", "bad", "story")
    assert known.unknown == "<unk>"
    lower = Sentiment(path=str(folder), lower=True)
    assert lower.vocabulary.leaves == ("<unk>", "a", "good", "film", "bad", "not", "x")
    assert str(lower.parse("(X A X)")) == "(X a x)"


def test_without_the_treebank_an_error_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"Stanford Sentiment Treebank.*task_options\.path=FOLDER"):
        Sentiment().make_data(SentimentDataOptions())
    with pytest.raises(RecipeError, match=r"no file .*train\.txt.*Stanford Sentiment Treebank"):
        read_treebank(tmp_path)


def test_texts_are_trees_with_or_without_classes_or_words() -> None:
    task = Sentiment()
    assert str(task.parse("(3 (2 It) (4 (2 works) (2 .)))")) == "(X It (X works .))"
    assert str(task.parse("(X (X not bad) .)")) == "(X (X not bad) .)"
    assert str(task.parse("not bad .")) == "(X not (X bad .))"
    with pytest.raises(ParseError, match="empty"):
        task.parse(" ")


@pytest.mark.parametrize("classes", [2, 5])
def test_a_label_beside_a_tree_is_that_of_its_root(classes: Literal[2, 5], tmp_path: Path) -> None:
    task, file = Sentiment(classes=classes), tmp_path / "own.csv"
    name = task.class_names[-1]
    lines = ["tree,label", "(4 (2 good) (2 film)),4", f"(4 (2 good) (2 film)),{name}", "(3 (2 good) (2 film)),"]
    file.write_text("\n".join(lines) + "\n")
    assert len(task.read_examples(file)) == 3
    file.write_text("\n".join([*lines, f"(0 (2 bad) (2 film)),{name}"]) + "\n")
    with pytest.raises(ParseError, match=rf"own.csv, line 5: the label is '{name}', and the root .* the class 0"):
        task.read_examples(file)
    file.write_text("\n".join([*lines, "(0 (2 bad) (2 film)),1"]) + "\n")
    with pytest.raises(ParseError, match=r"own.csv, line 5: the label is '1'"):
        task.read_examples(file)


@pytest.mark.parametrize(("name", "supervision"), [("Tree-LSTM", "nodes"), ("Tree-LSTM", "root"), ("LSTM", "nodes")])
def test_the_loss_is_over_labelled_nodes_of_tree_networks_and_over_roots_of_others(
    folder: Path, name: str, supervision: Any
) -> None:
    task = Sentiment(path=str(folder), classes=2, supervision=supervision)
    model = Model(task, task.networks[name].replace(hidden_size=4))
    examples = task.examples(task.make_data(SentimentDataOptions()).forest)
    batch = next(iter(model.loader(examples, examples.part("train")).batches()))
    targets = examples.batch_targets(batch)
    outputs = model.train()(batch)
    over_nodes = name == "Tree-LSTM" and supervision == "nodes"
    assert isinstance(outputs, PhraseLogits) == over_nodes
    loss = task.loss(outputs, targets)
    logits, label = (outputs.nodes, targets["nodes"]) if over_nodes else (outputs, targets["label"])
    known = label >= 0
    expected = -logits.log_softmax(1)[known, label[known]].sum()
    torch.testing.assert_close(loss.sum, expected)
    assert int(loss.count) == int(known.sum()) == (12 if over_nodes else 4)
    assert model.eval()(batch).shape == (4, 2)


@pytest.mark.parametrize(
    ("name", "tuned"), [*((name, False) for name in every_network(12)), ("Tree-LSTM", True), ("LSTM", True)]
)
def test_every_network_learns_with_word_vectors(folder: Path, vectors: Path, name: str, tuned: bool) -> None:
    task = Sentiment(path=str(folder), vectors=str(vectors), tuned=tuned)
    model = Model(task, every_network(12)[name])
    examples = task.examples(task.make_data(SentimentDataOptions()).forest)
    batch = next(iter(model.loader(examples, examples.part("train")).batches()))
    (table,) = [each for each in model.modules() if isinstance(each, WordVectors)]
    row = model.vocabulary.leaves.index("bad")
    assert table.weight[row].tolist() == [-1, 0, 0.5]
    assert table.weight[0].tolist() == [0, 0, 0]
    loss = task.loss(model.train()(batch), examples.batch_targets(batch))
    loss.sum.backward()
    assert (table.weight.grad is not None) == tuned
    assert table.map is not None
    assert table.map.weight.grad is not None
    assert float(table.map.weight.grad.abs().sum()) > 0


def test_a_subtree_is_computed_once_with_word_vectors(folder: Path, vectors: Path) -> None:
    task = Sentiment(path=str(folder), vectors=str(vectors))
    model = Model(task, NetworkConfig("TreeLSTM", {"hidden_size": 3})).eval()
    batch = TreeBatch.from_trees([task.parse("(X (X not bad) (X not bad))")], model.vocabulary)
    states = model.encoder(batch)
    assert len(states.rows["h"]) == 4 < batch.num_nodes
    naive = Model(task, NetworkConfig("TreeLSTM", {"hidden_size": 3, "engine": "autograd"})).eval()
    naive.load_state_dict(model.state_dict())
    torch.testing.assert_close(naive.encoder(batch).root, states.root)
    assert model.encoder.leaves.embedding.map is None  # as wide as the network


def test_a_network_that_reads_brackets_too_takes_no_word_vectors(folder: Path, vectors: Path) -> None:
    task = Sentiment(path=str(folder), vectors=str(vectors))
    with pytest.raises(RecipeError, match='form="leaves"'):
        Model(task, NetworkConfig("LSTM", {"hidden_size": 4, "form": "brackets"}))
    with pytest.raises(RecipeError, match="Linear has no embedding"):
        WordVectors.put_into(torch.nn.Linear(2, 2), torch.zeros(3, 2))


@pytest.mark.parametrize("name", ["Tree-LSTM", "LSTM"])
def test_a_trained_model_predicts_and_is_loaded_without_the_files(
    folder: Path, vectors: Path, name: str, tmp_path: Path
) -> None:
    task = Sentiment(path=str(folder), classes=2, vectors=str(vectors))
    options = TrainingOptions(epochs=2, batch_size=2)
    network = task.networks[name].replace(hidden_size=8)
    result = fit(task, network, task.make_data(SentimentDataOptions()), options, output=tmp_path / "run")
    texts = ["(4 (2 A) (4 (4 good) (2 film)))", "A bad film"]
    expected = result.model.predict(texts)
    for path in (*folder.iterdir(), vectors):
        path.unlink()
    model = treemem.load(tmp_path / "run")
    assert model.task.options["vector_size"] == 3
    np.testing.assert_array_equal(model.predict(texts), expected)


def contextual_file(folder: Path, vectors: Sequence[Sequence[float]]) -> str:
    path = folder.parent / "contextual.npy"
    np.save(path, np.array(vectors, np.float16))
    return str(path)


def words_of(folder: Path) -> list[str]:
    """All words of the treebank, one sentence after the other."""
    forest = read_treebank(folder)
    return [forest.labels[label] for label in forest.label[forest.arity == 0]]


@pytest.mark.parametrize("name", ["Tree-LSTM", "Tree-RNN+stack", "LSTM", "Transformer", "Ordered Memory", "ON-LSTM"])
def test_contextual_vectors_that_depend_on_the_word_alone_are_word_vectors(
    folder: Path, vectors: Path, name: str
) -> None:
    of_word = {word: [float(each) for each in values] for word, *values in map(str.split, VECTORS.splitlines())}
    array = contextual_file(folder, [of_word.get(word, [0.0] * 3) for word in words_of(folder)])
    tasks = Sentiment(str(folder), vectors=str(vectors)), Sentiment(str(folder), vectors=array, contextual=True)
    first, second = (Model(task, every_network(12)[name]).eval() for task in tasks)
    table = {each: value.zero_() for each, value in second.state_dict().items() if "parser.embedding" in each}
    learned = {
        each.replace("leaves.embedding.map", "feature_map").replace("embedding.map", "embedding"): value
        for each, value in first.state_dict().items()
        if not each.endswith("embedding.weight")
    }
    second.load_state_dict(learned | table)
    for each, value in first.state_dict().items():
        if "parser.embedding" in each:
            value.zero_()
    outputs = []
    for task, model in zip(tasks, (first, second), strict=True):
        examples = task.examples(task.make_data(SentimentDataOptions()).forest)
        torch.manual_seed(0)
        outputs.append(torch.cat([model(batch) for batch in model.loader(examples, None, BatchOptions(4)).batches()]))
    torch.testing.assert_close(outputs[1], outputs[0])


@pytest.mark.parametrize("name", ["Tree-LSTM", "LSTM"])
def test_a_network_learns_from_vectors_of_words_in_their_sentences(folder: Path, name: str, tmp_path: Path) -> None:
    """The same word has another vector in each sentence; its first number is positive in positive sentences."""
    forest = read_treebank(folder)
    classes = np.repeat(forest.node_data["class"][forest.begin[1:] - 1], (np.diff(forest.begin) + 1) // 2)
    array = contextual_file(folder, [[each - 2.0, 1.0] for each in classes])
    task = Sentiment(path=str(folder), classes=2, vectors=array, contextual=True)
    data = task.make_data(SentimentDataOptions())
    options = TrainingOptions(epochs=40, batch_size=2, learning_rate=0.05)
    result = fit(task, task.networks[name].replace(hidden_size=8), data, options, output=tmp_path / "run")
    assert evaluate(result.model, data, split="test").overall.accuracy == 1.0
    model = treemem.load(tmp_path / "run")
    assert not any(len(value) == len(classes) for value in model.state_dict().values())
    assert model.task.options["contextual"] is True
    with pytest.raises(GraphError, match=r"this layer reads features: give feat, \[5, 2\]"):
        model.predict(["(4 (2 A) (4 (4 good) (2 film)))"])


def test_other_contextual_vectors_are_other_data(folder: Path) -> None:
    digests = set()
    for number in (0.0, 1.0):
        array = contextual_file(folder, [[number, 2.0]] * len(words_of(folder)))
        os.utime(array, (number, number))
        task = Sentiment(path=str(folder), vectors=array, contextual=True)
        digests.add(task.examples(task.make_data(SentimentDataOptions(phrases=True)).forest).digest())
    assert len(digests) == 2


def test_files_that_are_no_contextual_vectors_are_refused(folder: Path, vectors: Path) -> None:
    count = len(words_of(folder))
    wrong = np.zeros((count, 2), np.float32)
    wrong[7, 1] = np.nan
    for number, array in enumerate(
        (np.zeros((count - 1, 2), np.float32), np.zeros(count, np.float32), np.zeros((count, 2), np.int64), wrong)
    ):
        np.save(folder.parent / f"{number}.npy", array)
    for name, named in (
        ("0.npy", rf"have {count} words; it needs a row for each word"),
        ("1.npy", r"\[words, width\]"),
        ("2.npy", "floating-point numbers"),
        ("3.npy", "row 8 of .* is not finite"),
        (vectors.name, "is no array of NumPy"),
        ("missing.npy", r"cannot read .*missing\.npy"),
        (None, r"contextual is true, and there is no file .* NumPy"),
    ):
        path = None if name is None else str(folder.parent / name)
        with pytest.raises(RecipeError, match=named):
            Sentiment(path=str(folder), vectors=path, contextual=True).make_data(SentimentDataOptions())
    with pytest.raises(RecipeError, match="leave out tuned"):
        Sentiment(path=str(folder), vectors=str(vectors), contextual=True, tuned=True)


def test_only_the_vectors_of_wanted_words_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes("2 3\nthe 1 2 3 \n. . . 4 5 6\né 7 8 9\nthe 0 0 0\n".encode())
    found = read_word_vectors(path, {"the", ". . .", "é", "absent"})
    assert found.words == {"the": 0, ". . .": 1, "é": 2}
    assert found.vectors.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert found.vectors.dtype == np.float32


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("b 1", "1 numbers after the word"),
        ("b 1 2 3", "more than 2 numbers after the word"),
        *((f"a 1 {number}", "the vector of 'a' is not 2 finite numbers") for number in ("x", "nan", "1e39")),
    ],
)
def test_an_uneven_line_is_told_with_its_place(line: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text(f"c 1 2\n{line}\n")
    with pytest.raises(ParseError, match=rf"vectors\.txt, line 2.*{problem}"):
        read_word_vectors(path, {"a"})


def test_vectors_of_another_width_than_asked_for_are_refused(folder: Path, vectors: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"have 3 numbers, and vector_size is 300"):
        _ = Sentiment(path=str(folder), vectors=str(vectors), vector_size=300).vocabulary
    path = tmp_path / "empty.txt"
    for text, problem in (
        ("", "no vectors"),
        ("2 2\n", "no vectors"),
        ("Xgood 1 2\n", "no word has a vector in .*empty"),
    ):
        path.write_text(text)
        with pytest.raises(RecipeError, match=problem):
            read_word_vectors(path, {"a"})
    path.write_text("\ufeffa 1 2\n")
    assert read_word_vectors(path, {"a"}).words == {"a": 0}


@pytest.mark.parametrize("recipe", ["small", "glove_trees", "glove_100d"])
def test_recipes_need_the_treebank_only_for_data(recipe: str, folder: Path, vectors: Path) -> None:
    without = load_recipe(f"sentiment/{recipe}")
    with pytest.raises(RecipeError, match=r"Stanford Sentiment Treebank|vector_size is [13]00"):
        without.make_task().make_data(without.data)
    width = [] if recipe == "small" else ["task_options.vector_size=3", f"task_options.vectors={vectors}"]
    found = load_recipe(f"sentiment/{recipe}", [f"task_options.path={folder}", *width])
    assert len(found.make_task().make_data(found.data).forest) >= 11


def test_the_study_trains_on_both_numbers_of_classes_in_the_given_folder(folder: Path, tmp_path: Path) -> None:
    study = StudyFolder.find("sentiment").study("small")
    assert len(study.runs()) == 2 * 6 * 3
    classes = {run.data: run.task.classes for run in study.runs(folder) if run.task.path == str(folder)}
    assert classes == {"SST-5": 5, "SST-2": 2}
    assert len(DataSets(study, tmp_path, folder)["SST-2"]) == 8
    with pytest.raises(RecipeError, match="needs --data"):
        _ = DataSets(study, tmp_path)["SST-5"]


def test_the_published_table_of_the_page_is_that_of_the_task() -> None:
    page = (Path(task_folder("sentiment") or "") / "README.md").read_text(encoding="utf-8")
    head, *rows = table_below(page, "## Published")
    cells = {(row[0], column): cell for row in rows for column, cell in zip(head[1:], row[1:], strict=True)}
    expected = {}
    for figure in Sentiment.published:
        spread = "" if figure.deviation is None else f" ± {100 * figure.deviation:.1f}"
        classes = figure.split.removeprefix("test, ").removesuffix(" classes")
        expected[figure.network, f"SST-{classes}"] = f"{100 * figure.value:.1f}{spread}"
    assert cells == expected


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the treebank is not beside the checkout")
@pytest.mark.parametrize(("classes", "sizes"), [(5, (8544, 1101, 2210)), (2, (6920, 872, 1821))])
def test_the_published_treebank_has_the_published_sizes(classes: int, sizes: tuple[int, ...]) -> None:
    task = Sentiment(path=str(PUBLISHED), classes=classes)
    examples = task.examples(task.make_data(SentimentDataOptions()).forest)
    assert tuple(len(examples.part(split)) for split in ("train", "validation", "test")) == sizes
