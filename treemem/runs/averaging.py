"""The moving average of a model's weights over the steps of its training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def averaged_model(model: nn.Module, decay: float) -> AveragedModel:
    """A copy of the model for the exponential moving average of its weights.

    After the first step the average is the weights themselves. After each further one it is d times the average and
    1 - d times the weights, where d is ``min(decay, (1 + t) / (10 + t))`` and t counts the steps before (as in
    TensorFlow's ``ExponentialMovingAverage``), so that the first weights are soon forgotten. Buffers are not averaged.

    Args:
        model: whose weights ``update_parameters`` will be given.
        decay: above 0 and below 1.
    """

    def average(averaged: Sequence[Tensor], current: Sequence[Tensor], _: Any) -> None:
        steps = int(result.n_averaged)  # on the CPU; the argument is on the weights' device, which it would wait for
        get_ema_multi_avg_fn(min(decay, (1 + steps) / (10 + steps)))(averaged, current, steps)

    result = AveragedModel(model, multi_avg_fn=average)
    return result
