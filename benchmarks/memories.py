"""A neural stack over sequences of known actions, against plain ways of running it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.agreement import compare_outcomes
from benchmarks.timing import Budget, Row, compare
from benchmarks.ways import Outcome
from treemem.nn import NeuralStack
from treemem.ops.strength_memory import StrengthState, naive_run, popped, read_weights, run_sequence

Run = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From values ``[batch, time, size]`` and strengths of push and pop ``[batch, time]`` to what is read at each step."""


def ours(value: Tensor, push: Tensor, pop: Tensor) -> Tensor:
    """The whole sequence at once."""
    return run_sequence(value, push, pop, "top")


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


MEMORY_BASELINES: dict[str, Run] = {
    "cell-loop": item_by_item,
    "vectorised-autograd": vectorised,
    "step-by-step": step_by_step,
}


@dataclass(frozen=True)
class MemoryWorkload:
    """Sequences of random values and strengths.

    Attributes:
        time, batch_size, size: steps, sequences, and numbers of a value.
    """

    time: int = 128
    batch_size: int = 32
    size: int = 64

    @property
    def name(self) -> str:
        """As in the table."""
        return f"neural stack {self.time} steps"

    def arguments(self, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
        """Random values, and strengths between 0 and 1."""
        generator = torch.Generator().manual_seed(0)
        value = torch.randn(self.batch_size, self.time, self.size, generator=generator).to(dtype)
        push, pop = torch.rand(2, self.batch_size, self.time, generator=generator).to(dtype)
        return value.requires_grad_(), push.requires_grad_(), pop.requires_grad_()

    def measured(self, baselines: Sequence[str], budget: Budget) -> Iterator[Row]:
        """The rows, after all ways of running it were found to agree.

        Raises:
            Disagreement: they do not.
        """
        chosen = [name for name in MEMORY_BASELINES if name in baselines]
        small = MemoryWorkload(12, 3, 5)
        expected = small.outcome(item_by_item)
        for name, run in {"ours": ours, **{name: MEMORY_BASELINES[name] for name in chosen}}.items():
            compare_outcomes(f"{self.name}: {name}", small.outcome(run), expected)
        arguments = self.arguments()

        def train(run: Run) -> int:
            for each in arguments:
                each.grad = None
            run(*arguments).sum().backward()
            return self.batch_size

        @torch.no_grad()
        def score(run: Run) -> int:
            run(*arguments)
            return self.batch_size

        for name in chosen:
            for mode, work in (("training", train), ("inference", score)):
                run = MEMORY_BASELINES[name]
                yield compare(self.name, mode, name, lambda: work(ours), lambda: work(run), budget)  # noqa: B023

    def outcome(self, run: Run) -> Outcome:
        """What a way of running it reads in float64, and the gradients of a sum that weighs the readouts."""
        arguments = self.arguments(torch.float64)
        found = run(*arguments)
        (found * torch.arange(found.numel(), dtype=torch.float64).view_as(found).cos()).sum().backward()
        names = ("value", "push", "pop")
        gradients = {name: each.grad for name, each in zip(names, arguments, strict=True) if each.grad is not None}
        return Outcome(found.detach(), gradients)


MEMORIES = (MemoryWorkload(),)
QUICK_MEMORIES = (MemoryWorkload(16, 4, 8),)
