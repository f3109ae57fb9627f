"""The neural stack and the superposition stack of other libraries, beside ours: equal readouts, and how fast.

``python -m benchmarks.peers_of_memories --stacknn FOLDER --nsrnn FOLDER``: checkouts of viking-sudo-rm/StackNN and of
bdusell/nondeterministic-stack-rnn. All run the same known actions, forwards and backwards, in one process and in turns.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.memories import random_actions, step_by_step
from benchmarks.report import as_markdown, environment
from benchmarks.timing import Budget, compare
from treemem.nn import NeuralStack, SuperpositionStack

Run = Callable[[Tensor, Tensor, Tensor], Tensor]


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


def main() -> None:
    """Compare readouts in float64, then rates."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers_of_memories", description=__doc__)
    parser.add_argument("--stacknn", type=Path, metavar="FOLDER", required=True)
    parser.add_argument("--nsrnn", type=Path, metavar="FOLDER", required=True)
    options = parser.parse_args()
    sys.path[:0] = [str(options.stacknn), str(options.nsrnn / "src")]
    torch.set_num_threads(1)
    print(environment())
    rows = []
    for name, ours, theirs, halved in (
        ("StackNN", NeuralStack(), stacknn, False),
        ("StackNN", step_by_step, stacknn, False),
        ("nondeterministic-stack-rnn", NeuralStack(), nsrnn_stack, False),
        ("nondeterministic-stack-rnn", step_by_step, nsrnn_stack, False),
        ("nondeterministic-stack-rnn", superposition, nsrnn_superposition, True),
    ):
        factor = 0.5 if halved else 1.0  # the weights of actions have a sum of at most 1
        value, push, pop = random_actions(20, 4, 8, torch.float64)
        torch.set_default_dtype(torch.float64)
        given = (value, factor * push, factor * pop)
        apart = (ours(*given) - theirs(*given)).detach().abs().max()
        torch.set_default_dtype(torch.float32)
        arguments = random_actions(128, 32, 64, torch.float32)

        def train(run: Run, arguments: tuple[Tensor, ...] = arguments, factor: float = factor) -> int:
            run(arguments[0], factor * arguments[1], factor * arguments[2]).sum().backward()
            return len(arguments[0])

        what = getattr(ours, "__name__", type(ours).__name__)
        print(f"{what} and {name}: readouts differ by {float(apart):.1e}", flush=True)
        rows.append(
            compare(what, "training", name, lambda: train(ours), lambda: train(theirs), Budget(rounds=3))  # noqa: B023
        )
    print(as_markdown(rows))


if __name__ == "__main__":
    main()
