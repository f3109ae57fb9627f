"""Transitions over all sequences at once, on a thin stack: nodes stand in the order of their creation."""

from __future__ import annotations

from typing import NamedTuple

import torch

from treemem.engines.affine import Affine, linear
from treemem.engines.row_table import RowTable
from treemem.networks.parsers.spinn.equations import REDUCE, SHIFT, Policy, SPINNWeights
from treemem.networks.sequences.recurrent.equations import lstm_step
from treemem.networks.trees.tree_lstm.equations import tree_lstm_step


class ThinStack:
    """A stack and a buffer for each sequence, which hold numbers of nodes (Bowman et al. 2016).

    The first nodes are the leaves of all sequences, ``longest`` of each. The next one is the empty node, which stands
    where there is nothing.

    Args:
        lengths: of the sequences, int64 ``[sequences]``, where the nodes are.
        longest: leaves of each.
    """

    def __init__(self, lengths: torch.Tensor, longest: int) -> None:
        sequences, device = len(lengths), lengths.device
        self._lengths, self._longest = lengths, longest
        self._empty = sequences * longest
        self._number = torch.arange(sequences, device=device)
        self._stack = torch.full((sequences, longest + 2), self._empty, device=device)
        self._depth = torch.full_like(self._number, 2)  # two empty nodes lie at the bottom
        self._taken = torch.zeros_like(self._number)

    def tops(self, active: int) -> torch.Tensor:
        """Return the tops of buffer and stack and the node under that of the first sequences, int64 ``[active, 3]``."""
        taken, depth = self._taken[:active], self._depth[:active]
        top = torch.where(self._left_over(active), self._number[:active] * self._longest + taken, self._empty)
        first, second = (self._stack[:active].gather(1, (depth - k)[:, None]) for k in (1, 2))
        return torch.cat([top[:, None], first, second], 1)

    def possible(self, choice: torch.Tensor) -> torch.Tensor:
        """Return the choices of the first sequences, where they are possible, and elsewhere the other transition."""
        left_over = self._left_over(len(choice))
        return torch.where(self._depth[: len(choice)] < 4, SHIFT, torch.where(left_over, choice, REDUCE))

    def reducing(
        self, action: torch.Tensor, tops: torch.Tensor, *, waits: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the sequences that reduce, and their left and right nodes, int64 ``[rows]`` and ``[rows, 2]``.

        Off the CPU these are all sequences, unless the host ``waits`` for the device. Those that shift have two empty
        nodes.
        """
        pairs = tops[: len(action), 1:].flip(1)
        if waits or action.device.type == "cpu":
            rows = (action == REDUCE).nonzero().squeeze(1)
            return rows, pairs.index_select(0, rows)
        return self._number[: len(action)], pairs.masked_fill((action != REDUCE)[:, None], self._empty)

    def move(self, action: torch.Tensor, tops: torch.Tensor, created: int) -> None:
        """Do the transitions of the first sequences; what the first one composes has the number ``created``."""
        rows = slice(len(action))
        reduces, depth = action == REDUCE, self._depth[rows]
        place = torch.where(reduces, depth - 2, depth)[:, None]
        node = torch.where(reduces, created + self._number[rows], tops[:, 0])
        self._stack[rows] = self._stack[rows].scatter(1, place, node[:, None])
        self._depth[rows] += 1 - 2 * reduces.long()
        self._taken[rows] += ~reduces

    def roots(self) -> torch.Tensor:
        """Return the lowest node of each sequence, int64 ``[sequences]``."""
        return self._stack[:, 2].clone()

    def _left_over(self, active: int) -> torch.Tensor:
        return self._taken[:active] < self._lengths[:active]


_EPSILON = 1e-5  # added to the deviation


class Problem(NamedTuple):
    """What to run.

    Attributes:
        lengths: of the sequences, longest first, int64 ``[sequences]``, where the leaves are.
        sizes: how many sequences have more than 0, 1, 2, ... steps.
        given: int64 ``[sequences, steps]``, where the leaves are; None: the policy chooses.
        policy: chooses transitions.
    """

    lengths: torch.Tensor
    sizes: list[int]
    given: torch.Tensor | None
    policy: Policy


def batched_transitions(
    leaves: torch.Tensor, weights: SPINNWeights, problem: Problem
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Run all sequences step by step.

    With norms, what is read is normalised over the sequences of a step. That is what the tracker reads of nodes, of all
    sequences: one that has ended has its root on the stack and nothing else. And it is what the composition reads of
    nodes and of the tracker's ``h``, of the sequences that reduce. On a GPU the host then waits at each step.

    Args:
        leaves: ``[sequences, longest, 2 * hidden_size]``, finite at padding.
        weights: of cell, tracker and normalisation.
        problem: what to run.

    Returns:
        The roots ``[sequences, 2 * hidden_size]``; ``[h; c]`` of the tracker at each step
        ``[sequences, steps, 2 * tracker_size]``, any after the last step; actions and choices, int64
        ``[sequences, steps]``, 0 after the last step.
    """
    sequences, longest, width = leaves.shape
    size, steps, empty = width // 2, len(problem.sizes), sequences * longest
    tracker, (of_children, of_tops, of_tracker) = weights.tracker, (*weights.norms, None, None, None)[:3]
    nodes = RowTable(empty + 1 + steps * sequences, width, leaves)  # leaves, an empty node, and those of each step
    nodes.write(slice(empty), leaves.flatten(0, 1))
    tracker_size = 0 if tracker is None else tracker.lateral.shape[1]
    tracked = RowTable(steps * sequences, 2 * tracker_size, leaves)
    hidden = cell = leaves.new_zeros(sequences, tracker_size)
    stack = ThinStack(problem.lengths, longest)
    actions, chosen = (torch.zeros(sequences, steps, dtype=torch.int64, device=leaves.device) for _ in range(2))
    for step, active in enumerate(problem.sizes):
        running = sequences if weights.norms else active
        tops = stack.tops(running)
        if tracker is not None:
            read = _normalised(nodes.read(tops)[:, :, :size], of_tops).flatten(1)
            preactivation = linear(read, tracker.inputs) + hidden[:running] @ tracker.lateral.t()
            hidden, cell = lstm_step(preactivation, cell[:running])
            both = torch.cat([hidden, cell], 1)
            tracked.write(slice(step * sequences, step * sequences + running), both)
        if problem.given is not None:
            choice = problem.given[:active, step]
        elif tracker is None:
            raise ValueError("without a tracker transitions must be given")
        else:
            with torch.no_grad():
                choice = problem.policy.choose(linear(both[:active], tracker.transition))
        action = stack.possible(choice)
        actions[:active, step], chosen[:active, step] = action, choice
        created = empty + 1 + step * sequences
        rows, pairs = stack.reducing(action, tops, waits=bool(weights.norms))
        if len(rows):
            children = nodes.read(pairs)
            gates = linear(_normalised(children[:, :, :size], of_children).flatten(1), weights.cell)
            if tracker is not None:
                of_rows = _normalised(hidden.index_select(0, rows)[:, None], of_tracker).flatten(1)
                gates = gates + of_rows @ tracker.to_cell.t()
            nodes.write(created + rows, torch.cat(tree_lstm_step(gates, children[:, :, size:]), 1))
        stack.move(action, tops[:active], created)
    by_sequence = tracked.read(slice(None)).view(steps, sequences, 2 * tracker_size).transpose(0, 1)
    return nodes.read(stack.roots()), by_sequence, actions, chosen


def _normalised(values: torch.Tensor, norm: Affine | None) -> torch.Tensor:
    """Return ``values``, with a norm :func:`normalised`."""
    return values if norm is None else normalised(values, norm)


def normalised(values: torch.Tensor, norm: Affine) -> torch.Tensor:
    """``gain * (x - mean) / (deviation + 1e-5) + bias``, with one mean and deviation for all rows and units of a part.

    The deviation is that of a sample: it divides by one less than there are entries.

    Args:
        values: ``[rows, parts, size]``.
        norm: gain and bias, ``[parts, size]`` each.
    """
    deviation, mean = torch.std_mean(values, (0, 2), keepdim=True)
    return norm.weight * (values - mean) / (deviation + _EPSILON) + norm.bias
