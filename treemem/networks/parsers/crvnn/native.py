"""The continuous recursion as one operation with a backward pass of its own, in C++."""

from __future__ import annotations

import ctypes
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch
from torch.nn import functional

from treemem.engines.printer.driven import DrivenStep
from treemem.native.run import KeptRun, Tensors, run_native
from treemem.native.structures import Filled, Structure, structured_library
from treemem.networks.gated_cell.equations import CellActivation, hidden_activation
from treemem.networks.gated_cell.printed import gated_of_two
from treemem.networks.parsers.crvnn.equations import EPSILON, CRvNNWeights, Ends

_SOURCE = Path(__file__).with_name("kernel.cpp")
_POSITIONS_PER_THREAD = 256
_MAPS = (
    *("weight1", "bias1", "weight2", "bias2", "norm"),  # of the cell
    *("window", "window_bias"),  # [hidden_size, (2 num_neighbors + 1) * hidden_size]
    *("score", "score_bias"),  # [hidden_size], [1]
    # Of features, or null: added at every position, and times how far it took its left neighbour, [hidden_size]; with
    # equation 5 to the hidden layer of the score, with 6 to the states that it reads.
    *("absent", "change"),
)
_PROBLEM = Structure(
    "PROBLEM",
    "int64_t sequences, size, hidden_size, inner_size, num_threads",
    "int64_t equation, num_neighbors, modulated, train, seed",
    "double threshold, dropout, epsilon",
    "const int64_t *lengths",  # numbers of tokens, [sequences]
    "const REAL *states",  # [sequences, size, hidden_size], size is that of the longest
    *(f"const REAL *{name}" for name in _MAPS),
    "REAL *outputs",  # the states at the end, as `states`
    "REAL *existence, *total",  # [sequences, size]
    "uint8_t *ended_well",  # [sequences]
)
_GRADIENTS = Structure(
    "GRADIENTS",
    # These come in as those of `outputs` and `existence`, and the first one goes out as that of `states`.
    "REAL *states, *existence",
    "REAL *taken",  # [sequences, size], begins with 0
    *(f"REAL *{name}" for name in _MAPS),  # with a first axis of threads
)


State = dict[str, torch.Tensor]


def _activated(activation: CellActivation, products: State, children: State) -> State:
    return {"hidden": hidden_activation(activation)(products["map"])}


def _score(products: State, children: State, weight: torch.Tensor) -> State:
    return {"score": (functional.gelu(products["window"]) * weight).sum(1, keepdim=True)}


_HIDDEN_STEPS = {
    name: DrivenStep("HIDDEN_STEP", partial(_activated, name), {"map": 1}, ("hidden",), 0)
    for name in get_args(CellActivation)
}
_SCORE_STEP = DrivenStep("SCORE_STEP", _score, {"window": 1}, (), 0, 1, ("score",))


def native_steps(states: torch.Tensor, lengths: torch.Tensor, weights: CRvNNWeights) -> Ends | None:
    """Return what ``naive_steps`` does, or None if the C++ cannot be used.

    It needs a CPU, a C++ compiler, and numbers of one type (float32 or float64, without autocast).
    """
    cell = (*weights.cell.hidden, *weights.cell.gates, *weights.cell.norm)
    given = [states, *cell, *weights.window, *weights.score, *(weights.features or ())]
    steps = gated_of_two, _HIDDEN_STEPS[weights.activation], _SCORE_STEP
    library = structured_library(_SOURCE, given, _PROBLEM, _GRADIENTS, *steps)
    if library is None:
        return None
    width = (2 * weights.num_neighbors + 1) * len(weights.window.bias)
    window, of_features = weights.window.weight[:, :width], weights.window.weight[:, width:]
    absent = change = None
    if weights.features is not None:
        yes, no = weights.features
        absent, change = (of_features @ feature if weights.equation == 5 else feature for feature in (no, yes - no))
    maps = (
        *weights.cell.hidden,
        *weights.cell.gates,
        torch.cat(weights.cell.norm),
        window,
        weights.window.bias,
        *weights.score,
        absent,
        change,
    )
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
        names = ("outputs", "existence", "total", "ended_well", *_MAPS)
        return _PROBLEM(**self._options, states=states, **dict(zip(names, (*outputs, *maps), strict=True)))

    def gradients(self, tensors: Any, incoming: Tensors) -> tuple[Filled, Tensors, Tensors]:
        states, *maps = tensors
        d_states, d_existence = (
            states.new_zeros(shape) if gradient is None else gradient.clone(memory_format=torch.contiguous_format)
            for gradient, shape in zip(incoming[:2], (states.shape, states.shape[:2]), strict=True)
        )
        of_maps = [None if weight is None else weight.new_zeros(self._threads, *weight.shape) for weight in maps]
        taken, named = torch.zeros_like(d_existence), dict(zip(_MAPS, of_maps, strict=True))
        return _GRADIENTS(states=d_states, existence=d_existence, taken=taken, **named), [d_states], of_maps
