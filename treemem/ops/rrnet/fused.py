"""The Recurrent-Recursive Network over all sequences at once, on a thin stack, with a backward pass by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.nn import functional

from treemem.ops.affine import linear
from treemem.ops.lstm import lstm_step, lstm_step_backward
from treemem.ops.rrnet.weights import RRNetWeights
from treemem.ops.second_derivative import once_differentiable, save_for_backward
from treemem.ops.spinn import Policy, SortedRun
from treemem.ops.spinn.thin_stack import ThinStack


class Problem(NamedTuple):
    """What to run.

    Attributes:
        inputs: the tokens' vectors and a vector 0, without gradients, ``[tokens + 1, hidden_size]``.
        lengths: of the sequences, longest first, int64 ``[sequences]``, where the inputs are.
        sizes: how many sequences have more than 0, 1, 2, ... steps.
        given: int64 ``[sequences, steps]``; None: the policy chooses.
        weights: of the policy.
        policy: how it chooses.
    """

    inputs: torch.Tensor
    lengths: torch.Tensor
    sizes: list[int]
    given: torch.Tensor | None
    weights: RRNetWeights
    policy: Policy


def fused_rrnet(
    inputs: torch.Tensor,
    lengths: torch.Tensor,
    sizes: list[int],
    given: torch.Tensor | None,
    weights: RRNetWeights,
    policy: Policy,
) -> SortedRun:
    """Return what :func:`naive_rrnet` does, for all sequences.

    Args:
        inputs: the tokens' vectors, ``[sequences, longest, hidden_size]``, 0 at padding.
        lengths, sizes, given, weights, policy: see :class:`Problem`.
    """
    vectors = functional.pad(inputs.flatten(0, 1), (0, 0, 0, 1))
    problem = Problem(vectors.detach(), lengths, sizes, given, weights, policy)
    reads = linear(inputs, weights.inputs)
    states, roots, actions, chosen, tops = _Transitions.apply(problem, reads, *weights.inputs, weights.hidden)
    logits = None
    if weights.policy is not None:
        hidden = states[:, : inputs.shape[2]]
        logits = weights.policy.logits(_read(vectors, hidden, tops))
    return SortedRun(states.index_select(0, roots), logits, actions, chosen)


def _read(vectors: torch.Tensor, hidden: torch.Tensor, tops: torch.Tensor) -> torch.Tensor:
    """Return what the policy reads, ``[..., 3 * hidden_size]``; ``tops`` is ``[..., 3]``."""
    next_token, first, second = tops.unbind(-1)
    return torch.cat([vectors[next_token], hidden[first], hidden[second]], -1)


class _Transitions(torch.autograd.Function):
    """Nodes have numbers: the leaves, an empty one, then for each step one for each sequence.

    ``reads`` are what the LSTM's gates read of a node as an input.
    """

    @staticmethod
    def forward(
        ctx: Any,
        problem: Problem,
        own_reads: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        hidden: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        sequences, longest, width = own_reads.shape
        size, steps, empty = width // 4, len(problem.sizes), sequences * longest
        count = empty + 1 + steps * sequences
        states, reads = own_reads.new_zeros(count, 2 * size), own_reads.new_zeros(count, width)
        reads[:empty] = own_reads.flatten(0, 1)
        gates = reads.clone()
        lstm_step(gates[:empty], torch.zeros_like(states[:empty]), states[:empty])
        stack = ThinStack(problem.lengths, longest)
        actions, chosen = (problem.lengths.new_zeros(sequences, steps) for _ in range(2))
        tops = torch.full((sequences, steps, 3), empty, device=own_reads.device)
        left = torch.full((count,), empty, device=own_reads.device)
        of_steps = []
        for step, active in enumerate(problem.sizes):
            top = tops[:active, step] = stack.tops(active)
            if problem.given is None:
                choice = _choice(_read(problem.inputs, states[:, :size], top), problem)
            else:
                choice = problem.given[:active, step]
            action = stack.possible(choice)
            actions[:active, step], chosen[:active, step] = action, choice
            rows = stack.reducing(action)
            first = empty + 1 + step * sequences
            if len(rows):
                new, right, under = first + rows, top[rows, 1], top[rows, 2]
                before = states[under]
                own = torch.addmm(reads[right], before[:, :size], hidden.t())
                after = torch.empty_like(before)
                lstm_step(own, before, after)
                states[new], gates[new], left[new] = after, own, under
                reads[new] = torch.addmm(bias, after[:, :size], weight.t())
                of_steps.append((new, right))
            stack.move(action, top, first)
        roots = stack.roots()
        ctx.steps, ctx.shape = of_steps, own_reads.shape
        save_for_backward(ctx, states, gates, left, weight, hidden)
        ctx.mark_non_differentiable(roots, actions, chosen, tops)
        return states, roots, actions, chosen, tops

    @staticmethod
    @once_differentiable()
    def backward(
        ctx: Any, saved: tuple[torch.Tensor, ...], *gradients: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        states, gates, left, weight, hidden = saved
        size, empty = states.shape[1] // 2, ctx.shape[0] * ctx.shape[1]
        d_states, d_gates, d_reads = gradients[0].clone(), torch.zeros_like(gates), torch.zeros_like(gates)
        for new, right in reversed(ctx.steps):
            under = left[new]
            d_new = d_states[new]
            d_new[:, :size].addmm_(d_reads[new], weight)
            own = torch.empty_like(gates[new])
            d_cell = lstm_step_backward(gates[new], states[under], states[new], d_new, own)
            d_gates[new] = own
            d_reads.index_add_(0, right, own)
            d_states.index_add_(0, under, torch.cat([own @ hidden, d_cell], 1))
        leaves = slice(empty)
        start = torch.zeros_like(states[leaves])
        lstm_step_backward(gates[leaves], start, states[leaves], d_states[leaves], d_gates[leaves])
        own_reads = (d_reads[leaves] + d_gates[leaves]).view(ctx.shape)
        inner = slice(empty + 1, None)
        of_weights = (
            d_reads[inner].t() @ states[inner, :size],
            d_reads[inner].sum(0),
            d_gates[inner].t() @ states[left[inner], :size],
        )
        return None, own_reads, *of_weights


def _choice(read: torch.Tensor, problem: Problem) -> torch.Tensor:
    if problem.weights.policy is None:
        raise ValueError("without a policy transitions must be given")
    return problem.policy.choose(problem.weights.policy.logits(read))
