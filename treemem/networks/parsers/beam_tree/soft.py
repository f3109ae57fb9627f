"""OneSoft: the search with a last beam that is a mean of all that it leaves out, over all sequences at once.

Tokens, means and compositions are rows of one table, and beams hold numbers of rows. A step computes what is new in
each beam.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from treemem.device_copy import to_device_together
from treemem.engines.affine import Affine, linear
from treemem.engines.choices import Noise, highest
from treemem.engines.cuda.choice import runs_kernels
from treemem.engines.cuda.row_steps import RowStep
from treemem.engines.row_table import RowTable
from treemem.networks.gated_cell.equations import GatedCellWeights, gated_cell, gated_recursive_step
from treemem.networks.gated_cell.printed import gated_of_two
from treemem.networks.parsers.beam_tree.equations import BeamTreeWeights, ChildrenScore
from treemem.networks.parsers.beam_tree.search import compose_beams, keep_ended

ABSENT = -1e30
"""The log probability of what is not there; finite, so that means of it have gradients."""
_CELL = RowStep(gated_of_two)
_KEPT = 1 << 17
"""If the nodes of all beams have fewer numbers in a step, it keeps them; else its backward pass reads them again."""


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
        leaves: ``[sequences, longest, hidden_size]``, the longest sequence first, finite at padding.
        sizes, weights, beam_size, dropout: see ``search``.
        lengths: int64 ``[sequences]``, at least 1, on the CPU.
        noise: of the choice of pairs.
    """
    assert not isinstance(weights.score, ChildrenScore)
    sequences, longest = leaves.shape[:2]
    table = _Table(leaves, lengths, _counts(lengths, sizes, beam_size), weights.cell, weights.score, dropout)
    pairs_left = table.own
    nodes = torch.arange(sequences * longest, device=leaves.device).view(sequences, 1, longest)
    pairs = table.add_adjacent(nodes)
    total = leaves.new_zeros(sequences, 1)
    roots = nodes[:, 0, :1].repeat(1, beam_size)
    totals = leaves.new_full((sequences, beam_size), ABSENT)
    for active, num_pairs in zip(sizes[1:], range(longest - 1, 0, -1), strict=True):
        keep_ended(roots, totals, nodes, total, active)
        nodes, pairs, total, pairs_left = (values[:active] for values in (nodes, pairs, total, pairs_left))
        drawn = noise((active, total.shape[1], num_pairs)) if noise is not None and num_pairs > 1 else None
        log_probability = _log_probability(table.scores.read(pairs).squeeze(-1), pairs_left)
        parent, place = _candidates(log_probability.detach(), total.detach(), drawn, beam_size)
        before, compositions = nodes, pairs
        nodes, pairs = compose_beams(table, nodes, pairs, parent[:, : beam_size - 1], place[:, : beam_size - 1])
        total, mean = _new_beams(log_probability, total, parent, place, beam_size)
        if mean is not None:
            rows = table.add_means(mean, before, compositions)[:, None]
            nodes, pairs = torch.cat([nodes, rows], 1), torch.cat([pairs, table.add_adjacent(rows)], 1)
        pairs_left = pairs_left - 1
    keep_ended(roots, totals, nodes, total, 0)
    return table.states.read(roots), totals


def _log_probability(score: torch.Tensor, num_pairs: torch.Tensor) -> torch.Tensor:
    """Return the log probabilities of the pairs of each beam, ``[sequences, beams, pairs]``.

    Args:
        score: of the pairs.
        num_pairs: how many pairs a sequence has, ``[sequences]``.
    """
    present = torch.arange(score.shape[2], device=score.device) < num_pairs[:, None]
    return score.masked_fill(~present[:, None], ABSENT).log_softmax(-1)


