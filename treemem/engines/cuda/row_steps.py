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
    def step(self) -> Any:
        """The function that takes the step."""
        return self.kernels["step"]

    @property
    def step_backward(self) -> Any:
        """The function of the backward pass."""
        return self.kernels["step_backward"]

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


def _with_strides(tensors: Sequence[Vectors]) -> list[Any]:
    return [
        argument
        for vectors in tensors
        for tensor in vectors
        for argument in ((None, 0) if tensor is None else (tensor, tensor.stride(0)))
    ]
