"""The steps of an ON-LSTM in C++, forward and backward."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch

from treemem.ops.large_pages import empty_rows
from treemem.ops.native import TYPE_NAMES, address, structure
from treemem.ops.second_derivative import once_differentiable, save_for_backward
from treemem.ops.sequence_lengths import of_step_before

SOURCE = Path(__file__).with_name("fused.cpp")
_LEAST_WORK = 1 << 18  # multiplications in a step that are worth a thread


def is_worth_packing(weight: torch.Tensor, sizes: list[int]) -> bool:
    """Return whether packing the recurrent weight takes less time than it saves.

    Packing takes about as long as products with 40 rows, and saves a third of a product with more than a few rows. The
    steps in C++ save about as much as packing 65,536 numbers takes.
    """
    return (sum(sizes) >= 128 and sizes[0] >= 4) or weight.numel() <= len(sizes) << 16


class NativeSteps(torch.autograd.Function):
    """The same as :func:`treemem.ops.on_lstm.naive.naive_steps`.

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
        given = [each.contiguous() for each in (inputs, hidden, cell, input_weight, bias, hidden_weight)]
        num_tokens, (rows, hidden_size) = len(inputs), hidden.shape
        shape, kept = (2, hidden_size // chunk_size), num_tokens if differentiable else rows
        blocks, masters, states = (
            empty_rows(inputs, num_tokens, *rest) for rest in ((len(bias),), shape, (hidden_size,))
        )
        softmax, cells, tanh_cells = (
            empty_rows(inputs, kept, *rest) for rest in (shape, (hidden_size,), (hidden_size,))
        )
        last_hidden, last_cell = (each.clone(memory_format=torch.contiguous_format) for each in (hidden, cell))
        work = max(sizes, default=0) * hidden_weight.numel()
        threads = max(1, min(torch.get_num_threads(), work // _LEAST_WORK))
        of_steps = torch.tensor(sizes, dtype=torch.int64)
        found = (blocks, masters, softmax, states, cells, tanh_cells, last_hidden, last_cell)
        numbers = threads, len(sizes), num_tokens, inputs.shape[1], hidden_size, chunk_size, int(differentiable)
        problem = structure(*numbers, *map(address, (of_steps, *given, *found)))
        getattr(library, f"forward_{TYPE_NAMES[inputs.dtype]}")(problem)
        if differentiable:
            ctx.library, ctx.numbers, ctx.sizes = library, numbers, sizes
            save_for_backward(ctx, of_steps, *given, *found[:-2])  # the last states are not read
        ctx.mark_non_differentiable(masters)
        return states, masters, last_hidden, last_cell

    @staticmethod
    @once_differentiable()
    def backward(
        ctx: Any,
        saved: tuple[torch.Tensor, ...],
        d_states: torch.Tensor,
        _: torch.Tensor,
        d_hidden: torch.Tensor,
        d_cell: torch.Tensor,
    ) -> tuple[torch.Tensor | None, ...]:
        """The gradients of the inputs, the initial states and the weights."""
        read = [each.contiguous() for each in saved]
        _sizes, inputs, hidden, _cell, input_weight, _bias, hidden_weight = read[:7]
        states = read[10]
        previous = of_step_before(hidden, states, ctx.sizes)
        d_hidden, d_cell = (each.clone(memory_format=torch.contiguous_format) for each in (d_hidden, d_cell))
        d_states = d_states.contiguous()
        d_blocks = empty_rows(states, len(states), len(hidden_weight))
        d_inputs, d_input_weight, d_hidden_weight = map(torch.empty_like, (inputs, input_weight, hidden_weight))
        every = (d_states, previous, d_hidden, d_cell, d_blocks, d_inputs, d_input_weight, d_hidden_weight)
        backward = getattr(ctx.library, f"backward_{TYPE_NAMES[inputs.dtype]}")
        problem = structure(*ctx.numbers, *map(address, (*read, None, None)))
        backward(problem, structure(*map(address, every)))
        of_inputs = d_inputs, d_hidden, d_cell, d_input_weight, d_blocks.sum(0), d_hidden_weight
        return None, *of_inputs, None, None, None
