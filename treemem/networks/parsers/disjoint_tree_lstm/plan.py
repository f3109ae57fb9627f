"""What to compute, in which order, to score the choices that make given trees, and to compose these trees."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.device_copy import to_device_together
from treemem.schedule.schedule import Schedule


class TreePlan(NamedTuple):
    """The trees of sequences, and all pairs that could be chosen on the way to them. Leaves have the first rows.

    Attributes:
        places: of the chosen pairs, int64 ``[sequences, longest - 1]``, 0 after the last one.
        places_on_cpu: the same.
        lengths: int64 ``[sequences]``, on the CPU.
        pairs: the leaves and all pairs.
        choices: which of the places are choices, int64 ``[choices]``, counted sequence by sequence.
        candidates: the rows of the pairs that each of them chooses from, int64 ``[choices, longest - 1]``; at padding
            the number of rows.
        trees: the leaves and the chosen pairs; the root of an empty sequence is any row.
    """

    places: torch.Tensor
    places_on_cpu: torch.Tensor
    lengths: torch.Tensor
    pairs: Schedule
    choices: torch.Tensor
    candidates: torch.Tensor
    trees: Schedule


def tree_plan(places: torch.Tensor, lengths: torch.Tensor) -> TreePlan:
    """Return the plan of trees. The host waits once.

    Args:
        places: of the chosen pairs, int64 ``[sequences, longest - 1]``.
        lengths: int64 ``[sequences]``, on the CPU.
    """
    on_cpu = places.cpu()
    chosen_places, length = on_cpu.numpy(), lengths.numpy()
    sequences, steps = chosen_places.shape
    num_leaves = sequences * (steps + 1)
    nodes = np.arange(num_leaves).reshape(sequences, steps + 1)
    roots = nodes[:, 0].copy()
    column = np.arange(steps)
    valid = column < length[:, None] - 1
    count = num_leaves + int(valid.sum())  # of nodes so far: leaves, then pairs
    pairs = np.full((sequences, steps), -1)
    pairs[valid] = np.arange(num_leaves, count)
    children = [np.stack([nodes[:, :-1][valid], nodes[:, 1:][valid]], 1)]
    candidates = np.full((int(valid.sum()), steps), -1)
    choices: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    num_choices = 0
    in_trees = [np.arange(num_leaves)]
    for step in range(int(length.max(initial=0)) - 1):
        rows = np.flatnonzero(length > step + 1)
        place = chosen_places[rows, step][:, None]
        num_pairs = steps - step
        own_pairs, own_nodes = pairs[rows, :num_pairs], nodes[rows, : num_pairs + 1]
        candidates[num_choices : num_choices + len(rows), :num_pairs] = own_pairs
        choices.append(rows * steps + step)
        num_choices += len(rows)
        new = np.take_along_axis(own_pairs, place, 1)
        in_trees.append(new[:, 0])
        roots[rows] = new[:, 0]
        own_nodes = np.where(column[:num_pairs] < place, own_nodes[:, :-1], own_nodes[:, 1:])
        np.put_along_axis(own_nodes, place, new, 1)
        own_pairs = np.where(column[: num_pairs - 1] < place, own_pairs[:, :-1], own_pairs[:, 1:])
        for left in (place - 1, place):  # the pairs of the new node and its neighbours
            exists = np.flatnonzero((left[:, 0] >= 0) & (left[:, 0] + 1 < length[rows] - step - 1))
            own_pairs[exists, left[exists, 0]] = count + np.arange(len(exists))
            children.append(np.stack([own_nodes[exists, left[exists, 0] + side] for side in (0, 1)], 1))
            count += len(exists)
        nodes[rows, :num_pairs], pairs[rows, : num_pairs - 1] = own_nodes, own_pairs
    in_trees_together, every = np.concatenate(in_trees), np.concatenate(children)
    number = np.zeros(count, np.int64)
    number[in_trees_together] = np.arange(len(in_trees_together))
    of_trees = number[every[in_trees_together[num_leaves:] - num_leaves]]
    all_pairs, trees = _schedule(num_leaves, every, roots), _schedule(num_leaves, of_trees, number[roots])
    rows_of_candidates = np.where(candidates < 0, count, all_pairs.row_of_node.numpy()[candidates])
    there = places.device
    arrays = [torch.from_numpy(array) for array in (np.concatenate(choices), rows_of_candidates)]
    of_choices, of_candidates = to_device_together(arrays, there)
    return TreePlan(places, on_cpu, lengths, all_pairs.to(there), of_choices, of_candidates, trees.to(there))


def _schedule(num_leaves: int, children: NDArray[np.int64], roots: NDArray[np.int64]) -> Schedule:
    """The leaves, and then the nodes with these children."""
    num_nodes = num_leaves + len(children)
    parents = np.arange(num_leaves, num_nodes).repeat(2)
    return Schedule.from_edges(num_nodes, children.ravel(), parents, roots=roots, allow_several_parents=True)
