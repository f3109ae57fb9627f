"""The pointwise step of a child-sum Tree-LSTM."""

from __future__ import annotations

import torch


def child_sum_tree_lstm_step(
    gates: torch.Tensor, forget: torch.Tensor, child_cells: torch.Tensor, dropout: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """The child-sum Tree-LSTM of Tai et al. 2015 (eq. 2-8).

    With ``h~ = sum_k h_k``: ``i, o = sigmoid(W x + U h~ + b)``, ``u = tanh(W_u x + U_u h~ + b_u)``,
    ``f_k = sigmoid(W_f x + U_f h_k + b_f)``, ``c = i * u + sum_k f_k * c_k``, ``h = o * tanh(c)``.

    Args:
        gates: preactivations of ``i``, ``o`` and ``u``, ``[m, 3 * hidden_size]``.
        forget: preactivations of the ``f_k``, ``[m * arity, hidden_size]``.
        child_cells: ``[m, arity, hidden_size]``; ``arity`` may be 0.
        dropout: probability that an entry of ``u`` is dropped.

    Returns:
        ``h`` and ``c``, each ``[m, hidden_size]``.
    """
    input_gate, output_gate, update = gates.chunk(3, dim=1)
    update = torch.tanh(update)
    if dropout:
        update = torch.nn.functional.dropout(update, dropout)
    kept = torch.sigmoid(forget).view(child_cells.shape) * child_cells
    cell = torch.sigmoid(input_gate) * update + kept.sum(1)
    return torch.sigmoid(output_gate) * torch.tanh(cell), cell
