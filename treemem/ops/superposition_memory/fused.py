"""A superposition stack over packed sequences in C++, with the backward pass written by hand."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from treemem.ops.large_pages import empty_rows
from treemem.ops.native import TYPE_NAMES, native_library, structure
from treemem.ops.second_derivative import refuse_transforms, without_second_derivative
from treemem.ops.sequence_lengths import of_step_before, shares_of_threads

SOURCE = Path(__file__).with_name("fused.cpp")
_LEAST_TOKENS = 32  # that are worth packing the weights
_LEAST_WORK = 1 << 20  # multiplications that are worth a thread
_WHAT, _REMEDY = "a superposition stack in C++", "run the forward pass within treemem.ops.compile_steps(False)"


Controller = Literal["RNN", "LSTM", "GRU"]


class ControllerWeights(NamedTuple):
    """The weights of a torch cell that controls a stack, and of the map from its output to the controls.

    Attributes:
        input_weight, hidden_weight, input_bias, hidden_bias: of :class:`torch.nn.RNNCell`, with tanh,
            :class:`torch.nn.LSTMCell` or :class:`torch.nn.GRUCell`; what is read follows the input.
        control_weight: to the value, and to the logits of push, pop and perhaps no_op,
            ``[value_size + actions, hidden_size]``.
        control_bias: ``[value_size + actions]``.
    """

    input_weight: torch.Tensor
    hidden_weight: torch.Tensor
    input_bias: torch.Tensor
    hidden_bias: torch.Tensor
    control_weight: torch.Tensor
    control_bias: torch.Tensor


def runs_in_cpp(tokens: int, tensors: Iterable[torch.Tensor]) -> bool:
    """Return whether the functions below can run over so many tokens, which must be enough to be worth it.

    Args:
        tokens: of all sequences together.
        tensors: all that it reads.
    """
    return tokens >= _LEAST_TOKENS and not torch.compiler.is_compiling() and native_library(SOURCE, tensors) is not None


def stack_run(
    controller: Controller,
    inputs: torch.Tensor,
    sizes: list[int],
    first: list[torch.Tensor],
    weights: ControllerWeights,
    empty: float,
) -> tuple[torch.Tensor, ...]:
    """Run over packed sequences, longest first, where :func:`runs_in_cpp` says so. There is no second derivative.

    The steps are those of :class:`treemem.nn.MemoryCell` with :class:`treemem.nn.SuperpositionStack` and early fusion.
    Rows of a stack that are still empty are not computed.

    Args:
        controller: which cell it is.
        inputs: step after step, ``[tokens, input_size]``.
        sizes: how many sequences each step has; not ascending.
        first: where each sequence begins: its ``h``, of an LSTM its ``c``, its stack ``[sequences, depth, value_size]``
            and what it read, ``[sequences, top_k * value_size]``.
        weights: see :class:`ControllerWeights`.
        empty: what an empty row holds.

    Returns:
        ``h`` at every token, ``[tokens, hidden_size]``, and what ``first`` has become after the last token of each
        sequence.
    """
    hidden, *cells, stacks, read = first
    cell = cells[0] if cells else hidden.new_empty(0)
    size, width = hidden.shape[1], inputs.shape[1]
    of_input, of_read = weights.input_weight.split([width, read.shape[1]], 1)
    of_hidden = weights.hidden_weight
    bias = weights.input_bias + weights.hidden_bias
    if controller == "GRU":  # blocks: candidate without the state, reset gate, update gate, candidate of the state
        nothing, own = torch.zeros_like(of_hidden[:size]), weights.hidden_bias[2 * size :]
        bias = torch.cat([weights.input_bias[2 * size :], bias[: 2 * size], own])
        of_hidden = torch.cat([nothing, of_hidden])
        of_input, of_read = (
            torch.cat([each[2 * size :], each[: 2 * size], torch.zeros_like(each[:size])])
            for each in (of_input, of_read)
        )
    changed = stacks.requires_grad or bool((stacks != empty).any())
    states, last, *others = _Run.apply(
        controller,
        *(inputs, torch.cat([hidden, read], 1), cell, stacks, of_input, bias, torch.cat([of_hidden, of_read], 1)),
        *(weights.control_weight, weights.control_bias, stacks.new_full((1,), empty)),
        sizes,
        stacks.shape[1] if changed else 0,
        torch.is_grad_enabled(),
    )
    last, last_read = last.split([size, read.shape[1]], 1)
    return states[:, :size], last, *others[: len(cells)], others[-1], last_read


def stack_readouts(
    value: torch.Tensor, actions: torch.Tensor, stacks: torch.Tensor, top_k: int, empty: float
) -> torch.Tensor:
    """Return what is read after each step of known actions, where :func:`runs_in_cpp` says so; no second derivative.

    Args:
        value: ``[sequences, time, value_size]``.
        actions: the weights of push, pop and no_op, ``[sequences, time, 3]``.
        stacks: empty ones, ``[sequences, depth, value_size]``. If ``empty`` is not 0, the weights of each step must add
            up to 1.
        top_k: number of rows that are read.
        empty: what an empty row holds.

    Returns:
        ``[sequences, time, top_k * value_size]``.
    """
    sequences, time, size = value.shape
    controls, read = torch.cat([value, actions], 2).transpose(0, 1).flatten(0, 1), top_k * size
    shapes = ((0, size + 3), (0,), (0, read), (size + 3, 0), (size + 3,))
    states, *_ = _Run.apply(
        "known",
        *(controls, value.new_zeros(sequences, read), value.new_empty(0), stacks),
        *(value.new_empty(shape) for shape in shapes),
        value.new_full((1,), empty),
        [sequences] * time,
        0,
        torch.is_grad_enabled(),
    )
    readouts: torch.Tensor = states.unflatten(0, (time, sequences)).transpose(0, 1)
    return readouts


class _Run(torch.autograd.Function):
    """The steps one after the other, sequences sorted by length, longest first.

    The inputs of known actions are the controls, and there is no controller: its weights are empty. The backward pass
    keeps the gradients of all preactivations and makes those of the weights at the end.
    """

    @staticmethod
    def forward(
        ctx: Any,
        controller: str,
        inputs: torch.Tensor,
        first: torch.Tensor,
        cells: torch.Tensor,
        stacks: torch.Tensor,
        of_input: torch.Tensor,
        bias: torch.Tensor,
        of_state: torch.Tensor,
        of_control: torch.Tensor,
        control_bias: torch.Tensor,
        empty: torch.Tensor,
        sizes: list[int],
        most_rows: int,
        keep: bool,
    ) -> tuple[torch.Tensor, ...]:
        tokens, (sequences, depth, value_size) = len(inputs), stacks.shape
        size, controls = of_control.shape[1], len(of_control)
        rows = [min(depth, most_rows + step + 1) for step in range(len(sizes))]
        kept_rows = sum(map(int.__mul__, sizes, rows)) if keep else 2 * sequences * depth
        given = [each.contiguous() for each in (of_state, of_control, control_bias, empty, first, cells, stacks)]
        widths = (len(of_state), of_state.shape[1], size if cells.numel() else 0, controls)
        made = [*(empty_rows(inputs, tokens, width) for width in widths), empty_rows(inputs, kept_rows, value_size)]
        if controller == "known":
            made[3].copy_(inputs)
        else:
            torch.addmm(bias, inputs, of_input.t(), out=made[0])
        last = [each.clone(memory_format=torch.contiguous_format) for each in (first, cells, stacks)]
        work = of_state.numel() + of_control.numel() + 3 * max(rows, default=0) * value_size
        threads = max(1, min(torch.get_num_threads(), tokens * work // _LEAST_WORK))
        numbers = torch.tensor([*sizes, *shares_of_threads(sizes, threads)], dtype=torch.int64)
        ctx.numbers = (
            *(threads, len(sizes), tokens, size, value_size, depth),
            *((of_state.shape[1] - size) // value_size, controls - value_size, most_rows, int(keep)),
        )
        ctx.sizes, ctx.name = sizes, f"{controller}_{TYPE_NAMES[inputs.dtype]}"
        tensors = (numbers, *given, *made, *last)
        _call("forward", ctx, tensors)
        ctx.save_for_backward(inputs, of_input, *tensors)
        return made[1], *last

    @staticmethod
    def backward(ctx: Any, d_states: torch.Tensor, *d_last: torch.Tensor) -> tuple[Any, ...]:
        """The gradients of all tensors but the empty row."""
        refuse_transforms(_WHAT, f"; {_REMEDY}")
        inputs, of_input, *tensors = ctx.saved_tensors
        first, (blocks, states, _, controls) = tensors[5], tensors[8:12]
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            d_first = [each.clone(memory_format=torch.contiguous_format) for each in d_last]
            d_states, d_blocks, d_controls = d_states.contiguous(), torch.empty_like(blocks), torch.empty_like(controls)
            found = structure(*(each.data_ptr() for each in (d_states, *d_first, d_blocks, d_controls)))
            _call("backward", ctx, tensors, found)
            d_inputs = d_controls if len(of_input) == 0 else d_blocks @ of_input
            of_tensors = [
                *(d_inputs, *d_first, d_blocks.t() @ inputs, d_blocks.sum(0)),
                d_blocks.t() @ of_step_before(first, states, ctx.sizes),
                *(d_controls.t() @ states[:, : tensors[2].shape[1]], d_controls.sum(0)),
            ]
        return None, *without_second_derivative(of_tensors, _WHAT, _REMEDY), None, None, None, None


def _call(name: str, ctx: Any, tensors: Iterable[torch.Tensor], *more: ctypes.Array[ctypes.c_int64]) -> None:
    """Call C++ with numbers, and pointers to the tensors in its order."""
    numbers, *others = tensors
    shares = numbers[len(ctx.sizes) :]
    problem = structure(*ctx.numbers, *(each.data_ptr() for each in (numbers, shares, *others)))
    getattr(native_library(SOURCE, others), f"{name}_{ctx.name}")(problem, *more)
