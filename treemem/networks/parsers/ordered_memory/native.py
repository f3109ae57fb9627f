"""The Ordered Memory as one operation with a backward pass of its own, in C++."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import torch

from treemem.native.run import KeptRun, Tensors, run_native
from treemem.native.structures import Filled, Structure, structured_library
from treemem.networks.parsers.ordered_memory.equations import (
    PackedSteps,
    Problem,
    project,
    queries_of,
    slot_scores,
)
from treemem.networks.parsers.ordered_memory.printed import STEPS, WEIGHTS, driven_weights

_SOURCE = Path(__file__).with_name("kernel.cpp")
_SEQUENCES_PER_THREAD = 8  # fewer make products too small
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
    *(f"const REAL {names}" for names in WEIGHTS),
)
_GRADIENTS = Structure(
    "GRADIENTS",
    "const REAL *outputs, *pointers, *cumulative",  # each may be null
    "REAL *elements, *queries, *untouched",
    *(f"REAL {names}" for names in WEIGHTS),  # with a first axis of parts; null as in the problem
)


_OUTPUTS = ("outputs", "pointers", "cumulative")
_TENSORS = ("elements", "queries", "untouched", *re.findall(r"\w+", ", ".join(WEIGHTS)))


def fused(problem: Problem, trace: bool) -> PackedSteps | None:
    """Return the same as ``naive``, or None if it cannot be used.

    It needs a CPU, a C++ compiler, numbers of one type (float32 or float64, without autocast), and pointers whose sum
    is not clamped.
    """
    inputs, sizes, _, weights, _, dropouts, _ = problem
    attention, cell = weights.attention, weights.cell
    maps = (weights.input, weights.input_norm, *attention, *cell)
    given = [inputs, *(tensor for affine in maps for tensor in affine)]
    library = structured_library(_SOURCE, given, _PROBLEM, _GRADIENTS, STEPS[type(cell)], STEPS[type(attention)])
    if library is None:
        return None
    projected = project(inputs, weights)
    queries = queries_of(projected[sizes[0] :], attention, dropouts.memory)
    before = [part[:after] for part, after in zip(projected.split(sizes), sizes[1:], strict=False)]
    untouched = slot_scores(queries, torch.cat([projected[:0], *before]), attention, dropouts.memory)
    size = projected.shape[1]
    tensors = [projected, queries, untouched, *driven_weights(weights)]
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
