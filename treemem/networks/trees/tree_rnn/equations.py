"""The pointwise step of a Tree-RNN."""

from __future__ import annotations

import torch

from treemem.engines.activation import activation


def tree_rnn_step(preactivation: torch.Tensor, activation_name: str = "sigmoid", dropout: float = 0.0) -> torch.Tensor:
    """``h = f(W x + b)``, where ``x`` holds the children's ``h`` one after the other.

    Args:
        preactivation: ``W x + b``, ``[m, hidden_size]``.
        activation_name: ``f``; the published networks use the sigmoid.
        dropout: probability that an entry of ``h`` is dropped.

    Returns:
        ``h``, ``[m, hidden_size]``.
    """
    hidden = activation(activation_name)(preactivation)
    return torch.nn.functional.dropout(hidden, dropout) if dropout else hidden
