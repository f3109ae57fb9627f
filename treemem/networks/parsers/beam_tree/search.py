"""The search for trees with a beam, over all sequences at once and without gradients.

Nodes and pairs of adjacent nodes have numbers, and beams hold numbers. A step computes what is new in each beam.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch.nn import functional

from treemem.engines.affine import linear
from treemem.engines.choices import Noise, highest
from treemem.networks.gated_cell.equations import gated_cell
from treemem.networks.gated_cell.levels import growing_states
from treemem.networks.parsers.beam_tree.equations import BeamTreeWeights, ChildrenScore


class SearchStep(NamedTuple):
    """What the beams chose in a step, for the sequences that still have a choice or a last pair.

    Attributes:
        pairs: the pairs of each beam before the step, int64 ``[sequences, beams, pairs]``; any numbers at padding.
        parent: from which of these beams each new one comes, int64 ``[sequences, new beams]``.
        place: which pair it composed, int64 ``[sequences, new beams]``.
        first_node: the number of the first node that was computed in this step.
    """

    pairs: torch.Tensor
    parent: torch.Tensor
    place: torch.Tensor
    first_node: int


class Lineage(NamedTuple):
    """How the last beams came about, if the search has written it down.

    Attributes:
        groups: the pairs of each beam in a step, int64 ``[groups, longest - 1]``; -1 is padding.
        places: the choices of each last beam, sequence by sequence, int64 ``[last beams, steps]``: places in the flat
            groups, and after their end if there was no choice.
        origins: with which beam each last beam began, int64 ``[last beams]``, counted sequence by sequence.
    """

    groups: torch.Tensor
    places: torch.Tensor
    origins: torch.Tensor


class Search(NamedTuple):
    """What the search found.

    Attributes:
        states: of all nodes, ``[nodes, hidden_size]``: first those that the beams begin with, ``sequences * beams *
            longest``, then compositions.
        children: the nodes of each composition, int64 ``[compositions, 2]``.
        pairs: the nodes of each pair, int64 ``[pairs, 2]``. Where a pair is scored by its composition, these are the
            compositions, in the same order.
        keep: by what the hidden layer of each composition was multiplied, ``[compositions, inner_size]``; None without
            dropout.
        steps: the choices.
        roots: the last node of each beam, int64 ``[sequences, beam_size]``; a token where there is no beam.
        totals: the log probability of each beam, ``[sequences, beam_size]``; minus infinity where there is no beam.
        lineage: of the last beams; None: the steps tell it.
    """

    states: torch.Tensor
    children: torch.Tensor
    pairs: torch.Tensor
    keep: torch.Tensor | None
    steps: list[SearchStep]
    roots: torch.Tensor
    totals: torch.Tensor
    lineage: Lineage | None = None


class Beams(NamedTuple):
    """The last beams of each sequence.

    Attributes:
        roots: the states of their last nodes, ``[sequences, beam_size, hidden_size]``; any where there is no beam.
        totals: their log probabilities, ``[sequences, beam_size]``; minus infinity where there is no beam.
        steps: the choices.
    """

    roots: torch.Tensor
    totals: torch.Tensor
    steps: list[SearchStep]


@torch.no_grad()
def search(
    leaves: torch.Tensor,
    lengths: torch.Tensor,
    sizes: list[int],
    weights: BeamTreeWeights,
    beam_size: int,
    *,
    noise: Noise | None,
    dropout: float,
    starts: torch.Tensor | None = None,
) -> Search:
    """Search for the trees of sequences.

    With ``starts``, the order of the beams does not depend on the other sequences: where no more proposals are there
    than beams, they stay in their order, and those that are not there come last.

    Args:
        leaves: the nodes that the beams begin with, ``[sequences, beams, longest, hidden_size]``, with at most
            ``beam_size`` beams; the longest sequence first, finite at padding.
        lengths: int64 ``[sequences]``, at least 1, where the leaves are.
        sizes: how many sequences are longer than 0, 1, 2, ... tokens.
        weights: of cell and score.
        beam_size: number of beams.
        noise: of both choices.
        dropout: of the hidden layer of the cell.
        starts: the log probabilities that the beams begin with, ``[sequences, beams]``; minus infinity where there is
            no beam. None: 0.
    """
    sequences, num_starts, longest = leaves.shape[:3]
    nodes = torch.arange(leaves.shape[:3].numel(), device=leaves.device).view(sequences, num_starts, longest)
    memory = _Memory(leaves.flatten(0, 2), weights, dropout, *counts(sizes, num_starts, beam_size))
    pairs = memory.add_pairs(nodes[..., :-1], nodes[..., 1:])
    total = leaves.new_zeros(sequences, num_starts) if starts is None else starts
    roots = nodes[:, 0, :1].repeat(1, beam_size)
    totals = leaves.new_full((sequences, beam_size), -torch.inf)
    steps: list[SearchStep] = []
    for active, num_pairs in zip(sizes[1:], range(longest - 1, 0, -1), strict=True):
        beams = total.shape[1]
        if active < len(nodes):
            keep_ended(roots, totals, nodes, total, active)
        nodes, pairs, total = nodes[:active], pairs[:active], total[:active]
        count = lengths[:active, None] - (longest - num_pairs)  # of pairs
        present = torch.arange(num_pairs, device=leaves.device) < count
        score = memory.score.take(pairs).masked_fill(~present[:, None], -torch.inf)
        log_probability = score.log_softmax(-1)
        drawn = noise((active, beams, num_pairs)) if noise is not None and num_pairs > 1 else 0.0
        place = highest(log_probability + drawn, beam_size)
        total = (total[:, :, None] + log_probability.gather(2, place)).flatten(1)
        parent = torch.arange(beams, device=leaves.device).repeat_interleave(place.shape[2]).expand(active, -1)
        place = place.flatten(1)
        chosen = None
        if place.shape[1] > beam_size:
            chosen = highest(total + noise(tuple(total.shape)) if noise is not None else total, beam_size)
        if starts is not None:
            absent = total == -torch.inf
            in_order = absent.int().argsort(stable=True)[:, :beam_size]
            are_few = (~absent).sum(1, keepdim=True) <= beam_size
            chosen = in_order if chosen is None else torch.where(are_few, in_order, chosen)
        if chosen is not None:
            total, parent, place = (values.gather(1, chosen) for values in (total, parent, place))
        steps.append(SearchStep(pairs, parent, place, memory.num_nodes))
        nodes, pairs = compose_beams(memory, nodes, pairs, parent, place)
    keep_ended(roots, totals, nodes, total, 0)
    return Search(*memory.found(), steps, roots, totals)


def keep_ended(
    roots: torch.Tensor, totals: torch.Tensor, nodes: torch.Tensor, total: torch.Tensor, active: int
) -> None:
    """Write down the beams of the sequences that have one node left."""
    ended = slice(active, len(nodes))
    roots[ended, : nodes.shape[1]] = nodes[ended, :, 0]
    totals[ended, : nodes.shape[1]] = total[ended]


class Pairs(Protocol):
    """What beams need of the memory whose numbers they hold."""

    def add_pairs(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Score pairs of nodes and return their numbers, of the shape of ``left``."""

    def compose(self, pair: torch.Tensor) -> torch.Tensor:
        """Return the numbers of the nodes that pairs become."""


