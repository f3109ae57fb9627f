"""The pointwise step of a child-sum Tree-LSTM."""

from __future__ import annotations

import torch


def child_sum_tree_lstm_gates(gates: torch.Tensor, forget: torch.Tensor, arity: int) -> dict[str, torch.Tensor]:
    """The gates of :func:`child_sum_tree_lstm_step`, where the arguments are described.

    Returns:
        ``forget``, ``[m, arity, hidden_size]``, and ``input``, ``output`` and ``update``, ``[m, hidden_size]``.
    """
    input_gate, output_gate, update = gates.chunk(3, dim=1)
    return {
        "forget": torch.sigmoid(forget).view(len(gates), arity, update.shape[1]),
        "input": torch.sigmoid(input_gate),
        "output": torch.sigmoid(output_gate),
        "update": torch.tanh(update),
    }


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
    named = child_sum_tree_lstm_gates(gates, forget, child_cells.shape[1])
    update = torch.nn.functional.dropout(named["update"], dropout) if dropout else named["update"]
    cell = named["input"] * update + (named["forget"] * child_cells).sum(1)
    return named["output"] * torch.tanh(cell), cell
