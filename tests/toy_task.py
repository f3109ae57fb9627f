"""A small task and network with which the training loop is tested: does a tree hold more x than y?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treemem.data.examples import Examples, TaskData
from treemem.data.sum_count import SumCount
from treemem.errors import ParseError
from treemem.metrics.accuracy import binary_scores
from treemem.metrics.score import Monitor, Score
from treemem.networks import NETWORKS, NetworkConfig
from treemem.networks.encoder_output import EncoderOutput
from treemem.networks.encodings import root_encodings
from treemem.schedule.tree_batch import TreeBatch
from treemem.task import TASKS, ClassificationTask
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.formats.record_reader import SPLITS
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

if TYPE_CHECKING:
    import pytest


@dataclass(frozen=True)
class ToyDataOptions:
    """How many trees to draw, and from which seed."""

    count: int = 60
    seed: int = 0


@dataclass(frozen=True)
class MoreX(ClassificationTask):
    """Whether a tree has more leaves x than y, by height."""

    name: ClassVar[str] = "more_x"
    version: ClassVar[str] = "1"
    group: ClassVar[str] = "height"
    monitor: ClassVar[Monitor] = Monitor("accuracy", ties="first")
    networks: ClassVar[Mapping[str, NetworkConfig]] = {"sum": NetworkConfig("KindSum", {"hidden_size": 3})}
    data_options: ClassVar[type] = ToyDataOptions

    strict: bool = False

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(["x", "y"], [("f", 2), ("g", 1)])

    def make_data(self, options: ToyDataOptions, *, progress: bool | None = None) -> TaskData:
        return TaskData(toy_data(options.count, options.seed), f"{options.count} toys of seed {options.seed}\n")

    def parse(self, text: str) -> Tree:
        tree = parse_brackets(text)
        if tree.label == "y":
            raise ParseError("a lone y says nothing", text)
        return tree

    def examples(self, data: Forest) -> Examples:
        label = data.tree_data.get("label", np.full(len(data), -1))
        height = data.height()[data.begin[1:] - 1].astype(np.int64)
        split = data.tree_data.get("split")
        codes = None if split is None else np.array([SPLITS.index(name) for name in split], np.int8)
        return Examples(data, 1, {"label": label.astype(np.int64)}, height, label >= 0, codes)

    def head(self, hidden_size: int) -> nn.Module:
        return Logit(hidden_size)

    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> SumCount:
        labels = targets["label"].to(outputs.dtype)
        total = functional.binary_cross_entropy_with_logits(outputs, labels, reduction="sum")
        return SumCount(total, float(len(outputs)))

    def probabilities(self, outputs: Tensor, targets: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        return outputs.double().sigmoid().numpy()

    def correct(self, outputs: Tensor, targets: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        return (outputs.numpy() > 0) == (targets["label"] == 1)

    def scores(self, outputs: Tensor, targets: Mapping[str, NDArray[Any]], group: NDArray[np.int64]) -> list[Score]:
        return binary_scores(outputs.numpy() > 0, targets["label"] == 1, group)


class Logit(nn.Module):
    """One number for each tree."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.read = nn.Linear(hidden_size, 1)

    def forward(self, encodings: Tensor | EncoderOutput) -> Tensor:
        return self.read(root_encodings(encodings, 1)).flatten()


class KindSum(nn.Module):
    """Sums one vector for each leaf of a tree."""

    def __init__(self, hidden_size: int, vocabulary: Vocabulary, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.leaves = nn.Embedding(vocabulary.num_leaves, hidden_size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: TreeBatch) -> Tensor:
        schedule = batch.schedule
        num_leaf_rows = len(schedule.symbol)
        leaf_vectors = self.dropout(self.leaves(schedule.symbol))
        rows = torch.cat([leaf_vectors, leaf_vectors.new_zeros(schedule.num_rows - num_leaf_rows, self.hidden_size)])
        assert batch.forest is not None
        tree_of_node = torch.from_numpy(np.repeat(np.arange(len(batch.forest)), np.diff(batch.forest.begin)))
        sums = rows.new_zeros(len(batch.forest), self.hidden_size)
        sums = sums.index_add(0, tree_of_node, rows[schedule.row_of_node])
        return sums.view(batch.num_examples, batch.trees_per_example, self.hidden_size)


def toy_data(count: int = 60, seed: int = 0, *, divided: bool = True) -> Forest:
    """Random trees with labels; every fourth validates, every fifth tests."""
    draw = np.random.default_rng(seed)
    trees = []
    for _ in range(count):
        tree = Tree("xy"[draw.integers(2)])
        for _ in range(draw.integers(1, 6)):
            tree = Tree("f", [tree, Tree("xy"[draw.integers(2)])]) if draw.random() < 0.8 else Tree("g", [tree])
        trees.append(tree)
    counts = [[leaf.label for leaf in tree.leaves()].count("x") * 2 - len(list(tree.leaves())) for tree in trees]
    data: dict[str, Any] = {"label": np.array([value > 0 for value in counts], np.int8)}
    if divided:
        data["split"] = np.array(
            ["test" if not n % 5 else "validation" if not n % 4 else "train" for n in range(count)]
        )
    return Forest.from_trees(trees, tree_data=data)


def scored_batches(patch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What a list grows by from now on: of each batch that is scored and not trained on, its size and the threads."""
    seen: list[tuple[int, int]] = []
    forward = KindSum.forward

    def telling(self: KindSum, batch: TreeBatch) -> Tensor:
        if not self.training:
            seen.append((batch.num_examples, torch.get_num_threads()))
        return forward(self, batch)

    patch.setattr(KindSum, "forward", telling)
    return seen


TASKS.register("more_x", MoreX)
NETWORKS.register("KindSum", KindSum)
