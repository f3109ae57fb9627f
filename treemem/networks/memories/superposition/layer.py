"""The stack and the list of Joulin & Mikolov 2015, whose next state is a mixture of what each action makes of it."""

from __future__ import annotations

from numbers import Real
from typing import ClassVar

import torch

from treemem.checked_options import checked_count, checked_flag, checked_rows
from treemem.errors import RecipeError
from treemem.networks.memories.controllers.cuda import KernelMemory, known_in_kernels
from treemem.networks.memories.controllers.run import runs_in_cpp
from treemem.networks.memories.memory import CompiledMemory, Control, Memory, check_step, like_or_default
from treemem.networks.memories.superposition.cuda import stack_in_kernels
from treemem.networks.memories.superposition.equations import list_step, stack_step
from treemem.networks.memories.superposition.native import Superposition, stack_readouts


class _Mixture(Memory):
    """A memory of rows, whose next state is the mixture of what its actions make of it.

    Args:
        rows: number of rows.
        no_op: whether there is another action that leaves the memory unchanged.
        empty: the value of an empty row.
    """

    actions: ClassVar[tuple[str, ...]]

    def __init__(self, rows: int, no_op: bool, empty: float) -> None:
        super().__init__()
        self._rows, self.no_op, self.empty = rows, checked_flag("no_op", no_op), _checked_empty(empty)

    def initial(self, batch_size: int, size: int, like: torch.Tensor | None = None) -> torch.Tensor:
        """Return an empty memory, ``[batch, rows, size]``; row 0 is the top of a stack."""
        return like_or_default(like).new_full((batch_size, self._rows, size), self.empty)

    def controls(self, size: int) -> tuple[Control, ...]:
        """``value`` by a sigmoid, the actions by a softmax."""
        actions = (*self.actions, "no_op") if self.no_op else self.actions
        return Control(("value",), size, "sigmoid"), Control(actions, 0, "softmax")


def _checked_empty(value: object) -> float:
    if not isinstance(value, Real):
        raise RecipeError(f"empty must be a number, not {value!r}")
    return float(value)


def _rest(no_op: torch.Tensor | None, *actions: torch.Tensor) -> torch.Tensor:
    """Return the weight of no action: what the others leave of 1, if it is not given."""
    if no_op is None:
        no_op = 1 - actions[0]
        for action in actions[1:]:
            no_op = no_op - action
    return no_op


class SuperpositionStack(_Mixture):
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

    actions = ("push", "pop")

    def __init__(self, depth: int = 30, *, top_k: int = 1, no_op: bool = True, empty: float = -1.0) -> None:
        super().__init__(checked_rows("depth", depth), no_op, empty)
        self.depth, self.top_k = depth, checked_count("top_k", top_k)
        if self.top_k > self.depth:
            raise RecipeError(f"top_k={top_k} reads more rows than the stack has; depth={depth}")

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
        check_step(state, value, push, pop, *(() if no_op is None else (no_op,)))
        state = stack_step(state, value, push, pop, _rest(no_op, push, pop), self.empty)
        return state, state[:, : self.top_k].flatten(1)

    def compiled(self, state: torch.Tensor, steps: int) -> CompiledMemory | None:
        """All of it; that of a subclass step by step."""
        if type(self) is not SuperpositionStack:
            return None

        def made(stacks: torch.Tensor) -> Superposition:
            return Superposition(stacks, self.empty, 3 if self.no_op else 2)

        return CompiledMemory(Superposition.source, (state,), made, lambda stacks: stacks)

    def kernels(self, state: torch.Tensor, steps: int) -> KernelMemory | None:
        """All of it; that of a subclass step by step."""
        if type(self) is not SuperpositionStack:
            return None
        return stack_in_kernels(state, self.top_k, 3 if self.no_op else 2, self.empty)

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
        self._check(value, tuple(given))
        state = self.initial(len(value), value.shape[-1], value)
        whole = (
            type(self) is SuperpositionStack
            and value.dim() == 3
            and value.shape[2] > 0
            and all(action.shape == value.shape[:2] for action in given)
        )
        if not whole:
            return self._by_steps(state, value, *given)
        weights = [push, pop, _rest(no_op, push, pop)]
        reads = known_in_kernels(lambda: stack_in_kernels(state, self.top_k, 3, self.empty), value, *weights)
        if reads is not None:
            return reads
        if (self.empty and no_op is not None) or not runs_in_cpp(  # empty rows may not stay what they are
            None, push.numel(), [value, *given], Superposition.source
        ):
            return self._by_steps(state, value, *given)
        return stack_readouts(value, torch.stack(weights, 2), state, self.top_k, self.empty)

    def readout_size(self, size: int) -> int:
        """``top_k`` times the values' width."""
        return self.top_k * size


class DoublyLinkedList(_Mixture):
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

    actions = ("insert", "left", "right")

    def __init__(self, length: int = 61, *, no_op: bool = True, empty: float = -1.0) -> None:
        super().__init__(checked_rows("length", length), no_op, empty)
        self.length = length

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
        check_step(state, value, insert, left, right, *(() if no_op is None else (no_op,)))
        state = list_step(state, value, insert, left, right, _rest(no_op, insert, left, right), self.empty)
        return state, state[:, self.length // 2]
