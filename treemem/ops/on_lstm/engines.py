"""The ways to run an ON-LSTM, equal on every output and gradient."""

from __future__ import annotations

from typing import Literal, get_args

import torch

from treemem.checked_options import checked_choice
from treemem.errors import GraphError
from treemem.ops.on_lstm.fused import fused_on_lstm
from treemem.ops.on_lstm.naive import naive_on_lstm
from treemem.ops.on_lstm.step import OnLSTMOutputs, OnLSTMWeights
from treemem.ops.sequence_lengths import checked_lengths

Engine = Literal["auto", "fused", "naive"]
"""``fused``, which is what ``auto`` chooses: sequences packed, the backward pass written by hand. ``naive``: a plain
loop over time under autograd, the readable definition."""


def checked_engine(engine: str) -> Engine:
    """Return ``engine`` if it is one; raise :class:`RecipeError` if not."""
    return checked_choice("engine", engine, get_args(Engine))


def on_lstm(
    inputs: torch.Tensor,
    lengths: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    weights: OnLSTMWeights,
    chunk_size: int,
    engine: Engine = "auto",
) -> OnLSTMOutputs:
    """Run a layer of ON-LSTM over sequences of vectors.

    Args:
        inputs: ``[sequences, longest, input_size]``, on the right of each sequence padding of any content.
        lengths: int64 ``[sequences]``, 0 to ``longest``.
        hidden, cell: where to begin, ``[sequences, hidden_size]``.
        weights: see :class:`OnLSTMWeights`.
        chunk_size: adjacent units that share a master unit; divides ``hidden_size``.
        engine: how to run; autocast is off inside, so that states keep the precision of the weights.

    Raises:
        RecipeError: an unknown engine.
        GraphError: inputs of another width, lengths that do not fit them, or a state of another shape.
    """
    lengths = checked_lengths(lengths, inputs, weights.input_weight.shape[1])
    shape = (len(inputs), weights.hidden_weight.shape[1])
    for name, state in (("hidden", hidden), ("cell", cell)):
        if state.shape != shape:
            raise GraphError(f"{name} must have a row for each sequence, {list(shape)}, not {list(state.shape)}")
    run = naive_on_lstm if checked_engine(engine) == "naive" else fused_on_lstm
    with torch.autocast(inputs.device.type, enabled=False):
        dtype = weights.hidden_weight.dtype
        return run(inputs.to(dtype), lengths, hidden.to(dtype), cell.to(dtype), weights, chunk_size)
