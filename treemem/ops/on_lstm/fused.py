"""An ON-LSTM over packed sequences, with its backward pass written by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from treemem.device_copy import to_device
from treemem.ops.activation import sigmoid_backward, tanh_backward
from treemem.ops.large_pages import empty_rows
from treemem.ops.native import native_library
from treemem.ops.on_lstm.native import SOURCE, NativeSteps, is_worth_packing
from treemem.ops.on_lstm.step import OnLSTMOutputs, OnLSTMWeights
from treemem.ops.second_derivative import once_differentiable, refuse_transforms, save_for_backward
from treemem.ops.sequence_lengths import Packing, of_step_before


def fused_on_lstm(
    inputs: torch.Tensor,
    lengths: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    weights: OnLSTMWeights,
    chunk_size: int,
) -> OnLSTMOutputs:
    """Run the sequences packed, longest first, each step over those that have not ended.

    The inputs of all steps are one product, and so is each gradient of a weight. The steps are C++ where it can be
    used, and torch elsewhere.

    Args: as :func:`treemem.ops.on_lstm.naive.naive_on_lstm`.
    """
    refuse_transforms(remedy="; set layer.engine to 'naive'")
    packing = Packing(lengths.cpu(), inputs.shape[1], inputs.device)
    order = to_device(packing.order, inputs.device)
    bias = weights.input_bias + weights.hidden_bias
    tensors = (packing.packed(inputs), hidden[order], cell[order], weights.input_weight, bias, weights.hidden_weight)
    differentiable = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    given = (*tensors, packing.sizes, chunk_size, differentiable)
    library = native_library(SOURCE, tensors) if is_worth_packing(weights.hidden_weight, packing.sizes) else None
    found = _Run.apply(*given) if library is None else NativeSteps.apply(library, *given)
    states, masters, last_hidden, last_cell = found
    back = order.argsort()
    return OnLSTMOutputs(packing.padded(states), last_hidden[back], last_cell[back], packing.padded(masters))


class _Run(torch.autograd.Function):
    """The steps one after the other, rows sorted by length, longest first.

    The backward pass keeps the gradients of all preactivations and makes those of the weights from them at the end.
    """

    @staticmethod
    def forward(
        ctx: Any,
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
        num_tokens, hidden_size = len(inputs), hidden.shape[1]
        shape = (2, hidden_size // chunk_size)
        blocks, masters, states = (
            empty_rows(inputs, num_tokens, *rest) for rest in ((len(input_weight),), shape, (hidden_size,))
        )
        torch.addmm(bias, inputs, input_weight.t(), out=blocks)
        kept = [
            empty_rows(inputs, num_tokens if differentiable else len(hidden), *rest)
            for rest in (shape, (*shape, chunk_size), (hidden_size,), (hidden_size,))
        ]
        softmax, gates, cells, tanh_cells = (
            each.split(sizes) if differentiable else [each[:size] for size in sizes] for each in kept
        )
        recurrent = hidden_weight.t()
        now_hidden, now_cell, ended_hidden, ended_cell = hidden, cell, [], []
        for size, step, block, *written in zip(
            sizes,
            _Blocks.of_steps(blocks, sizes, shape, chunk_size),
            blocks.split(sizes),
            softmax,
            masters.split(sizes),
            gates,
            states.split(sizes),
            cells,
            tanh_cells,
            strict=True,
        ):
            ended_hidden.append(now_hidden[size:])
            ended_cell.append(now_cell[size:])
            block.addmm_(now_hidden[:size], recurrent)
            now_hidden, now_cell = _step(step, now_cell[:size], *written)
        ended_hidden.append(now_hidden)
        ended_cell.append(now_cell)
        if differentiable:
            ctx.sizes, ctx.shape, ctx.chunk_size = sizes, shape, chunk_size
            save_for_backward(ctx, inputs, hidden, cell, input_weight, hidden_weight, states, blocks, masters, *kept)
        ctx.mark_non_differentiable(masters)
        return states, masters, torch.cat(ended_hidden[::-1]), torch.cat(ended_cell[::-1])

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
        inputs, hidden, cell, input_weight, hidden_weight, states, blocks, masters, *kept = saved
        sizes: list[int] = ctx.sizes
        softmax, gates, cells, tanh_cells = (each.split(sizes) for each in kept)
        d_hidden, d_cell = d_hidden.clone(), d_cell.clone()  # a row's stay as they are until the step where it ends
        before_cell = [cell, *cells]
        d_blocks = empty_rows(blocks, *blocks.shape)
        steps = zip(
            sizes,
            _Blocks.of_steps(blocks, sizes, ctx.shape, ctx.chunk_size),
            _Blocks.of_steps(d_blocks, sizes, ctx.shape, ctx.chunk_size),
            before_cell[:-1],
            d_blocks.split(sizes),
            d_states.split(sizes),
            softmax,
            masters.split(sizes),
            gates,
            tanh_cells,
            strict=True,
        )
        for size, step, d_step, before, d_block, d_state, *read in reversed(list(steps)):
            d_now = d_hidden[:size].add_(d_state)
            _step_backward(step, d_step, before[:size], d_now, d_cell[:size], *read)
            torch.mm(d_block, hidden_weight, out=d_now)
        previous = of_step_before(hidden, states, sizes)
        of_weights = [d_blocks.t() @ inputs, d_blocks.sum(0), d_blocks.t() @ previous]
        return d_blocks @ input_weight, d_hidden, d_cell, *of_weights, None, None, None


class _Blocks(NamedTuple):
    """The preactivations of a step, or what overwrites them, or the gradients, as views.

    Attributes:
        masters: of the master input and forget gates, ``[rows, 2, m]``.
        output, update: ``[rows, hidden_size]``.
        gates: of the input and forget gates, ``[rows, 2, m, chunk_size]``.
    """

    masters: torch.Tensor
    output: torch.Tensor
    update: torch.Tensor
    gates: torch.Tensor

    @staticmethod
    def of_steps(blocks: torch.Tensor, sizes: list[int], shape: tuple[int, int], chunk_size: int) -> list[_Blocks]:
        """The views of each step, cut from those of all steps."""
        num_masters, hidden_size = shape[1], shape[1] * chunk_size
        masters, output, update, gates = blocks.split([2 * num_masters, hidden_size, hidden_size, 2 * hidden_size], 1)
        views = (masters.unflatten(1, shape), output, update, gates.unflatten(1, (*shape, chunk_size)))
        return [_Blocks(*parts) for parts in zip(*(view.split(sizes) for view in views), strict=True)]


def _step(
    step: _Blocks,
    before: torch.Tensor,
    softmax: torch.Tensor,
    masters: torch.Tensor,
    gates: torch.Tensor,
    state: torch.Tensor,
    cell: torch.Tensor,
    tanh_cell: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn preactivations into their values, in place, and write everything else; return ``h`` and ``c``."""
    torch.softmax(step.masters, 2, out=softmax)
    torch.cumsum(softmax, 2, out=masters)
    masters[:, 0].neg_().add_(1)
    overlap = masters[:, 0] * masters[:, 1]
    step.output.sigmoid_()
    step.update.tanh_()
    step.gates.sigmoid_()
    torch.addcmul((masters - overlap[:, None])[..., None], overlap[:, None, :, None], step.gates, out=gates)
    input_gate, forget_gate = gates.flatten(2).unbind(1)
    torch.mul(forget_gate, before, out=cell).addcmul_(input_gate, step.update)
    torch.tanh(cell, out=tanh_cell)
    return torch.mul(step.output, tanh_cell, out=state), cell


