"""Transitions over all sequences at once, on a thin stack: nodes stand in the order of their creation.

A stack holds numbers of nodes (Bowman et al. 2016), so a step copies no stack. The backward passes are written by hand.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from treemem.ops.affine import Affine
from treemem.ops.lstm import lstm_step, lstm_step_backward
from treemem.ops.second_derivative import once_differentiable, save_for_backward
from treemem.ops.spinn.native import native_transitions
from treemem.ops.spinn.thin_stack import ThinStack
from treemem.ops.spinn.weights import REDUCE, Policy, SPINNWeights
from treemem.ops.tree_lstm import TreeLSTMStepPair


class Problem(NamedTuple):
    """What to run.

    Attributes:
        lengths: of the sequences, longest first, int64 ``[sequences]``, where the leaves are.
        sizes: how many sequences have more than 0, 1, 2, ... steps.
        given: int64 ``[sequences, steps]``, where the leaves are; None: the policy chooses.
        policy: chooses transitions.
        transition: maps the tracker's ``[h; c]`` to logits; None without a tracker.
    """

    lengths: torch.Tensor
    sizes: list[int]
    given: torch.Tensor | None
    policy: Policy
    transition: Affine | None


def fused_transitions(
    leaves: torch.Tensor, weights: SPINNWeights, problem: Problem
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what :func:`naive_transitions` does, for all sequences: in C++ where that can be had, else in torch.

    Args:
        leaves: ``[sequences, longest, 2 * hidden_size]``, finite at padding.
        weights: of cell and tracker.
        problem: what to run.

    Returns:
        The roots ``[sequences, 2 * hidden_size]``; ``[h; c]`` of the tracker at each step
        ``[sequences, steps, 2 * tracker_size]``, 0 after the last step; actions and choices, int64
        ``[sequences, steps]``, 0 after the last step.
    """
    found = native_transitions(leaves, weights, problem.lengths, problem.sizes, problem.given, problem.policy)
    if found is not None:
        return found
    tracker = weights.tracker
    of_tracker = () if tracker is None else (*tracker.inputs, tracker.lateral, tracker.to_cell)
    return _Transitions.apply(problem, leaves, *weights.cell, *of_tracker)


class _Step(NamedTuple):
    """A step of the sequences that have it.

    Attributes:
        tops: the nodes at the top of the buffer and of the stack, and under that, int64 ``[active, 3]``.
        rows: the sequences that reduce, int64 ``[reducing]``; on a device that the host does not wait for, all active
            ones.
    """

    tops: torch.Tensor
    rows: torch.Tensor


