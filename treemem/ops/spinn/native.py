"""Transitions as one operation with a backward pass of its own, in C++."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from treemem.ops.native import TYPE_NAMES, address, native_library, structure
from treemem.ops.second_derivative import once_differentiable, save_for_backward
from treemem.ops.spinn.batched import Problem
from treemem.ops.spinn.weights import SPINNWeights

_SOURCE = Path(__file__).with_name("fused.cpp")
_NODES_PER_THREAD = 256


class _Kept(NamedTuple):
    """What a run fills in, as fused.cpp describes it; ``numbers`` from actions to ``made_of``."""

    nodes: torch.Tensor
    gates: torch.Tensor
    tracked: torch.Tensor
    tracker_gates: torch.Tensor
    numbers: tuple[torch.Tensor, ...]


def native_transitions(
    leaves: torch.Tensor, weights: SPINNWeights, problem: Problem
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Return what :func:`treemem.ops.spinn.batched.batched_transitions` does, or None if the C++ cannot be used.

    It needs a CPU, a C++ compiler, and numbers of one type (float32 or float64, without autocast).
    """
    lengths, sizes, given, policy = problem
    tracker = weights.tracker
    of_tracker = (
        (None,) * 6 if tracker is None else (*tracker.inputs, tracker.lateral, tracker.to_cell, *tracker.transition)
    )
    tensors = [leaves, *weights.cell, *of_tracker]
    library = native_library(
        _SOURCE, [each for each in tensors if each is not None], f"REAL={TYPE_NAMES.get(leaves.dtype)}"
    )
    if library is None:
        return None
    uniform = None
    if given is None and policy.uniform is not None:
        uniform = leaves.new_zeros(len(leaves), len(sizes))
        for step, active in enumerate(sizes):
            uniform[:active, step] = policy.uniform((active,))
    own_given = None if given is None else given[:, : len(sizes)]
    run = _Run(library, lengths, own_given, uniform, policy.temperature)
    found: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] = _Transitions.apply(run, *tensors)
    return found


class _Run:
    """The library, and what a run reads besides numbers that have gradients."""

    def __init__(
        self,
        library: ctypes.CDLL,
        lengths: torch.Tensor,
        given: torch.Tensor | None,
        uniform: torch.Tensor | None,
        temperature: float,
    ) -> None:
        self.library = library
        self._read = (
            lengths.contiguous(),
            torch.tensor([temperature], dtype=torch.float64),
            None if given is None else given.contiguous(),
            uniform,
        )

    def problem(self, weights: tuple[torch.Tensor | None, ...], kept: _Kept) -> ctypes.Array[ctypes.c_int64]:
        """Return the problem for the C++; all tensors are contiguous."""
        sequences, nodes, width = kept.nodes.shape
        threads = max(1, min(torch.get_num_threads(), sequences, sequences * nodes // _NODES_PER_THREAD))
        sizes = (sequences, nodes // 2, width // 2, kept.tracked.shape[2] // 2, threads)
        return structure(*sizes, *map(address, (*self._read, *weights, *kept[:4], *kept.numbers)))


class _Transitions(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, run: _Run, leaves: torch.Tensor, *weights: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        weights = tuple(None if each is None else each.contiguous() for each in weights)
        lateral = weights[4]
        sequences, longest, width = leaves.shape
        steps, tracker_size = 2 * longest - 1, 0 if lateral is None else lateral.shape[1]
        nodes = leaves.new_zeros(sequences, 2 * longest, width)
        nodes[:, :longest] = leaves
        actions, chosen = torch.zeros(2, sequences, steps, dtype=torch.int64)
        tops, made_of = (actions.new_empty(sequences, count, 3) for count in (steps, longest))
        roots = actions.new_empty(sequences)
        kept = _Kept(
            nodes,
            leaves.new_zeros(sequences, longest, 5 * width // 2),
            leaves.new_zeros(sequences, steps, 2 * tracker_size),
            leaves.new_zeros(sequences, steps, 4 * tracker_size),
            (actions, chosen, tops, roots, made_of),
        )
        run.library.forward(run.problem(weights, kept))
        ctx.run = run
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(actions, chosen)
        save_for_backward(ctx, *kept[:4], *kept.numbers, *weights)
        return nodes.flatten(0, 1).index_select(0, roots), kept.tracked, actions, chosen

    @staticmethod
    @once_differentiable()
    def backward(
        ctx: Any, saved: tuple[torch.Tensor | None, ...], *gradients: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        contiguous = tuple(None if each is None else each.contiguous() for each in saved)
        return None, *_gradients(ctx.run, contiguous, *gradients[:2])


def _gradients(
    run: _Run,
    saved: tuple[Any, ...],
    d_roots: torch.Tensor | None,
    d_tracked: torch.Tensor | None,
) -> list[torch.Tensor | None]:
    """Return the gradients of leaves and weights from those of the roots and of what the tracker gives at each step."""
    of_nodes, of_gates, tracked, of_tracker_gates, *others = saved
    kept, weights = _Kept(of_nodes, of_gates, tracked, of_tracker_gates, tuple(others[:5])), tuple(others[5:])
    nodes, _, tracked, _, (_, _, tops, roots, made_of) = kept
    size, tracker_size = nodes.shape[2] // 2, tracked.shape[2] // 2
    d_nodes, d_tracker_gates = torch.zeros_like(nodes), torch.zeros_like(kept.tracker_gates)
    d_gates, plain = kept.gates.clone(), torch.contiguous_format
    if d_roots is not None:
        d_nodes.flatten(0, 1).index_copy_(0, roots, d_roots)
    d_tracked = torch.zeros_like(tracked) if d_tracked is None else d_tracked.clone(memory_format=plain)
    of = structure(*map(address, (d_nodes, d_gates, d_tracked, d_tracker_gates)))
    run.library.backward(run.problem(weights, kept), of)
    hidden = nodes[:, :, :size].reshape(-1, size)
    of_cell, of_tracker = d_gates.flatten(0, 1), d_tracker_gates.flatten(0, 1)
    read = hidden.index_select(0, made_of[:, :, :2].flatten()).view(-1, 2 * size)
    found: list[torch.Tensor | None] = [d_nodes[:, : nodes.shape[1] // 2], of_cell.t() @ read, of_cell.sum(0)]
    if not tracker_size:
        return [*found, *[None] * 6]
    read = hidden.index_select(0, tops.flatten()).view(-1, 3 * size)
    of_steps = tracked[:, :, :tracker_size]
    before = functional.pad(of_steps[:, :-1], (0, 0, 1, 0)).flatten(0, 1)
    by_cell = of_steps.flatten(0, 1).index_select(0, made_of[:, :, 2].flatten())
    found += [of_tracker.t() @ read, of_tracker.sum(0), of_tracker.t() @ before, of_cell.t() @ by_cell]
    return [*found, None, None]  # the transition is chosen without a gradient
