"""The search for trees with a beam as published, sequence by sequence and beam by beam."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

from treemem.engines.affine import Affine, linear
from treemem.engines.choices import Noise, highest
from treemem.networks.gated_cell.equations import GatedCellWeights, gated_cell


class ChildrenScore(NamedTuple):
    """The score of a pair from the first entries of its children: ``w . gelu(W [l; r] + b) + c``.

    Attributes:
        hidden: ``[scored_size, 2 * scored_size]``.
        score: ``[1, scored_size]``.
    """

    hidden: Affine
    score: Affine

    def of(self, children: torch.Tensor) -> torch.Tensor:
        """Score pairs of children ``[..., 2, hidden_size]``."""
        both = children[..., : self.hidden.weight.shape[1] // 2].flatten(-2)
        return linear(functional.gelu(linear(both, self.hidden)), self.score).squeeze(-1)


class BeamTreeWeights(NamedTuple):
    """All weights above the leaves.

    Attributes:
        cell: composes two children.
        score: of a pair: from its children (EBT-GRC), or a linear map ``[1, hidden_size]`` of what the cell makes of
            them (BT-GRC).
    """

    cell: GatedCellWeights
    score: ChildrenScore | Affine


class Beam(NamedTuple):
    """A hypothesis.

    Attributes:
        nodes: what is not composed yet, ``[nodes, hidden_size]``.
        total: the log probability of its choices.
        joins: the token at which the right child of each composition begins, in order.
        begins: the first token of each node.
        start: which of the first beams it comes from.
    """

    nodes: torch.Tensor
    total: torch.Tensor
    joins: list[int]
    begins: list[int]
    start: int = 0


class _Candidate(NamedTuple):
    beam: Beam
    place: int
    total: torch.Tensor
    composed: torch.Tensor  # every pair of the beam, [pairs, hidden_size]


def naive_beams(
    beams: list[Beam], weights: BeamTreeWeights, beam_size: int, *, soft: bool, noise: Noise | None, dropout: float
) -> list[Beam]:
    """Return the beams at the end of one sequence.

    Args:
        beams: those of the beginning, at most ``beam_size``, of as many nodes each.
        weights: of cell and score.
        beam_size: number of beams.
        soft: whether the last beam is a mean of the rest (OneSoft).
        noise: of both choices; of a soft beam's, of the first one.
        dropout: of the hidden layer of the cell.
    """
    for num_pairs in range(len(beams[0].nodes) - 1, 0, -1):
        drawn = noise((1, len(beams), num_pairs))[0] if noise is not None and num_pairs > 1 else None
        candidates: list[_Candidate] = []
        for number, beam in enumerate(beams):
            left, right = beam.nodes[:-1], beam.nodes[1:]
            keep = functional.dropout(left.new_ones(num_pairs, 4 * left.shape[1]), dropout)
            composed = gated_cell(left, right, weights.cell, keep)
            if isinstance(weights.score, ChildrenScore):
                scores = weights.score.of(torch.stack([left, right], -2))
            else:
                scores = linear(composed, weights.score).squeeze(-1)
            log_probability = scores.log_softmax(0)
            ranked = log_probability if drawn is None else log_probability + drawn[number]
            for place in highest(ranked, beam_size).tolist():
                candidates.append(_Candidate(beam, place, beam.total + log_probability[place], composed))
        if len(candidates) <= beam_size:
            beams = [_composed(candidate) for candidate in candidates]
            continue
        total = torch.stack([candidate.total for candidate in candidates])
        if noise is not None and not soft:
            total = total + noise((1, len(candidates)))[0]
        candidates = [candidates[place] for place in highest(total, len(total)).tolist()]
        first, rest = candidates[: beam_size - soft], candidates[beam_size - soft :]
        beams = [*(_composed(candidate) for candidate in first), *([_mean_beam(rest)] if soft else [])]
    return beams


def _composed(candidate: _Candidate) -> Beam:
    beam, place = candidate.beam, candidate.place
    parts = [beam.nodes[:place], candidate.composed[place : place + 1], beam.nodes[place + 2 :]]
    joins = [*beam.joins, beam.begins[place + 1]]
    begins = beam.begins[: place + 1] + beam.begins[place + 2 :]
    return Beam(torch.cat(parts), candidate.total, joins, begins, beam.start)


def _mean_beam(candidates: list[_Candidate]) -> Beam:
    """The soft beam of OneSoft: means of nodes, compositions and choices, each by itself, and then the composition."""
    beams, places, totals, compositions = zip(*candidates, strict=True)
    total, nodes, composed = torch.stack(totals), torch.stack([beam.nodes for beam in beams]), torch.stack(compositions)
    weight = total.softmax(0)
    chosen = functional.one_hot(torch.tensor(places), composed.shape[1]).to(weight)
    mean_nodes, mean_composed = (torch.einsum("c,cnd->nd", weight, values) for values in (nodes, composed))
    mean_chosen = torch.einsum("c,cn->n", weight, chosen)[:, None]
    until = mean_chosen.cumsum(0)
    mixed = mean_chosen * mean_composed + (1 - until) * mean_nodes[:-1] + (until - mean_chosen) * mean_nodes[1:]
    return Beam(mixed, (weight * total).sum(), [], list(range(len(mixed))))
