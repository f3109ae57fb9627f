"""What a matrix product reads: formulas of the children's states and a node's own features.

Each gives the rows of ``m`` nodes that are multiplied, ``[m * copies, inputs]``. Their arguments are ``children``, the
children's states by name, ``[m, arity, ...]``; ``x``, the nodes' own features, ``[m, input_size]``, or None; and
``products``, the results of earlier products by name.
"""

from __future__ import annotations

import torch

from treemem.engines.cell import State


def children_in_order(children: State, x: torch.Tensor | None, products: State) -> torch.Tensor:
    """One row a node: the children's ``h`` one after the other, then the features."""
    return _with_features(children["h"].flatten(1), x)


def children_and_tops(children: State, x: torch.Tensor | None, products: State) -> torch.Tensor:
    """One row a node: the children's ``h``, the top rows of their stacks ``S``, then the features."""
    return _with_features(torch.cat([children["h"].flatten(1), children["S"][:, :, 0].flatten(1)], 1), x)


def children_sum(children: State, x: torch.Tensor | None, products: State) -> torch.Tensor:
    """One row a node: the sum of the children's ``h``, then the features."""
    return _with_features(children["h"].sum(1), x)


def each_child(children: State, x: torch.Tensor | None, products: State) -> torch.Tensor:
    """One row a child: its ``h``, and the features of its parent."""
    hidden = children["h"]
    x = None if x is None else x[:, None].expand(-1, hidden.shape[1], -1)
    return _with_features(hidden, x).flatten(0, 1)


def stack_rows(children: State, x: torch.Tensor | None, products: State) -> torch.Tensor:
    """One row for each row of the stacks: the children's rows of ``S`` at the same height, one after the other."""
    return children["S"].transpose(1, 2).flatten(2).flatten(0, 1)


def stack_rows_and_zeros(children: State, x: torch.Tensor | None, products: State) -> torch.Tensor:
    """The same, with a row of zeros after the last one of each node."""
    return stack_rows({"S": torch.nn.functional.pad(children["S"], (0, 0, 0, 1))}, x, products)


def _with_features(inputs: torch.Tensor, x: torch.Tensor | None) -> torch.Tensor:
    return inputs if x is None else torch.cat([inputs, x.to(inputs.dtype)], -1)
