"""Stacks, queues and deques whose items have strengths."""

from __future__ import annotations

from typing import ClassVar

import torch

from treemem.checked_options import checked_scale
from treemem.errors import GraphError
from treemem.networks.memories.controllers.cuda import KernelMemory
from treemem.networks.memories.memory import CompiledMemory, Control, Memory, check_step, like_or_default
from treemem.networks.memories.neural_stack.cuda import strengths_in_kernels
from treemem.networks.memories.neural_stack.equations import (
    End,
    StrengthState,
    popped,
    read_weights,
    strength_step,
)
from treemem.networks.memories.neural_stack.native import Strengths, with_room
from treemem.networks.memories.neural_stack.run import known_actions


class _StrengthMemory(Memory):
    """A memory whose items have strengths, with a push, a pop and a readout at each of some ends."""

    ends: ClassVar[tuple[End, ...]]
    read_strength = 1.0

    def initial(self, batch_size: int, size: int, like: torch.Tensor | None = None) -> StrengthState:
        """Return a memory without items. The items of a state are bottom first."""
        return StrengthState.empty(batch_size, size, like_or_default(like))

    def controls(self, size: int) -> tuple[Control, ...]:
        """``value`` by tanh, ``push`` and ``pop`` by sigmoids with initial biases 1 and -1 (0.73 and 0.27).

        With two ends there are two of each.
        """
        width = 0 if len(self.ends) == 1 else len(self.ends)
        return (
            Control(("value",), len(self.ends) * size, "tanh"),
            Control(("push",), width, "sigmoid", bias=1.0),
            Control(("pop",), width, "sigmoid", bias=-1.0),
        )

    def readout_size(self, size: int) -> int:
        """The width of the values, at each end."""
        return len(self.ends) * size

    def compiled(self, state: StrengthState, steps: int) -> CompiledMemory | None:
        """All of it; that of a user's subclass step by step."""
        if type(self) not in (NeuralStack, NeuralQueue, NeuralDeque):
            return None
        state.check()
        pushed_below = steps if len(self.ends) == 2 else 0

        def made(strength: torch.Tensor, items: torch.Tensor) -> Strengths:
            return Strengths(strength, items, pushed_below, state.items.shape[1], self.ends, self.read_strength)

        def after(strength: torch.Tensor, items: torch.Tensor) -> StrengthState:
            return StrengthState(strength, items, below=state.below + pushed_below)

        return CompiledMemory(
            Strengths.source, with_room(state.strength, state.items, pushed_below, steps), made, after
        )

    def kernels(self, state: StrengthState, steps: int) -> KernelMemory | None:
        """All of it; that of a user's subclass step by step."""
        if type(self) not in (NeuralStack, NeuralQueue, NeuralDeque):
            return None
        state.check()
        return strengths_in_kernels(state, steps, self.ends, self.read_strength)


class _OneEnded(_StrengthMemory):
    """A memory that pops and reads at one end and pushes at the top.

    Args:
        read_strength: the total strength of a readout; 1 in the paper.
    """

    def __init__(self, read_strength: float = 1.0) -> None:
        super().__init__()
        self.read_strength = checked_scale("read_strength", read_strength)

    def step(  # type: ignore[override]
        self, state: StrengthState, value: torch.Tensor, push: torch.Tensor, pop: torch.Tensor
    ) -> tuple[StrengthState, torch.Tensor]:
        """Pop, push, then read.

        Args:
            state: the state of the previous step, which does not change.
            value: ``[batch, size]``.
            push, pop: strengths, ``[batch]``. Their values are not checked.

        Raises:
            GraphError: a wrong shape.
        """
        check_step(state.items, value, push, pop)
        return strength_step(state, value, push, pop, self.ends[0], self.read_strength)

    def forward(self, value: torch.Tensor, push: torch.Tensor, pop: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return the readout after each step, ``[batch, time, size]``, without a Python loop over steps.

        Args:
            value: ``[batch, time, size]``.
            push, pop: ``[batch, time]``, not negative.

        Raises:
            GraphError: a wrong shape, or a strength that is negative or NaN.
        """
        self._check(value, (push, pop))
        if not bool((push >= 0).all() & (pop >= 0).all()):
            raise GraphError("a strength of push or pop is negative or NaN; strengths must be at least 0")
        return known_actions(value, push, pop, self.ends[0], self.read_strength)


class NeuralStack(_OneEnded):
    """The neural stack (Grefenstette et al. 2015, eq. 1-3).

    Each item has a strength. A step removes strength ``pop`` from the top, pushes a value with strength ``push``, and
    reads from the top down to a total strength of 1: the readout is the sum of these values, weighted by strength.

    Args:
        read_strength: the total strength of a readout; 1 in the paper.

    Example:
        >>> stack = NeuralStack()
        >>> state = stack.initial(1, 2)
        >>> state, _ = stack.step(state, torch.tensor([[1.0, 0.0]]), torch.tensor([1.0]), torch.tensor([0.0]))
        >>> state, readout = stack.step(state, torch.tensor([[0.0, 1.0]]), torch.tensor([0.5]), torch.tensor([0.0]))
        >>> readout
        tensor([[0.5000, 0.5000]])
    """

    ends = ("top",)


class NeuralQueue(_OneEnded):
    """The neural queue (Grefenstette et al. 2015, eq. 6-7): a :class:`NeuralStack` that pops and reads its old end.

    Args:
        read_strength: the total strength of a readout; 1 in the paper.

    Example:
        >>> push, pop = torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[0.0, 0.0, 1.0]])
        >>> NeuralQueue()(torch.tensor([[[1.0], [2.0], [3.0]]]), push, pop).flatten().tolist()
        [1.0, 1.0, 2.0]
    """

    ends = ("bottom",)


class NeuralDeque(_StrengthMemory):
    """The neural deque (Grefenstette et al. 2015, section 3.3): it pushes, pops and reads at both ends.

    A step pops at the top, pops at the bottom, pushes at both ends, and reads both. Values are ``[batch, 2, size]``,
    strengths ``[batch, 2]``, and the readout ``[batch, 2 * size]``, the top first.

    Example:
        >>> deque, both = NeuralDeque(), torch.ones(1, 2)
        >>> _, readout = deque.step(deque.initial(1, 1), torch.tensor([[[1.0], [2.0]]]), both, 0 * both)
        >>> readout.tolist()
        [[1.0, 2.0]]
    """

    ends = ("top", "bottom")

    def step(  # type: ignore[override]
        self, state: StrengthState, value: torch.Tensor, push: torch.Tensor, pop: torch.Tensor
    ) -> tuple[StrengthState, torch.Tensor]:
        """Pop at both ends, push at both, then read both.

        Args:
            state: the state of the previous step, which does not change.
            value: ``[batch, 2, size]`` or ``[batch, 2 * size]``.
            push, pop: strengths, ``[batch, 2]``. They are not checked.
        """
        value = value.view(len(value), 2, -1)
        left = popped(popped(state.strength, pop[:, 0], "top"), pop[:, 1], "bottom")
        strength = torch.cat([push[:, 1:], left, push[:, :1]], 1)
        items = torch.cat([value[:, 1:], state.items, value[:, :1]], 1)
        weight = torch.stack([read_weights(strength, "top"), read_weights(strength, "bottom")], 1)
        return StrengthState(strength, items, below=state.below + 1), torch.bmm(weight, items).flatten(1)
