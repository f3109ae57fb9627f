"""The steps of an ON-LSTM in C++, forward and backward."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from treemem.engines.sequence_lengths import of_step_before
from treemem.native.large_pages import empty_rows
from treemem.native.second_derivative import once_differentiable, save_for_backward
from treemem.native.structures import Structure, structured_library
from treemem.networks.parsers.on_lstm.equations import PRINTED

_SOURCE = Path(__file__).with_name("kernel.cpp")
_LEAST_WORK = 1 << 18  # multiplications in a step that are worth a thread
_ROWS = 256  # of inputs that are multiplied at once, at least
_PROBLEM = Structure(  # rows are sorted by length, longest first
    "PROBLEM",
    "int64_t threads, num_steps, num_tokens, input_size, hidden_size, chunk_size",
    "int64_t kept",  # whether each step has its own blocks and cells
    "int64_t rows_at_once",  # the inputs of steps are multiplied together until there are so many rows
    "const int64_t *sizes",  # [num_steps], rows of each step, not ascending
    "REAL *hidden, *cell",  # [rows, hidden_size]
    "const REAL *inputs",  # [num_tokens, input_size]
    "const REAL *input_weight, *hidden_weight",  # [columns, ...]
    "REAL *blocks",  # [num_tokens, columns], or of the steps whose inputs are multiplied together
    "REAL *masters",  # [num_tokens, 2, masters]
    "REAL *states, *cells",  # [num_tokens, hidden_size]
    # Not for the backward pass: [columns]; and [rows, hidden_size], of empty sequences filled in before.
    "const REAL *bias",
    "REAL *last_hidden, *last_cell",
)
_GRADIENTS = Structure(
    "GRADIENTS",
    "const REAL *states",  # [num_tokens, hidden_size]
    "REAL *hidden, *cell",  # [rows, hidden_size], of the last ones; become those of the first ones
    "REAL *blocks",  # [num_tokens, columns]
)


def on_lstm_library(tensors: Iterable[torch.Tensor]) -> ctypes.CDLL | None:
    """Return the compiled functions, or None if they cannot be used; ``tensors`` are all that they read."""
    return structured_library(_SOURCE, tensors, _PROBLEM, _GRADIENTS, *PRINTED)


def is_worth_packing(weight: torch.Tensor, sizes: list[int]) -> bool:
    """Return whether packing the recurrent weight takes less time than it saves.

    Packing takes about as long as products with 40 rows, and saves a third of a product with more than a few rows. The
    steps in C++ save about as much as packing 65,536 numbers takes.
    """
    return (sum(sizes) >= 128 and sizes[0] >= 4) or weight.numel() <= len(sizes) << 16


class NativeSteps(torch.autograd.Function):
    """The same as ``naive_steps``.

    Its arguments come between the library and whether there will be a backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any,
        library: ctypes.CDLL,
        inputs: torch.Tensor,
        hidden: torch.Tensor,
        cell: torch.Tensor,
        input_weight: torch.Tensor,
        bias: torch.Tensor,
        hidden_weight: torch.Tensor,
        sizes: list[int],
        chunk_size: int,
        differentiable: bool,
    ) -> tuple[torch.Tensor, ...]:
        """``h`` and the master gates of all tokens, step after step, and the last ``h`` and ``c`` of each row."""
        num_tokens, (rows, hidden_size) = len(inputs), hidden.shape
        shape = (2, hidden_size // chunk_size)
        masters, states = (empty_rows(inputs, num_tokens, *rest) for rest in (shape, (hidden_size,)))
        blocks = empty_rows(inputs, num_tokens if differentiable else rows + _ROWS, len(bias))
        cells = empty_rows(inputs, num_tokens if differentiable else rows, hidden_size)
        last_hidden, last_cell = (state.clone(memory_format=torch.contiguous_format) for state in (hidden, cell))
        work = max(sizes, default=0) * hidden_weight.numel()
        numbers = {
            "threads": max(1, min(torch.get_num_threads(), work // _LEAST_WORK)),
            "num_steps": len(sizes),
            "num_tokens": num_tokens,
            "input_size": inputs.shape[1],
            "hidden_size": hidden_size,
            "chunk_size": chunk_size,
            "kept": differentiable,
            "rows_at_once": _ROWS,
        }
        tensors = {
            "sizes": torch.tensor(sizes, dtype=torch.int64),
            "hidden": hidden.contiguous(),
            "cell": cell.contiguous(),
            "inputs": inputs.contiguous(),
            "input_weight": input_weight.contiguous(),
            "hidden_weight": hidden_weight.contiguous(),
            "blocks": blocks,
            "masters": masters,
            "states": states,
            "cells": cells,
        }
        library.forward(_PROBLEM(**numbers, **tensors, bias=bias, last_hidden=last_hidden, last_cell=last_cell))
        if differentiable:  # the last states are not read
            ctx.library, ctx.numbers, ctx.names, ctx.steps = library, numbers, [*tensors], sizes
            save_for_backward(ctx, *tensors.values())
        ctx.mark_non_differentiable(masters)
        return states, masters, last_hidden, last_cell

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,
        saved: tuple[torch.Tensor, ...],
        d_states: torch.Tensor,
        _: torch.Tensor,
        d_hidden: torch.Tensor,
        d_cell: torch.Tensor,
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradients of the inputs, the initial states and the weights."""
        tensors = dict(zip(ctx.names, (tensor.contiguous() for tensor in saved), strict=True))
        states, blocks = tensors["states"], tensors["blocks"]
        d_hidden, d_cell = (gradient.clone(memory_format=torch.contiguous_format) for gradient in (d_hidden, d_cell))
        d_blocks = empty_rows(states, *blocks.shape)
        gradients = _GRADIENTS(
            states=d_states.contiguous(),
            hidden=d_hidden,
            cell=d_cell,
            blocks=d_blocks,
        )
        ctx.library.backward(_PROBLEM(**ctx.numbers, **tensors, bias=None, last_hidden=None, last_cell=None), gradients)
        with torch.autocast("cpu", enabled=False):
            turned = d_blocks.t()
            of_maps = (
                turned @ tensors["inputs"],
                d_blocks.sum(0),
                turned @ of_step_before(tensors["hidden"], states, ctx.steps),
            )
            return None, d_blocks @ tensors["input_weight"], d_hidden, d_cell, *of_maps, None, None, None
