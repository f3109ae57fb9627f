"""The Gumbel Tree-LSTM as published, over all sequences at once."""

from __future__ import annotations

from typing import NamedTuple

import torch

from treemem.engines.affine import Affine
from treemem.engines.choices import Noise, straight_through
from treemem.engines.sequence_lengths import LongestFirst
from treemem.networks.parsers.pair_by_pair import compose


class GumbelTreeWeights(NamedTuple):
    """All weights above the leaves.

    Attributes:
        cell: of the Tree-LSTM of two children, ``[5 * hidden_size, 2 * hidden_size]``, in the blocks of
            ``GATES``.
        query: the score of a composition is ``query . h / scale``, ``[hidden_size]``.
        scale: what scores are divided by.
    """

    cell: Affine
    query: torch.Tensor
    scale: float


def naive_trees(
    leaves: torch.Tensor,
    order: LongestFirst,
    weights: GumbelTreeWeights,
    temperature: float | None,
    noise: Noise | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compose sequences.

    With one-hot ``s``, the choice, and its cumulative sum ``S``, a step makes of nodes ``n`` and compositions ``m`` the
    nodes ``s_j m_j + (1 - S_j) n_j + S_(j-1) n_(j+1)``.

    Args:
        leaves: ``[sequences, longest, 2 * hidden_size]``, 0 at padding.
        order: of the sequences.
        weights: of cell and score.
        temperature, noise: see ``gumbel_trees``.

    Returns:
        The roots ``[sequences, 2 * hidden_size]``, the compositions ``[sequences, longest - 1, 2 * hidden_size]``, 0
        after the last one of a sequence, and the pair of nodes that each of them replaced, int64
        ``[sequences, longest - 1]``.
    """
    sequences, longest, width = leaves.shape
    nodes, ended = leaves, []
    compositions, places = [leaves.new_zeros(sequences, 0, width)], [order.lengths_there.new_zeros(sequences, 0)]
    for step, active in enumerate(order.sizes[1:], 1):
        ended.append(nodes[active:, 0])
        left, right = nodes[:active, :-1], nodes[:active, 1:]
        composed = compose(left, right, weights.cell)
        scores = composed.chunk(2, 2)[0] @ weights.query / weights.scale
        if noise is not None and step < longest - 1:
            scores = scores + noise((active, longest - step))
        pair = torch.arange(longest - step, device=leaves.device)
        absent = pair >= order.lengths_there[:active, None] - step
        place, choice = straight_through(scores.masked_fill(absent, -torch.inf), temperature)
        choice = choice[:, :, None]
        until = choice.cumsum(1)
        nodes = choice * composed + (1 - until) * left + (until - choice) * right
        compositions.append(_padded((choice * composed).sum(1), sequences))
        places.append(_padded(place, sequences))
    ended.append(nodes[:, 0])
    return torch.cat(ended[::-1]), torch.cat(compositions, 1), torch.cat(places, 1)


def _padded(values: torch.Tensor, sequences: int) -> torch.Tensor:
    """Return ``values`` with zeros for the sequences that have ended, ``[sequences, 1, ...]``."""
    return torch.cat([values, values.new_zeros(sequences - len(values), *values.shape[1:])])[:, None]
