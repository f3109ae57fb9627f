"""REINFORCE for the transitions of SPINN."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from treemem.data.loader import Batch
from treemem.data.sum_count import SumCount
from treemem.runs.policy_gradient import PolicyGradient, Reward
from treemem.runs.training_step import MAIN_LOSS

_UPDATE = 0.1  # of the average of the rewards, as in the authors' code


class ReinforcedTransitions(PolicyGradient):
    """Trains a :class:`~treemem.nn.SPINN` with ``transitions="reinforced"`` on a task of classification.

    To the main loss it adds ``"policy"``, the mean over all steps of ``-log p (reward - baseline)``, 0 at steps that
    are not credited. Both trees of a pair get the reward of the pair. ``"reward"`` is logged.
    """

    average: float = 0.0

    def training_step(self, batch: Batch, targets: Mapping[str, Tensor]) -> Mapping[str, SumCount]:
        """Sample transitions, and credit them with the reward.

        Raises:
            RecipeError: a task without classes.
        """
        losses: dict[str, SumCount] = {}
        rewards = SumCount.zero()
        if batch.num_examples:
            output = self.run(batch)
            reward = self.reward(output.outputs.detach(), targets, self._kind)
            rewards = SumCount(reward.sum(), float(len(reward)))
            losses[MAIN_LOSS] = self.model.task.loss(output.outputs, targets)
            baseline = self._baseline(batch, targets)
            if "value" in output.encoded.trace:
                baseline, losses["value"] = self._predicted(output.encoded.trace["value"], reward)
            losses["policy"] = self._policy_loss(output.encoded, reward - baseline)
        total = self.update(losses)
        total["reward"] = self.summed({"reward": rewards})["reward"]
        self.average += _UPDATE * (float(total["reward"].mean) - self.average)
        return total

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with the average of the rewards."""
        return {**super().state_dict(), "average": self.average}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
        super().load_state_dict(state)
        self.average = state["average"]

    @property
    def _kind(self) -> Reward:
        encoder: Any = self.model.encoder
        kind: Reward = encoder.reward
        return kind

    def _policy_loss(self, encoded: Any, advantage: Tensor) -> SumCount:
        log_probability, free = encoded.trace["log_probability"], encoded.trace["free"]
        of_trees = advantage.repeat_interleave(len(log_probability) // len(advantage))
        credited = free if self.model.encoder.credited_steps == "free" else torch.ones_like(free)  # 0 after the end
        steps = (2 * encoded.lengths - 1).clamp(min=0).sum()
        return SumCount(-(log_probability * credited * of_trees[:, None]).sum(), steps)

    def _baseline(self, batch: Batch, targets: Mapping[str, Tensor]) -> Tensor | float:
        encoder: Any = self.model.encoder
        baseline = encoder.baseline
        if baseline in ("greedy", "left"):
            with encoder.left_branching() if baseline == "left" else nullcontext():
                return self.evaluation_reward(batch, targets, self._kind)
        return self.average if baseline == "ema" else 0.0

    def _predicted(self, value: Tensor, reward: Tensor) -> tuple[Tensor, SumCount]:
        """Return the predicted rewards, without gradients, and the loss of the prediction."""
        of_examples = value.view(len(reward), -1).mean(1)
        if self.model.encoder.reward == "accuracy":
            loss = functional.binary_cross_entropy_with_logits(of_examples, reward, reduction="sum")
            return of_examples.detach().sigmoid(), SumCount(loss, float(len(reward)))
        return of_examples.detach(), SumCount((of_examples - reward).square().sum(), float(len(reward)))
