"""Memories that a controller drives: what they have in common, and those with strengths or superpositions.

A memory has no parameters. At each step it takes a value and actions, and gives its next state and what is read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from treemem.checked_options import checked_count
from treemem.errors import GraphError
from treemem.ops.strength_memory import End, StrengthState, popped, read_weights, run_sequence, strength_step
from treemem.ops.superposition_memory import list_step, stack_step

Form = Literal["tanh", "sigmoid", "softmax", "linear", "output"]


class Control(NamedTuple):
    """Arguments of a memory's step that a controller computes together.

    Attributes:
        names: of the arguments.
        size: of each, ``[batch, size]``; 0 for a number, ``[batch]``.
        form: what makes them out of a linear map; ``"softmax"`` over all arguments of numbers. ``"output"`` is the
            controller's output itself, without a linear map.
        bias: of the linear map at the beginning of training; None for torch's.
    """

    names: tuple[str, ...]
    size: int
    form: Form
    bias: float | None = None


class Memory(torch.nn.Module, ABC):
    """A differentiable data structure, batch first, for any controller.

    A subclass defines :meth:`initial`, :meth:`step` and :meth:`controls`, and ``readout_size`` if what is read is not
    of the values' size.
    """

    @abstractmethod
    def initial(self, batch_size: int, size: int, like: torch.Tensor | None = None) -> Any:
        """Return the empty memory.

        Args:
            batch_size: how many memories.
            size: width of the values.
            like: a tensor of the device and type of the values; by default torch's defaults.
        """

    @abstractmethod
    def step(self, state: Any, value: torch.Tensor, *actions: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """Return the next state and what is then read, ``[batch, readout_size]``."""

    @abstractmethod
    def controls(self, size: int) -> tuple[Control, ...]:
        """Return what :meth:`step` takes after the state, for values of a width, in its order."""

    def readout_size(self, size: int) -> int:
        """Return the width of what is read, for values of a width."""
        return size

    def forward(self, value: torch.Tensor, *actions: torch.Tensor) -> torch.Tensor:
        """Return what is read after each step of sequences of known actions, ``[batch, time, readout_size]``.

        Args:
            value: ``[batch, time, size]``.
            actions: as :meth:`step` takes them, with a second axis of time.

        Raises:
            GraphError: actions of other shapes.
        """
        self._check(value, actions)
        state = self.initial(len(value), value.shape[-1], value)
        readouts = []
        for step in range(value.shape[1]):
            state, readout = self.step(state, value[:, step], *(action[:, step] for action in actions))
            readouts.append(readout)
        return (
            torch.stack(readouts, 1) if readouts else value.new_zeros(len(value), 0, self.readout_size(value.shape[-1]))
        )

    def _check(self, value: torch.Tensor, actions: tuple[torch.Tensor, ...]) -> None:
        for action in actions:
            if action.shape[:2] != value.shape[:2]:
                raise GraphError(
                    f"values {[*value.shape]} need actions [{value.shape[0]}, {value.shape[1]}, ...], "
                    f"not {[*action.shape]}"
                )


def _like(like: torch.Tensor | None) -> torch.Tensor:
    return torch.empty(0) if like is None else like


class _OneEnded(Memory):
    """A memory that pops and reads at one end and pushes at the top.

    Args:
        read_strength: how much strength is read at a time; 1 in the paper.
    """

    end: ClassVar[End]

    def __init__(self, read_strength: float = 1.0) -> None:
        super().__init__()
        self.read_strength = read_strength

    def initial(self, batch_size: int, size: int, like: torch.Tensor | None = None) -> StrengthState:
        """Return a memory without items."""
        return StrengthState.empty(batch_size, size, _like(like))

    def step(  # type: ignore[override]
        self, state: StrengthState, value: torch.Tensor, push: torch.Tensor, pop: torch.Tensor
    ) -> tuple[StrengthState, torch.Tensor]:
        """Pop, push, then read.

        Args:
            state: of the step before; it stays as it is.
            value: ``[batch, size]``.
            push, pop: strengths, ``[batch]``. They are not checked: what is above 1 counts as it is.
        """
        return strength_step(state, value, push, pop, self.end, self.read_strength)

    def controls(self, size: int) -> tuple[Control, ...]:
        """``value`` by tanh, ``push`` and ``pop`` by sigmoids that begin near 0.73 and 0.27."""
        return (
            Control(("value",), size, "tanh"),
            Control(("push",), 0, "sigmoid", bias=1.0),
            Control(("pop",), 0, "sigmoid", bias=-1.0),
        )

    def forward(self, value: torch.Tensor, push: torch.Tensor, pop: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return what is read after each step, ``[batch, time, size]``, in one pass without a loop over steps.

        Args:
            value: ``[batch, time, size]``.
            push, pop: ``[batch, time]``, not negative.

        Raises:
            GraphError: other shapes, or a strength that is negative or no number.
        """
        self._check(value, (push, pop))
        if not bool((push >= 0).all() & (pop >= 0).all()):
            raise GraphError("strengths of push and pop are numbers of at least 0")
        return run_sequence(value, push, pop, self.end, self.read_strength)


