"""What the results of a search depend on: the nodes and pairs of the beams that lead to the last ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from treemem.engines.sequence_lengths import LongestFirst
from treemem.networks.parsers.beam_tree.search import Lineage, Search
from treemem.schedule.schedule import Schedule

Integers = NDArray[np.int64]


class Needed(NamedTuple):
    """What to compute again with gradients.

    Attributes:
        schedule: the leaves and the compositions.
        leaves: the number of each leaf row, int64 ``[leaf rows]``.
        compositions: the number of the composition of each inner row, int64 ``[inner rows]``.
        pairs: the rows of the nodes of each pair, int64 ``[pairs, 2]``.
        composed: the row of what each pair becomes, int64 ``[pairs]``; 0 where pairs are scored by their children.
        groups: the pairs of each beam in a step, int64 ``[groups, longest - 1]``; -1 is padding.
        lineage: the choices of each last beam, int64 ``[last beams, steps]``: places in the flat groups, and after
            their end if there was no choice.
        origins: with which beam each last beam began, int64 ``[last beams]``, counted sequence by sequence.
        roots: the row of each last beam, int64 ``[sequences, beam_size]``; that of the first where there is none.
        beams: the last beam, int64 ``[sequences, beam_size]``; the number of last beams where there is none.
    """

    schedule: Schedule
    leaves: torch.Tensor
    compositions: torch.Tensor
    pairs: torch.Tensor
    composed: torch.Tensor
    groups: torch.Tensor
    lineage: torch.Tensor
    origins: torch.Tensor
    roots: torch.Tensor
    beams: torch.Tensor


def needed(result: Search, lengths: torch.Tensor, num_starts: int, by_children: bool) -> Needed:
    """Return what the last beams of a search depend on.

    Args:
        result: of the search, on the CPU.
        lengths: int64 ``[sequences]``, on the CPU.
        num_starts: with how many beams the search of a sequence began.
        by_children: whether pairs are scored by their children.
    """
    steps = [(step.pairs.numpy(), step.parent.numpy(), step.place.numpy()) for step in result.steps]
    children, all_pairs, roots = result.children.numpy(), result.pairs.numpy(), result.roots.numpy()
    is_beam = result.totals.numpy() != -np.inf
    groups, lineage, origin = _groups(steps, lengths.numpy(), is_beam)

    num_leaves = len(result.states) - len(children)
    wanted = np.zeros(len(result.states), bool)
    scored = np.zeros(len(all_pairs), bool)
    scored[groups[groups >= 0]] = True
    wanted[roots[is_beam]] = True
    if by_children:
        wanted[all_pairs[scored]] = True
    else:
        wanted[num_leaves:][scored] = True
    bounds = sorted({0, *(step.first_node - num_leaves for step in result.steps), len(children)})
    for begin, end in reversed(list(pairwise(bounds))):
        wanted[children[begin:end][wanted[num_leaves + begin : num_leaves + end]]] = True

    nodes = np.flatnonzero(wanted)
    number = np.zeros(len(wanted), np.int64)
    number[nodes] = np.arange(len(nodes))
    leaves, inner = np.split(nodes, [np.searchsorted(nodes, num_leaves)])
    parents = number[inner].repeat(2)
    schedule = Schedule.from_edges(
        len(nodes), number[children[inner - num_leaves]].ravel(), parents, allow_several_parents=True
    )
    row = schedule.row_of_node.numpy()[number]
    compositions = inner[schedule.node_of_row.numpy()[len(leaves) :] - len(leaves)] - num_leaves
    pairs = np.flatnonzero(scored)
    number_of_pair = np.full(len(all_pairs) + 1, -1)
    number_of_pair[pairs] = np.arange(len(pairs))
    beams = np.full(is_beam.shape, int(is_beam.sum()))
    beams[is_beam] = np.arange(int(is_beam.sum()))
    arrays = [
        *(leaves, compositions, row[all_pairs[pairs]]),
        row[num_leaves + pairs] if not by_children else np.zeros(0, np.int64),
        *(number_of_pair[groups], lineage, np.nonzero(is_beam)[0] * num_starts + origin),
        *(row[np.where(is_beam, roots, roots[:, :1])], beams),
    ]
    return Needed(schedule, *map(torch.from_numpy, arrays))


def every_node(result: Search, order: LongestFirst, num_starts: int, by_children: bool) -> Needed:
    """Return the plan that computes all nodes of a search, on its device, whose numbers the host does not read.

    Args:
        result, num_starts, by_children: see :func:`needed`.
        order: of the sequences.
    """
    device, steps = result.states.device, result.steps
    num_leaves = len(result.states) - len(result.children)
    bounds = sorted({num_leaves, *(step.first_node for step in steps), len(result.states)})
    sizes = [end - begin for begin, end in pairwise(bounds)]
    schedule = Schedule.from_steps(num_leaves, sizes, result.children.flatten(), result.roots[:, 0])
    node, compositions = (
        torch.arange(len(result.states), device=device),
        torch.arange(len(result.children), device=device),
    )
    is_beam = result.totals != -torch.inf
    last = torch.arange(is_beam.numel(), device=device).view_as(is_beam)
    lineage = _lineage(result, order, num_starts) if result.lineage is None else result.lineage
    return Needed(
        schedule,
        leaves=node[:num_leaves],
        compositions=compositions,
        pairs=result.pairs,
        composed=node[num_leaves:] if not by_children else node[:0],
        groups=lineage.groups,
        lineage=lineage.places,
        origins=lineage.origins,
        roots=torch.where(is_beam, result.roots, result.roots[:, :1]),
        beams=last.masked_fill(~is_beam, is_beam.numel()),
    )


def _lineage(result: Search, order: LongestFirst, num_starts: int) -> Lineage:
    """Return how the last beams came about, step by step from the last one."""
    device, steps = result.states.device, result.steps
    longest = len(steps) + 1
    groups, lineage = [], []
    for number, step in enumerate(steps):
        active, _, pairs = step.pairs.shape
        absent = torch.arange(pairs, device=device) >= order.lengths_there[:active, None] - 1 - number
        of_step = step.pairs.masked_fill(absent[:, None], -1).flatten(0, 1)
        groups.append(functional.pad(of_step, (0, longest - 1 - pairs), value=-1))
    num_groups = sum(map(len, groups))
    beam = torch.arange(result.roots.shape[1], device=device).repeat(len(result.roots), 1)
    sequence = torch.arange(len(result.roots), device=device)[:, None]
    first_group = num_groups
    for step in reversed(steps):
        active, beams, _ = step.pairs.shape
        first_group -= active * beams
        at = beam[:active].clamp(max=step.parent.shape[1] - 1)
        parent = step.parent.gather(1, at)
        group = first_group + sequence[:active] * beams + parent
        place = group * (longest - 1) + step.place.gather(1, at)
        lineage.append(functional.pad(place, (0, 0, 0, len(beam) - active), value=num_groups * (longest - 1)).flatten())
        beam = torch.cat([parent, beam[active:]])
    no_groups = beam.new_zeros(0, max(longest - 1, 1))
    return Lineage(
        torch.cat(groups) if groups else no_groups,
        torch.stack(lineage[::-1], 1) if lineage else beam.new_zeros(beam.numel(), 0),
        (sequence * num_starts + beam.clamp(max=num_starts - 1)).flatten(),
    )


def _groups(
    steps: Sequence[tuple[Integers, ...]], lengths: Integers, is_beam: NDArray[np.bool_]
) -> tuple[Integers, ...]:
    """Return the groups, of the search's own pairs, the lineage and the first beam of each last one; see `Needed`."""
    longest = len(steps) + 1
    row, beam = np.nonzero(is_beam)
    lineage = np.full((len(row), len(steps)), -1)
    alive = np.zeros((0, 0), bool)
    groups: list[Integers] = []
    first = 0
    for number in range(len(steps) - 1, -1, -1):
        pairs, parent, place = steps[number]
        active, new_beams = parent.shape
        after = is_beam[:active, :new_beams].copy()
        after[: len(alive), : alive.shape[1]] = alive
        alive = np.zeros(pairs.shape[:2], bool)
        sequence, new = np.nonzero(after)
        alive[sequence, parent[sequence, new]] = True
        count = lengths[:active] - 1 - number  # pairs of each sequence
        chooses = alive & (count > 1)[:, None]
        group_of = np.full(alive.shape, -1)
        group_of[chooses] = first + np.arange(int(chooses.sum()))
        of_group = np.full((int(chooses.sum()), longest - 1), -1)
        column = np.arange(pairs.shape[2])
        of_group[:, : pairs.shape[2]] = np.where(column < count[np.nonzero(chooses)[0]][:, None], pairs[chooses], -1)
        groups.append(of_group)
        first += len(of_group)
        going = row < active
        came = parent[row[going], beam[going]]
        group = group_of[row[going], came]
        flat = group * (longest - 1) + place[row[going], beam[going]]
        lineage[going, number] = np.where(group < 0, -1, flat)
        beam[going] = came
    all_groups = np.concatenate([np.zeros((0, max(longest - 1, 1)), np.int64), *groups])
    return all_groups, np.where(lineage < 0, all_groups.size, lineage), beam
