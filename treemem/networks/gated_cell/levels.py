"""The gated recursive cell over the nodes of binary trees, level by level."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch

from treemem.engines.row_table import RowTable
from treemem.networks.gated_cell.equations import CellActivation, GatedCellWeights, gated_cell


class Levels(NamedTuple):
    """Inner nodes in an order in which children precede their parents.

    Attributes:
        children: the rows of both children of each inner node, int64 ``[inner nodes, 2]``. Leaves have the first rows,
            inner nodes those after them.
        ends: where each level ends among the inner nodes. Nodes of a level do not depend on each other.
    """

    children: torch.Tensor
    ends: Sequence[int]


def gated_levels(
    leaves: torch.Tensor,
    levels: Levels,
    weights: GatedCellWeights,
    keep: torch.Tensor | None = None,
    activation: CellActivation = "gelu",
) -> torch.Tensor:
    """Run :func:`gated_cell` over trees.

    Args:
        leaves: ``[leaves, hidden_size]``.
        levels: the inner nodes.
        weights: of the cell.
        keep: by what the hidden layer of each inner node is multiplied, ``[inner nodes, inner_size]``.
        activation: of the hidden layer.

    Returns:
        The states of all rows, ``[leaves + inner nodes, hidden_size]``.
    """
    table = RowTable(len(leaves) + len(levels.children), leaves.shape[1], leaves)
    table.write(slice(len(leaves)), leaves)
    for begin, end in pairwise((0, *levels.ends)):
        left, right = table.read(levels.children[begin:end].t()).unbind()
        own = gated_cell(left, right, weights, None if keep is None else keep[begin:end], activation)
        table.write(slice(len(leaves) + begin, len(leaves) + end), own)
    return table.read(slice(None))
