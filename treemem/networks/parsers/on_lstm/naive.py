"""The steps of an ON-LSTM as a plain loop under autograd: the definition that the C++ must equal."""

from __future__ import annotations

import torch
from torch.nn import functional

from treemem.networks.parsers.on_lstm.equations import on_lstm_gates, on_lstm_step


def naive_steps(
    inputs: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor,
    input_weight: torch.Tensor,
    bias: torch.Tensor,
    hidden_weight: torch.Tensor,
    sizes: list[int],
    chunk_size: int,
) -> tuple[torch.Tensor, ...]:
    """Run over packed sequences, longest first; see :class:`treemem.engines.sequence_lengths.Packing`.

    Args:
        inputs: step after step, ``[tokens, input_size]``.
        hidden, cell: where to begin, ``[sequences, hidden_size]``.
        input_weight, bias, hidden_weight: see ``OnLSTMWeights``; ``bias`` is the sum of
            both.
        sizes: how many sequences each step has.
        chunk_size: adjacent units that share a master unit.

    Returns:
        ``h`` of all tokens, ``[tokens, hidden_size]``; their master input and forget gates, ``[tokens, 2, m]``, without
        gradients; the last ``h`` and ``c`` of each sequence.
    """
    states = [inputs.new_zeros(0, hidden.shape[1])]
    masters = [inputs.new_zeros(0, 2, hidden.shape[1] // chunk_size)]
    ended: list[tuple[torch.Tensor, torch.Tensor]] = []
    recurrent = hidden_weight.t()
    for of_inputs in functional.linear(inputs, input_weight, bias).split(sizes):
        going = len(of_inputs)
        if going < len(hidden):
            (hidden, ended_hidden), (cell, ended_cell) = (
                each.split([going, len(each) - going]) for each in (hidden, cell)
            )
            ended.append((ended_hidden, ended_cell))
        gates = on_lstm_gates(torch.addmm(of_inputs, hidden, recurrent), chunk_size)
        hidden, cell = on_lstm_step(gates, cell)
        states.append(hidden)
        masters.append(torch.stack([gates["master_input"], gates["master_forget"]], 1).detach())
    ended.append((hidden, cell))
    last_hidden, last_cell = (torch.cat(each[::-1]) for each in zip(*ended, strict=True))
    return torch.cat(states), torch.cat(masters), last_hidden, last_cell
