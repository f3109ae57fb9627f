"""The steps of an ON-LSTM in C++, forward and backward."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from treemem.engines.sequence_lengths import of_step_before
from treemem.native.large_pages import empty_rows
from treemem.native.run import NativeRun, Tensors, own_gradient
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


class NativeSteps(NativeRun):
    """The same as ``naive_steps``.

    Args:
        library: of :func:`on_lstm_library`.
        sizes: how many sequences each step has.
        chunk_size: adjacent units that share a master unit.
        differentiable: whether there will be a backward pass.
    """

    refusal = None

    def __init__(self, library: ctypes.CDLL, sizes: list[int], chunk_size: int, differentiable: bool) -> None:
        self._library, self._sizes, self._chunk_size = library, sizes, chunk_size
        self._differentiable = differentiable

    def forward(self, tensors: Any) -> tuple[Sequence[torch.Tensor], Tensors]:
        """``h`` and the master gates of all tokens, step after step, and the last ``h`` and ``c`` of each row."""
        inputs, hidden, cell, input_weight, bias, hidden_weight = tensors
        num_tokens, (rows, hidden_size), sizes, keeps = len(inputs), hidden.shape, self._sizes, self._differentiable
        shape = (2, hidden_size // self._chunk_size)
        masters, states = (empty_rows(inputs, num_tokens, *rest) for rest in (shape, (hidden_size,)))
        work = max(sizes, default=0) * hidden_weight.numel()
        self._numbers = {
            "threads": max(1, min(torch.get_num_threads(), work // _LEAST_WORK)),
            "num_steps": len(sizes),
            "num_tokens": num_tokens,
            "input_size": inputs.shape[1],
            "hidden_size": hidden_size,
            "chunk_size": self._chunk_size,
            "kept": keeps,
            "rows_at_once": _ROWS,
        }
        kept = {
            "sizes": torch.tensor(sizes, dtype=torch.int64),
            "hidden": hidden,
            "cell": cell,
            "inputs": inputs,
            "input_weight": input_weight,
            "hidden_weight": hidden_weight,
            "blocks": empty_rows(inputs, num_tokens if keeps else rows + _ROWS, len(bias)),
            "masters": masters,
            "states": states,
            "cells": empty_rows(inputs, num_tokens if keeps else rows, hidden_size),
        }
        last = [state.clone(memory_format=torch.contiguous_format) for state in (hidden, cell)]
        self._library.forward(_PROBLEM(**self._numbers, **kept, bias=bias, last_hidden=last[0], last_cell=last[1]))
        self._names = [*kept]
        return [states, masters, *last], [*kept.values()] if keeps else []  # the last states are not read

    def backward(self, kept: Any, gradients: Tensors, wanted: Sequence[bool]) -> Tensors:
        """The gradients of the inputs, the initial states and the weights."""
        tensors = dict(zip(self._names, kept, strict=True))
        d_states, _, *d_last = gradients
        states, d_blocks = tensors["states"], empty_rows(tensors["states"], *tensors["blocks"].shape)
        d_hidden, d_cell = (own_gradient(gradient, tensors["hidden"]) for gradient in d_last)
        d_states = torch.zeros_like(states) if d_states is None else d_states.contiguous()
        filled = _GRADIENTS(states=d_states, hidden=d_hidden, cell=d_cell, blocks=d_blocks)
        problem = _PROBLEM(**self._numbers, **tensors, bias=None, last_hidden=None, last_cell=None)
        self._library.backward(problem, filled)
        by_column = d_blocks.t()
        before = of_step_before(tensors["hidden"], states, self._sizes)
        of_maps = by_column @ tensors["inputs"], d_blocks.sum(0), by_column @ before
        return [d_blocks @ tensors["input_weight"], d_hidden, d_cell, *of_maps]
