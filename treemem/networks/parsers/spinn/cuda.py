"""Transitions on CUDA: all steps in one launch of a Triton kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from treemem.engines.cuda.choice import runs_kernels
from treemem.engines.cuda.launcher import launcher
from treemem.engines.cuda.row_steps import RowStep
from treemem.engines.printer.triton_layout import WIDEST, block_of
from treemem.native.run import NativeRun, Tensors, run_native
from treemem.networks.parsers.spinn.batched import Problem
from treemem.networks.parsers.spinn.equations import SPINNWeights
from treemem.networks.parsers.spinn.native import TRACKER_STEP
from treemem.networks.trees.tree_lstm.equations import tree_lstm_of_two

_LARGEST = 2 << 20
"""Bytes of weights that a program may read at each step, from caches."""
_NUMBERS = 4096  # of a part of a weight
_CELL, _TRACKER = RowStep(tree_lstm_of_two), RowStep(TRACKER_STEP)


def cuda_transitions(
    leaves: torch.Tensor, weights: SPINNWeights, problem: Problem
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Return what ``batched_transitions`` does, or None if kernels cannot be used, as for norms."""
    tracker = weights.tracker
    of_tracker = () if tracker is None else (*tracker.inputs, tracker.lateral, tracker.to_cell, *tracker.transition)
    tensors = [leaves, *weights.cell, *of_tracker]
    num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors[1:])
    widest = max(leaves.shape[2] // 2, 0 if tracker is None else tracker.lateral.shape[1])
    if weights.norms or num_bytes > _LARGEST or widest > WIDEST or not runs_kernels(tensors):
        return None
    if problem.given is None and tracker is None:
        raise ValueError("without a tracker transitions must be given")
    roots, tracked, actions, chosen = run_native(_Run(problem), *tensors, *[None] * (9 - len(tensors)))
    return roots, tracked, actions, chosen


class _Kept(NamedTuple):
    """What the backward pass reads; see ``kernels.py``."""

    lengths: Any
    cell: Any
    inputs: Any
    lateral: Any
    to_cell: Any
    nodes: Any
    gates: Any
    tracked: Any
    tracker_gates: Any
    actions: Any
    tops: Any
    made_of: Any
    last: Any


class _Run(NativeRun):
    """One run."""

    refusal = None

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def forward(self, tensors: Any) -> tuple[tuple[torch.Tensor, ...], Tensors]:
        """The roots, the states of the tracker, actions and choices."""
        leaves, cell, _, inputs, _, lateral, to_cell, *_ = tensors
        sequences, longest, width = leaves.shape
        lengths, sizes, given, policy = self._problem
        steps, tracker_size = len(sizes), 0 if lateral is None else lateral.shape[1]
        uniform = None
        if given is not None:
            given = given[:, :steps].contiguous()
        elif policy.uniform is not None:
            uniform = policy.uniform((sequences, steps))
        nodes = leaves.new_zeros(sequences, 2 * longest, width)
        nodes[:, :longest] = leaves
        actions, chosen = (lengths.new_zeros(sequences, steps) for _ in range(2))
        tops, made_of = (lengths.new_zeros(sequences, count, 3) for count in (steps, longest))
        gates, tracked, tracker_gates = (
            leaves.new_zeros(sequences, *shape)
            for shape in ((longest, 5 * width // 2), (steps, 2 * tracker_size), (steps, 4 * tracker_size))
        )
        roots, last = leaves.new_empty(sequences, width), lengths.new_empty(sequences)
        stack, temperature = lengths.new_empty(sequences, longest + 2), leaves.new_full((1,), policy.temperature)
        results = nodes, gates, tracked, tracker_gates, actions, chosen, tops, made_of, stack, roots, last
        read = lengths, given, uniform, temperature, *tensors[1:]
        _launch("transitions", (sequences,), width // 2, tracker_size, *read, *results, longest)
        kept = _Kept(
            *(lengths, cell, inputs, lateral, to_cell, nodes, gates, tracked, tracker_gates),
            *(actions, tops, made_of, last),
        )
        return (roots, tracked, actions, chosen), kept

    def backward(self, saved: Any, gradients: Tensors, wanted: Sequence[bool]) -> Tensors:
        """The gradients of leaves and weights; the transition is chosen without one."""
        kept = _Kept(*saved)
        d_roots, d_tracked, *_ = gradients
        sequences, twice_longest, width = kept.nodes.shape
        longest, size, tracker_size = twice_longest // 2, width // 2, kept.tracked.shape[2] // 2
        d_nodes, d_gates, d_tracker_gates = map(torch.zeros_like, (kept.nodes, kept.gates, kept.tracker_gates))
        if d_roots is not None:
            d_nodes.flatten(0, 1).index_copy_(0, kept.last, d_roots)
        outgoing = d_nodes, d_gates, None if d_tracked is None else d_tracked.contiguous(), d_tracker_gates
        _launch("transitions_backward", (sequences,), size, tracker_size, *kept[:-2], *outgoing, longest)
        hidden = kept.nodes[:, :, :size].reshape(-1, size)
        of_cell, of_tracker = d_gates.flatten(0, 1), d_tracker_gates.flatten(0, 1)
        read = hidden.index_select(0, kept.made_of[:, :, :2].flatten()).view(-1, 2 * size)
        d_weights: list[torch.Tensor | None] = [d_nodes[:, :longest], of_cell.t() @ read, of_cell.sum(0)]
        if not tracker_size:
            return [*d_weights, *[None] * 6]
        read = hidden.index_select(0, kept.tops.flatten()).view(-1, 3 * size)
        of_steps = kept.tracked[:, :, :tracker_size]
        before = functional.pad(of_steps[:, :-1], (0, 0, 1, 0)).flatten(0, 1)
        by_cell = of_steps.flatten(0, 1).index_select(0, kept.made_of[:, :, 2].flatten())
        d_weights += [of_tracker.t() @ read, of_tracker.sum(0), of_tracker.t() @ before, of_cell.t() @ by_cell]
        return [*d_weights, None, None]


def _launch(kernel: str, grid: tuple[int, ...], size: int, tracker_size: int, *arguments: Any) -> None:
    from treemem.networks.parsers.spinn import kernels

    launcher().launch(getattr(kernels, kernel), grid, *arguments, **constants(kernel, size, tracker_size))


def constants(kernel: str, size: int, tracker_size: int) -> dict[str, Any]:
    """Return what is known when a kernel of ``kernels.py`` is compiled."""
    blocks = {"BLOCK": block_of(size), "OF_TRACKER": block_of(max(1, tracker_size))}
    known = {"H": size, "T": tracker_size, **blocks, "TILE": max(16, _NUMBERS // max(blocks.values())), "maxnreg": 255}
    if kernel == "transitions":
        return {**known, "CELL": _CELL.step, "TRACKER": _TRACKER.step}
    return {**known, "CELL_BACKWARD": _CELL.step_backward, "TRACKER_BACKWARD": _TRACKER.step_backward}
