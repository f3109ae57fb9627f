"""OneSoft: the search with a last beam that is a mean of all that it leaves out, over all sequences at once.

Tokens, means and compositions are rows of one table, and beams hold numbers of rows. A step computes what is new in
each beam. The backward pass is written by hand, but for the few numbers of a choice.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from treemem.device_copy import to_device_together
from treemem.ops.affine import Affine
from treemem.ops.beam_tree.search import compose_beams, keep_ended
from treemem.ops.beam_tree.weights import BeamTreeWeights, ChildrenScore
from treemem.ops.choices import Noise, highest
from treemem.ops.gated_recursive import GatedCellWeights, GatedNodes, new_nodes, saved_nodes
from treemem.ops.native import TYPE_NAMES, address, native_library, structure
from treemem.ops.second_derivative import once_differentiable, save_for_backward

ABSENT = -1e30
"""The log probability of what is not there; finite, so that means of it have gradients."""

_SOURCE = Path(__file__).with_name("soft.cpp")


class _Search(NamedTuple):
    """The sequences and options: see :func:`soft_search`; and whether there will be a backward pass."""

    lengths: torch.Tensor
    sizes: list[int]
    beam_size: int
    noise: Noise | None
    dropout: float
    library: ctypes.CDLL | None
    differentiable: bool


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
        leaves, sizes, weights, beam_size, dropout: see :func:`treemem.ops.beam_tree.search.search`.
        lengths: int64 ``[sequences]``, at least 1, on the CPU.
        noise: of the choice of pairs.
    """
    score_map = weights.score
    assert not isinstance(score_map, ChildrenScore)
    tensors = (leaves, *weights.cell.hidden, *weights.cell.gates, *weights.cell.norm, *score_map)
    library = native_library(_SOURCE, tensors, f"REAL={TYPE_NAMES.get(leaves.dtype)}")
    differentiable = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
    return _SoftSearch.apply(_Search(lengths, sizes, beam_size, noise, dropout, library, differentiable), *tensors)


class _Step(NamedTuple):
    """What a step reads and chooses, int64 but for ``total``.

    Attributes:
        total: log probabilities of the beams, ``[sequences, beams]``.
        own: how many pairs a sequence has, ``[sequences]``.
        nodes: the rows of the nodes of the beams, ``[sequences, beams, pairs + 1]``.
        pairs: the numbers of the compositions of their pairs, ``[sequences, beams, pairs]``.
        parent: the beam of each candidate, best first, ``[sequences, candidates]``.
        place: its pair.
    """

    total: torch.Tensor
    own: torch.Tensor
    nodes: torch.Tensor
    pairs: torch.Tensor
    parent: torch.Tensor
    place: torch.Tensor


