"""Rewards of networks that learn their trees by a policy gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from treemem.data.loader import Batch
from treemem.device_copy import to_device
from treemem.errors import RecipeError
from treemem.evaluation_mode import in_evaluation_mode
from treemem.runs.training_step import Learner
from treemem.task import ClassificationTask

Reward = Literal["accuracy", "log", "likelihood"]
"""1 for a correct answer; ``-log(1 - p)`` of its probability; or ``log p``."""


class PolicyGradient(Learner):
    """A learner that rewards the answers of a task of classification."""

    def reward(self, outputs: Tensor, targets: Mapping[str, Tensor], kind: Reward) -> Tensor:
        """Return the reward of each example, ``[examples]``.

        Raises:
            RecipeError: a task without classes, or weights of examples.
        """
        if "weight" in targets:
            raise RecipeError(
                f"{self.model.network.network} learns its trees from rewards, which have no weights; choose another "
                "network, or leave out weight and class_weight"
            )
        if not isinstance(self.model.task, ClassificationTask):
            raise RecipeError(
                f"{self.model.network.network} learns its trees from rewards and needs a task of classification, and "
                f"{self.model.task.name} is not; choose another network"
            )
        arrays = {name: target.cpu().numpy() for name, target in targets.items()}
        probability = torch.from_numpy(self.model.task.probabilities(outputs.float().cpu(), arrays))
        label = torch.from_numpy(arrays["label"]).long()
        if probability.dim() == 1:  # of yes
            probability = torch.stack([1 - probability, probability], 1)
        if kind == "accuracy":
            reward = (probability.argmax(1) == label).to(outputs.dtype)
        else:
            of_label = probability.gather(1, label[:, None]).squeeze(1)
            sign = -1 if kind == "log" else 1
            of_kind = 1 - of_label if kind == "log" else of_label
            reward = sign * of_kind.clamp(min=torch.finfo(outputs.dtype).tiny).log().to(outputs.dtype)
        return to_device(reward, outputs.device)

    def evaluation_reward(self, batch: Batch, targets: Mapping[str, Tensor], kind: Reward) -> Tensor:
        """Return the reward in evaluation mode, without samples and gradients, ``[examples]``."""
        with in_evaluation_mode(self.model), self.fabric.autocast():
            return self.reward(self.model(batch).float(), targets, kind)