def _step_backward(
    step: _Blocks,
    d_step: _Blocks,
    before: torch.Tensor,
    d_state: torch.Tensor,
    d_cell: torch.Tensor,
    softmax: torch.Tensor,
    masters: torch.Tensor,
    gates: torch.Tensor,
    tanh_cell: torch.Tensor,
) -> None:
    """Write the gradients of a step's preactivations, and over ``d_cell`` that of ``before``."""
    through = d_state * step.output
    d_cell.add_(tanh_backward(through, tanh_cell, through))
    sigmoid_backward(torch.mul(d_state, tanh_cell, out=through), step.output, d_step.output)
    input_gate, forget_gate = gates.flatten(2).unbind(1)
    d_gates = torch.empty_like(gates)
    d_input, d_forget = d_gates.flatten(2).unbind(1)
    torch.mul(d_cell, step.update, out=d_input)
    torch.mul(d_cell, before, out=d_forget)
    tanh_backward(torch.mul(d_cell, input_gate, out=through), step.update, d_step.update)
    d_cell.mul_(forget_gate)

    d_rest = d_gates.sum(3)  # of the masters less their overlap
    d_overlap = (d_gates * step.gates).sum((1, 3)).sub_(d_rest.sum(1))
    d_masters = torch.addcmul(d_rest, d_overlap[:, None], masters.flip(1))
    d_gates.mul_((masters[:, 0] * masters[:, 1])[:, None, :, None])
    sigmoid_backward(d_gates, step.gates, d_step.gates)
    d_masters[:, 0].neg_()
    d_softmax = d_masters.sum(2, keepdim=True) - d_masters.cumsum(2) + d_masters  # sum of this and all later units
    d_softmax.mul_(softmax)
    torch.addcmul(d_softmax, softmax, d_softmax.sum(2, keepdim=True), value=-1, out=d_step.masters)
