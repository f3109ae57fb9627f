"""A GRU over packed sequences whose steps are C++, with the backward pass written by hand."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from treemem.errors import GraphError
from treemem.ops.gru.naive import Attention, GRUWeights, naive_gru
from treemem.ops.large_pages import empty_rows
from treemem.ops.native import TYPE_NAMES, native_library, structure
from treemem.ops.second_derivative import refuse_transforms, without_second_derivative
from treemem.ops.sequence_lengths import of_step_before, shares_of_threads

SOURCE = Path(__file__).with_name("fused.cpp")
_LEAST_TOKENS = 32  # that are worth packing the weights
_LEAST_WORK = 1 << 20  # multiplications that are worth a thread
_WHAT, _REMEDY = "the GRU in C++", "run the forward pass within treemem.ops.compile_steps(False)"


def runs_in_cpp(tokens: int, tensors: Iterable[torch.Tensor]) -> bool:
    """Return whether :func:`gru` runs in C++ over so many tokens, which must be enough to be worth it.

    Args:
        tokens: of all sequences together.
        tensors: all that it reads but the lengths.
    """
    return tokens >= _LEAST_TOKENS and not torch.compiler.is_compiling() and _library(tensors) is not None


def _library(tensors: Iterable[torch.Tensor]) -> ctypes.CDLL | None:
    return native_library(SOURCE, tensors)


def gru(
    inputs: torch.Tensor,
    sizes: list[int],
    hidden: torch.Tensor,
    weights: GRUWeights,
    attention: Attention | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run over packed sequences, longest first: in C++ where it can be used, and elsewhere by :func:`naive_gru`.

    In C++ there is no second derivative.

    Args, Returns: as :func:`treemem.ops.gru.naive_gru`.

    Raises:
        GraphError: a sequence attends to fewer than 0 rows, or to more than there are.
    """
    library = _library((inputs, hidden, *weights, *((attention[0], *attention[2:]) if attention else ())))
    if library is None:
        return naive_gru(inputs, sizes, hidden, weights, attention)
    size = hidden.shape[1]
    of_input = weights.input_weight.roll(size, 0)
    of_input, of_read = of_input[:, : inputs.shape[1]], of_input[:, inputs.shape[1] :]
    of_gates, of_candidate = (weights.input_bias + weights.hidden_bias)[: 2 * size], weights.input_bias[2 * size :]
    bias = torch.cat([of_candidate, of_gates, weights.hidden_bias[2 * size :]])
    if attention is None:
        shapes = ((0, 0, 0), (0, size), (0,), (len(hidden), 0))
        rows, query_weight, query_bias, read = (inputs.new_empty(shape) for shape in shapes)
        lengths = torch.empty(0, dtype=torch.int64)
    else:
        rows, lengths, query_weight, query_bias, read = attention
        lengths = lengths.to("cpu", torch.int64)
        if not bool(((lengths >= 0) & (lengths <= rows.shape[1])).all()):
            raise GraphError(f"sequences attend to 0 to {rows.shape[1]} rows, not to {lengths.tolist()}")
    of_attention = (rows, lengths, query_weight, query_bias, read)
    found: tuple[torch.Tensor, torch.Tensor] = _Run.apply(
        library, inputs, hidden, of_input, bias, weights.hidden_weight, of_read, *of_attention, sizes
    )
    return found


class _Run(torch.autograd.Function):
    """The steps one after the other, sequences sorted by length, longest first.

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
        num_tokens, size, read_size, most = len(inputs), hidden.shape[1], read.shape[1], rows.shape[1]
        given = [
            each.contiguous() for each in (lengths, of_state, hidden, of_read, rows, query_weight, query_bias, read)
        ]
        blocks, states, queries, reads, attention = (
            empty_rows(inputs, num_tokens, width) for width in (4 * size, size, read_size, read_size, most)
        )
        torch.addmm(bias[: 3 * size], inputs, of_input.t(), out=blocks[:, : 3 * size])
        blocks[:, 3 * size :] = bias[3 * size :]
        last = hidden.clone(memory_format=torch.contiguous_format)
        work = of_state.numel() + of_read.numel() + query_weight.numel() + 2 * most * read_size
        threads = max(1, min(torch.get_num_threads(), num_tokens * work // _LEAST_WORK))
        numbers = torch.tensor([*sizes, *shares_of_threads(sizes, threads)], dtype=torch.int64)
        kept = (numbers, *given, blocks, states, queries, reads, attention, last)
        ctx.library, ctx.sizes, ctx.threads = library, sizes, threads
        getattr(library, f"forward_{TYPE_NAMES[inputs.dtype]}")(_problem(ctx, kept))
        ctx.save_for_backward(inputs, of_input, *kept)
        return states, last

    @staticmethod
    def backward(ctx: Any, d_states: torch.Tensor, d_last: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The gradients of all tensors but the lengths."""
        refuse_transforms(_WHAT, f"; {_REMEDY}")
        inputs, of_input, *kept = ctx.saved_tensors
        hidden, rows, read = kept[3], kept[5], kept[8]
        blocks, states, queries, reads = kept[9:13]
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            d_states, d_hidden = d_states.contiguous(), d_last.clone(memory_format=torch.contiguous_format)
            d_blocks, d_queries = torch.empty_like(blocks), torch.empty_like(queries)
            d_read, d_rows = torch.zeros_like(read), torch.zeros_like(rows)
            found = (d_states, d_hidden, d_read, d_blocks, d_queries, d_rows)
            gradients = structure(*(each.data_ptr() for each in found))
            getattr(ctx.library, f"backward_{TYPE_NAMES[inputs.dtype]}")(_problem(ctx, kept), gradients)
            to_input, to_state = d_blocks[:, : -hidden.shape[1]], d_blocks[:, hidden.shape[1] :]
            of_tensors = [
                *(to_input @ of_input, d_hidden, to_input.t() @ inputs, d_blocks.sum(0)),
                to_state.t() @ of_step_before(hidden, states, ctx.sizes),
                to_input.t() @ of_step_before(read, reads, ctx.sizes),
                *(d_rows, None, d_queries.t() @ states, d_queries.sum(0), d_read),
            ]
        return None, *without_second_derivative(of_tensors, _WHAT, _REMEDY), None


def _problem(ctx: Any, kept: Iterable[torch.Tensor]) -> ctypes.Array[ctypes.c_int64]:
    """What the C++ reads: numbers, and pointers to the tensors in its order."""
    numbers, *tensors = kept
    num_tokens, (_, most, read_size), size = len(tensors[8]), tensors[4].shape, tensors[2].shape[1]
    shares = numbers[len(ctx.sizes) :]
    pointers = (each.data_ptr() for each in (numbers, shares, *tensors))
    return structure(ctx.threads, len(ctx.sizes), num_tokens, size, read_size, most, *pointers)