class NeuralStack(_OneEnded):
    """The neural stack (Grefenstette et al. 2015, eq. 1-3).

    Items have strengths. A step takes ``pop`` of strength away from the top, pushes a value with strength ``push``, and
    reads a strength of 1 from the top down: the sum of the values that it meets, weighted by their strengths.

    Args:
        read_strength: how much strength is read; 1 in the paper.

    Example:
        >>> stack = NeuralStack()
        >>> state = stack.initial(1, 2)
        >>> state, _ = stack.step(state, torch.tensor([[1.0, 0.0]]), torch.tensor([1.0]), torch.tensor([0.0]))
        >>> state, readout = stack.step(state, torch.tensor([[0.0, 1.0]]), torch.tensor([0.5]), torch.tensor([0.0]))
        >>> readout
        tensor([[0.5000, 0.5000]])
    """

    end: ClassVar[End] = "top"


class NeuralQueue(_OneEnded):
    """The neural queue (Grefenstette et al. 2015, eq. 6-7): as :class:`NeuralStack`, popped and read at its old end.

    Args:
        read_strength: how much strength is read; 1 in the paper.

    Example:
        >>> push, pop = torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[0.0, 0.0, 1.0]])
        >>> NeuralQueue()(torch.tensor([[[1.0], [2.0], [3.0]]]), push, pop).flatten().tolist()
        [1.0, 1.0, 2.0]
    """

    end: ClassVar[End] = "bottom"


class NeuralDeque(Memory):
    """The neural deque (Grefenstette et al. 2015, section 3.3): pushed, popped and read at both ends.

    A step pops at the top, pops at the bottom, pushes at both ends, and reads both, as two of everything: values
    ``[batch, 2, size]``, strengths ``[batch, 2]``, the top first. What is read is ``[batch, 2 * size]``, the top first.

    Example:
        >>> deque, both = NeuralDeque(), torch.ones(1, 2)
        >>> _, readout = deque.step(deque.initial(1, 1), torch.tensor([[[1.0], [2.0]]]), both, 0 * both)
        >>> readout.tolist()
        [[1.0, 2.0]]
    """

    def initial(self, batch_size: int, size: int, like: torch.Tensor | None = None) -> StrengthState:
        """Return a memory without items; its items are bottom first."""
        return StrengthState.empty(batch_size, size, _like(like))

    def step(  # type: ignore[override]
        self, state: StrengthState, value: torch.Tensor, push: torch.Tensor, pop: torch.Tensor
    ) -> tuple[StrengthState, torch.Tensor]:
        """Pop at both ends, push at both, then read both.

        Args:
            state: of the step before; it stays as it is.
            value: ``[batch, 2, size]`` or ``[batch, 2 * size]``.
            push, pop: strengths, ``[batch, 2]``. They are not checked.
        """
        value = value.view(len(value), 2, -1)
        left = popped(popped(state.strength, pop[:, 0], "top"), pop[:, 1], "bottom")
        strength = torch.cat([push[:, 1:], left, push[:, :1]], 1)
        items = torch.cat([value[:, 1:], state.items, value[:, :1]], 1)
        weight = torch.stack([read_weights(strength, "top"), read_weights(strength, "bottom")], 1)
        return StrengthState(strength, items, below=state.below + 1), torch.bmm(weight, items).flatten(1)

    def controls(self, size: int) -> tuple[Control, ...]:
        """Two of each of those of the stack."""
        return (
            Control(("value",), 2 * size, "tanh"),
            Control(("push",), 2, "sigmoid", bias=1.0),
            Control(("pop",), 2, "sigmoid", bias=-1.0),
        )

    def readout_size(self, size: int) -> int:
        """Both ends."""
        return 2 * size


