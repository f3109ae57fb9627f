"""Transitions over one sequence, with lists as stack and buffer."""

from __future__ import annotations

from typing import NamedTuple

import torch

from treemem.ops.affine import linear
from treemem.ops.spinn.weights import REDUCE, SHIFT, Policy, SPINNWeights
from treemem.ops.tree_lstm import tree_lstm_step


class Transitions(NamedTuple):
    """What happened to a sequence.

    Attributes:
        root: ``[h; c]``, ``[2 * hidden_size]``.
        logits: of each step before the temperature, ``[steps, 2]``; of 0 columns without a tracker.
        actions: what was done.
        chosen: what the policy chose; it may not have been possible.
    """

    root: torch.Tensor
    logits: torch.Tensor
    actions: list[int]
    chosen: list[int]


def naive_transitions(
    leaves: torch.Tensor, weights: SPINNWeights, policy: Policy, given: list[int] | None
) -> Transitions:
    """Run the transitions of a sequence.

    Args:
        leaves: ``[h; c]``, ``[tokens, 2 * hidden_size]``, at least one.
        weights: of cell and tracker.
        policy: chooses the transitions, unless they are ``given``.
        given: ``2 * tokens - 1`` transitions.
    """
    size = leaves.shape[1] // 2
    nothing = leaves.new_zeros(2 * size)
    buffer = list(leaves.unbind())
    stack: list[torch.Tensor] = []
    tracker = weights.tracker
    logits = [leaves.new_zeros(0, 2 if tracker is not None else 0)]
    actions: list[int] = []
    chosen: list[int] = []
    hidden = cell = leaves.new_zeros(0 if tracker is None else tracker.lateral.shape[1])
    for step in range(2 * len(leaves) - 1):
        if tracker is not None:
            tops = [buffer[0] if buffer else nothing, *(stack[-k] if len(stack) >= k else nothing for k in (1, 2))]
            preactivation = linear(torch.cat([top[:size] for top in tops]), tracker.inputs) + tracker.lateral @ hidden
            input_gate, forget_gate, update, output_gate = preactivation.chunk(4)
            cell = forget_gate.sigmoid() * cell + input_gate.sigmoid() * update.tanh()
            hidden = output_gate.sigmoid() * cell.tanh()
            logits.append(linear(torch.cat([hidden, cell]), tracker.transition)[None])
        choice = given[step] if given is not None else int(policy.choose(logits[-1]))
        chosen.append(choice)
        action = SHIFT if len(stack) < 2 else REDUCE if not buffer else choice
        actions.append(action)
        if action == SHIFT:
            stack.append(buffer.pop(0))
            continue
        right, left = stack.pop(), stack.pop()
        gates = linear(torch.cat([left[:size], right[:size]]), weights.cell)
        if tracker is not None:
            gates = gates + tracker.to_cell @ hidden
        children = torch.stack([left[size:], right[size:]])
        stack.append(torch.cat(tree_lstm_step(gates[None], children[None]), 1)[0])
    return Transitions(stack[0], torch.cat(logits), actions, chosen)
