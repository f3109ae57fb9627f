"""How the learning rate changes over a run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Literal

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau


def rate_factor(step: int, steps: int, schedule: str, warmup: float) -> float:
    """What part of the full learning rate a step takes.

    The first ``floor(warmup * steps)`` steps rise in a straight line and end at the full rate. Of the others, the first
    takes the full rate too; from it ``"linear"`` falls in a straight line and ``"cosine"`` as half a wave of the
    cosine (eq. 5 of Loshchilov & Hutter 2017, without restarts), both to 0 where the step after the last would be.

    Args:
        step: steps that were done before it.
        steps: of the whole run.
        schedule: ``"constant"``, ``"cosine"`` or ``"linear"``.
        warmup: part of the steps in which the rate rises, a fraction below 1.
    """
    rising = int(warmup * steps)
    if step < rising:
        return (step + 1) / rising
    if schedule == "constant":
        return 1.0
    done = (step - rising) / (steps - rising)
    return 1.0 - done if schedule == "linear" else (1.0 + math.cos(math.pi * done)) / 2


def rate_scheduler(
    optimizer: Optimizer, learning_rate: float, schedule: str, warmup: float, *, steps: int, done: int
) -> LambdaLR:
    """A scheduler that stands after ``done`` of ``steps`` steps, whatever rate the optimiser had before."""
    for group in optimizer.param_groups:
        group["initial_lr"] = learning_rate
    factor = partial(rate_factor, steps=steps, schedule=schedule, warmup=warmup)
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
    """Return a scheduler that has seen ``values``, whatever rate the optimiser had before.

    Args:
        optimizer: whose rate it lowers.
        learning_rate: what a run begins with.
        factor: what the rate is multiplied by.
        patience: evaluations in a row that may bring no better value.
        mode: whether larger or smaller values are better.
        values: of the evaluations before.
    """
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    scheduler = ReduceLROnPlateau(optimizer, mode=mode, factor=factor, patience=patience, threshold=0.0, eps=0.0)
    for value in values:
        scheduler.step(value)
    return scheduler
