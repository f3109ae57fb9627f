"""What a training run gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treemem.metrics.score import Score
from treemem.model import Model


@dataclass(frozen=True, eq=False)
class FitResult:
    """A finished training run.

    Attributes:
        model: with the weights of the best epoch, averaged where the options say so, in evaluation mode.
        folder: where log and checkpoints are; ``treemem.load(folder)`` gives the same model.
        best_epoch: the first epoch with the best validation accuracy; the last epoch where nothing was validated.
        validation: the scores of that epoch by group, the last one for all; empty where nothing was validated.
        records: the log, one record an epoch.
    """

    model: Model
    folder: Path
    best_epoch: int
    validation: list[Score]
    records: list[dict[str, Any]]

    @property
    def trees_per_second(self) -> float:
        """Trees trained on in a second, over all epochs."""
        return self._total("trees") / self._total("seconds")

    @property
    def examples_per_second(self) -> float:
        """Examples trained on in a second, over all epochs."""
        return self._total("examples") / self._total("seconds")

    @property
    def loader_share(self) -> float:
        """The part of the training time that went into waiting for batches, over all epochs; a fraction."""
        return self._total("loader_seconds") / self._total("seconds")

    def _total(self, name: str) -> float:
        return sum(record[name] for record in self.records)