class _SoftSearch(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, search: _Search, leaves: torch.Tensor, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        _, sizes, beam_size, noise, *_ = search
        sequences, longest = leaves.shape[:2]
        table = _Table(leaves, search, tensors)
        own = table.own
        nodes = torch.arange(sequences * longest, device=leaves.device).view(sequences, 1, longest)
        pairs = table.add_adjacent(nodes)
        total = leaves.new_zeros(sequences, 1)
        roots = nodes[:, 0, :1].repeat(1, beam_size)
        totals = leaves.new_full((sequences, beam_size), ABSENT)
        steps: list[_Step] = []
        made: list[tuple[int, int]] = []  # compositions and rows before each step
        for active, num_pairs in zip(sizes[1:], range(longest - 1, 0, -1), strict=True):
            keep_ended(roots, totals, nodes, total, active)
            nodes, pairs, total, own = (each[:active] for each in (nodes, pairs, total, own))
            drawn = noise((active, total.shape[1], num_pairs)) if noise is not None and num_pairs > 1 else None
            log_probability = _log_probability(table.scores[pairs], own)
            parent, place = _candidates(log_probability, total, drawn, beam_size)
            step = _Step(total, own, nodes.contiguous(), pairs.contiguous(), parent, place)
            steps.append(step)
            made.append((table.num_compositions, table.num_rows))
            total, mean = _new_beams(log_probability, step, beam_size)
            new = [compose_beams(table, nodes, pairs, parent[:, : beam_size - 1], place[:, : beam_size - 1])]
            if mean is not None:
                rows = table.num_rows + torch.arange(active * num_pairs, device=leaves.device)
                _Means(search.library, table.nodes, step, table.num_rows).forward(mean)
                table.num_rows += len(rows)
                rows = rows.view(active, 1, num_pairs)
                new.append((rows, table.add_adjacent(rows)))
            nodes, pairs = (torch.cat(each, 1) for each in zip(*new, strict=True))
            own = own - 1
        keep_ended(roots, totals, nodes, total, 0)
        ctx.search, ctx.made, ctx.options = search, made, table.nodes.options
        of_steps = (each for step in steps for each in step)
        save_for_backward(ctx, totals, roots, tensors[6], table.scores, *of_steps, *table.nodes.tensors)
        return table.nodes.states[roots], totals

    @staticmethod
    @once_differentiable()
    def backward(
        ctx: Any, saved: tuple[torch.Tensor, ...], *gradients: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        return None, *_gradients(ctx, saved, *gradients)


def _gradients(
    ctx: Any, every: tuple[torch.Tensor, ...], d_roots: torch.Tensor, d_totals: torch.Tensor
) -> list[torch.Tensor]:
    search: _Search = ctx.search
    _, roots, score_weight, scores, *saved = every
    width, num_steps = len(_Step._fields), len(ctx.made)
    steps = [_Step(*saved[width * number : width * (number + 1)]) for number in range(num_steps)]
    nodes = saved_nodes(ctx.options, saved[width * num_steps :])
    d_states = torch.zeros_like(nodes.states).index_add_(0, roots.flatten(), d_roots.flatten(0, 1))
    d_scores = torch.zeros_like(scores)
    d_later = d_totals[:0]

    def through_compositions(begin: int, end: int) -> None:
        d_states[nodes.first + begin : nodes.first + end].addr_(d_scores[begin:end], score_weight[0])
        nodes.backward(d_states, begin, end)

    end = len(scores)
    for step, (begin, row) in zip(reversed(steps), reversed(ctx.made), strict=True):
        through_compositions(begin, end)
        end = begin
        with torch.enable_grad():
            read = [scores[step.pairs].requires_grad_(), step.total.detach().requires_grad_()]
            log_probability = _log_probability(read[0], step.own)
            total, mean = _new_beams(log_probability, step._replace(total=read[1]), search.beam_size)
        d_ended = d_totals[len(d_later) : len(total), : total.shape[1]]
        chosen, d_chosen = [total], [torch.cat([d_later[:, : total.shape[1]], d_ended])]
        if mean is not None:
            chosen += mean
            d_chosen += _Means(search.library, nodes, step, row).backward(mean, d_states)
        d_score, d_later = torch.autograd.grad(chosen, read, d_chosen)
        d_scores.index_add_(0, step.pairs.flatten(), d_score.flatten())
    through_compositions(0, end)
    sequences, longest = len(roots), len(search.sizes)
    d_leaves = d_states[: sequences * longest].view(sequences, longest, -1)
    of_score = (d_scores @ nodes.states[nodes.first :])[None], d_scores.sum()[None]
    return [d_leaves, *nodes.of_weights(d_states), *of_score]


def _log_probability(score: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """Return the log probabilities of the pairs of each beam, ``[sequences, beams, pairs]``.

    Args:
        score: of the pairs.
        own: how many pairs a sequence has, ``[sequences]``.
    """
    present = torch.arange(score.shape[2], device=score.device) < own[:, None]
    return score.masked_fill(~present[:, None], ABSENT).log_softmax(-1)


def _candidates(
    log_probability: torch.Tensor, total: torch.Tensor, drawn: torch.Tensor | None, beam_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the beams and the pairs of the candidates; see :class:`_Step`.

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


def _new_beams(log_probability: torch.Tensor, step: _Step, beam_size: int) -> tuple[torch.Tensor, _Mean | None]:
    """Return the log probabilities of the new beams, ``[sequences, new beams]``, and what the last one is a mean of.

    Args:
        log_probability: see :func:`_log_probability`.
        step: with the candidates.
        beam_size: number of beams. If there are fewer candidates, there is no mean.
    """
    sequences, _, num_pairs = log_probability.shape
    chosen_pair = step.parent * num_pairs + step.place
    candidate = step.total.gather(1, step.parent) + log_probability.flatten(1).gather(1, chosen_pair)
    first, rest = candidate[:, : beam_size - 1], candidate[:, beam_size - 1 :]
    if not rest.shape[1]:
        return first, None
    weight = rest.softmax(1)
    of_beam = torch.zeros_like(step.total).scatter_add(1, step.parent[:, beam_size - 1 :], weight)
    chosen = weight.new_zeros(sequences, num_pairs).scatter_add(1, step.place[:, beam_size - 1 :], weight)
    until = chosen.cumsum(1)
    mix = torch.stack([chosen, 1 - until, until - chosen], -1)
    return torch.cat([first, (weight * rest).sum(1, keepdim=True)], 1), _Mean(of_beam, mix)


class _Table:
    """Rows of tokens, means and compositions, and the scores of the compositions.

    Args:
        leaves: see :func:`soft_search`.
        search: the sequences and options.
        tensors: of cell and score.
    """

    def __init__(self, leaves: torch.Tensor, search: _Search, tensors: tuple[torch.Tensor, ...]) -> None:
        hidden_map, gate_map, norm, self._score_map = (Affine(*tensors[at : at + 2]) for at in range(0, 8, 2))
        num_means, num_compositions = _counts(search)
        given = torch.cat([leaves.flatten(0, 1), leaves.new_zeros(num_means, leaves.shape[2])])
        children = torch.empty(num_compositions, 2, dtype=torch.int64, device=leaves.device)
        keep = leaves.new_empty(num_compositions, len(hidden_map.bias)) if search.dropout else None
        weights = GatedCellWeights(hidden_map, gate_map, norm)
        self.nodes = new_nodes(given, children, weights, keep, differentiable=search.differentiable)
        self.scores = leaves.new_empty(num_compositions)
        self.num_compositions, self.num_rows = 0, len(leaves) * leaves.shape[1]
        self._dropout = search.dropout
        own = search.lengths - 1
        first_of_sequence = functional.pad(own.cumsum(0), (1, 0))[:-1]
        present = [torch.arange(pairs) < own[:, None] - step for step, pairs in enumerate(range(int(own[0]), -1, -1))]
        present = [each.flatten().nonzero().flatten() for each in present]
        moved = to_device_together([own, first_of_sequence, *present], leaves.device)
        self.own, self._first_of_sequence, *self._present = moved

    def compose(self, pair: torch.Tensor) -> torch.Tensor:
        """Return the rows of compositions."""
        return self.nodes.first + pair

    def add_pairs(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Compose pairs of rows and return their numbers, of the shape of ``left``."""
        begin, end = self.num_compositions, self.num_compositions + left.numel()
        states = self.nodes.compose_pairs(begin, torch.stack([left.flatten(), right.flatten()], 1), self._dropout)
        torch.addmv(self._score_map.bias, states, self._score_map.weight[0], out=self.scores[begin:end])
        self.num_compositions = end
        return torch.arange(begin, end, device=left.device).view(left.shape)

    def add_adjacent(self, rows: torch.Tensor) -> torch.Tensor:
        """Compose the adjacent nodes of one beam, ``[sequences, 1, nodes]``, and return the numbers of all its pairs.

        Pairs at padding have the number of another composition of the same sequence.
        """
        num_pairs = rows.shape[2] - 1
        there = self._present[len(self._present) - 1 - num_pairs]
        made = self.add_pairs(rows[:, 0, :-1].flatten()[there], rows[:, 0, 1:].flatten()[there])
        numbers = self._first_of_sequence[: len(rows), None].repeat(1, num_pairs)
        return numbers.flatten().index_copy_(0, there, made).view(len(rows), 1, num_pairs)


def _counts(search: _Search) -> tuple[int, int]:
    """How many nodes mean beams have, and how many pairs are composed."""
    lengths, sizes, beam_size, *_ = search
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


class _Means:
    """The nodes of a mean beam: of each pair a mix of its composition and the nodes on its left and right.

    Args:
        library: the compiled functions; None: in torch.
        nodes: all rows.
        step: whose beams are mixed.
        first: the row of the first node. Each sequence has as many rows as the longest one has pairs.
    """

    def __init__(self, library: ctypes.CDLL | None, nodes: GatedNodes, step: _Step, first: int) -> None:
        self._library, self._nodes, self._step, self._first = library, nodes, step, first
        self._compositions = nodes.first + step.pairs

    def forward(self, mean: _Mean) -> None:
        """Write the states of the rows, which are 0."""
        if self._library is not None:
            self._library.forward(self._problem(mean))
            return
        mixed = (mean.mix[:, None, :, :, None] * self._nodes.states[self._sources()]).sum(3)
        self._new(self._nodes.states).copy_(torch.einsum("sb,sbnd->snd", mean.of_beam, mixed))

    def backward(self, mean: _Mean, d_states: torch.Tensor) -> list[torch.Tensor]:
        """Add to the gradients of the states, and return those of ``mean``."""
        if self._library is not None:
            found = [torch.zeros_like(each) for each in mean]
            self._library.backward(self._problem(mean), structure(*map(address, (d_states, *found))))
            return found
        sources, d_new = self._sources(), self._new(d_states)
        agreement = torch.einsum("snd,sbnkd->sbnk", d_new, self._nodes.states[sources])
        factor = mean.of_beam[:, :, None, None] * mean.mix[:, None]
        d_states.index_add_(0, sources.flatten(), (factor[..., None] * d_new[:, None, :, None]).flatten(0, -2))
        mixes = torch.einsum("sbnk,snk->sb", agreement, mean.mix), torch.einsum("sbnk,sb->snk", agreement, mean.of_beam)
        return list(mixes)

    def _sources(self) -> torch.Tensor:
        """Return the rows that a beam has for a node, ``[sequences, beams, nodes, 3]``."""
        return torch.stack([self._compositions, self._step.nodes[:, :, :-1], self._step.nodes[:, :, 1:]], -1)

    def _new(self, states: torch.Tensor) -> torch.Tensor:
        """Return a view of the rows, ``[sequences, nodes, hidden_size]``."""
        sequences, _, num_nodes = self._compositions.shape
        return states[self._first : self._first + sequences * num_nodes].view(sequences, num_nodes, -1)

    def _problem(self, mean: _Mean) -> ctypes.Array[ctypes.c_int64]:
        """Return ``Problem`` of the source."""
        nodes, step = self._nodes, self._step
        sizes = *step.pairs.shape, nodes.size, nodes.options.threads, self._first
        tensors = (step.own, step.nodes, self._compositions, *mean, nodes.states)
        return structure(*sizes, *map(address, tensors))
