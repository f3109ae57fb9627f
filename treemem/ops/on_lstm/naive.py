"""An ON-LSTM as a plain loop over time: the readable definition that the fast one must equal."""

from __future__ import annotations

import torch
from torch.nn import functional

from treemem.ops.on_lstm.step import OnLSTMOutputs, OnLSTMWeights, on_lstm_gates, on_lstm_step
from treemem.ops.sequence_lengths import within


def naive_on_lstm(
    inputs: torch.Tensor,
    lengths: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    weights: OnLSTMWeights,
    chunk_size: int,
) -> OnLSTMOutputs:
    """Run every sequence to the longest one's end, each state staying as it is once its sequence has ended.

    Args:
        inputs: ``[sequences, longest, input_size]``.
        lengths: int64 ``[sequences]``.
        hidden, cell: where to begin, ``[sequences, hidden_size]``.
        weights: see :class:`OnLSTMWeights`.
        chunk_size: adjacent units that share a master unit.
    """
    longest = inputs.shape[1]
    present = within(lengths.to(inputs.device), longest)
    inputs = torch.where(present[:, :, None], inputs, torch.zeros_like(inputs))
    outputs = [inputs.new_zeros(len(inputs), 0, hidden.shape[1])]
    masters = [inputs.new_zeros(len(inputs), 0, 2, hidden.shape[1] // chunk_size)]
    for time in range(longest):
        preactivation = functional.linear(inputs[:, time], weights.input_weight, weights.input_bias)
        preactivation = preactivation + functional.linear(hidden, weights.hidden_weight, weights.hidden_bias)
        gates = on_lstm_gates(preactivation, chunk_size)
        new_hidden, new_cell = on_lstm_step(gates, cell)
        now = present[:, time, None]
        hidden, cell = torch.where(now, new_hidden, hidden), torch.where(now, new_cell, cell)
        outputs.append((new_hidden * now)[:, None])
        both = torch.stack([gates["master_input"], gates["master_forget"]], dim=1).detach()
        masters.append((both * now[:, :, None])[:, None])
    return OnLSTMOutputs(torch.cat(outputs, dim=1), hidden, cell, torch.cat(masters, dim=1))
