"""The continuous recursion as the authors' code runs it, over a padded batch."""

from __future__ import annotations

import torch
from torch.nn import functional

from treemem.ops.affine import linear
from treemem.ops.crvnn.weights import EPSILON, CRvNNWeights, NeighborEquation, Recursion
from treemem.ops.gated_recursive import gated_cell


def naive_recursion(states: torch.Tensor, lengths: torch.Tensor, weights: CRvNNWeights) -> Recursion:
    """Run the recursion.

    As in the authors' code the maximum score is that of the whole batch, and a sequence with padding may take one step
    more than it has tokens. A sequence of its own is as if alone.

    Args:
        states: of START, the tokens, END and padding, ``[sequences, longest + 2, hidden_size]``.
        lengths: numbers of tokens, int64 ``[sequences]``, at least 1.
        weights: and options.
    """
    size, epsilon = states.shape[1], EPSILON[weights.equation]
    place = torch.arange(size, device=states.device)
    length = lengths[:, None]
    present = (place <= length + 1).to(states)[:, :, None]
    token = ((place >= 1) & (place <= length)).to(states)[:, :, None]
    last = (place == length).to(states)[:, :, None]
    movable = token - last  # the last token stays
    states = states.masked_fill(present == 0, 0)
    existence = present
    taken = torch.zeros_like(existence)  # how far a position took its left neighbour
    going = torch.ones_like(lengths, dtype=torch.bool)
    ended_well = torch.zeros_like(going)
    total = torch.zeros_like(existence)
    for step in range(1, size - 1):
        right = _right_neighbors(existence[:, :, 0], weights.equation)
        left = _right_neighbors(existence[:, :, 0].flip(1), weights.equation).flip(1, 2)
        features = None
        if weights.features is not None:
            features = taken * weights.features.given + (1 - taken) * weights.features.absent
        seen = states if features is None or weights.equation == 5 else states + features
        on_left, on_right = [seen], [seen]
        for _ in range(weights.num_neighbors):
            on_left.insert(0, left @ on_left[0])
            on_right.append(right @ on_right[-1])
        read = [*on_left, *on_right[1:]]
        if features is not None and weights.equation == 5:
            read.append(features)
        scores = linear(functional.gelu(linear(torch.cat(read, 2), weights.window)), weights.score)
        highest = scores.max().clamp(min=0)
        moves = (scores - highest).exp() * movable
        among = [moves, (-highest).exp().expand_as(moves)]
        if weights.modulated:
            among += [left @ moves, right @ moves]
        gives_way = moves / sum(each + epsilon for each in among) * movable
        taken = left @ gives_way * token
        composed = gated_cell(
            on_left[-2],
            states,
            weights.cell,
            functional.dropout(states.new_ones(*states.shape[:2], len(weights.cell.hidden.bias)), weights.dropout),
            weights.activation,
        )
        new_states = (taken * composed + (1 - taken) * states) * present
        goes = going[:, None, None]
        total = total + existence.detach() * goes
        states = torch.where(goes, new_states, states)
        existence = torch.where(goes, existence * (1 - gives_way) * present, existence)
        remaining = (existence[:, :, 0] > weights.threshold).sum(1) - 2
        going = (remaining > 1) & (lengths >= step)
        ended_well |= remaining == 1
        if not going.any():
            break
    states, existence, last, total = ((each * token)[:, 1:-1] for each in (states, existence, last, total))
    share = (existence * last).sum((1, 2)) / (existence + epsilon).sum((1, 2))
    penalty = -(share + epsilon).log() * (~ended_well | (weights.equation == 6))
    return Recursion(states, (states * last).sum(1), penalty, total[:, :, 0])


def _right_neighbors(existence: torch.Tensor, equation: NeighborEquation) -> torch.Tensor:
    """Return how far position ``j`` is the next one on the right of ``i``, ``[sequences, positions, positions]``.

    Equation 5: going right from ``i`` it is the existence of ``j`` while their sum is at most 1, and then the rest to
    1. Equation 6: the existence of ``j``, times what the positions between them lack to 1.
    """
    own = existence[:, None].expand(-1, existence.shape[1], -1).triu(1)
    if equation == 6:
        lack = (1 - own + EPSILON[6]).log().triu(1).cumsum(2).exp()
        return own * functional.pad(lack[:, :, :-1], (1, 0), value=1)
    until = own.cumsum(2)
    before = functional.pad(until[:, :, :-1], (1, 0))
    return until.clamp(max=1) - before.clamp(max=1)
