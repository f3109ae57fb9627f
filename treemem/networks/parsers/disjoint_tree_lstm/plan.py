"""What to compute, in which order, to score the choices that make given trees, and to compose these trees."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from treemem.engines.sequence_lengths import LongestFirst
from treemem.networks.parsers.beam_tree.search import compose_beams
from treemem.schedule.schedule import Schedule


class TreePlan(NamedTuple):
    """The trees of sequences, and all pairs that could be chosen on the way to them. Leaves have the first rows.

    Attributes:
        places: of the chosen pairs, int64 ``[sequences, longest - 1]``, 0 after the last one.
        lengths: int64 ``[sequences]``, on the CPU.
        pairs: the leaves and all pairs.
        choices: which of the places are choices, int64 ``[choices]``, counted sequence by sequence.
        candidates: the rows of the pairs that each of them chooses from, int64 ``[choices, longest - 1]``; at padding
            the number of rows.
        trees: the leaves and the chosen pairs; the root of an empty sequence is any row.
    """

    places: torch.Tensor
    lengths: torch.Tensor
    pairs: Schedule
    choices: torch.Tensor
    candidates: torch.Tensor
    trees: Schedule


def tree_plan(places: torch.Tensor, lengths: torch.Tensor) -> TreePlan:
    """Return the plan of trees, where the places are. On a CPU, levels are heights; elsewhere they are steps.

    Args:
        places: of the chosen pairs, int64 ``[sequences, longest - 1]``.
        lengths: int64 ``[sequences]``, on the CPU.
    """
    return (_by_height if places.device.type == "cpu" else _by_step)(places, lengths)


def _by_height(places: torch.Tensor, lengths: torch.Tensor) -> TreePlan:
    chosen_places, length = places.numpy(), lengths.numpy()
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
    of_choices, of_candidates = torch.from_numpy(np.concatenate(choices)), torch.from_numpy(rows_of_candidates)
    return TreePlan(places, lengths, all_pairs, of_choices, of_candidates, trees)


def _schedule(num_leaves: int, children: NDArray[np.int64], roots: NDArray[np.int64]) -> Schedule:
    """The leaves, and then the nodes with these children."""
    num_nodes = num_leaves + len(children)
    parents = np.arange(num_leaves, num_nodes).repeat(2)
    return Schedule.from_edges(num_nodes, children.ravel(), parents, roots=roots, allow_several_parents=True)


class _Pairs:
    """The children of pairs, which have the next rows.

    Args:
        num_rows: of leaves.
    """

    def __init__(self, num_rows: int) -> None:
        self._num_rows = num_rows
        self.children: list[torch.Tensor] = []

    def add_pairs(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return the rows of new pairs, of the shape of ``left``."""
        self.children.append(torch.stack([left.flatten(), right.flatten()], 1))
        first, self._num_rows = self._num_rows, self._num_rows + left.numel()
        return torch.arange(first, self._num_rows, device=left.device).view(left.shape)

    def compose(self, pair: torch.Tensor) -> torch.Tensor:
        """Return the rows of the nodes that pairs become: the same."""
        return pair


def _by_step(places: torch.Tensor, lengths: torch.Tensor) -> TreePlan:
    """The plan on a device, whose numbers the host does not read. A pair that is not there has other children."""
    sequences, steps = places.shape
    order = LongestFirst(lengths, places.device)
    active_of_steps = order.sizes[1:]
    num_leaves, of_steps = sequences * (steps + 1), [2 * active for active in active_of_steps[:-1]]
    memory = _Pairs(num_leaves)
    leaves = torch.arange(num_leaves, device=places.device).view(sequences, steps + 1)
    nodes = leaves.index_select(0, order.rows)[:, None, : len(order.sizes)]
    places_in_order = places.index_select(0, order.rows)
    pairs = memory.add_pairs(nodes[..., :-1], nodes[..., 1:])
    sizes = [size for size in (pairs.numel(), *of_steps) if size]
    num_rows, parent = num_leaves + sum(sizes), nodes.new_zeros(len(nodes), 1)
    nothing = nodes.new_zeros(0)
    choices, chosen, ended, candidates = [nothing], [nothing], [], [nodes.new_zeros(0, steps)]
    for step, active in enumerate(active_of_steps):
        ended.append(nodes[active:, 0, 0])
        nodes, pairs, place = nodes[:active], pairs[:active], places_in_order[:active, step, None]
        num_pairs = pairs.shape[2]
        absent = torch.arange(num_pairs, device=places.device) >= order.lengths_there[:active, None] - 1 - step
        of_step = pairs[:, 0].masked_fill(absent, num_rows)
        candidates.append(functional.pad(of_step, (0, steps - num_pairs), value=num_rows))
        choices.append(order.rows[:active] * steps + step)
        chosen.append(pairs[:, 0].gather(1, place).flatten())
        nodes, pairs = compose_beams(memory, nodes, pairs, parent[:active], place)
    ended.append(nodes[:, 0, 0] if order.sizes else nothing)
    roots = order.back(torch.cat(ended[::-1]))
    children, in_trees = torch.cat(memory.children), torch.cat(chosen)
    number = torch.arange(num_rows, device=places.device)
    number = number.index_copy(0, in_trees, number[num_leaves : num_leaves + len(in_trees)])
    of_trees = number[children[in_trees - num_leaves]]
    return TreePlan(
        places,
        lengths,
        Schedule.from_steps(num_leaves, sizes, children.flatten(), roots),
        torch.cat(choices),
        torch.cat(candidates),
        Schedule.from_steps(num_leaves, active_of_steps, of_trees.flatten(), number[roots]),
    )
