"""The Recurrent-Recursive Network over one sequence, with lists as stack and buffer."""

from __future__ import annotations

import torch

from treemem.ops.affine import linear
from treemem.ops.rrnet.weights import RRNetWeights
from treemem.ops.spinn import REDUCE, SHIFT, Policy
from treemem.ops.spinn.naive import Transitions


def naive_rrnet(inputs: torch.Tensor, weights: RRNetWeights, policy: Policy, given: list[int] | None) -> Transitions:
    """Run a sequence.

    Args:
        inputs: the tokens' vectors, ``[tokens, hidden_size]``, at least one.
        weights: see :class:`RRNetWeights`.
        policy: chooses the transitions, unless they are ``given``.
        given: ``2 * tokens - 1`` transitions.
    """
    size = inputs.shape[1]
    nothing = inputs.new_zeros(size)
    start = inputs.new_zeros(2 * size)
    buffer = list(inputs.unbind())
    stack: list[tuple[torch.Tensor, torch.Tensor]] = []  # the state of a node, and what the LSTM reads of it
    logits = [inputs.new_zeros(0, 0 if weights.policy is None else 2)]
    actions: list[int] = []
    chosen: list[int] = []
    for step in range(2 * len(inputs) - 1):
        if weights.policy is not None:
            tops = [stack[-k][0][:size] if len(stack) >= k else nothing for k in (1, 2)]
            logits.append(weights.policy.logits(torch.cat([buffer[0] if buffer else nothing, *tops]))[None])
        choice = given[step] if given is not None else int(policy.choose(logits[-1]))
        chosen.append(choice)
        action = SHIFT if len(stack) < 2 else REDUCE if not buffer else choice
        actions.append(action)
        if action == SHIFT:
            read = buffer.pop(0)
            stack.append((_lstm(read, start, weights), read))
        else:
            (_, read), (state, _) = stack.pop(), stack.pop()
            new = _lstm(read, state, weights)
            stack.append((new, new[:size]))
    return Transitions(stack[0][0], torch.cat(logits), actions, chosen)


def _lstm(read: torch.Tensor, state: torch.Tensor, weights: RRNetWeights) -> torch.Tensor:
    hidden, cell = state.chunk(2)
    input_gate, forget_gate, update, output_gate = (linear(read, weights.inputs) + weights.hidden @ hidden).chunk(4)
    cell = forget_gate.sigmoid() * cell + input_gate.sigmoid() * update.tanh()
    return torch.cat([output_gate.sigmoid() * cell.tanh(), cell])
