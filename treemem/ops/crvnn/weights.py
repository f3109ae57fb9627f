"""Weights, options and results of a continuous recursion."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch

from treemem.ops.affine import Affine
from treemem.ops.gated_recursive import CellActivation, GatedCellWeights

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
