"""Transitions over one sequence, with lists as stack and buffer."""

from __future__ import annotations

from typing import NamedTuple

import torch

from treemem.engines.affine import Affine, linear
from treemem.engines.choices import Noise
from treemem.networks.sequences.recurrent.equations import lstm_step
from treemem.networks.trees.tree_lstm.equations import tree_lstm_step

SHIFT, REDUCE = 0, 1


class TrackerWeights(NamedTuple):
    """Of the LSTM that reads the top of the buffer and the two topmost nodes, in blocks input, forget, update, output.

    Attributes:
        inputs: ``[4 * tracker_size, 3 * hidden_size]``.
        lateral: of its last ``h``, ``[4 * tracker_size, tracker_size]``.
        to_cell: what the composition reads of its ``h``, ``[5 * hidden_size, tracker_size]``.
        transition: of ``[h; c]``, the logits of shift and reduce, ``[2, 2 * tracker_size]``.
    """

    inputs: Affine
    lateral: torch.Tensor
    to_cell: torch.Tensor
    transition: Affine


class SPINNWeights(NamedTuple):
    """All weights above the leaves.

    Attributes:
        cell: of the Tree-LSTM of two children, ``[5 * hidden_size, 2 * hidden_size]``, in the blocks of
            ``GATES``.
        tracker: None: transitions are given, and compositions read nothing but their children.
        norms: gains and biases of the normalisation over a batch; empty: there is none. Of the two nodes that the cell
            reads, ``[2, hidden_size]`` each; with a tracker also of the three nodes that it reads,
            ``[3, hidden_size]``, and of its ``h`` that the cell reads, ``[1, tracker_size]``.
    """

    cell: Affine
    tracker: TrackerWeights | None
    norms: tuple[Affine, ...] = ()


class Policy(NamedTuple):
    """What chooses transitions.

    Attributes:
        temperature: logits are divided by it.
        uniform: uniform numbers of a shape: reduce if the number is above the probability of a shift. None: the
            likelier transition, the shift on ties.
    """

    temperature: float = 1.0
    uniform: Noise | None = None

    def choose(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the transitions of sequences, int64 ``[sequences]``, by their logits ``[sequences, 2]``."""
        shift = (logits / self.temperature).softmax(1)[:, SHIFT]
        above = torch.full_like(shift, 0.5) if self.uniform is None else self.uniform((len(logits),))
        return torch.where(above > shift, REDUCE, SHIFT)


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
            hidden, cell = lstm_step(preactivation, cell)
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
