"""The continuous recursion over all sequences at once, each as if it were alone."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

from treemem.device_copy import to_device
from treemem.ops.affine import linear
from treemem.ops.crvnn.native import native_steps
from treemem.ops.crvnn.weights import EPSILON, CRvNNWeights, FeatureTerms, NeighborEquation, Recursion
from treemem.ops.gated_recursive import gated_pairs


class _Rows(NamedTuple):
    """Sequences that have not ended.

    Attributes:
        number: of each, int64 ``[rows]``.
        lengths: int64 ``[rows]``.
        states: ``[rows, positions, hidden_size]``.
        existence: ``[rows, positions]``.
        taken: how far a position took its left neighbour, ``[rows, positions]``.
        total: sum of the existence before each step, ``[rows, positions]``.
        going: whether they still change, bool ``[rows]``.
        ended_well: whether at some step only the last token was left, bool ``[rows]``.
    """

    number: torch.Tensor
    lengths: torch.Tensor
    states: torch.Tensor
    existence: torch.Tensor
    taken: torch.Tensor
    total: torch.Tensor
    going: torch.Tensor
    ended_well: torch.Tensor

    def at(self, which: torch.Tensor, positions: int) -> _Rows:
        """Return some of the rows, cut to their first positions."""
        chosen = [each.index_select(0, which) for each in self]
        return _Rows(*(each[:, :positions] if each.dim() > 1 else each for each in chosen))


def fused_recursion(states: torch.Tensor, lengths: torch.Tensor, weights: CRvNNWeights) -> Recursion:
    """Run the recursion: in C++ on a CPU where that can be had, else in torch.

    In torch on a CPU, sequences that have ended leave the batch.

    Args:
        states: of START, the tokens, END and padding, ``[sequences, longest + 2, hidden_size]``, finite at padding.
        lengths: numbers of tokens, int64 ``[sequences]``, on the CPU, at least 1.
        weights: and options.
    """
    sequences, size = states.shape[:2]
    there = to_device(lengths, states.device)
    place = torch.arange(size, device=states.device)
    existence = (place <= there[:, None] + 1).to(states)
    nothing = torch.zeros_like(existence)
    yes = torch.ones(sequences, dtype=torch.bool, device=states.device)
    number = torch.arange(sequences, device=states.device)
    states, terms = states * existence[:, :, None], FeatureTerms.of(weights)
    found = native_steps(states, lengths, weights, terms)
    if found is not None:
        rows = _Rows(number, there, found.states, found.existence, nothing, found.total, yes, found.ended_well)
        return _result(rows, size - 2, weights.equation)
    rows = _Rows(number, there, states, existence, nothing, nothing, yes, ~yes)
    ended: list[_Rows] = []
    on_cpu = states.device.type == "cpu"
    lengths_left = lengths
    for step in range(1, size - 1):
        rows = _step(rows, weights, terms)
        stays = lengths_left > step
        if on_cpu:
            stays = stays & rows.going
        if not stays.all():
            which = stays.nonzero().squeeze(1)
            gone = (~stays).nonzero().squeeze(1)
            ended.append(rows.at(to_device(gone, states.device), size))
            lengths_left = lengths_left[which]
            if not len(which):
                break
            rows = rows.at(to_device(which, states.device), int(lengths_left.max()) + 2)
    parts = [_result(each, size - 2, weights.equation) for each in ended]
    order = torch.cat([each.number for each in ended]).argsort()
    return Recursion(*(torch.cat(each).index_select(0, order) for each in zip(*parts, strict=True)))


def _step(rows: _Rows, weights: CRvNNWeights, terms: FeatureTerms) -> _Rows:
    states, existence = rows.states, rows.existence
    count, size, width = states.shape
    place = torch.arange(size, device=states.device)
    length = rows.lengths[:, None]
    token = ((place >= 1) & (place <= length)).to(states)
    movable = (place >= 1) & (place < length)
    neighbors = _neighbors(existence, weights.equation)  # on the left, then on the right
    left, right = neighbors.split(size, 1)
    of_features = None
    if terms.absent is not None and terms.change is not None:
        of_features = terms.absent + rows.taken[:, :, None] * terms.change
    seen = states if of_features is None or weights.equation == 5 else states + of_features
    next_left, next_right = (neighbors @ seen).split(size, 1)
    read = [next_left, seen, next_right]
    for _ in range(weights.num_neighbors - 1):
        read = [left @ read[0], *read, right @ read[-1]]
    hidden = functional.linear(torch.cat(read, 2), terms.window, weights.window.bias)
    if of_features is not None and weights.equation == 5:
        hidden = hidden + of_features
    scores = linear(functional.gelu(hidden), weights.score).squeeze(2)
    highest = scores.masked_fill(place > length + 1, -torch.inf).amax(1, keepdim=True).clamp(min=0)
    moves = (scores.masked_fill(~movable, -torch.inf) - highest).exp()
    among = moves + (-highest).exp() + EPSILON[weights.equation] * (4 if weights.modulated else 2)
    if weights.modulated:
        among = among + (neighbors @ moves[:, :, None]).view(count, 2, size).sum(1)
    gives_way = moves / among
    taken = (left @ gives_way[:, :, None]).squeeze(2) * token
    inner = slice(2, -1)  # the first token has no left neighbour to take
    pairs = torch.stack([next_left[:, inner], states[:, inner]]).flatten(1, 2)
    keep = None
    if weights.dropout:
        keep = functional.dropout(states.new_ones(pairs.shape[1], len(weights.cell.hidden.bias)), weights.dropout)
    composed = gated_pairs(pairs, weights.cell, keep, weights.activation).view(count, -1, width)
    new_states = torch.lerp(states[:, inner], composed, taken[:, inner, None])
    new_states = torch.cat([states[:, :2], new_states, states[:, -1:]], 1)
    new_existence = existence * (1 - gives_way)
    total = rows.total + existence.detach() * rows.going[:, None]
    if states.device.type != "cpu":  # there, rows that have ended are still here
        new_states = torch.where(rows.going[:, None, None], new_states, states)
        new_existence = torch.where(rows.going[:, None], new_existence, existence)
    remaining = (new_existence > weights.threshold).sum(1) - 2
    ended_well = rows.ended_well | (remaining == 1)
    return _Rows(rows.number, rows.lengths, new_states, new_existence, taken, total, remaining > 1, ended_well)


def _neighbors(existence: torch.Tensor, equation: NeighborEquation) -> torch.Tensor:
    """Return the neighbours on the left, then on the right, ``[rows, 2 * positions, positions]``.

    Sums are not differences of cumulative sums: rounding would leave a little existence where there must be none.
    """
    size = existence.shape[1]
    both = torch.stack([existence.flip(1), existence], 1)
    own = both[:, :, None].expand(-1, -1, size, -1).triu(1)
    if equation == 6:
        lack = (1 - own + EPSILON[6] * own.new_ones(size, size).triu(1)).cumprod(3)
        neighbors = own * functional.pad(lack[..., :-1], (1, 0), value=1)
    else:
        until = own.cumsum(3).clamp(max=1)
        neighbors = until - functional.pad(until[..., :-1], (1, 0))
    return torch.cat([neighbors[:, 0].flip(1, 2), neighbors[:, 1]], 1)


def _result(rows: _Rows, longest: int, equation: NeighborEquation) -> Recursion:
    """Return what a recursion gives of rows that have ended."""
    positions = rows.states.shape[1] - 2
    place = torch.arange(positions, device=rows.states.device)
    token = place < rows.lengths[:, None]
    tokens = slice(1, -1)
    states = rows.states[:, tokens].masked_fill(~token[:, :, None], 0)
    existence = rows.existence[:, tokens].masked_fill(~token, 0)
    total = rows.total[:, tokens].masked_fill(~token, 0)
    last = (rows.lengths - 1)[:, None]
    share = existence.gather(1, last).squeeze(1) / (existence.sum(1) + EPSILON[equation] * rows.lengths.to(existence))
    penalty = -(share + EPSILON[equation]).log() * (~rows.ended_well | (equation == 6))
    encoding = states.gather(1, last[:, :, None].expand(-1, -1, states.shape[2])).squeeze(1)
    wider = longest - positions
    return Recursion(functional.pad(states, (0, 0, 0, wider)), encoding, penalty, functional.pad(total, (0, wider)))
