"""Steps of rows in Triton: as functions for kernels that are written by hand, and as one launch for many rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch

from treemem.engines.cuda.launcher import launcher, printed_kernels
from treemem.engines.printer.driven import DrivenStep
from treemem.engines.printer.triton_layout import block_of
from treemem.engines.printer.triton_rows import is_pointwise
from treemem.native.run import NativeRun, Tensors, run_native

_NUMBERS = 1024  # of a block, four for each thread of a program
_WIDEST_PART = 128  # of rows whose positions do not depend on each other

Vectors = Sequence[torch.Tensor | None]
"""Tensors ``[rows, ...]`` whose rows have neighbouring numbers; None where there is none."""


class RowStep:
    """A step that Triton takes, of any number of rows and any width.

    Args:
        printed: the step.

    Example:
        A kernel that is written by hand gets the functions as constants::

            @triton.jit
            def kernel(blocks, ..., D: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr):
                ...
                h, c = STEP((enter, forget, candidate, output), (h, c), (), (), wide, D)

            launcher().launch(kernel, grid, blocks, ..., D=D, BLOCK=block_of(D), STEP=lstm.step)
    """

    def __init__(self, printed: DrivenStep) -> None:
        self._printed = printed

    @cached_property
    def kernels(self) -> dict[str, Any]:
        """The module of :func:`treemem.engines.printer.triton_rows.row_source`."""
        return printed_kernels(self._printed.triton)

    @property
    def arity(self) -> int:
        """How many children a row has."""
        return self._printed.program.shape.arity

    @property
    def num_states(self) -> int:
        """How many states a row has."""
        return len(self._printed.program.shape.states)

    @property
    def step(self) -> Any:
        """The function that takes the step."""
        return self.kernels["step"]

    @property
    def step_backward(self) -> Any:
        """The function of the backward pass."""
        return self.kernels["step_backward"]

    def run(
        self,
        products: Sequence[torch.Tensor],
        children: Vectors,
        learned: Sequence[torch.Tensor] = (),
    ) -> tuple[torch.Tensor, ...]:
        """Return the states of all rows, ``[rows, D]`` each, under autograd: one launch, and one backwards.

        Args:
            products: ``[rows, vectors * D]`` each.
            children: a state of all children each, ``[rows, children, D]``; None if the step does not read it.
            learned: vectors ``[D]``.
        """
        return run_native(_Step(self, len(products), len(children)), *products, *children, *learned)

    def forward(
        self,
        products: Vectors,
        children: Vectors,
        learned: Sequence[torch.Tensor],
        states: Vectors,
        factors: torch.Tensor | None = None,
    ) -> None:
        """Take the step of all rows, in one launch.

        Args:
            products: ``[rows, vectors * D]`` or ``[rows, 1]`` each.
            children: ``[rows, D]``, the first state of all children, then the second; None if the step does not read
                it.
            learned: vectors ``[D]``.
            states: ``[rows, D]`` or ``[rows, 1]``; they are set.
            factors: of dropouts, ``[rows, dropouts * D]``; None: 1.
        """
        self._launch("forward", [products, children, [factors]], [*learned], [states])

    def backward(
        self,
        products: Vectors,
        children: Vectors,
        learned: Sequence[torch.Tensor],
        states: Vectors,
        d_states: Vectors,
        d_products: Vectors,
        d_children: Vectors,
        d_learned: torch.Tensor | None = None,
        factors: torch.Tensor | None = None,
    ) -> None:
        """Take the step backwards, in one launch.

        Args:
            products, children, learned, states, factors: as in the forward pass.
            d_states: gradients of the states; None: 0.
            d_products, d_children: they are set, unless None. They may be the memory of what they are gradients of.
            d_learned: ``[programs(rows, D), vectors, D]``, is set; the sum over programs is the gradient.
        """
        summed = [d_learned] if learned else []
        with_rows = products, children, [factors], states, d_states, d_products, d_children
        self._launch("backward", with_rows, [*learned, *summed])

    def programs(self, rows: int, width: int) -> int:
        """Return how many programs take the step of so many rows of vectors of a width."""
        return -(-rows // self.constants(width)["ROWS"])

    def constants(self, width: int) -> dict[str, int]:
        """Return what is known when the kernels are compiled for vectors of a width."""
        block = block_of(width)
        if is_pointwise(self._printed.program):
            block = min(block, _WIDEST_PART)
        return {"D": width, "ROWS": max(1, _NUMBERS // block), "BLOCK": block}

    def _launch(
        self, kernel: str, before: Sequence[Vectors], plain: Sequence[Any], after: Sequence[Vectors] = ()
    ) -> None:
        (_, parts), *_ = self._printed.program.shape.products.values()
        first = next(tensor for tensor in before[0] if tensor is not None)
        rows, width = len(first), first.shape[1] // len(parts)
        arguments, constants = [*_with_strides(before), *plain, *_with_strides(after)], self.constants(width)
        grid = self.programs(rows, width), -(-width // constants["BLOCK"])
        launcher().launch(self.kernels[kernel], grid, rows, *arguments, **constants)


class _Step(NativeRun):
    """A step under autograd, of so many products and states of children."""

    refusal = None

    def __init__(self, step: RowStep, products: int, children: int) -> None:
        self._step, self._products, self._children = step, products, children

    def forward(self, tensors: Any) -> tuple[Sequence[torch.Tensor], Tensors]:
        """The states."""
        products, children, learned = self._parts(tensors)
        like = next(state for state in tensors[self._products :] if state is not None)
        states = [like.new_empty(len(like), like.shape[-1]) for _ in range(self._step.num_states)]
        self._step.forward(products, self._of_each(children), learned, states)
        return states, [*states, *tensors]

    def backward(self, kept: Any, gradients: Tensors, wanted: Sequence[bool]) -> Tensors:
        """The gradients of products, children and learned vectors."""
        count = len(gradients)
        states, (products, children, learned) = kept[:count], self._parts(kept[count:])
        d_products, d_children = (
            [None if tensor is None else torch.empty_like(tensor) for tensor in part] for part in (products, children)
        )
        rows, width = states[0].shape
        d_learned = states[0].new_empty(self._step.programs(rows, width), len(learned), width)
        d_states = [None if gradient is None else gradient.contiguous() for gradient in gradients]
        read = products, self._of_each(children), learned, states
        self._step.backward(*read, d_states, d_products, self._of_each(d_children), d_learned)
        return [*d_products, *d_children, *(d_learned.sum(0) if learned else ())]

    def _parts(self, tensors: Any) -> tuple[Any, Any, Any]:
        end = self._products + self._children
        return tensors[: self._products], tensors[self._products : end], tensors[end:]

    def _of_each(self, children: Vectors) -> Vectors:
        """The first state of each child, then the second."""
        arity = self._step.arity
        return [child for state in children for child in ([None] * arity if state is None else state.unbind(1))]


def _with_strides(tensors: Sequence[Vectors]) -> list[Any]:
    return [
        argument
        for vectors in tensors
        for tensor in vectors
        for argument in ((None, 0) if tensor is None else (tensor, tensor.stride(0)))
    ]