def compose_beams(
    memory: Pairs, nodes: torch.Tensor, pairs: torch.Tensor, parent: torch.Tensor, place: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return nodes and pairs of new beams.

    Args:
        memory: whose numbers they are.
        nodes, pairs: of the beams, int64 ``[sequences, beams, nodes or pairs]``.
        parent, place: see :class:`SearchStep`.
    """
    num_pairs = pairs.shape[2]
    nodes, pairs = (_of_beams(values, parent) for values in (nodes, pairs))
    at = place[:, :, None]
    composed = memory.compose(pairs.gather(2, at))
    column = torch.arange(num_pairs, device=nodes.device)
    nodes = nodes.gather(2, column + (column > at)).scatter(2, at, composed)
    if num_pairs == 1:
        return nodes, pairs[:, :, :0]
    before = nodes.gather(2, (at - 1).clamp(min=0))
    after = nodes.gather(2, (at + 1).clamp(max=num_pairs - 1))
    new = memory.add_pairs(torch.cat([before, composed], 2), torch.cat([composed, after], 2))
    column = torch.arange(num_pairs + 1, device=nodes.device)
    old = pairs.gather(2, (column - 1 + (column > at)).clamp(0, num_pairs - 1))  # one more at either end
    return nodes, old.scatter(2, torch.cat([at, at + 1], 2), new)[:, :, 1:-1]


def _of_beams(values: torch.Tensor, parent: torch.Tensor) -> torch.Tensor:
    """``values [sequences, beams, ...]`` of the beams that new ones come from."""
    return values.gather(1, parent[:, :, None].expand(-1, -1, values.shape[2]))


def counts(sizes: list[int], beams: int, beam_size: int) -> tuple[int, int]:
    """Return how many compositions beams choose, and how many pairs they score; ``beams`` are the first ones."""
    longest = len(sizes)
    chosen, pairs = 0, sizes[0] * beams * (longest - 1)
    for active, num_pairs in zip(sizes[1:], range(longest - 1, 0, -1), strict=True):
        beams = min(beam_size, beams * min(beam_size, num_pairs))
        chosen += active * beams
        pairs += 2 * active * beams * (num_pairs > 1)
    return chosen, pairs


class _Memory:
    """States of nodes and scores of pairs by number.

    Args:
        leaves: ``[tokens, hidden_size]``.
        weights: of cell and score.
        dropout: of the hidden layer of the cell.
        num_chosen: how many compositions beams will choose.
        num_pairs: how many pairs they will score.
    """

    def __init__(
        self, leaves: torch.Tensor, weights: BeamTreeWeights, dropout: float, num_chosen: int, num_pairs: int
    ) -> None:
        self._weights, self._dropout = weights, dropout
        self._num_leaves = len(leaves)
        self._by_children = isinstance(weights.score, ChildrenScore)
        most = num_chosen if self._by_children else num_pairs
        self._states = torch.cat([leaves, leaves.new_empty(most, leaves.shape[1])])
        self._keep = leaves.new_empty(most, len(weights.cell.hidden.bias)) if dropout else None
        self._children = torch.empty(most, 2, dtype=torch.int64, device=leaves.device)
        self._pairs = self._children.new_empty(num_pairs, 2) if self._by_children else self._children
        self._native = growing_states(self._states, self._children, weights.cell, self._keep)
        self.score = leaves.new_empty(num_pairs)
        self._scored, self.num_nodes = 0, self._num_leaves

    def add_pairs(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Score pairs of nodes and return their numbers, of the shape of ``left``."""
        rows = slice(self._scored, self._scored + left.numel())
        both = torch.stack([left, right], -1).flatten(0, -2)
        if isinstance(self._weights.score, ChildrenScore):
            self._pairs[rows] = both
            self.score[rows] = self._weights.score.of(self._of(both))
        else:
            self.score[rows] = linear(self._add_nodes(both), self._weights.score).squeeze(-1)
        self._scored = rows.stop
        return torch.arange(rows.start, rows.stop, device=left.device).view(left.shape)

    def compose(self, pair: torch.Tensor) -> torch.Tensor:
        """Return the numbers of the nodes that pairs become."""
        if not self._by_children:
            return self._num_leaves + pair
        first = self.num_nodes
        self._add_nodes(self._pairs.index_select(0, pair.flatten()))
        return torch.arange(first, self.num_nodes, device=pair.device).view(pair.shape)

    def found(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """States, children of compositions, pairs and dropout."""
        return self._states, self._children, self._pairs, self._keep

    def _of(self, nodes: torch.Tensor) -> torch.Tensor:
        """Return the states of nodes ``[pairs, 2]``."""
        return self._states.index_select(0, nodes.flatten()).unflatten(0, (-1, 2))

    def _add_nodes(self, children: torch.Tensor) -> torch.Tensor:
        first, end = self.num_nodes, self.num_nodes + len(children)
        part = slice(first - self._num_leaves, end - self._num_leaves)
        self._children[part] = children
        keep = None
        if self._keep is not None:
            keep = self._keep[part] = functional.dropout(torch.ones_like(self._keep[part]), self._dropout)
        self.num_nodes = end
        if self._native is None:
            left, right = self._of(children).unbind(1)
            self._states[first:end] = gated_cell(left, right, self._weights.cell, keep)
        else:
            self._native.compute(first, end)
        return self._states[first:end]
