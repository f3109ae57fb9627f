"""Transitions as one operation with a backward pass of its own, in C++."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from treemem.engines.printer.driven import DrivenStep
from treemem.native.run import NativeRun, Tensors, run_native
from treemem.native.structures import Filled, Structure, structured_library
from treemem.networks.memories.controllers.equations import lstm_step
from treemem.networks.parsers.spinn.batched import Problem
from treemem.networks.parsers.spinn.equations import SPINNWeights
from treemem.networks.trees.tree_lstm.equations import tree_lstm_of_two

_SOURCE = Path(__file__).with_name("kernel.cpp")
_NODES_PER_THREAD = 256
_PROBLEM = Structure(  # there are 2 * longest - 1 steps
    "PROBLEM",
    "int64_t sequences, longest, hidden_size, tracker_size, num_threads",
    "double temperature",
    "const int64_t *lengths",  # longest first, at least 1, [sequences]
    "const int64_t *given",  # [sequences, steps], or null
    "const REAL *uniform",  # [sequences, steps], or null
    "const REAL *cell, *cell_bias, *inputs, *inputs_bias, *lateral, *to_cell, *transition, *transition_bias",
    "REAL *nodes",  # h and c; the tokens come in, [sequences, 2 * longest, 2 * hidden_size]
    "REAL *gates",  # of compositions, [sequences, longest, 5 * hidden_size]
    "REAL *tracked, *tracker_gates",  # [sequences, steps, 2 * tracker_size] and [sequences, steps, 4 * tracker_size]
    "int64_t *actions, *chosen",  # [sequences, steps]
    "int64_t *tops, *roots",  # numbers of nodes, [sequences, steps, 3] and [sequences]
    "int64_t *made_of",  # left and right child, and the number of the step, of compositions, [sequences, longest, 3]
)
# Those of nodes and `tracked` come in. `gates` come in as they are, and become gradients; `tracker_gates` begin with 0.
TRACKER_STEP = DrivenStep("TRACKER_STEP", lstm_step, {"blocks": 4}, "hc", 1)
_GRADIENTS = Structure("GRADIENTS", "REAL *nodes, *gates, *tracked, *tracker_gates")


_Weights, _Kept = _PROBLEM.tuple_of("cell", "transition_bias"), _PROBLEM.tuple_of("nodes")


def native_transitions(
    leaves: torch.Tensor, weights: SPINNWeights, problem: Problem
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Return what ``batched_transitions`` does, or None if the C++ cannot be used.

    It needs a CPU, a C++ compiler, and numbers of one type (float32 or float64, without autocast).
    """
    lengths, sizes, given, policy = problem
    tracker = weights.tracker
    of_tracker = () if tracker is None else (*tracker.inputs, tracker.lateral, tracker.to_cell, *tracker.transition)
    known = [*weights.cell, *of_tracker]
    tensors = _Weights(*known, *[None] * (8 - len(known)))
    given_tensors = [leaves, *(tensor for tensor in tensors if tensor is not None)]
    library = structured_library(_SOURCE, given_tensors, _PROBLEM, _GRADIENTS, tree_lstm_of_two, TRACKER_STEP)
    if library is None:
        return None
    uniform = None
    if given is None and policy.uniform is not None:
        uniform = leaves.new_zeros(len(leaves), len(sizes))
        for step, active in enumerate(sizes):
            uniform[:active, step] = policy.uniform((active,))
    own_given = None if given is None else given[:, : len(sizes)]
    run = _Run(library, lengths, own_given, uniform, policy.temperature)
    roots, tracked, actions, chosen = run_native(run, leaves, *tensors)
    return roots, tracked, actions, chosen


