"""Learning-rate schedules, and the exponential moving average (EMA) of the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from treemem.metrics.score import Monitor


def averaged_model(model: nn.Module, decay: float) -> AveragedModel:
    """Return a copy of the model that keeps the EMA of its weights; call ``update_parameters(model)`` after each step.

    Step t (from 0) uses the decay ``min(decay, (1 + t) / (10 + t))``, as TensorFlow's ``ExponentialMovingAverage``
    does, so the initial weights fade quickly. Buffers are not averaged.
    """

    def average(averaged: Sequence[Tensor], current: Sequence[Tensor], _: Any) -> None:
        steps = int(result.n_averaged)  # on the CPU; reading the argument would wait for the device
        get_ema_multi_avg_fn(min(decay, (1 + steps) / (10 + steps)))(averaged, current, steps)

    result = AveragedModel(model, multi_avg_fn=average)
    return result


def average_is_due(value: float, before: Sequence[float], after: int | None, monitor: Monitor) -> bool:
    """Return whether the average of NT-ASGD begins (alg. 1 of Merity et al. 2018).

    Args:
        value: the last evaluation.
        before: those before it.
        after: the number of evaluations before it that do not count; None: never.
        monitor: which values are better.
    """
    if after is None or len(before) <= after:
        return False
    best = min(before[:-after]) if monitor.mode == "min" else max(before[:-after])
    return best != value and monitor.is_better(best, value)


def rate_factor(step: int, steps: int, schedule: str, warmup: float) -> float:
    """Return the fraction of the full learning rate for a step, counted from 0.

    The rate rises linearly over the first ``floor(warmup * steps)`` steps. From the full rate, ``"linear"`` then falls
    linearly and ``"cosine"`` as half a cosine wave (eq. 5 of Loshchilov & Hutter 2017, without restarts). Both would
    reach 0 one step after the last.

    Args:
        step: number of steps done.
        steps: number of steps of the whole run.
        schedule: ``"constant"``, ``"cosine"`` or ``"linear"``.
        warmup: fraction of the steps, below 1.
    """
    rising = int(warmup * steps)
    if step < rising:
        return (step + 1) / rising
    if schedule == "constant":
        return 1.0
    done = (step - rising) / (steps - rising)
    return 1.0 - done if schedule == "linear" else (1.0 + math.cos(math.pi * done)) / 2


def rate_scheduler(
    optimizer: Optimizer, learning_rate: float, factor: Callable[[int], float], *, done: int
) -> LambdaLR:
    """Return a scheduler that continues after ``done`` steps; ``factor`` of their number is :func:`rate_factor`."""
    for group in optimizer.param_groups:
        group["initial_lr"] = learning_rate
    return LambdaLR(optimizer, factor, last_epoch=done - 1)


def plateau_scheduler(
    optimizer: Optimizer,
    learning_rate: float,
    factor: float,
    patience: int,
    *,
    mode: Literal["max", "min"],
    values: Iterable[float],
) -> ReduceLROnPlateau:
    """Return torch's ``ReduceLROnPlateau`` after it has seen the evaluations ``values``.

    Args:
        optimizer: its rate is set.
        learning_rate: the initial rate.
        factor, patience, mode: as in torch.
        values: earlier evaluations of the run.
    """
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    scheduler = ReduceLROnPlateau(optimizer, mode=mode, factor=factor, patience=patience, threshold=0.0, eps=0.0)
    for value in values:
        scheduler.step(value)
    return scheduler
