"""A tree network with a label at every node: whether the leaves below hold an odd number of x."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treemem.data.examples import Examples, TaskData, split_numbers
from treemem.data.sum_count import SumCount
from treemem.metrics.score import Monitor, Score, scores_by_group
from treemem.nn import ClassifierHead
from treemem.task import Answer, ModelOutput, Task
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary


@dataclass(frozen=True)
class TreeOptions:
    """How many trees."""

    trees: int = 80


@dataclass(frozen=True)
class OddX(Task):
    """Labels every node; the accuracy over nodes chooses the best epoch."""

    name: ClassVar[str] = "odd_x"
    version: ClassVar[str] = "1"
    group: ClassVar[str] = "height"
    monitor: ClassVar[Monitor] = Monitor("node accuracy", "max")
    data_options: ClassVar[type] = TreeOptions

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(["x", "y"], [("f", 2)])

    def make_data(self, options: TreeOptions, *, progress: bool | None = None) -> TaskData:
        draw = np.random.default_rng(2)
        trees = []
        for _ in range(options.trees):
            tree = Tree("xy"[draw.integers(2)])
            for _ in range(draw.integers(1, 5)):
                tree = Tree("f", [tree, Tree("xy"[draw.integers(2)])])
            trees.append(tree)
        names = ["test" if not n % 5 else "validation" if not n % 4 else "train" for n in range(options.trees)]
        return TaskData(Forest.from_trees(trees, tree_data={"split": np.array(names)}), "Trees.\n")

    def parse(self, text: str) -> Tree:
        return parse_brackets(text)

    def examples(self, data: Forest) -> Examples:
        split = split_numbers(data.tree_data.get("split"))
        label = _odd(data)
        height = data.height()[data.begin[1:] - 1].astype(np.int64)
        known = np.ones(len(data), bool)
        return Examples(data, 1, {"label": label}, height, known, split, node_targets=frozenset({"label"}))

    def head(self, hidden_size: int) -> nn.Module:
        return ClassifierHead(hidden_size, 2, nodes="every")

    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> SumCount:
        return SumCount(functional.cross_entropy(outputs, targets["label"], reduction="sum"), float(len(outputs)))

    def kept(self, output: ModelOutput, batch: Any, targets: Mapping[str, Tensor]) -> list[Any]:
        said = output.outputs.argmax(1).cpu().numpy()
        return np.split(said, batch.forest.begin[1:-1])

    def scores(self, kept: list[Any], targets: Mapping[str, NDArray[Any]], group: NDArray[np.int64]) -> list[Score]:
        correct = np.concatenate(kept) == targets["label"]
        tree = np.repeat(np.arange(len(kept)), [len(each) for each in kept])
        return scores_by_group(group, lambda chosen: {"node accuracy": float(correct[chosen[tree]].mean())})

    def answers(self, kept: list[Any], targets: Mapping[str, Any], **options: float) -> list[Answer]:
        return [Answer(said.tolist(), None) for said in kept]


def _odd(forest: Forest) -> NDArray[np.int64]:
    """1 for each node with an odd number of x below, in post-order."""
    is_x = np.array([label == "x" for label in forest.labels])[forest.label] & (forest.arity == 0)
    before = np.concatenate([[0], np.cumsum(is_x)])
    return (before[1:] - before[forest.subtree_begin()]) % 2
