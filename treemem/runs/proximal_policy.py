"""Proximal policy optimisation (Schulman et al. 2017) of a parser, as in Havrylov et al. 2019."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from treemem.data.loader import Batch
from treemem.data.sum_count import SumCount
from treemem.networks.parsers.disjoint_tree_lstm.plan import tree_plan
from treemem.runs.policy_gradient import PolicyGradient
from treemem.runs.training_step import MAIN_LOSS

_UPDATE = 0.1  # of the average of the variance, as in the authors' code


class ProximalPolicy(PolicyGradient):
    """Trains a :class:`~treemem.nn.DisjointTreeLSTM` on a task of classification, with two optimisers.

    First comes a step of all weights but the parser's on the loss of the task. Then the parser is updated
    ``policy_updates`` times on the trees that were sampled, by :func:`policy_loss`. The cost of an example is its
    negative log likelihood less that of the likeliest trees (self-critical). It is divided by an average of its
    deviation over the batches, if that is above 1. The trees of a pair count as one choice. ``"policy"``, the mean loss
    of the parser's updates, is logged.

    Attributes:
        variance: the average of the variance of the costs.
    """

    variance: float = 1.0

    def make_optimizers(self) -> list[Optimizer]:
        """Return the optimiser of the composition and the head, and that of the parser."""
        encoder: Any = self.model.encoder
        of_policy = list(encoder.policy_parameters())
        known = {id(parameter) for parameter in of_policy}
        others = [parameter for parameter in self.model.parameters() if id(parameter) not in known]
        rate = self.options.learning_rate * encoder.policy_rate
        return [
            self.optimizer(others, self.options),
            self.optimizer(of_policy, replace(self.options, learning_rate=rate)),
        ]

    def training_step(self, batch: Batch, targets: Mapping[str, Tensor]) -> Mapping[str, SumCount]:
        """Sample trees, train the composition on them, and update the parser.

        Raises:
            RecipeError: a task without classes.
        """
        encoder: Any = self.model.encoder
        losses: dict[str, SumCount] = {}
        cost = torch.zeros(0)
        output = None
        if batch.num_examples:
            output = self.run(batch)
            reward = self.reward(output.outputs.detach(), targets, "likelihood")
            cost = self.evaluation_reward(batch, targets, "likelihood") - reward
            losses[MAIN_LOSS] = self.model.task.loss(output.outputs, targets)
        total = self.update(losses)
        cost = self.scaled(cost)
        policy = SumCount.zero()
        plan = None
        for number in range(encoder.policy_updates):
            of_policy: dict[str, SumCount] = {}
            if output is not None:
                trace = output.encoded.trace
                if number == 0:
                    old = trace["log_probability"].detach()
                    new, entropy = trace["log_probability"], trace["entropy"]
                else:
                    if plan is None:
                        plan = tree_plan(trace["places"].long(), output.encoded.lengths.cpu())
                    with self.fabric.autocast():
                        new, entropy = encoder.policy(batch, plan)
                of_policy[MAIN_LOSS] = self._loss(new - old, entropy, cost)
            loss = self.update(of_policy, optimizer=1)[MAIN_LOSS]
            policy += SumCount(loss.sum.detach(), loss.count)
        total["policy"] = policy
        return total

    def scaled(self, cost: Tensor) -> Tensor:
        """Return the costs over an average of their deviation, and update the average. Waits for all processes.

        Args:
            cost: of the examples of this process.
        """
        sums = {"cost": cost.sum(), "square": cost.square().sum()}
        totals = self.summed({name: SumCount(total, float(len(cost))) for name, total in sums.items()})
        count = float(totals["cost"].count)
        if count > 1:
            spread = float(totals["square"].sum) - float(totals["cost"].sum) ** 2 / count
            self.variance += _UPDATE * (spread / (count - 1) - self.variance)
        return cost / max(1.0, self.variance**0.5)

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with the average of the variance."""
        return {**super().state_dict(), "variance": self.variance}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
        super().load_state_dict(state)
        self.variance = state["variance"]

    def _loss(self, log_ratio: Tensor, entropy: Tensor, cost: Tensor) -> SumCount:
        encoder: Any = self.model.encoder
        of_examples = [values.view(len(cost), -1) for values in (log_ratio, entropy)]
        return policy_loss(
            of_examples[0].sum(1), of_examples[1].mean(1), cost, encoder.ratio_clip, encoder.entropy_weight
        )


def policy_loss(log_ratio: Tensor, entropy: Tensor, cost: Tensor, ratio_clip: float, entropy_weight: float) -> SumCount:
    """Return the loss of a policy, ``max(r c, clip(r) c) - entropy_weight * entropy``, summed over examples.

    ``r`` is the ratio of the new probability of a choice and the old one. Its gradient where both are equal is that of
    the expected cost.

    Args:
        log_ratio: ``log r``, ``[examples]``.
        entropy: of the new policy, ``[examples]``.
        cost: ``c``, ``[examples]``.
        ratio_clip: ``clip(r)`` is within 1 plus and minus this.
        entropy_weight: see above.
    """
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1 - ratio_clip, 1 + ratio_clip)
    loss = torch.maximum(ratio * cost, clipped * cost) - entropy_weight * entropy
    return SumCount(loss.sum(), float(len(cost)))
