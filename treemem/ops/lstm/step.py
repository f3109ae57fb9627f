"""The pointwise step of an LSTM, with its backward pass written by hand."""

from __future__ import annotations

import torch


def lstm_step(gates: torch.Tensor, before: torch.Tensor, out: torch.Tensor) -> None:
    """Turn the preactivation into the gates, in place, and write ``[h; c]``.

    Args:
        gates: blocks input, forget, update, output, ``[rows, 4 * hidden_size]``.
        before: ``[h; c]``, ``[rows, 2 * hidden_size]``.
        out: as ``before``.
    """
    size = gates.shape[1] // 4
    input_gate, forget_gate, update, output_gate = gates.split(size, 1)
    update.tanh_()
    for gate in (input_gate, forget_gate, output_gate):
        gate.sigmoid_()
    cell = torch.mul(forget_gate, before[:, size:], out=out[:, size:]).addcmul_(input_gate, update)
    torch.mul(output_gate, cell.tanh(), out=out[:, :size])


def lstm_step_backward(
    gates: torch.Tensor, before: torch.Tensor, after: torch.Tensor, gradient: torch.Tensor, out: torch.Tensor
) -> torch.Tensor:
    """Write the gradient of the preactivation into ``out``; return that of the ``c`` before.

    Args:
        gates: of :func:`lstm_step`.
        before, after: ``[h; c]``, ``[rows, 2 * hidden_size]``.
        gradient: of ``after``.
        out: as ``gates``.
    """
    size = gates.shape[1] // 4
    input_gate, forget_gate, update, output_gate = gates.split(size, 1)
    d_input, d_forget, d_update, d_output = out.split(size, 1)
    d_hidden, d_cell = gradient.split(size, 1)
    value = after[:, size:].tanh()
    d_cell = d_cell + d_hidden * output_gate * (1 - value * value)
    d_output.copy_(d_hidden * value * output_gate * (1 - output_gate))
    d_input.copy_(d_cell * update * input_gate * (1 - input_gate))
    d_forget.copy_(d_cell * before[:, size:] * forget_gate * (1 - forget_gate))
    d_update.copy_(d_cell * input_gate * (1 - update * update))
    return d_cell * forget_gate
