"""The training step of a language model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from treemem.data.loader import Batch
from treemem.data.sum_count import SumCount
from treemem.model import Model
from treemem.runs.training_step import Learner


class StreamLearner(Learner):
    """Scales the learning rate of a step by the number of words in its batch, as AWD-LSTM does (Merity et al. 2018)."""

    @classmethod
    def is_captured(cls, model: Model) -> bool:
        """Return that it is: only the rate of the optimiser's step differs."""
        return True

    def training_step(self, batch: Batch, targets: Mapping[str, Tensor]) -> Mapping[str, SumCount]:
        task: Any = self.model.task
        if not task.varied_steps:
            return super().training_step(batch, targets)
        steps = max(self.processes.gathered(batch.token.shape[1] if batch.num_examples else 0))  # type: ignore[union-attr]
        groups = [group for optimizer in self.optimizers for group in optimizer.param_groups]
        rates = [group["lr"] for group in groups]
        for group in groups:
            group["lr"] *= steps / task.steps
        losses = super().training_step(batch, targets)
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate
        return losses
