"""Induced trees of language models against gold trees: the scores, where gold trees come from, and the command."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch

import treemem
from treemem.cli import main as treemem_command
from treemem.data.token_batch import TokenBatch
from treemem.errors import GraphError, RecipeError, VocabularyError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.runs.data_sets import StudyPlaces
from treemem.runs.results_page import write_page
from treemem.runs.study_file import Study, StudyFolder
from treemem.runs.study_file_run import run_study_file
from treemem.runs.study_records import read_study
from treemem.tasks.constituency import evaluate_trees, induce_trees, score_trees
from treemem.tasks.constituency.__main__ import main
from treemem.tasks.constituency.evaluation import TreeScore, with_words
from treemem.tasks.constituency.gold import gold_trees
from treemem.tasks.constituency.page_values import trees_of_examples
from treemem.tasks.constituency.study import example_sentences
from treemem.tasks.language_modeling import LanguageModeling
from treemem.tasks.sentiment import Sentiment
from treemem.trees import parse_brackets
from treemem.trees.tree import Tree

TASK = LanguageModeling(words=120)
SENTENCES = [
    ["the", "boy", "near", "the", "girls", "laughs"],
    ["boys"],
    ["no", "girl", "ever", "laughs"],
    ["the", "girls", "sleep"],
]


def model_of(**options: object) -> Model:
    torch.manual_seed(2)
    return Model(TASK, NetworkConfig("LanguageModel", {"hidden_size": 8, "num_layers": 2, "chunk_size": 2, **options}))


def test_scores_are_those_of_the_definitions() -> None:
    gold = [
        parse_brackets("(S (NP (NP the cat) (PP on (NP the mat))) (VP (VP sat)))"),
        parse_brackets("(S (VP go away))"),
        parse_brackets("yes"),
    ]
    right = parse_brackets("(X the (X cat (X on (X the (X mat sat)))))")
    left = parse_brackets("(X (X (X (X (X the cat) on) the) mat) sat)")
    first = score_trees(gold, [right, parse_brackets("(X go away)"), parse_brackets("yes")], "right")
    # spans of the first: gold 0-2, 3-5, 2-5, 0-5 (and 0-6); right-branching 1-6 to 4-6
    assert first.sentence_f1 == pytest.approx((0 + 1 + 1) / 3)
    assert first.corpus_f1 == pytest.approx(2 * 2 / (6 + 6))
    assert first.depth == pytest.approx(((1 + 2 + 3 + 4 + 5 + 5) / 6 + 1 + 0) / 3)
    assert first.constituents == {"NP": 3, "S": 2, "PP": 1, "VP": 1}
    assert first.recall == {"NP": 0, "S": 1, "PP": 0, "VP": 1}
    second = score_trees(gold[:1], [left])
    assert second.sentence_f1 == pytest.approx(2 * 2 / (4 + 4))
    assert second.recall == {"NP": pytest.approx(2 / 3), "PP": 0, "S": 1}
    assert first.sentences == 3


def test_trees_are_those_of_each_sentence_alone() -> None:
    model = model_of()
    number = {word: place for place, word in enumerate(model.vocabulary.leaves)}
    for layer in (0, 1):
        trees = induce_trees(model, SENTENCES, layer=layer)
        for sentence, tree in zip(SENTENCES, trees, strict=True):
            batch = TokenBatch.from_sequences([[number[word] for word in sentence]])
            (alone,) = model.encoder.induced_trees(batch, layer=layer)  # type: ignore[operator]
            assert tree == alone
            assert [leaf.label for leaf in tree.leaves()] == sentence


def test_every_layer_and_every_baseline_is_scored() -> None:
    gold = [Tree("S", [Tree(word) for word in words]) if len(words) > 1 else Tree(words[0]) for words in SENTENCES]
    scores = evaluate_trees(model_of(), gold)
    names = ["layer 1", "layer 2", "left-branching", "right-branching", "balanced", "random"]
    assert [score.trees for score in scores] == names
    assert all(score.recall == {"S": 1} for score in scores)


def test_unknown_words_keep_their_place_if_the_vocabulary_has_an_unknown_word(tmp_path: Path) -> None:
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.txt").write_text("a <unk> b\n")
    task = LanguageModeling(path=str(tmp_path))
    torch.manual_seed(0)
    model = Model(task, NetworkConfig("LanguageModel", {"hidden_size": 4, "chunk_size": 2}))
    (tree,) = induce_trees(model, [["a", "z", "b"]])
    assert [leaf.label for leaf in tree.leaves()] == ["a", "z", "b"]
    with pytest.raises(VocabularyError, match=r"sentence 2 has the word 'boi', which .* not know.*mean boy"):
        induce_trees(model_of(), [["boy"], ["the", "boi"]])


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    place = tmp_path / "treebank"
    place.mkdir()
    for name in ("train", "dev", "test"):
        (place / f"{name}.txt").write_text(
            "(3 (2 The) (3 (2 (2 boy) (2 laughs)) (2 .)))\n(1 (2 (2 The) (2 girls)) (1 (2 (2 do) (2 not)) (2 sleep)))\n"
        )
    return place


def test_networks_without_layers_are_scored_on_the_words_that_they_read(treebank: Path) -> None:
    task = Sentiment(path=str(treebank), lower=True)
    torch.manual_seed(0)
    model = Model(task, NetworkConfig("OrderedMemory", {"hidden_size": 6, "slots": 4}))
    gold = gold_trees(treebank / "test.txt", "nowhere")
    assert [str(tree) for tree in gold] == ["(3 the (3 (2 boy laughs) .))", "(1 (2 the girls) (1 (2 do not) sleep))"]
    scores = evaluate_trees(model, gold)
    assert [score.trees for score in scores] == ["induced", "left-branching", "right-branching", "balanced", "random"]
    trees = induce_trees(model, [["the", "boys", "laughs", "."], ["laughs"]])  # "boys" is read as <unk>
    assert [leaf.label for leaf in trees[0].leaves()] == ["the", "boys", "laughs", "."]
    assert trees[1] == Tree("laughs")


def test_what_cannot_be_scored_is_told() -> None:
    with pytest.raises(RecipeError, match="this OrderedMemory reads more tokens than words"):
        induce_trees(Model(TASK, NetworkConfig("OrderedMemory", {"hidden_size": 4, "form": "brackets"})), [["boy"]])
    with pytest.raises(RecipeError, match="induces no trees; train a LanguageModel with cell='ON-LSTM'"):
        evaluate_trees(model_of(cell="LSTM"), [Tree("boy")])
    with pytest.raises(GraphError, match="other words"):
        score_trees([Tree("a")], [Tree("b")])


def test_the_command_scores_a_run_on_its_own_test_and_on_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.yaml").write_text(
        "task: language_modeling\ntask_options: {words: 120, steps: 10}\n"
        "data: {training_size: 40, validation_size: 10, test_size: 15}\n"
        "networks: {own: {network: LanguageModel, options: {hidden_size: 4, num_layers: 2, chunk_size: 2}}}\n"
        "training: {epochs: 1, batch_size: 4}\n"
    )
    assert treemem_command(["train", "recipe.yaml", "-o", "run"]) == 0
    capsys.readouterr()
    assert main(["run/own", "--output", "scores.jsonl"]) == 0
    printed = capsys.readouterr().out
    assert "15 sentences" in printed
    assert "| layer 2 " in printed
    assert main(["run/own", "--output", "scores.jsonl"]) == 2
    assert "scores.jsonl exists; choose another name, or replace it with --overwrite" in capsys.readouterr().err
    assert main(["run/own", "--output", "scores.jsonl", "--overwrite"]) == 0
    records = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    gold = gold_trees(None, "run/own")
    assert [record["trees"] for record in records][:3] == ["layer 1", "layer 2", "left-branching"]
    assert sum(records[0]["constituents"].values()) == sum(node.arity > 1 for tree in gold for node in tree.postorder())

    (tmp_path / "wsj.mrg").write_text("( (S (NP (DT the) (NN boy)) (VP (VBZ laughs)) (. .)) )\n( (NN boy) )\n")
    assert main(["run/own", "--gold", "wsj.mrg", "--longest", "3"]) == 0
    assert "2 sentences" in capsys.readouterr().out
    assert main(["run/own", "--gold", "wsj.mrg", "--longest", "2"]) == 0
    assert "1 sentences" in capsys.readouterr().out
    shutil.copytree(tmp_path / "run", tmp_path / "trees")
    recipe = "task: listops\nnetworks: {own: {network: LSTM, options: {hidden_size: 4}}}\n"
    (tmp_path / "trees" / "own" / "recipe.yaml").write_text(recipe)
    assert main(["trees/own"]) == 2
    assert "is no language model but a model of listops" in capsys.readouterr().err
    assert main(["run/own", "--gold", "wsj.mrg", "--longest", "0"]) == 2
    assert "--longest must be at least 1" in capsys.readouterr().err
    assert main(["run/own", "--seed", "-1"]) == 2
    assert "--seed must be at least 0" in capsys.readouterr().err
    assert main(["run/own/seed-12093/checkpoints", "--gold", "nowhere.mrg"]) == 2
    assert treemem_command(["generate", "language_modeling", "-o", "gold.jsonl", "data.training_size=5",
                            "data.validation_size=5", "data.test_size=5", "task_options.words=120"]) == 0  # fmt: skip
    capsys.readouterr()
    assert main(["run/own", "--gold", "gold.jsonl"]) == 0
    assert "15 sentences" in capsys.readouterr().out


def test_the_command_scores_models_of_a_treebank_on_its_test_trees(
    treebank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    memory = "OrderedMemory, options: {hidden_size: 4}"
    layers = "LanguageModel, options: {hidden_size: 4, num_layers: 3, chunk_size: 2}"
    for task, options, network, row in (
        ("sentiment", "", memory, "| induced "),
        ("language_modeling", ", treebank: true", layers, "| layer 3 "),
    ):
        Path("recipe.yaml").write_text(
            f"task: {task}\ntask_options: {{path: {treebank}{options}}}\n"
            f"networks: {{own: {{network: {network}}}}}\ntraining: {{epochs: 1}}\n"
        )
        assert treemem_command(["train", "recipe.yaml", "-o", task]) == 0
        capsys.readouterr()
        assert main([f"{task}/own"]) == 0
        printed = capsys.readouterr().out
        assert "2 sentences" in printed
        assert row in printed


def test_trees_of_other_words_and_of_the_untrained_network_are_controls(
    treebank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[list[str]]] = []

    def induced(model: Model, sentences: list[list[str]]) -> list[Tree]:
        read.append(sentences)
        return induce_trees(model, sentences)

    monkeypatch.setattr("treemem.tasks.constituency.study.induce_trees", induced)
    with (treebank / "test.txt").open("a") as file:
        file.write("(3 (2 A) (3 (2 (2 film) (2 laughs)) (2 !)))\n")
    study = Study(
        StudyFolder.find("sentiment"),
        "controls",
        networks={"Ordered Memory": {"hidden_size": 4, "slots": 4}, "LSTM": {"hidden_size": 4}},
        seeds=[1],
        training={"epochs": 1},
        task_options={"path": "{data}", "lower": True},
        data="SST-5",
        measurements={"of-trees": {"function": "treemem.tasks.constituency.study:control_records"}},
    )
    places = StudyPlaces(tmp_path / "runs", tmp_path / "results", tmp_path / "sentiment.md", treebank)
    run_study_file(study, places)
    (record,) = read_study(tmp_path / "results" / "of-trees.jsonl")
    model = treemem.load(tmp_path / "runs" / "sentiment" / record["run"])
    gold = gold_trees(treebank / "test.txt", "nowhere")
    one, two, three = ([leaf.label for leaf in tree.leaves()] for tree in gold)
    assert read == [[one, two, three], [three, two, one], [one, two, three]]
    of_words = induce_trees(model, [one, two, three])
    of_others = [
        with_words(tree, words)
        for tree, words in zip(induce_trees(model, [three, two, one]), (one, two, three), strict=True)
    ]
    expected = [score_trees(gold, of_words, "induced"), score_trees(gold, of_others, "words of another sentence")]
    found = [TreeScore(**score) for score in record["scores"]]
    names = ("trees", "sentence_f1", "corpus_f1", "depth", "sentences")  # labels of the file are classes
    for score, other in zip(found, expected, strict=False):
        assert [getattr(score, name) for name in names] == [getattr(other, name) for name in names]
    assert found[2].trees == "untrained"


def test_the_study_of_a_treebank_measures_each_layer_once_and_has_a_page_of_them(
    treebank: Path, tmp_path: Path
) -> None:
    folder = StudyFolder.find("language_modeling/treebank")
    study = folder.study("sst")
    assert [run.training.seed for run in study.runs(treebank)] == [1111, 1112, 1113]
    smaller = dataclasses.replace(
        study,
        recipe=None,
        networks={name: {"hidden_size": 4, "num_layers": 3} for name in ("ON-LSTM", "LSTM")},
        network_options={"chunk_size": 2},
        seeds=[1],
        training={"epochs": 1, "batch_size": 2},
        task_options={"path": "{data}", "treebank": True, "words": 7},
    )
    places = StudyPlaces(tmp_path / "runs", tmp_path / "results", tmp_path / "constituency.md", treebank)
    run_study_file(smaller, places, only=["sst/ON-LSTM/seed-1"])
    assert not read_study(tmp_path / "results" / "sst-trees.jsonl")
    function = {"function": "treemem.tasks.constituency.study:tree_records"}
    of_examples = {"function": "treemem.tasks.constituency.study:example_records", "by_run": True}
    by_run = {"sst-short": {**function, "longest": 4, "by_run": True}, "english-examples": of_examples}
    with_short = dataclasses.replace(smaller, measurements={**smaller.measurements, **by_run})
    run_study_file(with_short, places, only=["sst/ON-LSTM/seed-1"])
    (short,) = read_study(tmp_path / "results" / "sst-short.jsonl")
    assert short["scores"][0]["sentences"] == 1
    (examples,) = read_study(tmp_path / "results" / "english-examples.jsonl")
    model = treemem.load(next(tmp_path.glob(f"runs/**/{examples['run']}")))
    words = [[leaf.label for leaf in tree.leaves()] for tree in example_sentences()]
    assert list(examples["trees"]) == ["layer 1", "layer 2", "layer 3"]
    assert trees_of_examples([examples])["seed 1, layer 2"] == induce_trees(model, words, layer=1)
    run_study_file(smaller, places)
    measured = read_study(tmp_path / "results" / "sst-trees.jsonl")
    assert [(each["row"], bool(each["scores"])) for each in measured] == [("ON-LSTM", True), ("LSTM", False)]
    write_page(folder, places.results, places.page)
    page = places.page.read_text()
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")]
    assert all(rows.count(f"ON-LSTM, layer {layer}") == 1 for layer in (1, 2, 3))
    assert rows.count("right-branching") == 1
    assert "The trees of the 2 test sentences" in page
    english = tmp_path / "english"
    english.mkdir()
    for name in ("sst", "sst-trees", "english-examples"):
        records = (places.results / f"{name}.jsonl").read_text().replace('"budget": null', '"budget": 5400')
        (english / f"{name.replace('sst', 'english')}.jsonl").write_text(records)
    write_page(StudyFolder.find("language_modeling/english"), english, tmp_path / "language.md")
    assert "[ON-LSTM](language_on-lstm.html)." in (tmp_path / "language.md").read_text()
    assert (tmp_path / "language_on-lstm.html").read_text().count("<section>") == len(words)
    for run in tmp_path.glob("runs/**/seed-1"):
        shutil.rmtree(run)
    run_study_file(smaller, places)
    assert read_study(tmp_path / "results" / "sst-trees.jsonl") == measured
