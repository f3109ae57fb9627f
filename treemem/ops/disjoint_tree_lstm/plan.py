"""What to compute, in which order, to score the choices that make given trees, and to compose these trees."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.device_copy import to_device_together
from treemem.ops.gated_recursive import Levels

Integers = NDArray[np.int64]


class TreePlan(NamedTuple):
    """The trees of sequences, and all pairs that could be chosen on the way to them. Leaves have the first rows.

    Attributes:
        places: of the chosen pairs, int64 ``[sequences, longest - 1]``, 0 after the last one.
        lengths: int64 ``[sequences]``, on the CPU.
        pairs: all pairs.
        candidates: those that a step chooses from, int64 ``[sequences, longest - 1, longest - 1]``; at padding the
            number of pairs.
        tree: the chosen pairs.
        roots: the rows of the roots, the leaves and ``tree`` counted, int64 ``[sequences]``; any for an empty sequence.
    """

    places: torch.Tensor
    lengths: torch.Tensor
    pairs: Levels
    candidates: torch.Tensor
    tree: Levels
    roots: torch.Tensor


def tree_plan(places: torch.Tensor, lengths: torch.Tensor) -> TreePlan:
    """Return the plan of trees. The host waits once.

    Args:
        places: of the chosen pairs, int64 ``[sequences, longest - 1]``.
        lengths: int64 ``[sequences]``, on the CPU.
    """
    chosen_places, length = places.cpu().numpy(), lengths.numpy()
    sequences, steps = chosen_places.shape
    num_leaves = sequences * (steps + 1)
    nodes = np.arange(num_leaves).reshape(sequences, steps + 1)
    roots = nodes[:, 0].copy()
    column = np.arange(steps)
    valid = column < length[:, None] - 1
    count = int(valid.sum())
    pairs = np.full((sequences, steps), -1)
    pairs[valid] = np.arange(count)
    children = [np.stack([nodes[:, :-1][valid], nodes[:, 1:][valid]], 1)]
    height = np.zeros(num_leaves + 3 * count, np.int64)
    height[num_leaves : num_leaves + count] = 1
    candidates = np.full((sequences, steps, steps), -1)
    in_tree = [np.zeros(0, np.int64)]
    for step in range(int(length.max(initial=0)) - 1):
        rows = np.flatnonzero(length > step + 1)
        place = chosen_places[rows, step][:, None]
        num_pairs = steps - step
        own_pairs, own_nodes = pairs[rows, :num_pairs], nodes[rows, : num_pairs + 1]
        candidates[rows, step, :num_pairs] = own_pairs
        chosen = np.take_along_axis(own_pairs, place, 1)
        new = num_leaves + chosen
        in_tree.append(chosen[:, 0])
        roots[rows] = new[:, 0]
        own_nodes = np.where(column[:num_pairs] < place, own_nodes[:, :-1], own_nodes[:, 1:])
        np.put_along_axis(own_nodes, place, new, 1)
        own_pairs = np.where(column[: num_pairs - 1] < place, own_pairs[:, :-1], own_pairs[:, 1:])
        for left in (place - 1, place):  # the pairs of the new node and its neighbours
            exists = np.flatnonzero((left[:, 0] >= 0) & (left[:, 0] + 1 < length[rows] - step - 1))
            numbers = count + np.arange(len(exists))
            own_pairs[exists, left[exists, 0]] = numbers
            added = np.stack([own_nodes[exists, left[exists, 0] + side] for side in (0, 1)], 1)
            children.append(added)
            height[num_leaves + numbers] = height[added].max(1, initial=0) + 1
            count += len(exists)
        nodes[rows, :num_pairs], pairs[rows, : num_pairs - 1] = own_nodes, own_pairs
    every = np.concatenate(children)
    height = height[num_leaves : num_leaves + count]
    of_pairs, of_tree = (
        _in_levels(every, height, num_leaves, each) for each in (np.arange(count), np.concatenate(in_tree))
    )
    candidates = np.where(candidates < 0, count, of_pairs.row[num_leaves + candidates] - num_leaves)
    arrays = (of_pairs.children, candidates, of_tree.children, of_tree.row[roots])
    tensors = to_device_together([torch.from_numpy(each) for each in arrays], places.device)
    return TreePlan(
        places, lengths, Levels(tensors[0], of_pairs.ends), tensors[1], Levels(tensors[2], of_tree.ends), tensors[3]
    )


class _InLevels(NamedTuple):
    """Some pairs, those of less height first: the rows of their children, where levels end, the row of each node."""

    children: Integers
    ends: list[int]
    row: Integers


def _in_levels(children: Integers, height: Integers, num_leaves: int, some: Integers) -> _InLevels:
    ordered = some[height[some].argsort(kind="stable")]
    row = np.arange(num_leaves + len(children))
    row[num_leaves + ordered] = num_leaves + np.arange(len(ordered))
    ends = np.cumsum(np.bincount(height[ordered], minlength=1)[1:]).tolist()
    return _InLevels(row[children[ordered]], ends, row)
