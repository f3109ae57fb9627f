"""Memories for controllers: the base class, and the memories with strengths or superpositions.

A memory has no parameters. A step takes a state, a value and actions, and returns the next state and the readout.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from treemem.checked_options import checked_count, checked_flag, checked_rows, checked_scale
from treemem.errors import GraphError, RecipeError
from treemem.networks.memories.controllers.run import ControlledMemory, MemorySource, runs_in_cpp
from treemem.networks.memories.strength.equations import (
    End,
    StrengthState,
    popped,
    read_weights,
    run_sequence,
    strength_step,
)
from treemem.networks.memories.strength.native import Strengths, with_room
from treemem.networks.memories.superposition.equations import list_step, stack_step
from treemem.networks.memories.superposition.native import Superposition, stack_readouts

_ACTIONS = ("push", "pop", "no_op", "insert", "left", "right")
Form = Literal["tanh", "sigmoid", "softmax", "linear", "output"]


class Control(NamedTuple):
    """Arguments of a memory's step that a controller computes together.

    Attributes:
        names: the names of the arguments.
        size: their width: ``[batch, size]`` each, or ``[batch]`` if it is 0.
        form: the function after the controller's linear map. ``"softmax"`` is over the arguments of width 0.
            ``"output"`` is the controller's output itself, without a linear map.
        bias: the initial bias of the linear map; None for torch's default.
    """

    names: tuple[str, ...]
    size: int
    form: Form
    bias: float | None = None


class CompiledMemory(NamedTuple):
    """How a memory runs in C++ with the cell that controls it.

    Attributes:
        source: its C++.
        of_each: what the memory has of each sequence, ``[batch, ...]``.
        make: makes the memory in C++ of these tensors, with the sequences in another order.
        after: makes the next state of what the memory in C++ has become; None if steps do not change the memory.
    """

    source: MemorySource
    of_each: tuple[torch.Tensor, ...]
    make: Callable[..., ControlledMemory]
    after: Callable[..., Any] | None


class Memory(torch.nn.Module, ABC):
    """A differentiable data structure, batch first, for any controller.

    A subclass defines :meth:`initial`, :meth:`step` and :meth:`controls`, and ``readout_size`` if the readout is not
    as wide as the values.
    """

    @abstractmethod
    def initial(self, batch_size: int, size: int, like: torch.Tensor | None = None) -> Any:
        """Return the empty memory.

        Args:
            batch_size: number of memories.
            size: width of the values.
            like: a tensor with the device and type of the values; torch's defaults without it.
        """

    @abstractmethod
    def step(self, state: Any, value: torch.Tensor, *actions: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """Return the next state and its readout, ``[batch, readout_size]``."""

    @abstractmethod
    def controls(self, size: int) -> tuple[Control, ...]:
        """Return the arguments of :meth:`step` after the state, in order, for values of width ``size``."""

    def readout_size(self, size: int) -> int:
        """Return the width of the readout for values of width ``size``."""
        return size

    def compiled(self, state: Any, steps: int) -> CompiledMemory | None:
        """Return how the memory runs in C++ from a state; None if it runs step by step, as it does by default.

        Args:
            state: of the memory.
            steps: how many there will be at most.
        """
        return None

    def trace(
        self, size: int, given: Mapping[str, torch.Tensor], state: Any, readout: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return what a step did, for someone to look at: tensors ``[1, ...]`` by their name in ``TRACE_AXES``.

        Args:
            size: width of the values.
            given: the arguments of :meth:`step` by name, of one example.
            state: after the step.
            readout: of the step, ``[1, readout_size]``.
        """
        found = {name: each.reshape(1, -1) for name, each in given.items() if name in _ACTIONS}
        found |= {"readout": readout.reshape(1, -1, size), "value": given["value"].reshape(1, -1, size)}
        if isinstance(state, StrengthState):
            found["strength"] = state.strength
        elif isinstance(state, torch.Tensor):
            found["memory"] = state
        return found

    def forward(self, value: torch.Tensor, *actions: torch.Tensor) -> torch.Tensor:
        """Return the readout after each step of sequences of known actions, ``[batch, time, readout_size]``.

        Args:
            value: ``[batch, time, size]``; of a memory that takes no value its first action.
            actions: those of :meth:`step`, with time as the second axis.

        Raises:
            GraphError: an action of the wrong shape.
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


def _check_step(stored: torch.Tensor, value: torch.Tensor, *actions: torch.Tensor) -> None:
    """Refuse shapes that would be broadcast over the batch."""
    batch, size = stored.shape[0], stored.shape[-1]
    if value.shape != (batch, size):
        raise GraphError(f"this memory takes values of the shape [{batch}, {size}], not {[*value.shape]}")
    for action in actions:
        if action.shape != (batch,):
            raise GraphError(f"this memory takes actions of the shape [{batch}], not {[*action.shape]}")


def _checked_empty(value: object) -> float:
    if not isinstance(value, Real):
        raise RecipeError(f"empty must be a number, not {value!r}")
    return float(value)


def _like(like: torch.Tensor | None) -> torch.Tensor:
    return torch.empty(0) if like is None else like


class _OneEnded(Memory):
    """A memory that pops and reads at one end and pushes at the top.

    Args:
        read_strength: the total strength of a readout; 1 in the paper.
    """

    end: ClassVar[End]

    def __init__(self, read_strength: float = 1.0) -> None:
        super().__init__()
        self.read_strength = checked_scale("read_strength", read_strength)

    def initial(self, batch_size: int, size: int, like: torch.Tensor | None = None) -> StrengthState:
        """Return a memory without items."""
        return StrengthState.empty(batch_size, size, _like(like))

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
        _check_step(state.items, value, push, pop)
        return strength_step(state, value, push, pop, self.end, self.read_strength)

    def controls(self, size: int) -> tuple[Control, ...]:
        """``value`` by tanh, ``push`` and ``pop`` by sigmoids with initial biases 1 and -1 (0.73 and 0.27)."""
        return (
            Control(("value",), size, "tanh"),
            Control(("push",), 0, "sigmoid", bias=1.0),
            Control(("pop",), 0, "sigmoid", bias=-1.0),
        )

    def compiled(self, state: StrengthState, steps: int) -> CompiledMemory | None:
        """All of it; that of a user's subclass step by step."""
        if type(self) not in (NeuralStack, NeuralQueue):
            return None
        return _compiled_strengths(state, steps, (self.end,), self.read_strength)

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
        return run_sequence(value, push, pop, self.end, self.read_strength)


