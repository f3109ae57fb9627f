"""OneSoft: the search with a last beam that is a mean of all that it leaves out, over all sequences at once.

Tokens, means and compositions are rows of one table, and beams hold numbers of rows. A step computes what is new in
each beam. The backward pass is written by hand, but for the gradients of the few numbers of a choice.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from treemem.device_copy import to_device
from treemem.ops.affine import Affine
from treemem.ops.beam_tree.search import compose_beams, keep_ended
from treemem.ops.beam_tree.weights import BeamTreeWeights, ChildrenScore
from treemem.ops.choices import Noise, highest
from treemem.ops.gated_recursive import GatedCellWeights, GatedNodes, new_nodes, saved_nodes
from treemem.ops.native import TYPE_NAMES, address, native_library, structure
from treemem.ops.native_levels import graph_is_retained
from treemem.ops.second_derivative import without_second_derivative

ABSENT = -1e30
"""The log probability of what is not there; finite, so that means of it have gradients."""

_SOURCE = Path(__file__).with_name("soft.cpp")


class _Sequences(NamedTuple):
    """What a search is about: see :func:`soft_search`."""

    lengths: torch.Tensor
    sizes: list[int]
    beam_size: int
    noise: Noise | None
    dropout: float


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
    tensors = (*weights.cell.hidden, *weights.cell.gates, *weights.cell.norm, *score_map)
    return _SoftSearch.apply(_Sequences(lengths, sizes, beam_size, noise, dropout), leaves, *tensors)


class _Choice(NamedTuple):
    """What a step chooses; the last three have gradients.

    Attributes:
        parent: the beams that the new hard beams come from, int64 ``[sequences, hard beams]``.
        place: the pairs that these compose.
        total: log probabilities of all new beams, ``[sequences, new beams]``.
        of_beam: how much of the mean beam comes from each beam, ``[sequences, beams]``. None: there is no mean beam.
        mix: how much of each of its nodes is a composition, and the nodes on its left and right,
            ``[sequences, pairs, 3]``.
    """

    parent: torch.Tensor
    place: torch.Tensor
    total: torch.Tensor
    of_beam: torch.Tensor | None
    mix: torch.Tensor | None


class _Step(NamedTuple):
    """What the backward pass of a step needs.

    Attributes:
        score, total: of its pairs and beams, as it read them.
        choice: what it chose.
        pairs: the compositions of its pairs, int64 ``[sequences, beams, pairs]``.
        means: the mean beam, if there is one.
        made: how many compositions there were before it.
    """

    score: torch.Tensor
    total: torch.Tensor
    choice: _Choice
    pairs: torch.Tensor
    means: _Means | None
    made: int


class _SoftSearch(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, given: _Sequences, leaves: torch.Tensor, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        lengths, sizes, beam_size, noise, _ = given
        (sequences, longest), device = leaves.shape[:2], leaves.device
        differentiable = any(ctx.needs_input_grad)
        table = _Table(leaves, given, tensors, differentiable=differentiable)
        nodes = torch.arange(sequences * longest, device=device).view(sequences, 1, longest)
        pairs = table.add_adjacent(nodes, lengths - 1)
        total = leaves.new_zeros(sequences, 1)
        roots = nodes[:, 0, :1].repeat(1, beam_size)
        totals = leaves.new_full((sequences, beam_size), ABSENT)
        steps: list[_Step] = []
        for active, num_pairs in zip(sizes[1:], range(longest - 1, 0, -1), strict=True):
            keep_ended(roots, totals, nodes, total, active)
            nodes, pairs, total = nodes[:active], pairs[:active], total[:active]
            own = lengths[:active] - (longest - num_pairs)
            own_there = to_device(own, device)
            drawn = noise((active, total.shape[1], num_pairs)) if noise is not None and num_pairs > 1 else None
            with torch.set_grad_enabled(differentiable):
                score, total = (each.requires_grad_(differentiable) for each in (table.scores[pairs], total.detach()))
                choice = _choose(score, total, own_there, drawn, beam_size)
            made, means = table.made, None
            new = [compose_beams(table, nodes, pairs, choice.parent, choice.place)]
            if choice.of_beam is not None and choice.mix is not None:
                means = _Means(table.next_row, own_there, nodes, table.compose(pairs))
                means.forward(table.nodes.states, choice.of_beam, choice.mix)
                rows = table.next_row + torch.arange(active * num_pairs, device=device).view(active, 1, num_pairs)
                table.next_row += rows.numel()
                new.append((rows, table.add_adjacent(rows, own - 1)))
            steps.append(_Step(score, total, choice, pairs, means, made))
            nodes, pairs = (torch.cat(each, 1) for each in zip(*new, strict=True))
            total = choice.total.detach()
        keep_ended(roots, totals, nodes, total, 0)
        ctx.sizes, ctx.steps, ctx.options = sizes, steps, table.nodes.options
        ctx.save_for_backward(roots, tensors[6], *table.nodes.tensors)
        return table.nodes.states[roots], totals

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        roots, score_weight, *saved = ctx.saved_tensors
        d_roots, d_totals = gradients
        nodes = saved_nodes(ctx.options, saved)
        d_states = torch.zeros_like(nodes.states).index_add_(0, roots.flatten(), d_roots.flatten(0, 1))
        d_scores = nodes.states.new_zeros(len(nodes.children))
        d_later: torch.Tensor | None = None
        end = len(d_scores)
        for step in reversed(ctx.steps):
            _through_compositions(nodes, d_states, d_scores, score_weight, step.made, end)
            end, choice = step.made, step.choice
            d_total = d_totals[: len(choice.total), : choice.total.shape[1]].clone()
            if d_later is not None:
                d_total[: len(d_later)] = d_later
            chosen, d_chosen = [choice.total], [d_total]
            if step.means is not None:
                chosen += [choice.of_beam, choice.mix]
                d_chosen += step.means.backward(nodes.states, d_states, choice.of_beam, choice.mix)
            read = [step.score, step.total]
            d_score, d_later = torch.autograd.grad(chosen, read, d_chosen, retain_graph=graph_is_retained())
            d_scores.index_add_(0, step.pairs.flatten(), d_score.flatten())
        _through_compositions(nodes, d_states, d_scores, score_weight, 0, end)
        sequences, longest = len(roots), len(ctx.sizes)
        d_leaves = d_states[: sequences * longest].view(sequences, longest, -1)
        of_score = (d_scores @ nodes.states[nodes.first :])[None], d_scores.sum()[None]
        return None, *without_second_derivative([d_leaves, *nodes.of_weights(d_states), *of_score])


def _through_compositions(
    nodes: GatedNodes, d_states: torch.Tensor, d_scores: torch.Tensor, score_weight: torch.Tensor, begin: int, end: int
) -> None:
    d_states[nodes.first + begin : nodes.first + end].addr_(d_scores[begin:end], score_weight[0])
    nodes.backward(d_states, begin, end)


def _choose(
    score: torch.Tensor, total: torch.Tensor, own: torch.Tensor, drawn: torch.Tensor | None, beam_size: int
) -> _Choice:
    """Choose the new beams.

    Args:
        score: of the pairs of the beams, ``[sequences, beams, pairs]``.
        total: ``[sequences, beams]``.
        own: how many pairs a sequence has, ``[sequences]``.
        drawn: noise of the pairs.
        beam_size: number of beams.
    """
    num_pairs = score.shape[2]
    present = torch.arange(num_pairs, device=score.device) < own[:, None]
    log_probability = score.masked_fill(~present[:, None], ABSENT).log_softmax(-1)
    place = _highest(log_probability if drawn is None else log_probability + drawn, beam_size)
    candidate = (total[:, :, None] + log_probability.gather(2, place)).flatten(1)
    parent = torch.arange(total.shape[1], device=score.device).repeat_interleave(place.shape[2]).expand(len(score), -1)
    place = place.flatten(1)
    if candidate.shape[1] > beam_size:
        order = _highest(candidate, candidate.shape[1])
        candidate, parent, place = (each.gather(1, order) for each in (candidate, parent, place))
    hard = min(beam_size - 1, candidate.shape[1])
    first, rest = candidate[:, :hard], candidate[:, hard:]
    if not rest.shape[1]:
        return _Choice(parent, place, first, None, None)
    weight = rest.softmax(1)
    of_beam = torch.zeros_like(total).scatter_add(1, parent[:, hard:], weight)
    chosen = weight.new_zeros(len(score), num_pairs).scatter_add(1, place[:, hard:], weight)
    until = chosen.cumsum(1)
    mix = torch.stack([chosen, 1 - until, until - chosen], -1)
    new_total = torch.cat([first, (weight * rest).sum(1, keepdim=True)], 1)
    return _Choice(parent[:, :hard], place[:, :hard], new_total, of_beam, mix)


def _highest(values: torch.Tensor, count: int) -> torch.Tensor:
    values = values.detach()
    return highest(values.masked_fill(values < ABSENT / 2, -torch.inf), count)


class _Table:
    """Rows of tokens, means and compositions, and the scores of the compositions.

    Args:
        leaves, search: see :func:`soft_search`.
        tensors: of cell and score.
        differentiable: whether there will be a backward pass.
    """

    def __init__(
        self, leaves: torch.Tensor, search: _Sequences, tensors: tuple[torch.Tensor, ...], *, differentiable: bool
    ) -> None:
        hidden_map, gate_map, norm, self._score_map = (Affine(*tensors[at : at + 2]) for at in range(0, 8, 2))
        num_means, num_compositions = _counts(search)
        size = leaves.shape[2]
        given = torch.cat([leaves.flatten(0, 1), leaves.new_zeros(num_means, size)])
        children = torch.empty(num_compositions, 2, dtype=torch.int64, device=leaves.device)
        keep = leaves.new_empty(num_compositions, len(hidden_map.bias)) if search.dropout else None
        weights = GatedCellWeights(hidden_map, gate_map, norm)
        self.nodes = new_nodes(given, children, weights, keep, differentiable=differentiable)
        self.scores = leaves.new_empty(num_compositions)
        self.made, self.next_row = 0, len(leaves) * leaves.shape[1]
        self._dropout = search.dropout
        begins = functional.pad((search.lengths - 1).cumsum(0), (1, 0))[:-1]
        self._first_of_sequence = to_device(begins, leaves.device)

    def compose(self, pair: torch.Tensor) -> torch.Tensor:
        """Return the rows of compositions."""
        return self.nodes.first + pair

    def add_pairs(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Compose pairs of rows and return their numbers, of the shape of ``left``."""
        begin, end = self.made, self.made + left.numel()
        states = self.nodes.compose_pairs(begin, torch.stack([left.flatten(), right.flatten()], 1), self._dropout)
        torch.addmv(self._score_map.bias, states, self._score_map.weight[0], out=self.scores[begin:end])
        self.made = end
        return torch.arange(begin, end, device=left.device).view(left.shape)

    def add_adjacent(self, rows: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Compose the adjacent nodes of one beam, ``[sequences, 1, nodes]``, and return the numbers of all its pairs.

        Args:
            rows: of the nodes.
            own: how many pairs a sequence has, ``[sequences]``, on the CPU. Any others get the number of a composition
                of the same sequence.
        """
        num_pairs = rows.shape[2] - 1
        there = (torch.arange(num_pairs) < own[:, None]).flatten().nonzero().flatten()
        there = to_device(there, rows.device)
        made = self.add_pairs(rows[:, 0, :-1].flatten()[there], rows[:, 0, 1:].flatten()[there])
        numbers = self._first_of_sequence[: len(rows), None].repeat(1, num_pairs)
        return numbers.flatten().index_copy_(0, there, made).view(len(rows), 1, num_pairs)


def _counts(search: _Sequences) -> tuple[int, int]:
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
        first: row of the first of them. Each sequence has as many rows as the longest one has pairs.
        own: how many pairs a sequence has, int64 ``[sequences]``.
        nodes, compositions: the rows that the beams had, int64 ``[sequences, beams, nodes or pairs]``.
    """

    def __init__(self, first: int, own: torch.Tensor, nodes: torch.Tensor, compositions: torch.Tensor) -> None:
        self._first, self._rows = first, (own, nodes.contiguous(), compositions.contiguous())

    def forward(self, states: torch.Tensor, of_beam: torch.Tensor, mix: torch.Tensor) -> None:
        """Write the rows, which are 0, into the states."""
        library, problem = self._problem(states, of_beam, mix)
        if library is not None:
            library.forward(problem)
            return
        mixed = (mix[:, None, :, :, None] * states[self._sources()]).sum(3)
        self._new(states).copy_(torch.einsum("sb,sbnd->snd", of_beam, mixed))

    def backward(
        self, states: torch.Tensor, d_states: torch.Tensor, of_beam: torch.Tensor, mix: torch.Tensor
    ) -> list[torch.Tensor]:
        """Add to the gradients of the states, and return those of ``of_beam`` and ``mix``."""
        library, problem = self._problem(states, of_beam, mix)
        if library is not None:
            found = [torch.zeros_like(of_beam), torch.zeros_like(mix)]
            library.backward(problem, structure(*map(address, (d_states, *found))))
            return found
        sources, d_new = self._sources(), self._new(d_states)
        agreement = torch.einsum("snd,sbnkd->sbnk", d_new, states[sources])
        d_sources = (of_beam[:, :, None, None] * mix[:, None])[..., None] * d_new[:, None, :, None]
        d_states.index_add_(0, sources.flatten(), d_sources.flatten(0, -2))
        return [torch.einsum("sbnk,snk->sb", agreement, mix), torch.einsum("sbnk,sb->snk", agreement, of_beam)]

    def _sources(self) -> torch.Tensor:
        """Return the rows that a beam has for a node, ``[sequences, beams, nodes, 3]``."""
        _, nodes, compositions = self._rows
        return torch.stack([compositions, nodes[:, :, :-1], nodes[:, :, 1:]], -1)

    def _new(self, states: torch.Tensor) -> torch.Tensor:
        """Return a view of the rows, ``[sequences, nodes, hidden_size]``."""
        sequences, _, num_nodes = self._rows[2].shape
        return states[self._first : self._first + sequences * num_nodes].view(sequences, num_nodes, -1)

    def _problem(
        self, states: torch.Tensor, of_beam: torch.Tensor, mix: torch.Tensor
    ) -> tuple[ctypes.CDLL | None, ctypes.Array[ctypes.c_int64]]:
        """Return the compiled functions, if there are any, and ``Problem`` of the source."""
        library = native_library(_SOURCE, [states, of_beam, mix], f"REAL={TYPE_NAMES.get(states.dtype)}")
        sizes = *self._rows[2].shape, states.shape[1], torch.get_num_threads(), self._first
        return library, structure(*sizes, *map(address, (*self._rows, of_beam, mix, states)))
