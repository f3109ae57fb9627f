"""The continuous recursion as published, over all sequences at once."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch.nn import functional

from treemem.engines.affine import Affine, linear
from treemem.networks.gated_cell.equations import CellActivation, GatedCellWeights, gated_cell

NeighborEquation = Literal[5, 6]


class TransitionFeatures(NamedTuple):
    """What the score reads of the last step.

    Attributes:
        given: of a position that took its left neighbour, ``[features]``.
        absent: of one that did not, ``[features]``.
    """

    given: torch.Tensor
    absent: torch.Tensor


class CRvNNWeights(NamedTuple):
    """All weights above the leaves, and the options that say how they are used.

    Attributes:
        cell: composes two states.
        window: what the hidden layer of the score reads: ``num_neighbors`` neighbours on the left, the farthest first,
            the position, those on the right, then the features; ``[hidden_size, ...]``.
        score: ``[1, hidden_size]``.
        features: None: the score does not read the last step. Equation 6 adds them to the states that are read.
        equation: of the paper, by which neighbours are computed. 6 also has the other differences of the authors' class
            ``CRvNN2``; see :class:`treemem.nn.CRvNN`.
        num_neighbors: on each side.
        modulated: whether neighbours compete.
        activation: of the cell.
        threshold: a position whose existence is at most this has given way.
        dropout: of the hidden layer of the cell.
    """

    cell: GatedCellWeights
    window: Affine
    score: Affine
    features: TransitionFeatures | None
    equation: NeighborEquation = 5
    num_neighbors: int = 2
    modulated: bool = True
    activation: CellActivation = "gelu"
    threshold: float = 0.01
    dropout: float = 0.0


class Ends(NamedTuple):
    """Sequences when they have ended. Positions are START, the tokens, END and padding.

    Attributes:
        states: ``[sequences, positions, hidden_size]``.
        existence: ``[sequences, positions]``.
        total: sum of the existence before each step, without gradients, ``[sequences, positions]``.
        ended_well: whether at some step only the last token was left, bool ``[sequences]``.
    """

    states: torch.Tensor
    existence: torch.Tensor
    total: torch.Tensor
    ended_well: torch.Tensor


class Recursion(NamedTuple):
    """What a recursion gives.

    Attributes:
        states: of the tokens at the end, ``[sequences, longest, hidden_size]``, 0 at padding.
        encoding: the state of the last token, ``[sequences, hidden_size]``.
        penalty: ``-log`` of the share of the last token in the existence of all, ``[sequences]``; with equation 5 it is
            0 where at some step it was the only one above the threshold.
        existence: the sum over the steps of the existence of each token before the step, ``[sequences, longest]``,
            without gradients: the expected step, from 1, at which the token gives way.
    """

    states: torch.Tensor
    encoding: torch.Tensor
    penalty: torch.Tensor
    existence: torch.Tensor


EPSILON: dict[NeighborEquation, float] = {5: 1e-8, 6: 1e-9}
"""What the authors' code adds to each term of a sum before dividing by it, and to the argument of a logarithm."""


def naive_steps(states: torch.Tensor, lengths: torch.Tensor, weights: CRvNNWeights, *, alone: bool = True) -> Ends:
    """Run all steps.

    Args:
        states: of START, the tokens, END and padding, which is 0, ``[sequences, positions, hidden_size]``.
        lengths: numbers of tokens, int64 ``[sequences]``, at least 1, where the states are.
        weights: and options.
        alone: whether a sequence is read as if alone. In the authors' code the maximum score is that of the whole
            batch, and a sequence with padding may take one step more than it has tokens.
    """
    size, epsilon = states.shape[1], EPSILON[weights.equation]
    place = torch.arange(size, device=states.device)
    length = lengths[:, None]
    present = place <= length + 1
    token = (place >= 1) & (place <= length)
    movable = token & (place < length)  # the last token stays
    existence = present.to(states)
    taken = torch.zeros_like(existence)  # how far a position took its left neighbour
    total = torch.zeros_like(existence)
    going = torch.ones_like(lengths, dtype=torch.bool)
    ended_well = torch.zeros_like(going)
    for step in range(1, size - 1):
        right = _right_neighbors(existence, weights.equation)
        left = _right_neighbors(existence.flip(1), weights.equation).flip(1, 2)
        features = None
        if weights.features is not None:
            share = taken[:, :, None]
            features = share * weights.features.given + (1 - share) * weights.features.absent
        seen = states if features is None or weights.equation == 5 else states + features
        on_left, on_right = [seen], [seen]
        for _ in range(weights.num_neighbors):
            on_left.insert(0, left @ on_left[0])
            on_right.append(right @ on_right[-1])
        read = [*on_left, *on_right[1:]]
        if features is not None and weights.equation == 5:
            read.append(features)
        scores = linear(functional.gelu(linear(torch.cat(read, 2), weights.window)), weights.score).squeeze(2)
        highest = scores.masked_fill(~present, -torch.inf).amax(1, keepdim=True) if alone else scores.max()
        highest = highest.clamp(min=0)
        moves = (scores.masked_fill(~movable, -torch.inf) - highest).exp()
        among = [moves, (-highest).exp()]
        if weights.modulated:
            among += [(neighbors @ moves[:, :, None]).squeeze(2) for neighbors in (left, right)]
        gives_way = moves / sum(values + epsilon for values in among)
        taken = (left @ gives_way[:, :, None]).squeeze(2) * token
        keep = None
        if weights.dropout:
            keep = states.new_ones(*states.shape[:2], len(weights.cell.hidden.bias))
            keep = functional.dropout(keep, weights.dropout)
        composed = gated_cell(on_left[-2], states, weights.cell, keep, weights.activation)
        goes = going[:, None]
        total = total + existence.detach() * goes
        states = torch.where(goes[:, :, None], torch.lerp(states, composed, taken[:, :, None]), states)
        existence = torch.where(goes, existence * (1 - gives_way), existence)
        remaining = (existence > weights.threshold).sum(1) - 2
        going = (remaining > 1) & (lengths >= step + alone)
        ended_well = ended_well | (remaining == 1)
    return Ends(states, existence, total, ended_well)


def _right_neighbors(existence: torch.Tensor, equation: NeighborEquation) -> torch.Tensor:
    """Return how far position ``j`` is the next one on the right of ``i``, ``[sequences, positions, positions]``.

    Equation 5: going right from ``i`` it is the existence of ``j`` while their sum is at most 1, and then the rest to
    1. Equation 6: the existence of ``j``, times what the positions between them lack to 1. Sums are not differences of
    cumulative sums: rounding would leave a little existence where there must be none.
    """
    size = existence.shape[1]
    on_right = existence[:, None].expand(-1, size, -1).triu(1)
    if equation == 6:
        lack = (1 - on_right + EPSILON[6] * on_right.new_ones(size, size).triu(1)).cumprod(2)
        return on_right * functional.pad(lack[:, :, :-1], (1, 0), value=1)
    until = on_right.cumsum(2).clamp(max=1)
    return until - functional.pad(until[:, :, :-1], (1, 0))
