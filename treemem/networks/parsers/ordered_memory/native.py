"""The Ordered Memory as one operation with a backward pass of its own, in C++."""

from __future__ import annotations

import ctypes
import math
import re
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from treemem.engines.affine import Affine
from treemem.engines.printer.driven import DrivenStep
from treemem.native.run import KeptRun, Tensors, run_native
from treemem.native.structures import Filled, Structure, structured_library
from treemem.networks.gated_cell.equations import GatedCellWeights, gated_recursive_step
from treemem.networks.parsers.ordered_memory.equations import (
    LayerNormScoreWeights,
    PackedSteps,
    PlainCellWeights,
    Problem,
    TanhScoreWeights,
    compared,
    project,
    queries_of,
    slot_scores,
)

_SOURCE = Path(__file__).with_name("kernel.cpp")
_SEQUENCES_PER_THREAD = 8  # fewer make products too small
_WEIGHTS = (
    "*score_weight, *score_bias",  # both divided by the root of hidden_size
    "*key_weight, *key_bias, *key_gain, *key_shift",  # the last three are null if the score has a tanh
    "*weight1, *bias1",
    "*weight2, *bias2, *gain, *shift",  # null if the cell is tanh(W_1 [v; h] + b_1)
)
_PROBLEM = Structure(
    "PROBLEM",
    "int64_t num_steps, hidden_size, slots, num_parts, train, seed",
    "double skip, cell_dropout, memory_dropout",
    "const int64_t *sizes",  # [num_steps], sequences of each step, not ascending
    "const uint8_t *begins_empty",  # [sizes[0]]
    "REAL *outputs",  # [tokens, hidden_size]
    "REAL *pointers, *cumulative",  # [tokens, slots]
    "REAL *elements",  # x, [tokens, hidden_size]
    "REAL *queries",  # [tokens - sizes[0], hidden_size]
    "const REAL *untouched",  # score of the element before, [tokens - sizes[0]]
    *(f"const REAL {names}" for names in _WEIGHTS),
)
_GRADIENTS = Structure(
    "GRADIENTS",
    "const REAL *outputs, *pointers, *cumulative",  # each may be null
    "REAL *elements, *queries, *untouched",
    *(f"REAL {names}" for names in _WEIGHTS),  # with a first axis of parts; null as in the problem
)


_OUTPUTS = ("outputs", "pointers", "cumulative")
_TENSORS = ("elements", "queries", "untouched", *re.findall(r"\w+", ", ".join(_WEIGHTS)))

_State = dict[str, torch.Tensor]


def _gated_slot(products: _State, children: _State, gain: torch.Tensor, shift: torch.Tensor) -> _State:
    """``C_i`` from what ``W_2`` gives, ``cp_i``, and ``C_(i-1)``, ``M_i`` and ``x``, which are the children."""
    composed = gated_recursive_step(products["map"], children["h"][:, :2], gain, shift)
    return _interpolated(composed, products, children)


def _plain_slot(products: _State, children: _State) -> _State:
    return _interpolated(torch.tanh(products["map"]), products, children)


def _interpolated(composed: torch.Tensor, products: _State, children: _State) -> _State:
    new = children["h"][:, 2]
    return {"h": new + products["cumulative"] * (composed - new)}


def _score(products: _State, children: _State, weight: torch.Tensor, *norm: torch.Tensor) -> _State:
    read = compared(products["key"], products["query"], Affine(*norm) if norm else None)
    return {"score": (functional.dropout(read) * weight).sum(1, keepdim=True)}


_STEPS = {
    GatedCellWeights: DrivenStep("SLOT_STEP", _gated_slot, {"map": 4, "cumulative": 0}, "h", 3, learned=2),
    PlainCellWeights: DrivenStep("SLOT_STEP", _plain_slot, {"map": 1, "cumulative": 0}, "h", 3),
    LayerNormScoreWeights: DrivenStep("SCORE_STEP", _score, {"key": 1, "query": 1}, (), 0, 3, ("score",)),
    TanhScoreWeights: DrivenStep("SCORE_STEP", _score, {"key": 1, "query": 1}, (), 0, 1, ("score",)),
}


