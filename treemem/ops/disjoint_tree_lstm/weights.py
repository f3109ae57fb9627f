"""Weights of the parser."""

from __future__ import annotations

from typing import NamedTuple

import torch

from treemem.ops.affine import Affine


class ParserWeights(NamedTuple):
    """All weights of the parser above its leaves.

    Attributes:
        cell: of its Tree-LSTM, ``[5 * hidden_size, 2 * hidden_size]``, in the blocks of
            :data:`treemem.ops.tree_lstm.step.GATES`.
        query: the score of a pair is ``query . h`` of its composition, ``[hidden_size]``.
    """

    cell: Affine
    query: torch.Tensor
