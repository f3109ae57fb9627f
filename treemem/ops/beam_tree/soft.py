"""OneSoft: the search with a last beam that is a mean of all that it leaves out, over all sequences at once."""

from __future__ import annotations

import torch
from torch.nn import functional

from treemem.ops.affine import linear
from treemem.ops.beam_tree.weights import BeamTreeWeights, ChildrenScore
from treemem.ops.choices import Noise, highest
from treemem.ops.gated_recursive import GatedCellWeights, gated_cell

ABSENT = -1e30
"""The log probability of what is not there; finite, so that means of it have gradients."""


def soft_search(
    leaves: torch.Tensor,
    lengths: torch.Tensor,
    sizes: list[int],
    weights: BeamTreeWeights,
    beam_size: int,
    *,
    noise: Noise | None,
    dropout: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the roots of the beams, ``[sequences, beam_size, hidden_size]``, and their log probabilities.

    Log probabilities are ``ABSENT`` or less where there is no beam. The last beam has means of nodes, of compositions
    and of choices, each over all candidates that are not among the first ``beam_size - 1``. Pairs of a hard
    beam keep their composition until a node of them is composed.

    Args:
        leaves, lengths, sizes, weights, beam_size, dropout: see :func:`treemem.ops.beam_tree.search.search`.
        noise: of the choice of pairs.
    """
    score_map = weights.score
    assert not isinstance(score_map, ChildrenScore)
    cell = _Cell(weights.cell, dropout)
    nodes = leaves[:, None]
    composed = cell.of_pairs(nodes)
    total = leaves.new_zeros(len(leaves), 1)
    ended: list[tuple[torch.Tensor, torch.Tensor]] = []
    for active, num_pairs in zip(sizes[1:], range(leaves.shape[1] - 1, 0, -1), strict=True):
        ended.append((nodes[active:, :, 0], total[active:]))
        nodes, composed, total = nodes[:active], composed[:active], total[:active]
        present = torch.arange(num_pairs, device=leaves.device) < lengths[:active, None] - (leaves.shape[1] - num_pairs)
        score = linear(composed, score_map).squeeze(-1).masked_fill(~present[:, None], ABSENT)
        log_probability = score.log_softmax(-1)
        drawn = noise(tuple(score.shape)) if noise is not None and num_pairs > 1 else 0.0
        place = _highest(log_probability + drawn, beam_size)
        candidate = (total[:, :, None] + log_probability.gather(2, place)).flatten(1)
        parent = torch.arange(nodes.shape[1], device=leaves.device).repeat_interleave(place.shape[2]).expand(active, -1)
        place = place.flatten(1)
        if candidate.shape[1] > beam_size:
            order = _highest(candidate, candidate.shape[1])
            candidate, parent, place = (each.gather(1, order) for each in (candidate, parent, place))
        hard = min(beam_size - 1, candidate.shape[1])
        first, rest = (
            [each[:, part] for each in (candidate, parent, place)] for part in (slice(hard), slice(hard, None))
        )
        beams = [_hard_beams(nodes, composed, first[1], first[2], cell)]
        totals = [first[0]]
        if rest[0].shape[1]:
            weight = rest[0].softmax(1)
            mean = _mean_beam(nodes, composed, weight, *rest[1:])[:, None]
            beams.append((mean, cell.of_pairs(mean)))
            totals.append((weight * rest[0]).sum(1, keepdim=True))
        nodes, composed = (torch.cat(each, 1) for each in zip(*beams, strict=True))
        total = torch.cat(totals, 1)
    ended.append((nodes[:, :, 0], total))
    roots = [functional.pad(each, (0, 0, 0, beam_size - each.shape[1])) for each, _ in reversed(ended)]
    logs = [functional.pad(each, (0, beam_size - each.shape[1]), value=ABSENT) for _, each in reversed(ended)]
    return torch.cat(roots), torch.cat(logs)


def _highest(values: torch.Tensor, count: int) -> torch.Tensor:
    return highest(values.masked_fill(values < ABSENT / 2, -torch.inf), count)


class _Cell:
    def __init__(self, weights: GatedCellWeights, dropout: float) -> None:
        self._weights, self._dropout = weights, dropout

    def __call__(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        keep = left.new_ones(*left.shape[:-1], 4 * left.shape[-1]) if self._dropout else None
        return gated_cell(left, right, self._weights, keep if keep is None else functional.dropout(keep, self._dropout))

    def of_pairs(self, nodes: torch.Tensor) -> torch.Tensor:
        """Compose all pairs of adjacent nodes, ``[sequences, beams, nodes, hidden_size]``."""
        return self(nodes[:, :, :-1], nodes[:, :, 1:])


def _hard_beams(
    nodes: torch.Tensor, composed: torch.Tensor, parent: torch.Tensor, place: torch.Tensor, cell: _Cell
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return nodes and compositions of new beams that each compose one pair."""
    num_pairs = composed.shape[2]
    at = place[:, :, None]
    column = torch.arange(num_pairs, device=nodes.device)
    chosen = _entries(composed, parent, at)
    new = torch.where((column == at)[..., None], chosen, _entries(nodes, parent, column + (column > at)))
    if num_pairs == 1:
        return new, composed[:, : parent.shape[1], :0]
    column = column[:-1]
    old = _entries(composed, parent, column + (column >= at))
    before, after = (at - 1).clamp(min=0), (at + 1).clamp(max=num_pairs - 1)
    beam = torch.arange(parent.shape[1], device=nodes.device).expand_as(parent)
    left = torch.cat([_entries(new, beam, before), chosen], 2)
    right = torch.cat([chosen, _entries(new, beam, after)], 2)
    with_left, with_right = cell(left, right).split(1, 2)
    old = torch.where((column == at - 1)[..., None], with_left, old)
    return new, torch.where((column == at)[..., None], with_right, old)


def _entries(values: torch.Tensor, beam: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """``values [sequences, beams, places, width]`` at the places of beams, ``[sequences, new beams, ..., width]``."""
    flat = (beam[:, :, None] * values.shape[2] + place).flatten(1)[:, :, None].expand(-1, -1, values.shape[3])
    return values.flatten(1, 2).gather(1, flat).view(*place.shape, values.shape[3])


def _mean_beam(
    nodes: torch.Tensor, composed: torch.Tensor, weight: torch.Tensor, parent: torch.Tensor, place: torch.Tensor
) -> torch.Tensor:
    """Return the nodes of the beam that is a mean of candidates, ``[sequences, pairs, hidden_size]``."""
    of_beam = weight.new_zeros(nodes.shape[:2]).scatter_add(1, parent, weight)
    mean_nodes, mean_composed = (torch.einsum("sb,sbnd->snd", of_beam, each) for each in (nodes, composed))
    chosen = weight.new_zeros(composed.shape[0], composed.shape[2]).scatter_add(1, place, weight)[:, :, None]
    until = chosen.cumsum(1)
    return chosen * mean_composed + (1 - until) * mean_nodes[:, :-1] + (until - chosen) * mean_nodes[:, 1:]
