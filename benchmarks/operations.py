"""Operations over sequences, each against other ways of running it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.agreement import compare_outcomes
from benchmarks.timing import Budget, Row, compare, compare_calls
from benchmarks.ways import Outcome

Run = Callable[[float], Tensor]
"""From a rate of dropout to the outputs."""


class Operation(NamedTuple):
    """One batch, and the ways of running an operation on it.

    Attributes:
        examples: number of sequences.
        leaves: inputs and parameters by name.
        ours: our way.
        others: the baselines by name.
        alike: names of the baselines that compute the same.
        dropout: the rate in training.
    """

    examples: int
    leaves: Mapping[str, Tensor]
    ours: Run
    others: Mapping[str, Run]
    alike: Sequence[str]
    dropout: float = 0.0

    def train(self, run: Run) -> int:
        """Run forwards and backwards; how many sequences that was."""
        for leaf in self.leaves.values():
            leaf.grad = None
        run(self.dropout).sum().backward()
        return self.examples

    @torch.no_grad()
    def score(self, run: Run) -> int:
        """Run without dropout; how many sequences that was."""
        run(0.0)
        return self.examples


@dataclass(frozen=True)
class OperationWorkload:
    """An operation and its baselines.

    Attributes:
        name: as in the table.
        make: makes the batch, of the full or of a small size, in a dtype.
    """

    name: str
    make: Callable[[bool, torch.dtype], Operation]

    def measured(self, baselines: Sequence[str], budget: Budget) -> Iterator[Row]:
        """The rows, after all ways of running it were found to agree.

        Raises:
            Disagreement: they do not.
        """
        small = self.make(True, torch.float64)
        chosen = [name for name in small.others if name in baselines]
        expected = outcome_of(small, small.ours)
        for name in chosen:
            if name in small.alike:
                compare_outcomes(f"{self.name}: {name}", outcome_of(small, small.others[name]), expected)
        full = self.make(False, torch.float32)
        for name in chosen:
            for mode, work in (("training", full.train), ("inference", full.score)):
                run = full.others[name]
                arms = (lambda: work(full.ours)), (lambda: work(run))  # noqa: B023
                yield compare(self.name, mode, name, *arms, budget)
                yield from compare_calls(self.name, mode, name, *arms)


def outcome_of(operation: Operation, run: Run) -> Outcome:
    """What a way gives without dropout, and the gradients of a sum that weighs the outputs."""
    for leaf in operation.leaves.values():
        leaf.grad = None
    found = run(0.0)
    place = torch.arange(found.numel(), dtype=found.dtype, device=found.device)
    (found * place.view_as(found).cos()).sum().backward()
    gradients = {name: leaf.grad.clone() for name, leaf in operation.leaves.items() if leaf.grad is not None}
    return Outcome(found.detach(), gradients)
