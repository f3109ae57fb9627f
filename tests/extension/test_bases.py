"""Tasks of a few lines, made of the bases."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from torch import nn

from treemem.data.examples import TaskData
from treemem.errors import GraphError, ParseError, RecipeError
from treemem.metrics.score import Score
from treemem.nn import RelationHead
from treemem.records import write_records
from treemem.task import Groups, TreeData
from treemem.task.pairs import PairClassification
from treemem.task.sequences import Words, WritingTask, words_of
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.pairs import PairReader, with_pair_data
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary


@dataclass(frozen=True)
class NoOptions:
    """None."""

    path: str | None = None


class BracketPairs(PairReader):
    """Reads two trees in brackets."""

    unit: ClassVar[str] = "trees"
    text_fields: ClassVar[tuple[str, ...]] = ("first", "second", "label")
    sides: ClassVar[tuple[tuple[str, str], ...]] = (("first", "second"),)

    def trees(self, texts: Sequence[str]) -> list[Tree]:
        return [parse_brackets(text) for text in texts]


class SameSize(PairClassification):
    """Whether two trees have as many nodes."""

    name: ClassVar[str] = "same_size"
    version: ClassVar[str] = "1"
    unit: ClassVar[str] = "pairs"
    group: ClassVar[str] = "nodes"
    group_width: ClassVar[int] = 5
    data_options: ClassVar[type] = NoOptions
    vocabulary: ClassVar[Vocabulary] = Vocabulary(["x", "y"], [("f", 2)])
    class_names: ClassVar[tuple[str, ...]] = ("other", "same")
    reader: ClassVar[BracketPairs] = BracketPairs()

    def make_data(self, options: NoOptions, *, progress: bool | None = None) -> TaskData:
        forest = Forest.from_trees(["x", "y", "(f x y)", "x", "(f (f x y) x)", "(f x (f y y))"])
        data = {"label": np.array([1, 0, 1]), "split": np.array(["train", "validation", "test"])}
        return TaskData(with_pair_data(forest, data), "Pairs.\n")

    def groups(self, forest: Forest, tree_data: TreeData) -> Groups:
        nodes = np.diff(forest.begin)[::2]
        return Groups(self.binned(nodes), nodes)

    def head(self, hidden_size: int) -> nn.Module:
        return RelationHead(hidden_size, self.num_classes)


class Twice(WritingTask):
    """Write each symbol twice."""

    name: ClassVar[str] = "twice"
    version: ClassVar[str] = "1"
    unit: ClassVar[str] = "words"
    group: ClassVar[str] = "length"
    number_fields: ClassVar[Mapping[str, int]] = {"weight": 9}
    data_options: ClassVar[type] = NoOptions
    vocabulary: ClassVar[Vocabulary] = Vocabulary(["</s>", "|||", "a", "b"], [])

    def words(self, text: str, side: str) -> Words:
        return words_of(text, "ab", side)

    def drawn(self, options: NoOptions) -> TaskData:
        raise NotImplementedError

    def scores(self, kept: Any, targets: Mapping[str, Any], group: Any) -> list[Score]:
        raise NotImplementedError


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet", "txt"])
def test_pairs_of_trees_are_written_and_read_back(tmp_path: Path, suffix: str) -> None:
    task, path = SameSize(), tmp_path / f"pairs.{suffix}"
    forest = task.make_data(NoOptions()).forest
    records = list(task.records_of(forest))
    assert records[1] == {"label": "other", "first": "(f x y)", "second": "x", "split": "validation"}
    fields = ("first", "second", "label") if suffix == "txt" else None  # a text line has these alone
    write_records(path, [{name: record[name] for name in fields or record} for record in records], fields=fields)
    again = task.read_examples(path)
    expected = forest if fields is None else with_pair_data(forest, {"label": np.array([1, 0, 1])})
    assert again == expected
    examples = task.examples(again)
    assert [task.group_name(int(group)) for group in examples.group] == ["1-5"] * 3
    assert task.parse("(f x y)\tx") == Tree("pair", [*again[2:4]])
    with pytest.raises(ParseError, match="the text has 0 tabs; expected FIRST<TAB>SECOND"):
        task.parse("x")


def test_pairs_are_grouped_by_the_height_of_the_higher_tree_unless_the_task_says_otherwise() -> None:
    class SameHeight(SameSize):
        group_width: ClassVar[int] = 1
        groups = PairClassification.groups

    examples = SameHeight().examples(SameSize().make_data(NoOptions()).forest)
    assert examples.group.tolist() == [0, 1, 2]
    assert examples.difficulty is not None
    assert examples.difficulty.tolist() == [0, 1, 2]
    with pytest.raises(GraphError, match="group has 6 entries, and there are 3 examples"):
        dataclasses.replace(examples, group=np.zeros(6, np.int64))


def test_a_wrong_class_is_told_with_its_line(tmp_path: Path) -> None:
    write_records(tmp_path / "pairs.csv", [{"label": "sme", "first": "x", "second": "x"}])
    with pytest.raises(ParseError, match=r"pairs\.csv, line 2: the label is 'sme'; did you mean same"):
        SameSize().read_examples(tmp_path / "pairs.csv")


def test_sources_and_targets_are_read_with_the_numbers_of_their_records(tmp_path: Path) -> None:
    task, path = Twice(), tmp_path / "words.txt"
    path.write_text("source\ttarget\tweight\na b\ta a b b\t3\n\nb\tb b\t\n")
    data = task.make_data(NoOptions(str(path)))
    assert data.card == f"# Twice\n\n2 words of {path}.\n"
    assert data.forest.tree_data["weight"].tolist() == [3, 0]
    assert list(task.records_of(data.forest)) == [
        {"source": "a b", "target": "a a b b", "length": 2},
        {"source": "b", "target": "b b", "length": 1},
    ]
    path.write_text("a b\nb\n")
    assert task.read_examples(path).is_flat
    assert not task.examples(task.read_examples(path)).labelled.any()
    path.write_text("")
    with pytest.raises(RecipeError, match="there are no words in"):
        task.read_examples(path)