def _compiled_strengths(
    state: StrengthState, steps: int, ends: tuple[End, ...], read_strength: float = 1.0
) -> CompiledMemory:
    if state.strength.shape != state.items.shape[:2]:
        raise GraphError(f"strengths {[*state.strength.shape]} do not fit items {[*state.items.shape]}")
    pushed_below = steps if len(ends) == 2 else 0

    def made(strength: torch.Tensor, items: torch.Tensor) -> Strengths:
        return Strengths(strength, items, pushed_below, state.items.shape[1], ends, read_strength)

    def after(strength: torch.Tensor, items: torch.Tensor) -> StrengthState:
        return StrengthState(strength, items, below=state.below + pushed_below)

    return CompiledMemory(Strengths.source, with_room(state.strength, state.items, pushed_below, steps), made, after)


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

    end: ClassVar[End] = "top"


class NeuralQueue(_OneEnded):
    """The neural queue (Grefenstette et al. 2015, eq. 6-7): a :class:`NeuralStack` that pops and reads its old end.

    Args:
        read_strength: the total strength of a readout; 1 in the paper.

    Example:
        >>> push, pop = torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[0.0, 0.0, 1.0]])
        >>> NeuralQueue()(torch.tensor([[[1.0], [2.0], [3.0]]]), push, pop).flatten().tolist()
        [1.0, 1.0, 2.0]
    """

    end: ClassVar[End] = "bottom"


class NeuralDeque(Memory):
    """The neural deque (Grefenstette et al. 2015, section 3.3): it pushes, pops and reads at both ends.

    A step pops at the top, pops at the bottom, pushes at both ends, and reads both. Values are ``[batch, 2, size]``,
    strengths ``[batch, 2]``, and the readout ``[batch, 2 * size]``, the top first.

    Example:
        >>> deque, both = NeuralDeque(), torch.ones(1, 2)
        >>> _, readout = deque.step(deque.initial(1, 1), torch.tensor([[[1.0], [2.0]]]), both, 0 * both)
        >>> readout.tolist()
        [[1.0, 2.0]]
    """

    def initial(self, batch_size: int, size: int, like: torch.Tensor | None = None) -> StrengthState:
        """Return a memory without items. The items of a state are bottom first."""
        return StrengthState.empty(batch_size, size, _like(like))

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

    def compiled(self, state: StrengthState, steps: int) -> CompiledMemory | None:
        """All of it; that of a subclass step by step."""
        return _compiled_strengths(state, steps, ("top", "bottom")) if type(self) is NeuralDeque else None

    def controls(self, size: int) -> tuple[Control, ...]:
        """The controls of the stack, two of each."""
        return (
            Control(("value",), 2 * size, "tanh"),
            Control(("push",), 2, "sigmoid", bias=1.0),
            Control(("pop",), 2, "sigmoid", bias=-1.0),
        )

    def readout_size(self, size: int) -> int:
        """Twice the values' width."""
        return 2 * size


