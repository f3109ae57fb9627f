"""What holds for every task: its data, files, options and recipes, and what a trained model of it predicts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_task import MoreX, toy_data

import treemem
from treemem.errors import ParseError, RecipeError, TreememError
from treemem.networks import NetworkConfig
from treemem.predict import predict_file
from treemem.records import write_records
from treemem.runs import TrainingOptions, fit
from treemem.runs.recipe import format_recipe, load_recipe, load_task_data, recipe_names
from treemem.task import TASKS, ClassificationTask, Task
from treemem.trees.forest import Forest

SIZES = {"training_size": 40, "validation_size": 10, "test_size": 12}
TREE_RNN = NetworkConfig("TreeRNN", {"hidden_size": 4})
LSTM = NetworkConfig("LSTM", {"hidden_size": 4})
WRITER = NetworkConfig("SequenceToSequence", {"hidden_size": 8, "embedding_size": 4})
PAIRS = [
    {"gold_label": "entailment", "sentence1": "A man plays a guitar", "sentence2": "Someone plays"},
    {"gold_label": "contradiction", "sentence1": "A man plays.", "sentence2": "Nobody plays."},
    {"gold_label": "neutral", "sentence1": "A dog runs", "sentence2": "A dog plays"},
]
SENTENCES = "(3 (2 It) (4 (2 works) (2 .)))\n(1 (2 It) (1 (2 fails) (2 .)))\n"
STORY = "@entity1 hired @entity2 . @entity0 called @entity1 ."


@dataclass(frozen=True)
class Case:
    """A small version of a task.

    Attributes:
        task: its name.
        network: that trains in no time.
        texts: two examples to predict.
        wrong: a text that is no example, and a word of the error.
        refused: overrides that are out of range, and a word of the error.
        options, data: of the task and of its data.
        is_disjoint: whether no example may be in two splits.
    """

    task: str
    network: NetworkConfig
    texts: tuple[str, str]
    wrong: tuple[str, str]
    refused: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    is_disjoint: bool = True

    def __str__(self) -> str:
        return " ".join([self.task, *map(str, self.options.values())])

    def make(self, folder: Path) -> Task:
        options = dict(self.options)
        if self.task == "entailment":
            for part in ("train", "dev", "test"):
                lines = "".join(json.dumps(pair) + "\n" for pair in PAIRS)
                (folder / f"snli_1.0_{part}.jsonl").write_text(lines)
            options["path"] = str(folder)
        if self.task == "sentiment":
            for part in ("train", "dev", "test"):
                (folder / f"{part}.txt").write_text(SENTENCES)
            options["path"] = str(folder)
        return TASKS.find(self.task)(**options)  # type: ignore[no-any-return]

    def forest(self, task: Task, **changes: Any) -> Forest:
        return task.make_data(task.data_options(**{**self.data, **changes})).forest


_LISTS = {**SIZES, "pool": 0}
_LOGIC = {"size": 300, "max_operations": 5, "max_training_operations": 3}
_FORMULAS = ("( a ( and b ) )\ta", "a\t( not a )")
CASES = [
    Case(
        "equation_verification", TREE_RNN, ("x + y = y + x", "x = y"), ("x + = y", "unexpected"),
        {"task_options.read_out=cosin": "cosine", "data.size=0": "size", "data.version=1": "no field 'data.version'"},
        data={"size": 150},
    ),
    Case(
        "listops", LSTM, ("[MAX 2 9 [MIN 4 7 ] 0 ]", "5"), ("[MAX 2", "not closed"),
        {"task_options.form=nry": "nary", "task_options.dropout=2": "dropout"},
        data=_LISTS,
    ),
    Case("listops", TREE_RNN, ("[SM 6 5 9 ]", "7"), ("[XM 2 9 ]", "XM"), options={"form": "nary"}, data=_LISTS),
    Case(
        "logical_inference", LSTM, _FORMULAS, ("( a ( and b ) )", "tab"),
        {"task_options.form=binari": "binary", "data.size=0": "size", "data.max_operations=-1": "max_operations"},
        data=_LOGIC,
    ),
    Case("logical_inference", TREE_RNN, _FORMULAS, ("a\tg", "'g'"), options={"form": "operators"}, data=_LOGIC),
    Case(
        "transduction", WRITER, ("0 1 1 3 2", "1"), ("0 4", "'4'"),
        {"task_options.kind=copi": "copy", "data.train_lengths=[9, 8]": "train_lengths"},
        {"kind": "copy", "alphabet": 4}, {**SIZES, "train_lengths": (3, 6), "test_lengths": (3, 9)},
    ),
    Case(
        "formal_languages", NetworkConfig("MemoryRNN", {"hidden_size": 8, "memory": "stack", "memory_size": 4}),
        ("0 1 pop", "1"), ("1 _", "'_'"),
        {"task_options.kind=dyk": "dyck", "data.train_lengths=[9, 8]": "train_lengths"},
        {"kind": "stack_manipulation"}, {**SIZES, "train_lengths": (1, 8), "test_lengths": (1, 16)}, is_disjoint=False,
    ),
    Case(
        "learning_to_execute", WRITER, ("print((3*4))", "print((3+4))"), ("print(3é)", "é"),
        {"data.length=100": "length", "data.nesting=11": "nesting", "data.curriculum=mixed": "curriculum"},
        data={**SIZES, "length": 2},
    ),
    Case(
        "reading", NetworkConfig("AttentiveReader", {"hidden_size": 8}),
        (f"{STORY}\t@placeholder hired @entity2", f"{STORY}\t@placeholder called @entity1"), ("@entity1 slept", "tab"),
        {"data.relations=11": "relations", "data.entities=2": "entities"},
        {"num_entities": 5}, {**SIZES, "train_facts": (1, 4), "test_facts": (1, 6), "entities": 4},
    ),
    Case(
        "language_modeling", NetworkConfig("LanguageModel", {"hidden_size": 8, "cell": "LSTM"}),
        ("the boy laughs", "the girls sleep"), ("the boi laughs", "boy"),
        {"task_options.steps=0": "steps", "task_options.words=20": "100", "data.test_size=0": "test_size"},
        {"words": 120, "steps": 10}, SIZES,
    ),
    Case(
        "entailment", NetworkConfig("WordByWordAttention", {"hidden_size": 8}),
        ("A man plays\tA dog", "A dog runs .\tA man"), ("A man plays", "tab"), is_disjoint=False,
    ),
    Case(
        "sentiment", TREE_RNN, ("It works .", "fails"), ("( It works", "not closed"),
        {"task_options.classes=3": "classes", "task_options.supervision=leaves": "root"}, is_disjoint=False,
    ),
]  # fmt: skip


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


def test_every_task_is_a_case() -> None:
    without = ("table", "text_to_text", "more_x")  # the first ones need a file of the user, and have tests of their own
    assert {case.task for case in CASES} == {name for name in TASKS.names() if not name.startswith(without)}


def test_data_are_those_of_their_seed_and_their_splits_have_no_example_in_common(case: Case, tmp_path: Path) -> None:
    task = case.make(tmp_path)
    forest = case.forest(task)
    assert case.forest(task) == forest
    if hasattr(task.data_options(), "seed"):
        assert case.forest(task, seed=7) != forest
    examples = task.examples(forest)
    assert all(len(examples.part(split)) for split in ("train", "validation", "test"))
    if case.is_disjoint:
        of_split: dict[str, set[str]] = {}
        for record in task.records_of(forest):
            of_split.setdefault(record.pop("split"), set()).add(json.dumps(record, default=str))
        assert sum(map(len, of_split.values())) == len(set.union(*of_split.values()))


def test_written_examples_are_read_back(case: Case, tmp_path: Path) -> None:
    task = case.make(tmp_path)
    forest = case.forest(task)
    examples, records = task.examples(forest), list(task.records_of(forest))
    assert {record["split"] for record in records} == {"train", "validation", "test"}
    for suffix in ("jsonl", "csv", "parquet"):
        path = tmp_path / f"examples.{suffix}"
        write_records(path, records)
        found = task.examples(task.read_examples(path))
        assert found.forest.with_data() == examples.forest.with_data(), suffix
        for name, values in {**examples.targets, "split": examples.split, "group": examples.group}.items():
            again = {**found.targets, "split": found.split, "group": found.group}[name]
            np.testing.assert_array_equal(again, values, f"{name} of {suffix}")
    write_records(tmp_path / "plain.jsonl", [{**record, "split": None} for record in records])
    assert "split" not in task.read_examples(tmp_path / "plain.jsonl").tree_data
    if {*task.text_columns} <= records[0].keys() and case.task != "learning_to_execute":  # whose texts have lines
        write_records(
            tmp_path / "lines.txt", [{name: record[name] for name in task.text_columns} for record in records]
        )
        assert len(task.examples(task.read_examples(tmp_path / "lines.txt"))) == len(examples)


def test_a_file_without_examples_and_a_wrong_split_are_named(case: Case, tmp_path: Path) -> None:
    task = case.make(tmp_path)
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(RecipeError, match=r"no .* in .*empty\.jsonl"):
        task.read_examples(tmp_path / "empty.jsonl")
    first, second, *_ = task.records_of(case.forest(task))
    for split, problem in (("tset", "the split is 'tset'; did you mean test"), (None, "some examples say no split")):
        write_records(tmp_path / "examples.jsonl", [first, {**second, "split": split}])
        with pytest.raises(TreememError, match=problem) as caught:
            task.examples(task.read_examples(tmp_path / "examples.jsonl"))
        assert split is None or "examples.jsonl, line 2" in str(caught.value)


def test_a_task_that_says_nothing_of_files_reads_examples_without_labels(tmp_path: Path) -> None:
    (tmp_path / "trees.txt").write_text("(f x y)\n(g x)\n")
    forest = Task.read_examples(MoreX(), tmp_path / "trees.txt")
    assert [str(tree) for tree in forest] == ["(f x y)", "(g x)"]
    assert "label" not in forest.tree_data
    with pytest.raises(RecipeError, match="more_x does not say how its examples are written"):
        Task.records_of(MoreX(), toy_data(3))


def test_a_classification_of_trees_writes_and_reads_them_with_their_classes(tmp_path: Path) -> None:
    task, forest = MoreX(), toy_data(30)
    for suffix in ("jsonl", "csv", "parquet"):
        path = tmp_path / f"trees.{suffix}"
        write_records(path, task.records_of(forest))
        again = task.read_examples(path)
        assert again.with_data() == forest.with_data()
        for name, values in forest.tree_data.items():
            np.testing.assert_array_equal(again.tree_data[name], values, f"{name} of {suffix}")
    (tmp_path / "trees.txt").write_text("(f x y)\n\n(g x)\n")
    assert task.read_examples(tmp_path / "trees.txt").tree_data["label"].tolist() == [-1, -1]
    write_records(path := tmp_path / "wrong.jsonl", [{"tree": "(g x)", "label": "maybe"}])
    problem = r"wrong\.jsonl, line 1: the label is 'maybe'; expected one of the 2 classes 1, 0, true, false"
    with pytest.raises(ParseError, match=problem):
        task.read_examples(path)


@pytest.mark.parametrize(
    ("task", "override", "word"),
    [(case.task, override, word) for case in CASES for override, word in case.refused.items()]
    + [(name, "data.sede=3", "data.sede") for name in TASKS.names() if name != "more_x"],
)
def test_options_that_there_are_not_and_out_of_range_are_refused(task: str, override: str, word: str) -> None:
    def use() -> None:
        made, options = load_task_data(task, [override])
        assert made.vocabulary.leaves
        made.make_data(options)

    with pytest.raises(TreememError, match=word):
        use()


def test_a_model_is_trained_saved_and_predicts_each_text_as_if_alone(case: Case, tmp_path: Path) -> None:
    task = case.make(tmp_path)
    options = TrainingOptions(epochs=1, batch_size=8, learning_rate=0.01, threads=1, precision="64-true")
    result = fit(task, case.network, case.forest(task), options, output=tmp_path / "run", progress=False)
    assert np.isfinite(result.records[0]["loss"])
    model = treemem.load(tmp_path / "run")
    texts = [*case.texts, case.texts[0]]
    together, trained = model.predict(texts), result.model.predict(texts)
    for place, text in enumerate(texts):
        (alone,) = model.predict([text])
        for found in (alone, trained[place]):
            if isinstance(alone, str):
                assert found == together[place]
            else:
                np.testing.assert_allclose(found, together[place], rtol=1e-9, atol=1e-12)
    with pytest.raises(TreememError, match=re.escape(case.wrong[1])):
        model.predict([case.texts[0], case.wrong[0]])
    records = [{"text": text} for text in (*case.texts, case.wrong[0])]
    (tmp_path / "texts.txt").write_text("".join(f"{record['text']}\n" for record in records))
    counts = predict_file(treemem.TreePredictor(model, processes=1), tmp_path / "texts.txt", tmp_path / "answers.jsonl")
    assert (counts.predicted, counts.rejected) == (2, 1)
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert answers[2]["error"].startswith("line 3")


@pytest.mark.parametrize("name", ["entailment", "listops", "logical_inference", "reading", "sentiment"])
def test_the_right_class_scores_1_and_another_0(name: str) -> None:
    task = TASKS.find(name)()
    assert isinstance(task, ClassificationTask)
    assert task.class_names is not None
    label = np.array([0, 1, 1, 2])
    outputs = torch.nn.functional.one_hot(torch.from_numpy(label), len(task.class_names)).double()
    group = np.array([3, 3, 4, 4])
    for said, accuracy in ((outputs, 1.0), (-outputs, 0.0)):
        scores = task.scores(said, {"label": label}, group)
        assert [(score.group, score.examples, score.accuracy) for score in scores] == [
            (3, 2, accuracy), (4, 2, accuracy), ("all", 4, accuracy),
        ]  # fmt: skip


@pytest.mark.parametrize("name", recipe_names())
def test_a_printed_recipe_is_an_equal_recipe(name: str, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    path = tmp_path / "recipe.yaml"
    path.write_text(format_recipe(recipe), encoding="utf-8")
    assert load_recipe(path) == recipe
