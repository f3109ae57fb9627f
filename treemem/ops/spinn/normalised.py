"""Transitions with the normalisation of the authors' code, over a batch."""

from __future__ import annotations

import torch

from treemem.ops.affine import Affine, linear
from treemem.ops.spinn.fused import Problem
from treemem.ops.spinn.thin_stack import ThinStack
from treemem.ops.spinn.weights import REDUCE, SPINNWeights
from treemem.ops.tree_lstm import tree_lstm_step

_EPSILON = 1e-5  # added to the deviation


def normalised_transitions(
    leaves: torch.Tensor, weights: SPINNWeights, problem: Problem
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """Run all sequences step by step, and normalise over the sequences of a step what is read.

    That is what the tracker reads of nodes, of all sequences: one that has ended has its root on the stack and nothing
    else. And it is what the composition reads of nodes and of the tracker's ``h``, of the sequences that reduce.
    On a GPU the host waits at each step.

    Args:
        leaves: ``[sequences, longest, 2 * hidden_size]``, finite at padding.
        weights: of cell, tracker and normalisation.
        problem: what to run.

    Returns:
        The roots ``[sequences, 2 * hidden_size]``; with a tracker the logits ``[sequences, steps, 2]``, any after the
        last step; actions and choices, int64 ``[sequences, steps]``, 0 after the last step.
    """
    sequences, longest, width = leaves.shape
    size, tracker, given = width // 2, weights.tracker, problem.given
    of_composed, *of_tracker = weights.norms
    nodes = [*leaves.flatten(0, 1), leaves.new_zeros(width)]
    stack = ThinStack(problem.lengths, longest)
    hidden = cell = leaves.new_zeros(sequences, 0 if tracker is None else tracker.lateral.shape[1])
    logits: list[torch.Tensor] = []
    actions, chosen = (
        torch.zeros(sequences, len(problem.sizes), dtype=torch.int64, device=leaves.device) for _ in range(2)
    )
    for step, active in enumerate(problem.sizes):
        tops = stack.tops(sequences)
        if tracker is not None:
            read = normalised(_states(nodes, tops)[:, :, :size], of_tracker[0])
            preactivation = linear(read.flatten(1), tracker.inputs) + hidden @ tracker.lateral.t()
            input_gate, forget_gate, update, output_gate = preactivation.chunk(4, 1)
            cell = forget_gate.sigmoid() * cell + input_gate.sigmoid() * update.tanh()
            hidden = output_gate.sigmoid() * cell.tanh()
            logits.append(linear(torch.cat([hidden, cell], 1), tracker.transition))
        choice = problem.policy.choose(logits[-1][:active]) if given is None else given[:active, step]
        action = stack.possible(choice)
        actions[:active, step], chosen[:active, step] = action, choice
        new = leaves.new_zeros(active, width)
        rows = (action == REDUCE).nonzero().squeeze(1)
        if len(rows):
            children = _states(nodes, tops[rows, 1:].flip(1)).unflatten(2, (2, size))
            gates = linear(normalised(children[:, :, 0], of_composed).flatten(1), weights.cell)
            if tracker is not None:
                gates = gates + normalised(hidden[rows, None], of_tracker[1]).flatten(1) @ tracker.to_cell.t()
            new = new.index_copy(0, rows, torch.cat(tree_lstm_step(gates, children[:, :, 1]), 1))
        stack.move(action, tops[:active], len(nodes))
        nodes += new
    return _states(nodes, stack.roots()), torch.stack(logits, 1) if logits else None, actions, chosen


def normalised(values: torch.Tensor, norm: Affine) -> torch.Tensor:
    """``gain * (x - mean) / (deviation + 1e-5) + bias``, with one mean and deviation for all rows and units of a part.

    The deviation is that of a sample: it divides by one less than there are entries.

    Args:
        values: ``[rows, parts, size]``.
        norm: gain and bias, ``[parts, size]`` each.
    """
    deviation, mean = torch.std_mean(values, (0, 2), keepdim=True)
    return norm.weight * (values - mean) / (deviation + _EPSILON) + norm.bias


def _states(nodes: list[torch.Tensor], numbers: torch.Tensor) -> torch.Tensor:
    """Return the states of nodes by their numbers, ``[*numbers.shape, width]``."""
    return torch.stack([nodes[number] for number in numbers.flatten().tolist()]).view(*numbers.shape, -1)
