"""A class for each node of the trees of a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treemem.data.examples import Examples, split_numbers
from treemem.data.sum_count import SumCount
from treemem.errors import RecipeError, shown
from treemem.metrics.score import Monitor, Score, scores_by_group
from treemem.networks import NetworkConfig, every_network
from treemem.nn import ClassifierHead
from treemem.task import Answer, ModelOutput
from treemem.tasks.table.cells import MISSING_WORDS, ClassName, class_numbers
from treemem.tasks.table.data import Table
from treemem.tasks.table.task import TableTask
from treemem.tasks.table.weights import balanced_weights, of_classes
from treemem.trees.forest import Forest

_UNKNOWN = -1


class TableNodes(TableTask):
    """A class for each node of the trees of a table.

    The target column holds a list of classes for each tree, one for each node in post-order: children before their
    parent, and the root last. In CSV the list is JSON. null is a class that is not known.
    """

    name: ClassVar[str] = "table_nodes"
    monitor: ClassVar[Monitor] = Monitor("node accuracy", ties="last")  # validation reports no loss
    reads_roots_only: ClassVar[bool] = False
    networks: ClassVar[Mapping[str, NetworkConfig]] = {
        name: config for name, config in every_network(64).items() if "Tree" in config.network
    }

    def _describe(self, table: Table) -> None:
        if len(self.target) != 1:
            raise RecipeError(f"the classes of the nodes are one column, not {len(self.target)}")
        all_names = [name for names in self._lists(table) for name in names]
        object.__setattr__(self, "classes", self.classes or table.classes(all_names, self.target[0], MISSING_WORDS))

    def _lists(self, table: Table) -> list[list[Any]]:
        """Return the classes of the nodes of each row, None where one is not known."""
        lists = []
        sizes = np.diff(table.forest.begin).tolist()
        for place, (cell, size) in enumerate(zip(table.targets[0], sizes, strict=True)):
            if cell is None:
                lists.append([None] * size)
                continue
            try:
                names = json.loads(cell) if isinstance(cell, str) else list(cell)
            except (TypeError, ValueError, RecursionError):
                names = None
            if not isinstance(names, list):
                table.refuse(place, f"{self.target[0]} must be a list of classes, not {shown(cell)}")
                names = [None] * size
            elif len(names) != size:
                table.refuse(place, f"{len(names)} classes for a tree of {size} nodes")
                names = [None] * size
            lists.append(names)
        return lists

    @property
    def class_names(self) -> tuple[ClassName, ...]:
        return self.classes

    def _targets(self, table: Table) -> NDArray[Any]:
        """Return the class of each node, ``[nodes]``; -1 if it is not known."""
        lists = self._lists(table)
        rows = np.repeat(np.arange(len(lists)), [len(names) for names in lists]).tolist()
        in_order = (name for names in lists for name in names)
        return np.array(
            class_numbers(self.classes, in_order, lambda node, problem: table.refuse(rows[node], problem)), np.int64
        )

    def _with_targets(self, table: Table, split: Mapping[str, NDArray[Any]]) -> Forest:
        return table.forest.with_data(
            node_data={"label": self._targets(table)}, tree_data={**split, **self._row_weights(table)}
        )

    @property
    def _weighted_names(self) -> tuple[ClassName, ...]:
        return self.classes

    def _balanced_weights(self, table: Table) -> NDArray[np.float64]:
        of_rows = np.split(self._targets(table), table.forest.begin[1:-1])
        is_used = self._training_rows(table, np.arange(len(of_rows))).tolist()
        return balanced_weights(np.concatenate([of_rows[row] for row in is_used]), len(self.classes))

    def _target_weights(self, data: Forest, target: NDArray[Any], weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weights of the nodes, 0 where the class is not known."""
        of_nodes = np.repeat(weights, np.diff(data.begin)) * of_classes(self.weights_of_classes, target)
        return np.where(target >= 0, of_nodes, 0)

    def examples(self, data: Forest) -> Examples:
        target = data.node_data.get("label", np.full(data.num_nodes, _UNKNOWN))
        known = np.maximum.reduceat(target >= 0, data.begin[:-1]) if len(data) else np.zeros(0, bool)
        group, split = self.groups(data, data.tree_data).group, split_numbers(data.tree_data.get("split"))
        targets = {"label": target, **self._weights(data, target)}
        return Examples(data, 1, targets, group, known, split, node_targets=frozenset(targets))

    def head(self, hidden_size: int) -> nn.Module:
        return ClassifierHead(hidden_size, len(self.classes), nodes="every")

    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> SumCount:
        label, weight = targets["label"], self._loss_weight(targets)
        if weight is not None:
            losses = functional.cross_entropy(outputs, label, ignore_index=_UNKNOWN, reduction="none")
            return SumCount.of_losses(losses, weight)
        total = functional.cross_entropy(outputs, label, ignore_index=_UNKNOWN, reduction="sum")
        return SumCount(total, (label != _UNKNOWN).sum())

    def kept(self, output: ModelOutput, batch: Any, targets: Mapping[str, Tensor]) -> list[Any]:
        """Return the number of the class of each node of each tree."""
        classes = output.outputs.argmax(1)
        classes = classes.where(output.outputs.isfinite().all(1), _UNKNOWN).cpu().numpy()
        return np.split(classes, batch.forest.begin[1:-1])

    def validation_record(self, kept: list[Any], targets: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """Return nothing: the classes of the nodes do not tell the loss."""
        return {}

    def scores(self, kept: list[Any], targets: Mapping[str, NDArray[Any]], group: NDArray[np.int64]) -> list[Score]:
        """Return the share of nodes with the correct class, and of trees all of whose nodes have it, by height."""
        label, predicted = targets["label"], np.concatenate(kept)
        tree = np.repeat(np.arange(len(kept)), [len(numbers) for numbers in kept])
        known = label != _UNKNOWN
        wrong_trees = np.bincount(tree[known & (predicted != label)], minlength=len(kept)) > 0

        def metrics(chosen: NDArray[np.bool_]) -> dict[str, float | None]:
            here = known & chosen[tree]
            return {
                "node accuracy": float((predicted == label)[here].mean()),
                "tree accuracy": float(1 - wrong_trees[chosen].mean()),
            }

        return scores_by_group(group, metrics)

    def answers(
        self, kept: list[Any], targets: Mapping[str, Any], *, temperature: float = 1.0, threshold: float = 0.5
    ) -> list[Answer]:
        """Return the list of the classes of the nodes of each tree, in post-order."""
        named = (*self.classes, None)  # the last one for an output that is no number
        return [Answer([named[number] for number in numbers.tolist()], None) for numbers in kept]

    def known_answers(self, examples: Examples) -> list[Any]:
        named = (*self.classes, None)  # the last one for a node of unknown class
        by_tree = np.split(examples.targets["label"], examples.forest.begin[1:-1])
        return [
            [named[number] for number in numbers.tolist()] if known else None
            for numbers, known in zip(by_tree, examples.labelled.tolist(), strict=True)
        ]
