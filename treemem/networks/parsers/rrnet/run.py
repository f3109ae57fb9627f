"""The Recurrent-Recursive Network: an LSTM that reads its own constituents as it reads tokens."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch

from treemem.engines.affine import Affine, layer_norm, linear
from treemem.engines.cuda.choice import runs_kernels
from treemem.engines.cuda.row_steps import RowStep
from treemem.engines.row_table import RowTable
from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.memories.controllers.equations import STEPS
from treemem.networks.parsers.spinn.batched import ThinStack
from treemem.networks.parsers.spinn.equations import REDUCE, SHIFT, Policy, Transitions
from treemem.networks.parsers.spinn.run import TransitionRun, run_engine
from treemem.networks.sequences.recurrent.equations import lstm_step

_LSTM = RowStep(STEPS["LSTM"].printed)


class PolicyWeights(NamedTuple):
    """Of what chooses transitions.

    Attributes:
        hidden: of the next token and the ``h`` of the two topmost nodes, ``[policy_size, 3 * hidden_size]``.
        norm: of the hidden layer.
        transition: the logits of shift and reduce, ``[2, policy_size]``.
    """

    hidden: Affine
    norm: Affine
    transition: Affine

    def logits(self, read: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[..., 2]`` of ``[..., 3 * hidden_size]``."""
        return linear(layer_norm(linear(read, self.hidden), self.norm).tanh(), self.transition)


class RRNetWeights(NamedTuple):
    """All weights.

    Attributes:
        inputs: of a token or of the ``h`` of a constituent, in blocks input, forget, update, output,
            ``[4 * hidden_size, hidden_size]``.
        hidden: of the last ``h``, ``[4 * hidden_size, hidden_size]``.
        policy: None: transitions are given.
    """

    inputs: Affine
    hidden: torch.Tensor
    policy: PolicyWeights | None


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
            stack.append((torch.cat(lstm_step(linear(read, weights.inputs), nothing)), read))
        else:
            (_, read), (state, _) = stack.pop(), stack.pop()
            hidden, cell = state.chunk(2)
            new = torch.cat(lstm_step(linear(read, weights.inputs) + weights.hidden @ hidden, cell))
            stack.append((new, new[:size]))
    return Transitions(stack[0][0], torch.cat(logits), actions, chosen)


def batched_rrnet(
    inputs: torch.Tensor,
    lengths: torch.Tensor,
    sizes: list[int],
    given: torch.Tensor | None,
    weights: RRNetWeights,
    policy: Policy,
) -> TransitionRun:
    """Return what :func:`naive_rrnet` does, for all sequences.

    Args:
        inputs: the tokens' vectors, ``[sequences, longest, hidden_size]``, 0 at padding.
        lengths: of the sequences, longest first, int64 ``[sequences]``, where the inputs are.
        sizes: how many sequences have more than 0, 1, 2, ... steps.
        given: int64 ``[sequences, steps]``; None: the policy chooses.
        weights: see :class:`RRNetWeights`.
        policy: how it chooses.
    """
    sequences, longest, size = inputs.shape
    steps, empty = len(sizes), sequences * longest
    of_tokens = linear(inputs.flatten(0, 1), weights.inputs)
    # h, c and what the gates read of it, of leaves, an empty node, and those of each step
    nodes = RowTable(empty + 1 + steps * sequences, 6 * size, inputs)
    nodes.write(slice(empty), torch.cat([*lstm_step(of_tokens, inputs.new_zeros(empty, size)), of_tokens], 1))
    stack = ThinStack(lengths, longest)
    actions, chosen = (lengths.new_zeros(sequences, steps) for _ in range(2))
    tops = torch.full((sequences, steps, 3), empty, device=inputs.device)
    tokens = torch.cat([inputs.flatten(0, 1), inputs.new_zeros(1, size)])

    def logits(numbers: torch.Tensor) -> torch.Tensor:
        """Return the logits of the policy from the next token and the two topmost nodes, ``[..., 3]``."""
        if weights.policy is None:
            raise ValueError("without a policy transitions must be given")
        next_token = tokens.index_select(0, numbers[..., 0].flatten()).view(*numbers.shape[:-1], size)
        hidden = nodes.read(numbers[..., 1:])[..., :size].flatten(-2)
        return weights.policy.logits(torch.cat([next_token, hidden], -1))

    for step, active in enumerate(sizes):
        top = tops[:active, step] = stack.tops(active)
        if given is None:
            with torch.no_grad():
                choice = policy.choose(logits(top))
        else:
            choice = given[:active, step]
        action = stack.possible(choice)
        actions[:active, step], chosen[:active, step] = action, choice
        created = empty + 1 + step * sequences
        rows, pairs = stack.reducing(action, top)
        if len(rows):
            under, right = nodes.read(pairs).unbind(1)
            gates = right[:, 2 * size :] + under[:, :size] @ weights.hidden.t()
            after, cell = _step(gates, under[:, size : 2 * size])
            nodes.write(created + rows, torch.cat([after, cell, linear(after, weights.inputs)], 1))
        stack.move(action, top, created)
    return TransitionRun(
        nodes.read(stack.roots())[:, : 2 * size], logits(tops) if weights.policy is not None else None, actions, chosen
    )


def _step(gates: torch.Tensor, cell: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The step of the LSTM, in a kernel if it may run."""
    return _LSTM.run([gates], [None, cell[:, None]]) if runs_kernels([gates, cell]) else lstm_step(gates, cell)


def run_rrnet(
    inputs: torch.Tensor,
    lengths: torch.Tensor,
    weights: RRNetWeights,
    *,
    given: torch.Tensor | None = None,
    policy: Policy | None = None,
    engine: SequenceEngine = "auto",
) -> TransitionRun:
    """Run the transitions of sequences, each as if alone; see ``run_transitions``.

    Args:
        inputs: the tokens' vectors, ``[sequences, longest, hidden_size]``, on the right of each sequence padding of any
            content.
        lengths, given, policy, engine: see there.
        weights: of cell and policy.
    """
    policy = Policy() if policy is None else policy
    return run_engine(
        inputs,
        lengths,
        2 * inputs.shape[2],
        given,
        engine,
        naive=lambda vectors, own_given: naive_rrnet(vectors, weights, policy, own_given),
        fused=partial(batched_rrnet, weights=weights, policy=policy),
        has_logits=weights.policy is not None,
    )
