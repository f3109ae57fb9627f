"""Weights of the Gumbel Tree-LSTM."""

from __future__ import annotations

from typing import NamedTuple

import torch

from treemem.ops.affine import Affine


class GumbelTreeWeights(NamedTuple):
    """All weights above the leaves.

    Attributes:
        cell: of the Tree-LSTM of two children, ``[5 * hidden_size, 2 * hidden_size]``, in the blocks of
            :data:`treemem.ops.tree_lstm.step.GATES`.
        query: the score of a composition is ``query . h / scale``, ``[hidden_size]``.
        scale: what scores are divided by.
    """

    cell: Affine
    query: torch.Tensor
    scale: float
