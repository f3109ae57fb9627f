"""The step of an LSTM; and one layer and direction of it as a plain loop over packed sequences."""

from __future__ import annotations

import torch
from torch.nn import functional


def lstm_step(preactivation: torch.Tensor, cell: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``h`` and ``c``, ``[..., size]``, of ``[..., 4 * size]`` in blocks input, forget, update, output."""
    input_gate, forget_gate, update, output_gate = preactivation.chunk(4, -1)
    cell = forget_gate.sigmoid() * cell + input_gate.sigmoid() * update.tanh()
    return output_gate.sigmoid() * cell.tanh(), cell


def naive_lstm(
    inputs: torch.Tensor,
    sizes: list[int],
    lstm: torch.nn.LSTM,
    suffix: str,
    *,
    update_dropout: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Run from the zero state over packed sequences, longest first.

    ``i, f, o = sigmoid(W e + U h + b)``, ``u = tanh(W_u e + U_u h + b_u)``, ``c = f * c + i * u``, ``h = o * tanh(c)``.

    Args:
        inputs: step after step, ``[tokens, input_size]``.
        sizes: how many sequences each step has; not ascending.
        lstm: whose weights these are.
        suffix: which layer and direction, such as ``"l0"`` or ``"l0_reverse"``, which reads from the last token of each
            sequence to its first.
        update_dropout: probability that an entry of ``u`` is dropped (Arabshahi et al. 2018).

    Returns:
        ``h`` and ``c`` at every token, each ``[tokens, hidden_size]``, and ``h`` after the last token read of each
        sequence, ``[sequences, hidden_size]``.
    """
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    input_weight, hidden_weight, input_bias, hidden_bias = (getattr(lstm, f"{name}_{suffix}") for name in names)
    backward, hidden_size = suffix.endswith("_reverse"), hidden_weight.shape[1]
    of_inputs = functional.linear(inputs, input_weight, input_bias + hidden_bias).split(sizes)
    recurrent = hidden_weight.t()
    now = inputs.new_zeros(2, 0 if backward else sizes[0], hidden_size)  # h and c
    outputs: list[torch.Tensor] = []
    ended: list[torch.Tensor] = []
    for step in reversed(of_inputs) if backward else of_inputs:
        if len(step) > now.shape[1]:  # sequences that begin here, at their last token
            now = torch.cat([now, now.new_zeros(2, len(step) - now.shape[1], hidden_size)], dim=1)
        ended.append(now[0, len(step) :])
        preactivation = torch.addmm(step, now[0, : len(step)], recurrent)
        input_gate, forget_gate, update, output_gate = preactivation.split(hidden_size, dim=1)
        update = functional.dropout(torch.tanh(update), update_dropout)
        cell = torch.sigmoid(forget_gate) * now[1, : len(step)] + torch.sigmoid(input_gate) * update
        now = torch.stack([torch.sigmoid(output_gate) * torch.tanh(cell), cell])
        outputs.append(now)
    ended.append(now[0])
    return *torch.cat(outputs[::-1] if backward else outputs, 1), torch.cat(ended[::-1])
