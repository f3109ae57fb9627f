"""Pairs of texts of a user's files: reading, dividing, unknown words, scores, and the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treemem
from treemem import checkpoint
from treemem.cli.program import main
from treemem.errors import GraphError, ParseError, RecipeError, TreememError, VocabularyError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.records import write_records
from treemem.runs import TrainingOptions, evaluate, fit
from treemem.task.sequences import Written
from treemem.tasks.text_to_text import TextDataOptions, TextToText

NETWORK = NetworkConfig("SequenceToSequence", {"hidden_size": 8, "embedding_size": 4})
PAIRS = [(f"{one} {other}", f"{other.upper()} {one.upper()}") for one in "abcd" for other in "abcde"]
WORDS = [*dict.fromkeys(word for pair in PAIRS for side in pair for word in side.split())]


def lines_of(pairs: list[tuple[str, str]]) -> str:
    return "".join(f"{source}\t{target}\n" for source, target in pairs)


def file_of(folder: Path, text: str, name: str = "pairs.tsv") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def splits_of(task: TextToText, **options: Any) -> dict[str, list[str]]:
    records = [*task.records_of(task.make_data(TextDataOptions(**options)).forest)]
    return {name: [r["source"] for r in records if r["split"] == name] for name in ("train", "validation", "test")}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pairs.txt", "a b\tB A\nc\tC C\n"),
        ("pairs.tsv", "target\tsource\nB A\ta b\nC C\tc\n"),
        ("pairs.txt", "IN: a b OUT: B A\n\nIN: c  OUT: C C\n"),
        ("pairs.csv", "id,source,target\n7, a  b ,B A\n8,c,C C\n"),
        ("pairs.jsonl", '{"source": "a b", "target": "B A"}\n{"target": "C C", "source": "c"}\n'),
    ],
)
def test_pairs_are_read_from_each_form_of_file(tmp_path: Path, name: str, text: str) -> None:
    path = file_of(tmp_path, text, name)
    task = TextToText(path=path)
    expected = [("a b", "B A"), ("c", "C C")]
    for forest in (task.read_examples(path), task.make_data(TextDataOptions(0, 0)).forest):
        assert [(record["source"], record["target"]) for record in task.records_of(forest)] == expected
    assert task.vocabulary.leaves == ("</s>", "|||", "a", "b", "B", "A", "c", "C")
    assert task.vocabulary.unknown is None


def test_all_pairs_of_a_source_go_to_one_split_and_the_seed_draws_it(tmp_path: Path) -> None:
    task = TextToText(path=file_of(tmp_path, lines_of([*PAIRS, *PAIRS, ("a a", "A")])))
    drawn = splits_of(task, validation=0.25, test=0.1)
    assert [len({*sources}) for sources in drawn.values()] == [13, 5, 2]
    assert sum(map(len, drawn.values())) == 41
    assert not {*drawn["train"]} & {*drawn["test"]}
    assert not {*drawn["train"], *drawn["test"]} & {*drawn["validation"]}
    assert drawn == splits_of(task, validation=0.25, test=0.1)
    assert drawn != splits_of(task, validation=0.25, test=0.1, seed=1)
    assert splits_of(task, validation=0.25, test=0.0)["test"] == []


def test_splits_are_those_of_the_files_or_of_the_column(tmp_path: Path) -> None:
    train = file_of(tmp_path, lines_of(PAIRS))
    test = file_of(tmp_path, lines_of([("a b c", "C B A")]), "test.tsv")
    drawn = splits_of(TextToText(path=train, test_path=test))
    assert [len(sources) for sources in drawn.values()] == [18, 2, 1]
    assert drawn["test"] == ["a b c"]
    both = splits_of(TextToText(path=train, validation_path=file_of(tmp_path, "a\tA\n", "dev.tsv"), test_path=test))
    assert [len(sources) for sources in both.values()] == [20, 1, 1]
    column = "source,target,split\na,A,train\na,A,test\na,A,validation\na a,A,train\n"
    divided = splits_of(TextToText(path=file_of(tmp_path, column, "pairs.csv")))
    assert divided == {"train": ["a", "a a"], "validation": ["a"], "test": ["a"]}


def test_a_rare_word_is_read_as_unknown_and_a_target_with_it_is_never_right(tmp_path: Path) -> None:
    train = file_of(tmp_path, lines_of([("a b", "A B"), ("a b", "A B"), ("a c", "A C")]))
    test = file_of(tmp_path, lines_of([("a d", "A D"), ("a", "A")]), "test.tsv")
    task = TextToText(path=train, test_path=test, least_count=2)
    assert task.vocabulary.leaves == ("</s>", "|||", "<unk>", "a", "b", "A", "B")
    assert TextToText(path=train, least_count=1).vocabulary.leaves[-2:] == ("c", "C")
    result = fit(
        task, NETWORK, task.make_data(TextDataOptions(0.4, 0)), TrainingOptions(epochs=1), output=tmp_path / "run"
    )
    (kept, _) = result.model.outputs(task.examples(task.read_examples(test)))
    assert kept.gold == ["A", None]
    same = [Written(["A", "<unk>"], kept.gold, 0), Written(["A"], ["A"], 0)]
    *_, score = task.scores(same, {}, np.zeros(2, int))
    assert score.metrics == {"exact match": 0.5, "token accuracy": 4 / 5}


def test_scores_are_by_the_length_of_the_source_or_of_the_target(tmp_path: Path) -> None:
    path = file_of(tmp_path, "a\tA A A A A A A A\na\tA A A A A A A A A\na b a b a b a b a\tA\n")
    for group_by, groups in (("source", [8, 8, 16]), ("target", [8, 16, 8])):
        task = TextToText(path=path, group_by=group_by)  # type: ignore[arg-type]
        assert task.examples(task.read_examples(path)).group.tolist() == groups
    written = [Written(["A"], ["A"], 0), Written(["A", "B"], ["A"], 0), Written(["B", "A"], ["A", "B"], 0)]
    one, other, overall = task.scores(written, {}, np.array([8, 8, 16]))
    assert one.metrics == {"exact match": 0.5, "token accuracy": 3 / 4}
    assert other.metrics == {"exact match": 0.0, "token accuracy": 1 / 3}, "the end is at its place"
    assert overall.metrics["token accuracy"] == pytest.approx(4 / 7)


def test_a_network_learns_pairs_and_its_model_needs_no_file(tmp_path: Path) -> None:
    path = file_of(tmp_path, lines_of(PAIRS))
    task = TextToText(path=path)
    network = NetworkConfig("SequenceToSequence", {"hidden_size": 32, "embedding_size": 16, "encoder": "separate"})
    options = TrainingOptions(epochs=60, batch_size=4, learning_rate=0.01, threads=1)
    result = fit(task, network, task.make_data(TextDataOptions(0.1, 0.1, 3)), options, output=tmp_path / "run")
    assert evaluate(result.model, task.read_examples(path)).overall.metrics["exact match"] > 0.8
    (tmp_path / "pairs.tsv").unlink()
    model = treemem.load(tmp_path / "run")
    assert model.task.options == {"least_count": None, "group_by": "source"}
    train = splits_of(task, validation=0.1, test=0.1, seed=3)["train"]
    assert model.predict(train[:2]) == [dict(PAIRS)[source] for source in train[:2]]
    assert model.predict([f"IN: {train[0]} OUT: wrong", {"source": train[1], "target": "wrong"}]) == model.predict(
        train[:2]
    )
    with pytest.raises(VocabularyError, match="unknown token 'z'"):
        model.predict(["a z"])


def test_commands_train_evaluate_and_predict_a_recipe_that_names_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, test = file_of(tmp_path, lines_of(PAIRS)), file_of(tmp_path, "IN: a b OUT: B A\nIN: a b c OUT: C\n", "t.txt")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"task: text_to_text\ntask_options: {{path: '{path}', test_path: '{test}', group_by: target}}\n"
        "data: {validation: 0.2}\n"
        "networks:\n"
        "  LSTM+stack: {network: SequenceToSequence, options: {hidden_size: 6, memory: stack, memory_size: 3}}\n"
        "training: {epochs: 1, threads: 1}\n"
    )
    run = str(tmp_path / "run" / "LSTM+stack")
    assert main(["train", str(recipe), "-o", str(tmp_path / "run")]) == 0
    assert "Test: exact match in %, by length" in capsys.readouterr().out
    scores = str(tmp_path / "scores.json")
    assert main(["evaluate", run, test, "--set", "task_options.group_by=source", "--json", scores]) == 0
    assert [row["length"] for row in json.loads(Path(scores).read_text())["scores"]] == [8, "all"]
    capsys.readouterr()
    assert main(["predict", run, file_of(tmp_path, "a b\n\na zz\n", "new.txt"), "-o", str(tmp_path / "out.jsonl")]) == 0
    good, empty, unknown = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert set(good["prediction"].split()) <= {*WORDS, "|||"}
    assert "the source is empty" in empty["error"]
    assert "line 3: unknown token 'zz'" in unknown["error"]
    assert main(["evaluate", run, file_of(tmp_path, "a b\tA\na zz\tA\n", "new.tsv")]) == 2
    assert "new.tsv, line 2: unknown token 'zz'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "error", "named"),
    [
        ("p.tsv", "a\tA\n\tB\n", ParseError, "p.tsv, line 2.*the source is empty"),
        ("p.tsv", "a\tA\nb\t \n", ParseError, "p.tsv, line 2.*the target is empty"),
        ("p.tsv", "a\tA\nb\n", ParseError, "p.tsv, line 2.*the pair has no target"),
        ("p.tsv", "a\tA\tx\n", ParseError, "p.tsv, line 1.*3 parts between tabs"),
        ("p.txt", "IN: a OUT: A\nIN: b\n", ParseError, "p.txt, line 2.*the pair has no target"),
        ("p.txt", "IN: a OUT:\n", ParseError, "p.txt, line 1.*the target is empty"),
        ("p.txt", "IN: OUT: A\n", ParseError, "p.txt, line 1.*the source is empty"),
        ("p.txt", "IN: a OUT: A OUT: B\n", ParseError, "p.txt, line 1.*stands twice"),
        ("p.txt", "IN: a\tA\n", ParseError, "p.txt, line 1.*begins with IN:, and there is a column of targets"),
        ("p.csv", "source,target\na,A </s>\n", VocabularyError, "p.csv, line 2.*the target has the symbol '</s>'"),
        ("p.csv", "src,target\na,A\n", RecipeError, r"p.csv has the columns .* and none of source"),
        ("p.csv", "source,goal\na,A\n", ParseError, "p.csv, line 2.*the pair has no target"),
        ("p.jsonl", '{"source": "a", "target": 3}\n', ParseError, "p.jsonl, line 1.*'target' is 3"),
        ("p.csv", "source,target,split\na,A,train\nb,B,dev\n", ParseError, "p.csv, line 3.*the split is 'dev'"),
        ("p.csv", "source,target,split\na,A,train\nb,B,\n", RecipeError, "p.csv, line 3: the pair has no split"),
        ("p.csv", "source,target,split\na,A,train\nb,A,test\n", VocabularyError, "line 3.*the word 'b' of the source"),
        ("p.csv", "source,target,split\naa,A,train\naa b,A,test\n", VocabularyError, "line 3, column 4: the word 'b'"),
        ("p.csv", "source,target,split\na,A,train\na,AB,test\n", VocabularyError, "line 3.*'AB' of the target.*mean A"),
        ("p.csv", "source,target,split\na,A,test\n", RecipeError, "has no training pair"),
        ("p.tsv", "\n", RecipeError, "there are no pairs in"),
        ("p.tsv", "a\tA\nb\tB\n", RecipeError, "data.validation=0.1 of 2 different sources leaves no pair for valid"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    tmp_path: Path, name: str, text: str, error: type[TreememError], named: str
) -> None:
    task = TextToText(path=file_of(tmp_path, text, name))
    with pytest.raises(error, match=named):
        task.make_data(TextDataOptions())


def test_options_that_contradict_each_other_or_the_files_are_refused(tmp_path: Path) -> None:
    train = file_of(tmp_path, "source,target,split\na,A,train\na,A,test\n", "train.csv")
    test = file_of(tmp_path, "source,target,split\na,A,test\na,A,train\n", "test.csv")
    other = file_of(tmp_path, "a\tA\nb\tA\n", "other.tsv")
    plain = file_of(tmp_path, lines_of(PAIRS))
    for act, named in (
        (lambda: TextToText().make_data(TextDataOptions()), "give their file with task_options.path=FILE"),
        (lambda: TextToText(test_path=test), "need the training pairs"),
        (lambda: TextToText(path=plain, test_path=plain).vocabulary, "is given twice"),
        (lambda: TextToText(path=train, test_path=other).vocabulary, "has test pairs in its column split, and"),
        (lambda: TextToText(path=plain, test_path=test).vocabulary, "is the file of the test pairs, and its column"),
        (lambda: TextToText(path=str(tmp_path / "none.csv")).vocabulary, "none.csv"),
        (lambda: TextToText(path=plain, least_count=0), "least_count"),
        (lambda: TextToText(path=plain, least_count=1000).vocabulary, "no word 1000 times"),
        (lambda: TextToText(group_by="middle"), "group_by"),  # type: ignore[arg-type]
        (lambda: TextDataOptions(validation=0.5, test=0.5), "together below 1"),
        (lambda: TextDataOptions(validation=-0.1), "data.validation"),
        (lambda: TextToText(path=plain).make_data(TextDataOptions(0.1, 0.89)), "leaves no pair for train"),
    ):
        with pytest.raises(RecipeError, match=named):
            act()
    with pytest.raises(VocabularyError, match=r"other.tsv, line 2, column 1: the word 'b' of the source .*least_count"):
        _ = TextToText(path=file_of(tmp_path, "a\tA\n", "small.tsv"), test_path=other).vocabulary


def test_a_target_that_the_network_could_not_write_is_refused_before_training(tmp_path: Path) -> None:
    task = TextToText(path=file_of(tmp_path, lines_of([(f"{word} a", " ".join("A" * 14)) for word in "abcdefghij"])))
    data = task.make_data(TextDataOptions())
    with pytest.raises(
        GraphError,
        match=r"pairs.tsv, line 1: a target has 15 symbols, its end included, and the network writes at most 14",
    ):
        fit(task, NETWORK, data, TrainingOptions(epochs=1), output=tmp_path / "run")
    network = NETWORK.replace(most_symbols=15)
    assert fit(task, network, data, TrainingOptions(epochs=1), output=tmp_path / "run", overwrite=True)


@pytest.mark.parametrize("network", ["SequenceToSequence", "SequenceToSequenceTransformer"])
def test_a_test_target_that_is_too_long_is_refused_before_the_first_epoch(tmp_path: Path, network: str) -> None:
    short, long = file_of(tmp_path, lines_of(PAIRS)), file_of(tmp_path, f"a\t{'A ' * 40}\n", "long.tsv")
    task = TextToText(path=short, test_path=long)
    config = NetworkConfig(network, {"hidden_size": 8})
    with pytest.raises(GraphError, match=r"long.tsv, line 1: a target has 41 symbols"):
        fit(task, config, task.make_data(TextDataOptions()), TrainingOptions(epochs=1), output=tmp_path / "run")
    assert not [*tmp_path.glob("run/checkpoints*")]


def test_a_long_target_of_a_file_to_score_and_of_other_data_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = TextToText(path=file_of(tmp_path, lines_of(PAIRS)))
    checkpoint.save(tmp_path / "model", Model(task, NETWORK))
    word, target = PAIRS[0]
    long = file_of(tmp_path, f"{word}\t{target}\n\n \t \n{word}\t{f'{target} ' * 60}\n", "long.tsv")
    assert main(["evaluate", str(tmp_path / "model"), long]) == 2
    assert "long.tsv, line 4: a target has " in capsys.readouterr().err
    other = task.read_examples(long).with_data(tree_data={"split": np.array(["train", "train"])})
    with pytest.raises(GraphError, match="example 2 of 2: a target has "):
        fit(task, NETWORK, other, TrainingOptions(epochs=1), output=tmp_path / "run")


def test_records_of_a_data_frame_or_list_are_predicted_as_those_of_files(tmp_path: Path) -> None:
    task = TextToText(path=file_of(tmp_path, lines_of(PAIRS)))
    write_records(tmp_path / "again.csv", [*task.records_of(task.make_data(TextDataOptions()).forest)])
    again = TextToText(path=str(tmp_path / "again.csv"))
    assert splits_of(again) == splits_of(task)
    assert str(task.forest_of(["a b"])[0]) == str(task.forest_of([{"source": "a b"}])[0])
    with pytest.raises(GraphError, match="examples are a list"):
        task.forest_of("a b")