class _Run(NativeRun):
    """The library, and what a run reads besides numbers that have gradients."""

    def __init__(
        self,
        library: ctypes.CDLL,
        lengths: torch.Tensor,
        given: torch.Tensor | None,
        uniform: torch.Tensor | None,
        temperature: float,
    ) -> None:
        self._library = library
        self._read = {
            "temperature": temperature,
            "lengths": lengths.contiguous(),
            "given": None if given is None else given.contiguous(),
            "uniform": uniform,
        }

    def _problem(self, weights: Any, kept: Any) -> Filled:
        sequences, nodes, width = kept.nodes.shape
        return _PROBLEM(
            sequences=sequences,
            longest=nodes // 2,
            hidden_size=width // 2,
            tracker_size=kept.tracked.shape[2] // 2,
            num_threads=max(1, min(torch.get_num_threads(), sequences, sequences * nodes // _NODES_PER_THREAD)),
            **self._read,
            **weights._asdict(),
            **kept._asdict(),
        )

    def forward(self, tensors: Any) -> tuple[tuple[torch.Tensor, ...], Tensors]:
        leaves, weights = tensors[0], _Weights(*tensors[1:])
        lateral = weights.lateral
        sequences, longest, width = leaves.shape
        steps, tracker_size = 2 * longest - 1, 0 if lateral is None else lateral.shape[1]
        nodes = leaves.new_zeros(sequences, 2 * longest, width)
        nodes[:, :longest] = leaves
        actions, chosen = (torch.zeros(sequences, steps, dtype=torch.int64) for _ in range(2))
        tops, made_of = (actions.new_empty(sequences, count, 3) for count in (steps, longest))
        roots = actions.new_empty(sequences)
        kept = _Kept(
            nodes,
            leaves.new_zeros(sequences, longest, 5 * width // 2),
            leaves.new_zeros(sequences, steps, 2 * tracker_size),
            leaves.new_zeros(sequences, steps, 4 * tracker_size),
            *(actions, chosen, tops, roots, made_of),
        )
        self._library.forward(self._problem(weights, kept))
        return (nodes.flatten(0, 1).index_select(0, roots), kept.tracked, actions, chosen), (*kept, *weights)

    def backward(self, kept: Any, gradients: Tensors, wanted: Sequence[bool]) -> Tensors:
        count, (d_roots, d_tracked, *_) = len(_Kept._fields), gradients
        kept, weights = _Kept(*kept[:count]), _Weights(*kept[count:])
        nodes, tracked, tops, made_of = kept.nodes, kept.tracked, kept.tops, kept.made_of
        size, tracker_size = nodes.shape[2] // 2, tracked.shape[2] // 2
        d_nodes, d_tracker_gates = torch.zeros_like(nodes), torch.zeros_like(kept.tracker_gates)
        d_gates, plain = kept.gates.clone(), torch.contiguous_format
        if d_roots is not None:
            d_nodes.flatten(0, 1).index_copy_(0, kept.roots, d_roots)
        d_tracked = torch.zeros_like(tracked) if d_tracked is None else d_tracked.clone(memory_format=plain)
        of = _GRADIENTS(nodes=d_nodes, gates=d_gates, tracked=d_tracked, tracker_gates=d_tracker_gates)
        self._library.backward(self._problem(weights, kept), of)
        hidden = nodes[:, :, :size].reshape(-1, size)
        of_cell, of_tracker = d_gates.flatten(0, 1), d_tracker_gates.flatten(0, 1)
        read = hidden.index_select(0, made_of[:, :, :2].flatten()).view(-1, 2 * size)
        d_weights: list[torch.Tensor | None] = [d_nodes[:, : nodes.shape[1] // 2], of_cell.t() @ read, of_cell.sum(0)]
        if not tracker_size:
            return [*d_weights, *[None] * 6]
        read = hidden.index_select(0, tops.flatten()).view(-1, 3 * size)
        of_steps = tracked[:, :, :tracker_size]
        before = functional.pad(of_steps[:, :-1], (0, 0, 1, 0)).flatten(0, 1)
        by_cell = of_steps.flatten(0, 1).index_select(0, made_of[:, :, 2].flatten())
        d_weights += [of_tracker.t() @ read, of_tracker.sum(0), of_tracker.t() @ before, of_cell.t() @ by_cell]
        return [*d_weights, None, None]  # the transition is chosen without a gradient