def fused(problem: Problem, trace: bool) -> PackedSteps | None:
    """Return the same as ``naive``, or None if it cannot be used.

    It needs a CPU, a C++ compiler, numbers of one type (float32 or float64, without autocast), and pointers whose sum
    is not clamped.
    """
    inputs, sizes, _, weights, _, dropouts, _ = problem
    attention, cell = weights.attention, weights.cell
    maps = (weights.input, weights.input_norm, *attention, *cell)
    given = [inputs, *(tensor for affine in maps for tensor in affine)]
    library = structured_library(_SOURCE, given, _PROBLEM, _GRADIENTS, _STEPS[type(cell)], _STEPS[type(attention)])
    if library is None:
        return None
    projected = project(inputs, weights)
    queries = queries_of(projected[sizes[0] :], attention, dropouts.memory)
    before = [part[:after] for part, after in zip(projected.split(sizes), sizes[1:], strict=False)]
    untouched = slot_scores(queries, torch.cat([projected[:0], *before]), attention, dropouts.memory)
    size = projected.shape[1]
    scale = 1 / math.sqrt(size)
    score = (values * scale for values in attention.score)
    if isinstance(attention, TanhScoreWeights):
        key: tuple[torch.Tensor | None, ...] = attention.map.weight[:, :size], None, None, None
    else:
        key = *attention.key, *attention.key_norm
    of_cell = [tensor for affine in cell for tensor in affine]
    tensors = [projected, queries, untouched, *score, *key, *of_cell, *[None] * (6 - len(of_cell))]
    run = _Run(library, tensors, size, problem)
    outputs, pointers, cumulative = run_native(run, *tensors)
    if not run.succeeded:
        return None
    return PackedSteps(outputs, pointers if trace else None, cumulative if trace else None)


class _Run(KeptRun):
    def __init__(self, library: ctypes.CDLL, tensors: Tensors, hidden_size: int, problem: Problem) -> None:
        super().__init__(library, tensors)
        _, sizes, begins_empty, _, slots, dropouts, skip = problem
        self._slots = slots
        self._num_parts = max(1, min(torch.get_num_threads(), sizes[0] // _SEQUENCES_PER_THREAD))
        self._options = {
            "num_steps": len(sizes),
            "hidden_size": hidden_size,
            "slots": slots,
            "num_parts": self._num_parts,
            "train": self.train,
            "seed": int(torch.randint(1 << 62, ())) if any(dropouts) else 0,
            "skip": skip,
            "cell_dropout": dropouts.cell,
            "memory_dropout": dropouts.memory,
            "sizes": torch.tensor(sizes, dtype=torch.int64),
            "begins_empty": begins_empty.contiguous(),
        }

    def outputs(self, tensors: Any) -> tuple[torch.Tensor, ...]:
        elements = tensors[0]
        return torch.empty_like(elements), *(elements.new_empty(len(elements), self._slots) for _ in range(2))

    def problem(self, tensors: Any, outputs: Any) -> Filled:
        named = dict(zip((*_OUTPUTS, *_TENSORS), (*outputs, *tensors), strict=True))
        return _PROBLEM(**self._options, **named)

    def gradients(self, tensors: Any, incoming: Tensors) -> tuple[Filled, Tensors, Tensors]:
        given = [None if gradient is None else gradient.contiguous() for gradient in incoming]
        by_token = [torch.zeros_like(tensor) for tensor in tensors[:3]]
        of_weights = [None if like is None else like.new_zeros(self._num_parts, *like.shape) for like in tensors[3:]]
        named = zip((*_OUTPUTS, *_TENSORS), (*given, *by_token, *of_weights), strict=True)
        return _GRADIENTS(**dict(named)), by_token, of_weights
