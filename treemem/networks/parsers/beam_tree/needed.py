"""What the results of a search depend on: the nodes and pairs of the beams that lead to the last ones."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.device_copy import to_device_together
from treemem.networks.parsers.beam_tree.search import Search
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

    The host waits for the device once.

    Args:
        result: of the search.
        lengths: int64 ``[sequences]``, on the CPU.
        num_starts: with how many beams the search of a sequence began.
        by_children: whether pairs are scored by their children.
    """
    parts = [tensor for step in result.steps for tensor in (step.pairs, step.parent, step.place)]
    parts += [result.children, result.pairs, result.roots, (result.totals != -torch.inf).long()]
    children, all_pairs, roots, beam_numbers, *of_steps = _on_cpu([*parts[-4:], *parts[:-4]])
    steps: list[tuple[Integers, ...]] = list(zip(of_steps[0::3], of_steps[1::3], of_steps[2::3], strict=True))
    is_beam = beam_numbers.astype(bool)
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
    tensors = to_device_together([torch.from_numpy(array) for array in arrays], result.states.device)
    return Needed(schedule.to(result.states.device), *tensors)


def _groups(steps: list[tuple[Integers, ...]], lengths: Integers, is_beam: NDArray[np.bool_]) -> tuple[Integers, ...]:
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


def _on_cpu(tensors: list[torch.Tensor]) -> list[Integers]:
    """Return int64 tensors as arrays, from another device in one copy."""
    if tensors[0].device.type == "cpu":
        return [tensor.numpy() for tensor in tensors]
    flat = torch.cat([tensor.flatten() for tensor in tensors]).cpu()
    sizes = [tensor.numel() for tensor in tensors]
    return [part.view(tensor.shape).numpy() for part, tensor in zip(flat.split(sizes), tensors, strict=True)]