class SuperpositionStack(Memory):
    """The stack of Joulin & Mikolov 2015: the next stack is the mixture of a pushed, a popped and an unchanged one.

    Args:
        depth: number of rows. Values pushed below the last row are lost.
        top_k: number of rows in the readout, ``[batch, top_k * size]``.
        no_op: whether there is a third action that leaves the stack unchanged.
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
        self.depth, self.top_k = checked_rows("depth", depth), checked_count("top_k", top_k)
        if self.top_k > self.depth:
            raise RecipeError(f"top_k={top_k} reads more rows than the stack has; depth={depth}")
        self.no_op, self.empty = checked_flag("no_op", no_op), _checked_empty(empty)

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
            push, pop, no_op: weights of the actions, ``[batch]``. The default of ``no_op`` is ``1 - push - pop``.

        Raises:
            GraphError: a wrong shape.
        """
        _check_step(state, value, push, pop, *(() if no_op is None else (no_op,)))
        no_op = 1 - push - pop if no_op is None else no_op
        state = stack_step(state, value, push, pop, no_op, self.empty)
        return state, state[:, : self.top_k].flatten(1)

    def compiled(self, state: torch.Tensor, steps: int) -> CompiledMemory | None:
        """All of it; that of a subclass step by step."""
        if type(self) is not SuperpositionStack:
            return None

        def made(stacks: torch.Tensor) -> Superposition:
            return Superposition(stacks, self.empty, 3 if self.no_op else 2)

        return CompiledMemory(Superposition.source, (state,), made, lambda stacks: stacks)

    def forward(  # type: ignore[override]
        self, value: torch.Tensor, push: torch.Tensor, pop: torch.Tensor, no_op: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the readout after each step, ``[batch, time, top_k * size]``.

        On a CPU all steps run at once in C++, without a second derivative.

        Args:
            value: ``[batch, time, size]``.
            push, pop, no_op: weights of the actions, ``[batch, time]``. The default of ``no_op`` is ``1 - push - pop``.

        Raises:
            GraphError: a wrong shape.
        """
        given = [push, pop] if no_op is None else [push, pop, no_op]
        whole = (
            type(self) is SuperpositionStack
            and (self.empty == 0 or no_op is None)  # empty rows stay what they are
            and value.dim() == 3
            and value.shape[2] > 0
            and all(each.shape == value.shape[:2] for each in given)
            and runs_in_cpp(None, push.numel(), [value, *given], Superposition.source)
        )
        if not whole:
            return super().forward(value, *given)
        weights = torch.stack([push, pop, 1 - push - pop if no_op is None else no_op], 2)
        return stack_readouts(value, weights, self.initial(len(value), value.shape[2], value), self.top_k, self.empty)

    def controls(self, size: int) -> tuple[Control, ...]:
        """``value`` by a sigmoid, the actions by a softmax."""
        actions = ("push", "pop", "no_op") if self.no_op else ("push", "pop")
        return Control(("value",), size, "sigmoid"), Control(actions, 0, "softmax")

    def readout_size(self, size: int) -> int:
        """``top_k`` times the values' width."""
        return self.top_k * size


class DoublyLinkedList(Memory):
    """The list of Joulin & Mikolov 2015: its head inserts, and moves to the left and to the right.

    Args:
        length: number of cells, half of them on each side of the head. Values that leave at an end are lost.
        no_op: whether there is a fourth action that leaves the list unchanged.
        empty: the value of an empty cell.

    Example:
        >>> insert, left, right = torch.tensor([[1.0, 1.0, 0.0]]), torch.tensor([[0.0, 0.0, 1.0]]), torch.zeros(1, 3)
        >>> DoublyLinkedList(5)(torch.tensor([[[1.0], [2.0], [3.0]]]), insert, left, right).flatten().tolist()
        [1.0, 2.0, 1.0]
    """

    def __init__(self, length: int = 61, *, no_op: bool = True, empty: float = -1.0) -> None:
        super().__init__()
        self.length = checked_rows("length", length)
        self.no_op, self.empty = checked_flag("no_op", no_op), _checked_empty(empty)

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
            insert, left, right, no_op: weights of the actions, ``[batch]``. By default ``no_op`` is 1 minus the others.

        Raises:
            GraphError: a wrong shape.
        """
        _check_step(state, value, insert, left, right, *(() if no_op is None else (no_op,)))
        no_op = 1 - insert - left - right if no_op is None else no_op
        state = list_step(state, value, insert, left, right, no_op, self.empty)
        return state, state[:, self.length // 2]

    def controls(self, size: int) -> tuple[Control, ...]:
        """``value`` by a sigmoid, the actions by a softmax."""
        actions = ("insert", "left", "right", "no_op") if self.no_op else ("insert", "left", "right")
        return Control(("value",), size, "sigmoid"), Control(actions, 0, "softmax")
