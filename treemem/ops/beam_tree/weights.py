"""Weights and options of the search for trees with a beam."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

from treemem.ops.affine import Affine, linear
from treemem.ops.gated_recursive import GatedCellWeights


class ChildrenScore(NamedTuple):
    """The score of a pair from the first entries of its children: ``w . gelu(W [l; r] + b) + c``.

    Attributes:
        hidden: ``[scored_size, 2 * scored_size]``.
        score: ``[1, scored_size]``.
    """

    hidden: Affine
    score: Affine

    def of(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Score pairs of children ``[..., hidden_size]``."""
        size = self.hidden.weight.shape[1] // 2
        both = torch.cat([left[..., :size], right[..., :size]], -1)
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
