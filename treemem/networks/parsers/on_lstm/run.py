"""The ways to run an ON-LSTM, equal on every output and gradient."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from treemem.device_copy import to_device
from treemem.engines.sequence_engine import SequenceEngine
from treemem.engines.sequence_lengths import Packing, checked_lengths
from treemem.errors import GraphError
from treemem.native.run import NativeRun, run_native
from treemem.networks.parsers.on_lstm.cuda import CudaSteps
from treemem.networks.parsers.on_lstm.equations import OnLSTMOutputs, OnLSTMWeights, naive_steps
from treemem.networks.parsers.on_lstm.native import NativeSteps, is_worth_packing, on_lstm_library


def on_lstm(
    inputs: torch.Tensor,
    lengths: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    weights: OnLSTMWeights,
    chunk_size: int,
    engine: SequenceEngine = "auto",
) -> OnLSTMOutputs:
    """Run a layer of ON-LSTM over sequences of vectors.

    Args:
        inputs: ``[sequences, longest, input_size]``, on the right of each sequence padding of any content.
        lengths: int64 ``[sequences]``, 0 to ``longest``.
        hidden, cell: where to begin, ``[sequences, hidden_size]``.
        weights: see :class:`OnLSTMWeights`.
        chunk_size: adjacent units that share a master unit; divides ``hidden_size``.
        engine: how to run; ``fused`` is ``naive`` where neither C++ nor kernels can be used. Autocast is off inside, so
            that states keep the precision of the weights.

    Raises:
        GraphError: inputs of another width, lengths that do not fit them, or a state of another shape.
    """
    lengths = checked_lengths(lengths, inputs, weights.input_weight.shape[1])
    shape = (len(inputs), weights.hidden_weight.shape[1])
    for name, state in (("hidden", hidden), ("cell", cell)):
        if state.shape != shape:
            raise GraphError(f"{name} must have a row for each sequence, {list(shape)}, not {list(state.shape)}")
    packing = Packing(lengths, inputs.shape[1], inputs.device)
    order = to_device(packing.order, inputs.device)
    with torch.autocast(inputs.device.type, enabled=False):
        dtype = weights.hidden_weight.dtype
        packed, hidden, cell = (tensor.to(dtype) for tensor in (packing.packed(inputs), hidden[order], cell[order]))
        bias = weights.input_bias + weights.hidden_bias
        tensors = (packed, hidden, cell, weights.input_weight, bias, weights.hidden_weight)
        steps = None if engine == "naive" else _fast_steps(tensors, packing.sizes, chunk_size)
        results = run_native(steps, *tensors) if steps else naive_steps(*tensors, packing.sizes, chunk_size)
    states, masters, last_hidden, last_cell = results  # the master gates have no gradients
    back = order.argsort()
    return OnLSTMOutputs(packing.padded(states), last_hidden[back], last_cell[back], packing.padded(masters.detach()))


def _fast_steps(tensors: Sequence[torch.Tensor], sizes: list[int], chunk_size: int) -> NativeRun | None:
    """The steps in C++ or in kernels; None if they cannot be used."""
    differentiable = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if CudaSteps.runs(tensors, chunk_size):
        return CudaSteps(sizes, chunk_size, differentiable)
    library = on_lstm_library(tensors) if is_worth_packing(tensors[-1], sizes) else None
    return None if library is None else NativeSteps(library, sizes, chunk_size, differentiable)