class SuperpositionStack(Memory):
    """The stack of Joulin & Mikolov 2015: the next stack is the mixture of a pushed, a popped and an unchanged one.

    Args:
        depth: number of rows; what is pushed beyond them is lost.
        top_k: how many rows are read, ``[batch, top_k * size]``.
        no_op: whether leaving the stack is an action.
        empty: the value of an empty row: -1 in the paper, 0 in later code.

    Example:
        >>> stack = SuperpositionStack(depth=3, empty=0.0)
        >>> state = stack.initial(1, 1)
        >>> state, readout = stack.step(state, torch.ones(1, 1), torch.tensor([0.75]), torch.tensor([0.25]))
        >>> readout
        tensor([[0.7500]])
    """

    def __init__(self, depth: int = 30, *, top_k: int = 1, no_op: bool = True, empty: float = -1.0) -> None:
        super().__init__()
        self.depth, self.top_k = checked_count("depth", depth), checked_count("top_k", top_k)
        self.no_op, self.empty = no_op, empty

    def initial(self, batch_size: int, size: int, like: torch.Tensor | None = None) -> torch.Tensor:
        """Return empty stacks, ``[batch, depth, size]``, row 0 the top."""
        return _like(like).new_full((batch_size, self.depth, size), self.empty)

    def step(  # type: ignore[override]
        self,
        state: torch.Tensor,
        value: torch.Tensor,
        push: torch.Tensor,
        pop: torch.Tensor,
        no_op: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the next stack and its first ``top_k`` rows.

        Args:
            state: ``[batch, depth, size]``.
            value: ``[batch, size]``.
            push, pop, no_op: weights of the actions, ``[batch]``; ``no_op`` is by default what the others leave of 1.
        """
        no_op = 1 - push - pop if no_op is None else no_op
        state = stack_step(state, value, push, pop, no_op, self.empty)
        return state, state[:, : self.top_k].flatten(1)

    def controls(self, size: int) -> tuple[Control, ...]:
        """``value`` by a sigmoid, the actions by a softmax."""
        actions = ("push", "pop", "no_op") if self.no_op else ("push", "pop")
        return Control(("value",), size, "sigmoid"), Control(actions, 0, "softmax")

    def readout_size(self, size: int) -> int:
        """That of the rows that are read."""
        return self.top_k * size


class DoublyLinkedList(Memory):
    """The list of Joulin & Mikolov 2015: its head inserts, and moves to the left and to the right.

    Args:
        length: number of cells, half of them on each side of the head; what leaves at an end is lost.
        no_op: whether leaving the list is an action.
        empty: the value of an empty cell.

    Example:
        >>> insert, left, right = torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[0.0, 0.0, 1.0]]), torch.zeros(1, 3)
        >>> DoublyLinkedList(5)(torch.tensor([[[1.0], [2.0], [3.0]]]), insert, left, right).flatten().tolist()
        [1.0, 2.0, 1.0]
    """

    def __init__(self, length: int = 61, *, no_op: bool = True, empty: float = -1.0) -> None:
        super().__init__()
        self.length = checked_count("length", length)
        self.no_op, self.empty = no_op, empty

    def initial(self, batch_size: int, size: int, like: torch.Tensor | None = None) -> torch.Tensor:
        """Return empty lists, ``[batch, length, size]``."""
        return _like(like).new_full((batch_size, self.length, size), self.empty)

    def step(  # type: ignore[override]
        self,
        state: torch.Tensor,
        value: torch.Tensor,
        insert: torch.Tensor,
        left: torch.Tensor,
        right: torch.Tensor,
        no_op: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the next list and the cell at its head, ``[batch, size]``.

        Args:
            state: ``[batch, length, size]``.
            value: ``[batch, size]``.
            insert, left, right, no_op: weights of the actions, ``[batch]``; ``no_op`` is by default what the others
                leave of 1.
        """
        no_op = 1 - insert - left - right if no_op is None else no_op
        state = list_step(state, value, insert, left, right, no_op, self.empty)
        return state, state[:, self.length // 2]

    def controls(self, size: int) -> tuple[Control, ...]:
        """``value`` by a sigmoid, the actions by a softmax."""
        actions = ("insert", "left", "right", "no_op") if self.no_op else ("insert", "left", "right")
        return Control(("value",), size, "sigmoid"), Control(actions, 0, "softmax")