def _candidates(
    log_probability: torch.Tensor, total: torch.Tensor, drawn: torch.Tensor | None, beam_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the beams and the pairs of the candidates, best first, int64 ``[sequences, candidates]`` each.

    Args:
        log_probability: see :func:`_log_probability`.
        total: of the beams, ``[sequences, beams]``.
        drawn: noise of the pairs.
        beam_size: number of beams.
    """
    place = _highest(log_probability if drawn is None else log_probability + drawn, beam_size)
    candidate = (total[:, :, None] + log_probability.gather(2, place)).flatten(1)
    parent = torch.arange(total.shape[1], device=total.device).repeat_interleave(place.shape[2]).expand(len(total), -1)
    place = place.flatten(1)
    if candidate.shape[1] <= beam_size:
        return parent, place
    order = _highest(candidate, candidate.shape[1])
    return parent.gather(1, order), place.gather(1, order)


def _highest(values: torch.Tensor, count: int) -> torch.Tensor:
    return highest(values.masked_fill(values < ABSENT / 2, -torch.inf), count)


class _Mean(NamedTuple):
    """What the last beam is a mean of.

    Attributes:
        of_beam: how much of each beam, ``[sequences, beams]``.
        mix: how much of a node is the composition, and the nodes on its left and right, ``[sequences, pairs, 3]``.
    """

    of_beam: torch.Tensor
    mix: torch.Tensor


def _new_beams(
    log_probability: torch.Tensor, total: torch.Tensor, parent: torch.Tensor, place: torch.Tensor, beam_size: int
) -> tuple[torch.Tensor, _Mean | None]:
    """Return the log probabilities of the new beams, ``[sequences, new beams]``, and what the last one is a mean of.

    Args:
        log_probability: see :func:`_log_probability`.
        total: of the beams, ``[sequences, beams]``.
        parent, place: of the candidates, see :func:`_candidates`.
        beam_size: number of beams. If there are fewer candidates, there is no mean.
    """
    sequences, _, num_pairs = log_probability.shape
    candidate = total.gather(1, parent) + log_probability.flatten(1).gather(1, parent * num_pairs + place)
    first, rest = candidate[:, : beam_size - 1], candidate[:, beam_size - 1 :]
    if not rest.shape[1]:
        return first, None
    weight = rest.softmax(1)
    of_beam = torch.zeros_like(total).scatter_add(1, parent[:, beam_size - 1 :], weight)
    chosen = weight.new_zeros(sequences, num_pairs).scatter_add(1, place[:, beam_size - 1 :], weight)
    until = chosen.cumsum(1)
    mix = torch.stack([chosen, 1 - until, until - chosen], -1)
    return torch.cat([first, (weight * rest).sum(1, keepdim=True)], 1), _Mean(of_beam, mix)


class _Table:
    """Rows of tokens, means and compositions, and the scores of the compositions.

    Args:
        leaves, lengths: see :func:`soft_search`.
        counts: how many means and compositions there will be.
        cell, score, dropout: of the compositions.
    """

    def __init__(
        self,
        leaves: torch.Tensor,
        lengths: torch.Tensor,
        counts: tuple[int, int],
        cell: GatedCellWeights,
        score: Affine,
        dropout: float,
    ) -> None:
        num_tokens, (num_means, num_compositions) = leaves.shape[0] * leaves.shape[1], counts
        self._cell, self._score, self._dropout = cell, score, dropout
        self._first, self._size = num_tokens + num_means, leaves.shape[2]
        self.states = RowTable(self._first + num_compositions, leaves.shape[2], leaves)
        self.scores = RowTable(num_compositions, 1, leaves)
        self.states.write(slice(num_tokens), leaves.flatten(0, 1))
        self._num_compositions, self._num_rows = 0, num_tokens
        num_pairs = lengths - 1
        first_of_sequence = functional.pad(num_pairs.cumsum(0), (1, 0))[:-1]
        steps = enumerate(range(int(num_pairs[0]), -1, -1))
        present = [torch.arange(pairs) < num_pairs[:, None] - step for step, pairs in steps]
        present = [there.flatten().nonzero().flatten() for there in present]
        moved = to_device_together([num_pairs, first_of_sequence, *present], leaves.device)
        self.own, self._first_of_sequence, *self._present = moved

    def compose(self, pair: torch.Tensor) -> torch.Tensor:
        """Return the rows of compositions."""
        return self._first + pair

    def add_pairs(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Compose pairs of rows and return their numbers, of the shape of ``left``."""
        new = slice(self._num_compositions, self._num_compositions + left.numel())
        children = self.states.read(torch.stack([left.flatten(), right.flatten()]))
        keep = None
        if self._dropout:
            keep = functional.dropout(children.new_ones(left.numel(), len(self._cell.hidden.bias)), self._dropout)
        states = gated_cell(children[0], children[1], self._cell, keep, step=_step)
        self.states.write(slice(self._first + new.start, self._first + new.stop), states)
        self.scores.write(new, linear(states, self._score))
        self._num_compositions = new.stop
        return torch.arange(new.start, new.stop, device=left.device).view(left.shape)

    def add_adjacent(self, rows: torch.Tensor) -> torch.Tensor:
        """Compose the adjacent nodes of one beam, ``[sequences, 1, nodes]``, and return the numbers of all its pairs.

        Pairs at padding have the number of another composition of the same sequence.
        """
        num_pairs = rows.shape[2] - 1
        there = self._present[len(self._present) - 1 - num_pairs]
        made = self.add_pairs(rows[:, 0, :-1].flatten()[there], rows[:, 0, 1:].flatten()[there])
        numbers = self._first_of_sequence[: len(rows), None].repeat(1, num_pairs)
        return numbers.flatten().index_copy_(0, there, made).view(len(rows), 1, num_pairs)

    def add_means(self, mean: _Mean, nodes: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        """Add the nodes of a mean beam and return their rows, ``[sequences, pairs]``.

        Args:
            mean: of the beams.
            nodes, pairs: of the beams, int64 ``[sequences, beams, nodes or pairs]``.
        """
        sequences, _, num_pairs = pairs.shape
        new = slice(self._num_rows, self._num_rows + sequences * num_pairs)
        rows = nodes, self._first + pairs
        given = self.states.so_far(), mean, *rows
        if nodes.numel() * self._size < _KEPT:
            mixed = _mixed(*given)
        else:
            mixed = checkpoint(_mixed, *given, use_reentrant=False, preserve_rng_state=False)
        self.states.write(new, mixed.flatten(0, 1))
        self._num_rows = new.stop
        return torch.arange(new.start, new.stop, device=nodes.device).view(sequences, num_pairs)


def _step(preactivation: torch.Tensor, children: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """The step of the cell, in a kernel if it may run."""
    if runs_kernels([preactivation, children, gain, shift]):
        return _CELL.run([preactivation], [children], [gain, shift])[0]
    return gated_recursive_step(preactivation, children, gain, shift)


def _mixed(states: RowTable, mean: _Mean, nodes: torch.Tensor, compositions: torch.Tensor) -> torch.Tensor:
    """Return mixes of the mean composition of a pair and of the mean nodes on its left and right.

    The arguments are rows of ``states``, int64 ``[sequences, beams, nodes or compositions]``.
    """
    composed, means = (torch.einsum("sb,sbnd->snd", mean.of_beam, states.read(rows)) for rows in (compositions, nodes))
    of_pair, of_left, of_right = mean.mix.split(1, 2)
    return of_pair * composed + of_left * means[:, :-1] + of_right * means[:, 1:]


def _counts(lengths: torch.Tensor, sizes: list[int], beam_size: int) -> tuple[int, int]:
    """How many nodes mean beams have, and how many pairs are composed."""
    longest, beams = len(sizes), 1
    means, compositions = 0, int((lengths - 1).sum())
    for active, num_pairs in zip(sizes[1:], range(longest - 1, 0, -1), strict=True):
        candidates = beams * min(beam_size, num_pairs)
        hard = min(beam_size - 1, candidates)
        compositions += 2 * active * hard * (num_pairs > 1)
        if candidates > hard:
            means += active * num_pairs
            compositions += int((lengths[:active] - longest + num_pairs - 1).sum())
        beams = min(beam_size, candidates)
    return means, compositions
