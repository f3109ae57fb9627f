"""Several labels for the trees of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treemem.data.examples import Examples
from treemem.data.sum_count import SumCount
from treemem.errors import shown
from treemem.metrics.class_report import ClassReport, f1_scores, label_metrics, mean_known, report_of_labels
from treemem.metrics.score import Monitor, Score, scores_by_group, with_overall
from treemem.metrics.threshold import best_threshold, log_odds
from treemem.nn import ClassifierHead
from treemem.task import Answer
from treemem.tasks.table.data import Table
from treemem.tasks.table.splits import rows_by_name
from treemem.tasks.table.task import TableTask
from treemem.trees.forest import Forest


class TableLabels(TableTask):
    """Any number of labels for each tree of a table: a yes or no in each of several columns."""

    name: ClassVar[str] = "table_labels"
    monitor: ClassVar[Monitor] = Monitor("f1")
    has_threshold: ClassVar[bool] = True

    @property
    def output_names(self) -> tuple[str, ...]:
        return self.target

    def _describe(self, table: Table) -> None:
        self._targets(table)

    def _targets(self, table: Table) -> NDArray[Any]:
        numbers = super()._targets(table)
        for row, column in np.argwhere(~np.isnan(numbers) & (numbers != 0) & (numbers != 1)).tolist():
            table.refuse(
                row,
                f"the label {self.target[column]!r} must be 1 or 0, not {shown(table.targets[column][row])}; for "
                'numbers, give kind="regression" (task table_regression)',
            )
            numbers[row, column] = np.nan
        return numbers

    @property
    def _weighted_names(self) -> tuple[str, ...]:
        return self.target

    def _balanced_weights(self, table: Table) -> NDArray[np.float64]:
        """Return how many zeros there are for each one, of each column; 1 if there is no one or no zero."""
        label = self._training_rows(table, self._targets(table))
        ones, zeros = (label == 1).sum(0), (label == 0).sum(0)
        return np.where((ones > 0) & (zeros > 0), zeros / np.maximum(ones, 1), 1.0)

    def _target_weights(self, data: Forest, target: NDArray[Any], weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weights of the labels, ``[rows, labels]``."""
        of_ones = np.array(self.weights_of_classes or (1.0,))
        return weights[:, None] * np.where(target == 1, of_ones, 1)

    def _strata(self, table: Table) -> list[Any]:
        return list(map(tuple, self._targets(table).tolist()))

    def _about_names(self, data: Forest) -> str:
        return rows_by_name(self.target, data.tree_data["label"] == 1, data.tree_data["split"], "label")

    def head(self, hidden_size: int) -> nn.Module:
        return ClassifierHead(hidden_size, len(self.target))

    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> SumCount:
        loss = functional.binary_cross_entropy_with_logits(outputs, targets["label"].to(outputs), reduction="none")
        weight = self._loss_weight(targets)
        return SumCount.of_losses(loss.mean(1)) if weight is None else SumCount.of_losses(loss, weight)

    def scores(self, kept: Tensor, targets: Mapping[str, NDArray[Any]], group: NDArray[np.int64]) -> list[Score]:
        """Return by group and overall the mean F1 of the labels, accuracy (all labels correct) and F1 of each label.

        A label without an example and without a prediction has no F1. Overall there are the means of AUC and
        average precision, too.
        """
        predicted, right = (kept > 0).numpy(), targets["label"] > 0

        def metrics(chosen: NDArray[np.bool_]) -> dict[str, float | None]:
            correct = (predicted & right)[chosen].sum(0)
            f1 = f1_scores(correct, predicted[chosen].sum(0), right[chosen].sum(0))
            by_label = {f"f1 {name}": mean_known(f1[[place]]) for place, name in enumerate(self.target)}
            accuracy = float((predicted == right)[chosen].all(1).mean())
            return {"f1": mean_known(f1), "accuracy": accuracy, **by_label}

        return with_overall(scores_by_group(group, metrics), label_metrics(right, kept.double().numpy()))

    @property
    def scores_follow_threshold(self) -> bool:
        return True

    def at_threshold(self, kept: Tensor, threshold: float, *, temperature: float = 1.0) -> Tensor:
        return kept.double() - log_odds(threshold)

    def best_threshold(
        self, kept: Tensor, targets: Mapping[str, NDArray[Any]], metric: str, *, temperature: float = 1.0
    ) -> float:
        return best_threshold(self.predicted(kept, targets), targets["label"] > 0, metric)

    def report(
        self, kept: Tensor, targets: Mapping[str, NDArray[Any]], *, threshold: float = 0.5
    ) -> ClassReport | None:
        ranks = kept.double().numpy()
        return report_of_labels(self.target, ranks > 0, targets["label"] > 0, ranks, threshold)

    def answers(
        self, kept: Tensor, targets: Mapping[str, NDArray[Any]], *, temperature: float = 1.0, threshold: float = 0.5
    ) -> list[Answer]:
        """Return the names of the labels whose probability is above the threshold."""
        rows = self.predicted(kept, targets).tolist()
        return [
            Answer(None, None)
            if any(math.isnan(chance) for chance in row)
            else Answer([name for name, chance in zip(self.target, row, strict=True) if chance > threshold], None)
            for row in rows
        ]

    def known_answers(self, examples: Examples) -> list[Any]:
        rows = zip(examples.targets["label"].tolist(), examples.labelled.tolist(), strict=True)
        return [
            [name for name, is_so in zip(self.target, row, strict=True) if is_so] if known else None
            for row, known in rows
        ]

    def answer_scores(self, kept: Tensor) -> Tensor:
        """Return the log odds of each label."""
        return kept

    def no_predictions(self) -> NDArray[np.float64]:
        return np.empty((0, len(self.target)))

    def predicted(self, kept: Tensor, targets: Mapping[str, NDArray[Any]], *, temperature: float = 1.0) -> Any:
        """Return the probability of each label, ``[examples, labels]``."""
        return kept.double().sigmoid().numpy()
