"""A neural stack over sequences of known actions, against plain ways of running it."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from benchmarks.device import measured_device
from benchmarks.operations import Operation, OperationWorkload
from treemem.networks.memories.neural_stack.equations import (
    StrengthState,
    naive_run,
    popped,
    read_weights,
)
from treemem.networks.memories.neural_stack.run import known_actions
from treemem.nn import NeuralStack


def item_by_item(value: Tensor, push: Tensor, pop: Tensor) -> Tensor:
    """A loop over steps and, in each, over items, as the equations and the code of StackNN have it."""
    return naive_run(value, push, pop, "top")[0]


def step_by_step(value: Tensor, push: Tensor, pop: Tensor) -> Tensor:
    """The steps that a controller takes, one after the other."""
    stack = NeuralStack()
    state: StrengthState = stack.initial(len(value), value.shape[2], value)
    readouts = []
    for step in range(value.shape[1]):
        state, readout = stack.step(state, value[:, step], push[:, step], pop[:, step])
        readouts.append(readout)
    return torch.stack(readouts, 1)


def vectorised(value: Tensor, push: Tensor, pop: Tensor) -> Tensor:
    """All items of a step at once, under autograd, and all readouts in one product."""
    time = value.shape[1]
    strength, weights = value.new_zeros(len(value), 0), []
    for step in range(time):
        strength = torch.cat([popped(strength, pop[:, step], "top"), push[:, step : step + 1]], 1)
        weights.append(torch.nn.functional.pad(read_weights(strength, "top"), (0, time - step - 1)))
    return torch.stack(weights, 1) @ value


def random_actions(time: int, batch_size: int, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Random values ``[batch, time, size]``, and strengths of push and pop between 0 and 1, ``[batch, time]``."""
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(batch_size, time, size, generator=generator).to(measured_device(), dtype)
    push, pop = torch.rand(2, batch_size, time, generator=generator).to(measured_device(), dtype)
    return value.requires_grad_(), push.requires_grad_(), pop.requires_grad_()


def neural_stack(time: int, batch_size: int, size: int, small: bool, dtype: torch.dtype) -> Operation:
    """A neural stack over random values and strengths."""
    time, batch_size, size = (12, 3, 5) if small else (time, batch_size, size)
    value, push, pop = random_actions(time, batch_size, size, dtype)
    others = {"cell-loop": item_by_item, "vectorised-autograd": vectorised, "step-by-step": step_by_step}
    return Operation(
        batch_size,
        {"value": value, "push": push, "pop": pop},
        lambda _: known_actions(value, push, pop, "top"),
        {name: lambda _, run=run: run(value, push, pop) for name, run in others.items()},
        tuple(others),
    )


MEMORIES = (OperationWorkload("neural stack 128 steps", partial(neural_stack, 128, 32, 64)),)
QUICK_MEMORIES = (OperationWorkload("neural stack 16 steps", partial(neural_stack, 16, 4, 8)),)
MEMORY_BASELINES = ("cell-loop", "vectorised-autograd", "step-by-step")
