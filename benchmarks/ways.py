"""Ways of running a problem: one unit of work a call, with an outcome that can be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import cycle
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from benchmarks.problem import Problem, Step
from treemem.engines.propagate import Engine
from treemem.schedule.tree_batch import TreeBatch

Encode = Callable[[TreeBatch, Tensor | None], Tensor]
"""Batch and features to what the head reads."""


class Outcome(NamedTuple):
    """What all ways of running a problem must agree on.

    Attributes:
        scores: what the head says of all examples.
        gradients: of the mean loss, by the names of the problem's parameters.
    """

    scores: Tensor
    gradients: dict[str, Tensor]


class Way(Protocol):
    """A way of running a problem. A unit of work is a batch, or what stands for one."""

    def train(self) -> int:
        """Loss and backward of the next unit, without the step of an optimiser; how many examples that was."""
        ...

    def score(self) -> int:
        """Scores of the next unit; how many examples that was."""
        ...

    def outcome(self) -> Outcome | None:
        """The outcome for the problem's only batch; None for what computes no scores."""
        ...


class Tie(NamedTuple):
    """A parameter of a twin, a network written otherwise, is a part of a parameter of ours.

    Attributes:
        twin: the twin's.
        name: ours, as in ``Problem.parameters``.
        part: which part of it.
    """

    twin: Tensor
    name: str
    part: tuple[int | slice | Tensor, ...] = ()


class Ties:
    """All ties of a twin."""

    def __init__(self, problem: Problem, ties: Iterable[Tie]) -> None:
        self._ties = list(ties)
        self._ours = problem.parameters()
        with torch.no_grad():
            for tie in self._ties:
                tie.twin.copy_(self._ours[tie.name][tie.part])

    def zero_grad(self) -> None:
        """Forget the twin's gradients."""
        for tie in self._ties:
            tie.twin.grad = None

    def gradients(self) -> dict[str, Tensor]:
        """The twin's gradients under the names of our parameters."""
        found = {tie.name: torch.zeros_like(self._ours[tie.name]) for tie in self._ties}
        for tie in self._ties:
            if tie.twin.grad is not None:
                found[tie.name][tie.part] += tie.twin.grad
        return found


class ByBatch:
    """Batch after batch, through the problem's own head.

    Args:
        problem: what to run.
        encode: how.
        ties: of the twin that ``encode`` belongs to; None where it uses the problem's own parameters.
        steps: batches made before; by default each is made when its turn comes, as in training.
    """

    def __init__(
        self, problem: Problem, encode: Encode, ties: Ties | None = None, steps: list[Step] | None = None
    ) -> None:
        self.problem = problem
        self._encode = encode
        self._ties = ties
        self._steps = steps
        self._numbers = cycle(range(len(problem)))

    def train(self) -> int:
        """Loss and backward of the next batch."""
        step = self._next()
        self.problem.zero_grad()
        if self._ties is not None:
            self._ties.zero_grad()
        self.problem.loss(self._encode(step.batch, step.feat), step.label).backward()
        return len(step.batch)

    @torch.no_grad()
    def score(self) -> int:
        """Scores of the next batch."""
        step = self._next()
        self.problem.head(self._encode(step.batch, step.feat))
        return len(step.batch)

    def outcome(self) -> Outcome:
        """Scores and gradients for the problem's only batch."""
        step = self._next()
        with torch.no_grad():
            scores = self.problem.head(self._encode(step.batch, step.feat))
        self.train()
        own = {name: value.grad for name, value in self.problem.parameters().items() if value.grad is not None}
        return Outcome(scores, own if self._ties is None else own | self._ties.gradients())

    def _next(self) -> Step:
        number = next(self._numbers)
        return self.problem.step(number) if self._steps is None else self._steps[number]


def by_engine(problem: Problem, engine: Engine = "auto", steps: list[Step] | None = None) -> ByBatch:
    """The library's layer on one of its engines."""

    def encode(batch: TreeBatch, feat: Tensor | None) -> Tensor:
        problem.layer.engine = engine
        states = problem.layer(batch, feat)
        return states.h if problem.examples.every_node else states.root

    return ByBatch(problem, encode, steps=steps)
