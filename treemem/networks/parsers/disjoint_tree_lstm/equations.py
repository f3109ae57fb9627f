"""Parser and composition as published, over all sequences at once."""

from __future__ import annotations

from typing import NamedTuple

import torch

from treemem.engines.affine import Affine
from treemem.engines.choices import Noise, first_highest
from treemem.engines.sequence_lengths import LongestFirst
from treemem.networks.parsers.pair_by_pair import compose


class ParserWeights(NamedTuple):
    """All weights of the parser above its leaves.

    Attributes:
        cell: of its Tree-LSTM, ``[5 * hidden_size, 2 * hidden_size]``, in the blocks of
            ``GATES``.
        query: the score of a pair is ``query . h`` of its composition, ``[hidden_size]``.
    """

    cell: Affine
    query: torch.Tensor


def naive_parse(
    leaves: torch.Tensor,
    order: LongestFirst,
    weights: ParserWeights,
    *,
    noise: Noise | None = None,
    given: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Choose pair after pair.

    Args:
        leaves: of the parser, ``[sequences, longest, 2 * hidden_size]``, 0 at padding.
        order: of the sequences.
        weights: of the parser.
        noise: is added to the scores before a choice; of a step with more than one pair.
        given: the places of the pairs to choose, int64 ``[sequences, longest - 1]``.

    Returns:
        The places of the chosen pairs, and the log probability of each choice and the entropy of its distribution,
        ``[sequences, longest - 1]``; 0 after the last one.
    """
    sequences, longest, _ = leaves.shape
    places = order.lengths_there.new_zeros(sequences, longest - 1) if given is None else given
    log_probability, entropy = (leaves.new_zeros(sequences, longest - 1) for _ in range(2))
    nodes = leaves
    for step, active in enumerate(order.sizes[1:]):
        left, right = nodes[:active, :-1], nodes[:active, 1:]
        composed = compose(left, right, weights.cell, bounded=True)
        pair = torch.arange(left.shape[1], device=leaves.device)
        absent = pair >= order.lengths_there[:active, None] - step - 1
        scores = (composed.chunk(2, 2)[0] @ weights.query).masked_fill(absent, -torch.inf)
        if given is None:
            drawn = noise((active, len(pair))) if noise is not None and len(pair) > 1 else 0
            places[:active, step] = first_highest(scores + drawn)
        place = places[:active, step, None]
        of_pairs = scores.log_softmax(1)
        log_probability[:active, step] = of_pairs.gather(1, place).squeeze(1)
        of_pairs = of_pairs.masked_fill(absent, 0)
        entropy[:active, step] = -(of_pairs.exp() * of_pairs).sum(1)
        nodes = _replaced(left, right, place, composed)
    return places, log_probability, entropy


def naive_composition(leaves: torch.Tensor, order: LongestFirst, cell: Affine, places: torch.Tensor) -> torch.Tensor:
    """Return the roots ``[sequences, 2 * hidden_size]`` of the pairs at ``places``; arguments as above."""
    nodes, ended = leaves, []
    for step, active in enumerate(order.sizes[1:]):
        ended.append(nodes[active:, 0])
        nodes, place = nodes[:active], places[:active, step, None]
        at = place[:, :, None].expand(-1, -1, leaves.shape[2])
        composed = compose(nodes.gather(1, at), nodes.gather(1, at + 1), cell, bounded=True)
        nodes = _replaced(nodes[:, :-1], nodes[:, 1:], place, composed)
    ended.append(nodes[:, 0])
    return torch.cat(ended[::-1])


def _replaced(left: torch.Tensor, right: torch.Tensor, place: torch.Tensor, composed: torch.Tensor) -> torch.Tensor:
    """Return the nodes after a step, ``[sequences, pairs, 2 * hidden_size]``; ``composed`` may be that of one pair."""
    pair = torch.arange(left.shape[1], device=left.device)
    rest = torch.where((pair < place)[:, :, None], left, right)
    return torch.where((pair == place)[:, :, None], composed, rest)
