"""The Gumbel Tree-LSTM as published, over one sequence."""

from __future__ import annotations

import torch

from treemem.ops.choices import Noise, first_highest, straight_through
from treemem.ops.gumbel_tree_lstm.weights import GumbelTreeWeights, compose


def naive_tree(
    leaves: torch.Tensor, weights: GumbelTreeWeights, temperature: float | None, noise: Noise | None
) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Compose a sequence.

    With one-hot ``s``, the choice, and its cumulative sum ``S``, a step makes of nodes ``n`` and compositions ``m`` the
    nodes ``s_j m_j + (1 - S_j) n_j + S_(j-1) n_(j+1)``.

    Args:
        leaves: ``[tokens, 2 * hidden_size]``, at least one.
        weights: of cell and score.
        temperature: of the softmax through which choices have gradients; None: they have none.
        noise: of the choices.

    Returns:
        The root ``[2 * hidden_size]``, the composition of each step ``[tokens - 1, 2 * hidden_size]``, and the token at
        which the right child of each begins.
    """
    nodes, begins = leaves, list(range(len(leaves)))
    chosen, joins = [leaves[:0]], []
    for num_pairs in range(len(leaves) - 1, 0, -1):
        composed = compose(nodes[:-1], nodes[1:], weights.cell)
        place = 0
        if num_pairs == 1:
            nodes = composed
            chosen.append(composed)
        else:
            scores = composed.chunk(2, 1)[0] @ weights.query / weights.scale
            noisy = scores if noise is None else scores + noise((1, num_pairs))[0]
            choice = straight_through(noisy, temperature)[:, None]
            place = int(first_highest(noisy))
            until = choice.cumsum(0)
            before = torch.cat([until.new_zeros(1, 1), until[:-1]])
            nodes = choice * composed + (1 - until) * nodes[:-1] + before * nodes[1:]
            chosen.append((choice * composed).sum(0, keepdim=True))
        joins.append(begins.pop(place + 1))
    return nodes[0], torch.cat(chosen), joins
