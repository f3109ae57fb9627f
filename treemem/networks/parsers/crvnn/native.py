"""The continuous recursion as one operation with a backward pass of its own, in C++."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch

from treemem.native.run import KeptRun, Tensors, run_native
from treemem.native.structures import Filled, Structure, structured_library
from treemem.networks.gated_cell.printed import gated_of_two
from treemem.networks.parsers.crvnn.equations import EPSILON, CRvNNWeights, Ends
from treemem.networks.parsers.crvnn.printed import HIDDEN_STEPS, MAPS, SCORE_STEP, driven_maps

_SOURCE = Path(__file__).with_name("kernel.cpp")
_POSITIONS_PER_THREAD = 256
_PROBLEM = Structure(
    "PROBLEM",
    "int64_t sequences, size, hidden_size, inner_size, num_threads",
    "int64_t equation, num_neighbors, modulated, train, seed",
    "double threshold, dropout, epsilon",
    "const int64_t *lengths",  # numbers of tokens, [sequences]
    "const REAL *states",  # [sequences, size, hidden_size], size is that of the longest
    *(f"const REAL *{name}" for name in MAPS),
    "REAL *outputs",  # the states at the end, as `states`
    "REAL *existence, *total",  # [sequences, size]
    "uint8_t *ended_well",  # [sequences]
)
_GRADIENTS = Structure(
    "GRADIENTS",
    # These come in as those of `outputs` and `existence`, and the first one goes out as that of `states`.
    "REAL *states, *existence",
    "REAL *taken",  # [sequences, size], begins with 0
    *(f"REAL *{name}" for name in MAPS),  # with a first axis of threads
)


def native_steps(states: torch.Tensor, lengths: torch.Tensor, weights: CRvNNWeights) -> Ends | None:
    """Return what ``naive_steps`` does, or None if the C++ cannot be used.

    It needs a CPU, a C++ compiler, and numbers of one type (float32 or float64, without autocast).
    """
    cell = (*weights.cell.hidden, *weights.cell.gates, *weights.cell.norm)
    given = [states, *cell, *weights.window, *weights.score, *(weights.features or ())]
    steps = gated_of_two, HIDDEN_STEPS[weights.activation], SCORE_STEP
    library = structured_library(_SOURCE, given, _PROBLEM, _GRADIENTS, *steps)
    if library is None:
        return None
    maps = driven_maps(weights)
    states, existence, total, ended_well = run_native(_Run(library, given, lengths, weights), states, *maps)
    return Ends(states, existence, total.detach(), ended_well)


class _Run(KeptRun):
    def __init__(
        self, library: ctypes.CDLL, given: list[torch.Tensor], lengths: torch.Tensor, weights: CRvNNWeights
    ) -> None:
        super().__init__(library, given)
        sequences, size, width = given[0].shape
        positions = int(lengths.sum()) + 2 * sequences
        self._threads = max(1, min(torch.get_num_threads(), positions // _POSITIONS_PER_THREAD))
        self._options = {
            "sequences": sequences,
            "size": size,
            "hidden_size": width,
            "inner_size": len(weights.cell.hidden.bias),
            "num_threads": self._threads,
            "equation": weights.equation,
            "num_neighbors": weights.num_neighbors,
            "modulated": weights.modulated,
            "train": self.train,
            "seed": int(torch.randint(1 << 62, ())) if weights.dropout else 0,
            "threshold": weights.threshold,
            "dropout": weights.dropout,
            "epsilon": EPSILON[weights.equation],
            "lengths": lengths.contiguous(),
        }

    def outputs(self, tensors: Any) -> Ends:
        states = tensors[0]
        existence, total = (states.new_zeros(states.shape[:2]) for _ in range(2))
        return Ends(torch.zeros_like(states), existence, total, torch.empty(len(states), dtype=torch.bool))

    def problem(self, tensors: Any, outputs: Any) -> Filled:
        states, *maps = tensors
        names = ("outputs", "existence", "total", "ended_well", *MAPS)
        return _PROBLEM(**self._options, states=states, **dict(zip(names, (*outputs, *maps), strict=True)))

    def gradients(self, tensors: Any, incoming: Tensors) -> tuple[Filled, Tensors, Tensors]:
        states, *maps = tensors
        d_states, d_existence = (
            states.new_zeros(shape) if gradient is None else gradient.clone(memory_format=torch.contiguous_format)
            for gradient, shape in zip(incoming[:2], (states.shape, states.shape[:2]), strict=True)
        )
        of_maps = [None if weight is None else weight.new_zeros(self._threads, *weight.shape) for weight in maps]
        taken, named = torch.zeros_like(d_existence), dict(zip(MAPS, of_maps, strict=True))
        return _GRADIENTS(states=d_states, existence=d_existence, taken=taken, **named), [d_states], of_maps
