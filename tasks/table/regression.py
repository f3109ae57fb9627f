"""Numbers for the trees of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treemem.data.examples import Examples
from treemem.data.sum_count import SumCount
from treemem.errors import RecipeError
from treemem.metrics.score import Monitor, Score, scores_by_group
from treemem.nn import RegressionHead
from treemem.task import Answer
from treemem.tasks.table.data import Table
from treemem.tasks.table.task import TableTask

_MOST_RELATIVE_OFFSET = 1e5
"""How many times as large as its deviation the mean of a target may be: float32 has seven digits."""


class TableRegression(TableTask):
    """One or more numbers for each tree of a table; the loss is the mean squared error of standardised targets."""

    name: ClassVar[str] = "table_regression"
    monitor: ClassVar[Monitor] = Monitor("rmse", "min", percent=False)

    @property
    def output_names(self) -> tuple[str, ...]:
        return self.target

    def _describe(self, table: Table) -> None:
        numbers = self._training_rows(table, self._targets(table))
        numbers = numbers[~np.isnan(numbers).any(1)]
        if not len(numbers):
            return
        scale = numbers.std(0)
        for name, middle, spread in zip(self.target, np.abs(numbers.mean(0)).tolist(), scale.tolist(), strict=True):
            if middle > _MOST_RELATIVE_OFFSET * spread > 0:
                raise RecipeError(
                    f"the numbers of {name!r} are about {middle:g} and vary by {spread:g}, which float32 cannot tell "
                    "apart; subtract a constant from the column"
                )
        for name, computed in (("mean", numbers.mean(0)), ("scale", np.where(scale > 0, scale, 1.0))):
            if not getattr(self, name):
                object.__setattr__(self, name, tuple(computed.tolist()))

    def head(self, hidden_size: int) -> nn.Module:
        return RegressionHead(hidden_size, len(self.target), mean=self.mean, scale=self.scale)

    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> SumCount:
        scale = torch.tensor(self.scale, dtype=outputs.dtype, device=outputs.device)
        error = (outputs - targets["label"].to(outputs)) / scale
        return SumCount.of_losses(error.square().mean(1), self._loss_weight(targets))

    def scores(self, kept: Tensor, targets: Mapping[str, NDArray[Any]], group: NDArray[np.int64]) -> list[Score]:
        """Return RMSE, MAE and R^2 by group; means over the targets, and of several targets RMSE of each."""
        predicted, right = kept.double().numpy(), targets["label"]

        def metrics(chosen: NDArray[np.bool_]) -> dict[str, float | None]:
            error = predicted[chosen] - right[chosen]
            rmse = np.sqrt(np.square(error).mean(0))
            spread = right[chosen].var(0)
            explained = 1 - np.square(error).mean(0) / np.where(spread > 0, spread, np.nan)
            r2 = None if np.isnan(explained).any() else float(explained.mean())
            by_target = {f"rmse {name}": float(value) for name, value in zip(self.target, rmse, strict=True)}
            return {
                "rmse": float(rmse.mean()),
                "mae": float(np.abs(error).mean()),
                "r2": r2,
                **(by_target if len(by_target) > 1 else {}),
            }

        return scores_by_group(group, metrics)

    def answers(
        self, kept: Tensor, targets: Mapping[str, NDArray[Any]], *, temperature: float = 1.0, threshold: float = 0.5
    ) -> list[Answer]:
        """Return the number, or the list of numbers, of each example."""
        rows = kept.double().tolist()
        is_number = kept.isfinite().all(1).tolist()
        values = [row[0] if len(row) == 1 else row for row in rows]
        return [Answer(value if good else None, None) for value, good in zip(values, is_number, strict=True)]

    def known_answers(self, examples: Examples) -> list[Any]:
        rows = examples.targets["label"].tolist()
        values = [row[0] if len(row) == 1 else row for row in rows]
        return [value if known else None for value, known in zip(values, examples.labelled.tolist(), strict=True)]

    def answer_scores(self, kept: Tensor) -> Tensor:
        """Return the numbers."""
        return kept

    def no_predictions(self) -> NDArray[np.float64]:
        return np.empty(0 if len(self.target) == 1 else (0, len(self.target)))

    def predicted(self, kept: Tensor, targets: Mapping[str, NDArray[Any]], *, temperature: float = 1.0) -> Any:
        """Return the numbers, ``[examples]``, or ``[examples, targets]`` of several."""
        numbers = kept.double().numpy()
        return numbers[:, 0] if numbers.shape[1] == 1 else numbers
