"""A GRU over packed sequences whose steps are C++, with the backward pass written by hand."""

from __future__ import annotations

import bisect
import ctypes
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from treemem.ops.gru.naive import Attention, GRUWeights, naive_gru
from treemem.ops.large_pages import empty_rows
from treemem.ops.native import TYPE_NAMES, native_library
from treemem.ops.second_derivative import without_second_derivative

SOURCE = Path(__file__).with_name("fused.cpp")
_LEAST_WORK = 1 << 20  # multiplications that are worth a thread


def gru(
    inputs: torch.Tensor,
    sizes: list[int],
    hidden: torch.Tensor,
    weights: GRUWeights,
    attention: Attention | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run over packed sequences, longest first: in C++ where it can be used, and elsewhere in torch.

    Args, Returns: as :func:`treemem.ops.gru.naive_gru`.
    """
    found: tuple[torch.Tensor, torch.Tensor]
    attended = () if attention is None else attention._replace(lengths=attention.read)  # numbers of one type
    library = native_library(SOURCE, (inputs, hidden, *weights, *attended))
    if library is not None:
        size, input_size = hidden.shape[1], inputs.shape[1]
        of_input, of_read = weights.input_weight.roll(size, 0).split(
            [input_size, weights.input_weight.shape[1] - input_size], 1
        )
        of_gates, of_candidate = (weights.input_bias + weights.hidden_bias)[: 2 * size], weights.input_bias[2 * size :]
        bias = torch.cat([of_candidate, of_gates, weights.hidden_bias[2 * size :]])
        if attention is None:
            none = inputs.new_empty(0)
            attention = Attention(
                none.view(0, 0, 0),
                torch.empty(0, dtype=torch.int64),
                none.view(0, size),
                none,
                none.view(len(hidden), 0),
            )
        found = _Run.apply(library, inputs, hidden, of_input, bias, weights.hidden_weight, of_read, *attention, sizes)
        return found
    if attention is not None:
        return naive_gru(inputs, sizes, hidden, weights, attention)
    # cuDNN copies weights that it did not lay out itself at each call, and warns of it.
    with torch.backends.cudnn.flags(enabled=False):
        states, last = torch.gru(inputs, torch.tensor(sizes), hidden[None], weights, True, 1, 0.0, True, False)
    return states, last[0]


class _Run(torch.autograd.Function):
    """The steps one after the other, rows sorted by length, longest first.

    At each token there are four blocks: what the input gives the candidate, the gates, and what the state gives the
    candidate. The backward pass keeps the gradients of all of them and makes those of the weights at the end.
    """

    @staticmethod
    def forward(
        ctx: Any,
        library: ctypes.CDLL,
        inputs: torch.Tensor,
        hidden: torch.Tensor,
        of_input: torch.Tensor,
        bias: torch.Tensor,
        of_state: torch.Tensor,
        of_read: torch.Tensor,
        rows: torch.Tensor,
        lengths: torch.Tensor,
        query_weight: torch.Tensor,
        query_bias: torch.Tensor,
        read: torch.Tensor,
        sizes: list[int],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        num_tokens, size, read_size = len(inputs), hidden.shape[1], read.shape[1]
        given = [
            each.contiguous() for each in (lengths, of_state, hidden, of_read, rows, query_weight, query_bias, read)
        ]
        blocks, states, queries, reads, attention = (
            empty_rows(inputs, num_tokens, width) for width in (4 * size, size, read_size, read_size, rows.shape[1])
        )
        torch.addmm(bias[: 3 * size], inputs, of_input.t(), out=blocks[:, : 3 * size])
        blocks[:, 3 * size :] = bias[3 * size :]
        last = torch.empty_like(hidden)
        threads = max(1, min(torch.get_num_threads(), num_tokens * of_state.numel() // _LEAST_WORK))
        numbers = torch.tensor([*sizes, *_shares(sizes, threads)], dtype=torch.int64)
        kept = (
            numbers,
            numbers[len(sizes) :],
            *given,
            blocks,
            states.detach(),
            queries,
            reads,
            attention,
            last.detach(),
        )
        problem = _structure(
            threads, len(sizes), num_tokens, size, read_size, rows.shape[1], *(each.data_ptr() for each in kept)
        )
        getattr(library, f"forward_{TYPE_NAMES[inputs.dtype]}")(problem)
        if any(ctx.needs_input_grad):
            ctx.library, ctx.problem, ctx.sizes = library, problem, sizes
            ctx.save_for_backward(inputs, of_input, *given)
            ctx.kept = kept  # the problem points to them
        return states, last

    @staticmethod
    def backward(ctx: Any, d_states: torch.Tensor, d_last: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The gradients of all tensors but the lengths."""
        inputs, of_input, _, _, hidden, _, rows, _, _, read = ctx.saved_tensors
        blocks, states, queries, reads = ctx.kept[10:14]
        with torch.no_grad():
            d_states, d_hidden, d_read = d_states.contiguous(), d_last.clone(), torch.zeros_like(read)
            d_blocks, d_queries, d_rows = torch.empty_like(blocks), torch.empty_like(queries), torch.zeros_like(rows)
            found = (d_states, d_hidden, d_read, d_blocks, d_queries, d_rows)
            pointers = _structure(*(each.data_ptr() for each in found))
            getattr(ctx.library, f"backward_{TYPE_NAMES[inputs.dtype]}")(ctx.problem, pointers)
            to_input, to_state = d_blocks[:, : -hidden.shape[1]], d_blocks[:, hidden.shape[1] :]
            gradients = [
                *(to_input @ of_input, d_hidden, to_input.t() @ inputs, d_blocks.sum(0)),
                to_state.t() @ _before(hidden, states, ctx.sizes),
                to_input.t() @ _before(read, reads, ctx.sizes),
                *(d_rows, None, d_queries.t() @ states, d_queries.sum(0), d_read),
            ]
        return None, *without_second_derivative(gradients, "run in a block of treemem.ops.compile_steps(False)"), None


def _before(first: torch.Tensor, values: torch.Tensor, sizes: list[int]) -> torch.Tensor:
    """What each token has from the step before, as ``values``, where sequences begin with ``first``."""
    return torch.cat([part[:size] for part, size in zip([first, *values.split(sizes)], sizes, strict=False)])


def _shares(sizes: list[int], threads: int) -> list[int]:
    """Where the rows of each thread begin, and the end of all, so that threads have about as many tokens each."""
    lengths = [sum(size > row for size in sizes) for row in range(sizes[0])]
    tokens = [0, *accumulate(lengths)]
    return [bisect.bisect_left(tokens, tokens[-1] * thread / threads) for thread in range(threads)] + [len(lengths)]


def _structure(*fields: int) -> ctypes.Array[ctypes.c_int64]:
    """A structure whose fields are whole numbers and pointers, all of eight bytes."""
    return (ctypes.c_int64 * len(fields))(*fields)