class _Transitions(torch.autograd.Function):
    """Nodes have numbers: the leaves, an empty one, then for each step one for each sequence."""

    @staticmethod
    def forward(
        ctx: Any, problem: Problem, leaves: torch.Tensor, *weights: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        cell_weight, cell_bias, *of_tracker = weights
        sequences, longest, width = leaves.shape
        size, steps = width // 2, len(problem.sizes)
        empty = sequences * longest
        states = leaves.new_zeros(empty + 1 + steps * sequences, width)
        states[:empty] = leaves.flatten(0, 1)
        gates = leaves.new_zeros(steps, sequences, 5 * size)
        tracker_size = of_tracker[2].shape[1] if of_tracker else 0
        tracked = leaves.new_zeros(steps + 1, sequences, 2 * tracker_size)  # from the zero state on
        tracker_gates = leaves.new_zeros(steps, sequences, 4 * tracker_size)
        composition = TreeLSTMStepPair(2, size)
        stack = ThinStack(problem.lengths, longest)
        actions, chosen = (torch.zeros(sequences, steps, dtype=torch.int64, device=leaves.device) for _ in range(2))
        of_steps = []
        for step, active in enumerate(problem.sizes):
            own = slice(active)
            tops = stack.tops(active)
            if of_tracker:
                input_weight, input_bias, lateral, _ = of_tracker
                read = _rows(states, tops)[:, :, :size].flatten(1)
                preactivation = torch.addmm(input_bias, read, input_weight.t(), out=tracker_gates[step, own])
                preactivation.addmm_(tracked[step, own, :tracker_size], lateral.t())
                lstm_step(preactivation, tracked[step, own], tracked[step + 1, own])
            given = problem.given
            choice = _choice(tracked[step + 1, own], problem) if given is None else given[own, step]
            action = stack.possible(choice)
            actions[own, step], chosen[own, step] = action, choice
            rows = stack.reducing(action)
            created = empty + 1 + step * sequences
            if len(rows):
                children = _rows(states, _children(tops, rows)).unflatten(2, (2, size))
                of_rows = torch.addmm(cell_bias, children[:, :, 0].reshape(-1, 2 * size), cell_weight.t())
                if of_tracker:
                    of_rows.addmm_(_rows(tracked[step + 1], rows)[:, :tracker_size], of_tracker[3].t())
                new = leaves.new_empty(len(rows), width)
                out = {"h": new[:, :size], "c": new[:, size:]}
                composition.forward({"gates": of_rows}, {"c": children[:, :, 1]}, out, None)  # type: ignore[arg-type]
                states.index_copy_(0, created + rows, new)
                gates[step].index_copy_(0, rows, of_rows)
            stack.move(action, tops, created)
            of_steps.append(_Step(tops, rows))
        roots = stack.roots()
        ctx.problem, ctx.steps, ctx.roots, ctx.reduced = problem, of_steps, roots, actions == REDUCE
        of_roots = _rows(states, roots)
        save_for_backward(ctx, of_roots, states, gates, tracked, tracker_gates, *weights)
        ctx.mark_non_differentiable(actions, chosen)
        ctx.set_materialize_grads(False)
        return of_roots, tracked[1:].transpose(0, 1), actions, chosen

    @staticmethod
    @once_differentiable()
    def backward(
        ctx: Any, saved: tuple[torch.Tensor, ...], *gradients: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        with torch.autocast(saved[0].device.type, enabled=False):
            return None, *_Transitions.gradients(ctx, saved, *gradients[:2])

    @staticmethod
    def gradients(
        ctx: Any, saved: tuple[torch.Tensor, ...], d_roots: torch.Tensor | None, d_outputs: torch.Tensor | None
    ) -> list[torch.Tensor]:
        """Return the gradients of the leaves and of the weights."""
        _, states, gates, tracked, tracker_gates, cell_weight, _, *of_tracker = saved
        steps, sequences, width = len(gates), gates.shape[1], states.shape[1]
        size = width // 2
        first_created = len(states) - steps * sequences
        d_states = torch.zeros_like(states)
        if d_roots is not None:
            d_states.index_add_(0, ctx.roots, d_roots)
        d_gates = torch.zeros_like(gates)
        d_tracked = torch.zeros_like(tracked)
        if d_outputs is not None:
            d_tracked[1:] = d_outputs.transpose(0, 1)
        d_tracker_gates = torch.zeros_like(tracker_gates)
        composition = TreeLSTMStepPair(2, size)
        for step in range(steps - 1, -1, -1):
            tops, rows = ctx.steps[step]
            active = slice(len(tops))
            if len(rows):
                created = first_created + step * sequences + rows
                nodes = _children(tops, rows)
                of_rows = _rows(gates[step], rows)
                d_new = _rows(d_states, created)
                own = {"c": _rows(states, created)[:, size:]}
                cells = _rows(states, nodes)[:, :, size:]
                gradient = {"h": d_new[:, :size], "c": d_new[:, size:]}
                found = composition.backward({"gates": of_rows}, {"c": cells}, own, {}, None, gradient)  # type: ignore[arg-type]
                reduced = _rows(ctx.reduced[:, step], rows)[:, None]
                of_rows = of_rows * reduced
                d_hidden = (of_rows @ cell_weight).view(-1, 2, size)
                d_cells = found["c"] * reduced[:, :, None]
                d_states.index_add_(0, nodes.flatten(), torch.cat([d_hidden, d_cells], 2).flatten(0, 1))
                d_gates[step].index_copy_(0, rows, of_rows)
            if not of_tracker:
                continue
            input_weight, _, lateral, to_cell = of_tracker
            d_own = d_tracked[step + 1, active]
            tracker_size = lateral.shape[1]
            d_own[:, :tracker_size].addmm_(d_gates[step, active], to_cell)
            d_cell = lstm_step_backward(
                tracker_gates[step, active],
                tracked[step, active],
                tracked[step + 1, active],
                d_own,
                d_tracker_gates[step, active],
            )
            d_before = d_tracked[step, active]
            d_before[:, :tracker_size].addmm_(d_tracker_gates[step, active], lateral)
            d_before[:, tracker_size:] += d_cell
            d_read = (d_tracker_gates[step, active] @ input_weight).view(-1, size)
            d_states[:, :size].index_add_(0, tops.flatten(), d_read)
        of_weights: list[torch.Tensor] = [*_cell_gradients(ctx.steps, states, d_gates, size)]
        if of_tracker:
            tracker_size = of_tracker[2].shape[1]
            flat = d_tracker_gates.flatten(0, 1)
            read = states.new_zeros(steps, sequences, 3 * size)
            for step, (tops, _) in enumerate(ctx.steps):
                read[step, : len(tops)] = _rows(states, tops)[:, :, :size].flatten(1)
            of_weights += [flat.t() @ read.flatten(0, 1), flat.sum(0)]
            of_weights.append(flat.t() @ tracked[:-1, :, :tracker_size].flatten(0, 1))
            of_weights.append(d_gates.flatten(0, 1).t() @ tracked[1:, :, :tracker_size].flatten(0, 1))
        d_leaves = d_states[: first_created - 1].view(sequences, -1, width)
        return [d_leaves, *of_weights]


def _cell_gradients(
    steps: list[_Step], states: torch.Tensor, d_gates: torch.Tensor, size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    nodes = torch.cat([_children(step.tops, step.rows) for step in steps])
    of_rows = torch.cat([_rows(d_gates[number], step.rows) for number, step in enumerate(steps)])
    children = _rows(states, nodes)[:, :, :size].flatten(1)
    return of_rows.t() @ children, of_rows.sum(0)


def _choice(tracked: torch.Tensor, problem: Problem) -> torch.Tensor:
    if problem.transition is None:
        raise ValueError("without a tracker transitions must be given")
    weight, bias = problem.transition
    return problem.policy.choose(torch.addmm(bias, tracked, weight.t()))


def _children(tops: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return the left and right children of what rows compose, int64 ``[rows, 2]``."""
    return _rows(tops, rows)[:, 1:].flip(1)


def _rows(values: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    return values.index_select(0, numbers.flatten()).view(*numbers.shape, *values.shape[1:])
