"""Stacks of other libraries, beside ours: equal readouts, and how fast.

``python -m benchmarks.peers_of_memories --stacknn FOLDER --nsrnn FOLDER``: checkouts of viking-sudo-rm/StackNN and of
bdusell/nondeterministic-stack-rnn, whose nondeterministic stack needs torch-semiring-einsum and attrs. All run the same
known actions, forwards and backwards, in one process and in turns.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.memories import random_actions, step_by_step
from benchmarks.report import as_markdown, environment
from benchmarks.timing import Budget, compare
from treemem.nn import NeuralStack, NondeterministicStack, SuperpositionStack

Run = Callable[[Tensor, Tensor, Tensor], Tensor]
NSRNN = "nondeterministic-stack-rnn"
STATES_AND_SYMBOLS = (3, 3)
"""Of the nondeterministic stack."""


def stacknn(value: Tensor, push: Tensor, pop: Tensor) -> Tensor:
    """The ``Stack`` of StackNN."""
    from structs.simple import Stack

    stack = Stack(len(value), value.shape[2])
    steps = range(value.shape[1])
    return torch.stack([stack(value[:, step], pop[:, step], push[:, step], 1.0) for step in steps], 1)


def nsrnn_stack(value: Tensor, push: Tensor, pop: Tensor) -> Tensor:
    """The ``GrefenstetteStack`` of nondeterministic-stack-rnn."""
    from stack_rnn_models.grefenstette import GrefenstetteStack

    stack = GrefenstetteStack([], torch.zeros_like(value[:, 0]))
    readouts = []
    for step in range(value.shape[1]):
        stack = stack.next(torch.stack([push[:, step], pop[:, step]], 1), value[:, step])
        readouts.append(stack.reading())
    return torch.stack(readouts, 1)


def nsrnn_superposition(value: Tensor, push: Tensor, pop: Tensor) -> Tensor:
    """The ``JoulinMikolovStack`` of nondeterministic-stack-rnn; what push and pop leave of 1 is the no-op."""
    from stack_rnn_models.joulin_mikolov import JoulinMikolovStack

    stack = JoulinMikolovStack(value.new_zeros(len(value), value.shape[2], 0), 0, float("inf"), float("inf"))
    readouts = []
    for step in range(value.shape[1]):
        up, down = push[:, step, None], pop[:, step, None]
        stack = stack.next(*(each.expand_as(value[:, 0]) for each in (up, down, 1 - up - down)), value[:, step])
        readouts.append(stack.reading())
    return torch.stack(readouts, 1)


def superposition(value: Tensor, push: Tensor, pop: Tensor) -> Tensor:
    """Our superposition stack, as deep as the sequence is long."""
    return SuperpositionStack(value.shape[1], empty=0.0)(value, push, pop)


def nsrnn_nondeterministic(push: Tensor, replace: Tensor, pop: Tensor) -> Tensor:
    """The ``NondeterministicStack`` of nondeterministic-stack-rnn."""
    from lib.semiring import log
    from stack_rnn_models.nondeterministic_stack import NondeterministicStack as Published

    batch, time = push.shape[:2]
    shape = (*STATES_AND_SYMBOLS, *STATES_AND_SYMBOLS)
    stack = Published(batch, *STATES_AND_SYMBOLS, time + 1, True, 32, push.dtype, push.device, log)
    readouts = []
    for step in range(time):
        pushed, replaced = (each[:, step].view(batch, *shape) for each in (push, replace))
        stack.update(pushed, replaced, pop[:, step].view(batch, *shape[:3]))
        readouts.append(stack.reading())
    return torch.stack(readouts, 1)


def random_weights(time: int, batch_size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Random logarithms of the weights of a nondeterministic stack's actions, ``[batch, time, ...]``."""
    generator = torch.Generator().manual_seed(0)
    states, symbols = STATES_AND_SYMBOLS
    widths = [(states * symbols) ** 2] * 2 + [states**2 * symbols]
    push, replace, pop = (
        torch.randn(batch_size, time, width, generator=generator, dtype=dtype).requires_grad_() for width in widths
    )
    return push, replace, pop


def half_actions(time: int, batch_size: int, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Random values and weights of actions that have a sum of at most 1."""
    value, push, pop = random_actions(time, batch_size, size, dtype)
    return value, (push / 2).detach().requires_grad_(), (pop / 2).detach().requires_grad_()


class Pair(NamedTuple):
    """Two that do the same.

    Attributes:
        name: of ours.
        of: the other library.
        ours, theirs: what they do.
        given: makes the arguments, by a type.
        few: the same, small.
    """

    name: str
    of: str
    ours: Run
    theirs: Run
    given: Callable[[torch.dtype], tuple[Tensor, Tensor, Tensor]]
    few: Callable[[torch.dtype], tuple[Tensor, Tensor, Tensor]]


def pairs() -> list[Pair]:
    """Return what is compared."""
    found = [
        Pair(name, of, ours, theirs, partial(make, 128, 32, 64), partial(make, 20, 4, 8))
        for name, of, ours, theirs, make in (
            ("neural stack", "StackNN", NeuralStack(), stacknn, random_actions),
            ("neural stack, by steps", "StackNN", step_by_step, stacknn, random_actions),
            ("neural stack", NSRNN, NeuralStack(), nsrnn_stack, random_actions),
            ("neural stack, by steps", NSRNN, step_by_step, nsrnn_stack, random_actions),
            ("superposition stack", NSRNN, superposition, nsrnn_superposition, half_actions),
        )
    ]
    ours, theirs = NondeterministicStack(*STATES_AND_SYMBOLS), nsrnn_nondeterministic
    for time in (40, 80):
        name = f"nondeterministic stack, {time} steps"
        found.append(Pair(name, NSRNN, ours, theirs, partial(random_weights, time, 10), partial(random_weights, 9, 2)))
    return found


def main() -> None:
    """Compare readouts in float64, then rates."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers_of_memories", description=__doc__)
    parser.add_argument("--stacknn", type=Path, metavar="FOLDER", required=True)
    parser.add_argument("--nsrnn", type=Path, metavar="FOLDER", required=True)
    parser.add_argument("--only", metavar="WORD", default="", help="only comparisons with this word in their names")
    options = parser.parse_args()
    sys.path[:0] = [str(options.stacknn), str(options.nsrnn / "src")]
    torch.set_num_threads(1)
    print(environment())
    rows = []
    for pair in pairs():
        if options.only not in pair.name:
            continue
        torch.set_default_dtype(torch.float64)
        few = pair.few(torch.float64)
        apart = (pair.ours(*few) - pair.theirs(*few)).detach().abs().max()
        torch.set_default_dtype(torch.float32)
        print(f"{pair.name} and {pair.of}: readouts differ by {float(apart):.1e}", flush=True)
        given = pair.given(torch.float32)

        def train(run: Run, given: tuple[Tensor, ...] = given) -> int:
            run(*given).sum().backward()
            return len(given[0])

        ours, theirs = partial(train, pair.ours), partial(train, pair.theirs)
        rows.append(compare(pair.name, "training", pair.of, ours, theirs, Budget(rounds=3)))
    print(as_markdown(rows))


if __name__ == "__main__":
    main()
