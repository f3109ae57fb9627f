"""The compiled ``levels.cpp``: the structures that it reads, and the functions of printed steps that it calls."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from treemem.engines.printer.compiled_formula import PrintedCell
from treemem.native import TYPE_NAMES, Printed, native_library, why_not_native
from treemem.native.blas import product_function
from treemem.native.structures import Structure, structured_library

SOURCE = Path(__file__).with_name("levels.cpp")

# A product of the rows of one arity: rows of inputs a node; how many of the inputs come first that depend on more than
# the row's own features; the set of weights of each kind, or null if all use the first; weights [sets, outputs, inputs]
# and biases; values [rows * copies, outputs], null without a backward pass; their gradient, null if it takes the place
# of the values; functions that make the inputs of a row, and add their gradient to those of what they are made of;
# the bias with what each label's features add to the values, [sets, labels, copies, outputs], or null; its gradient.
PRODUCT = Structure(
    "PRODUCT",
    "int64_t copies, outputs, inputs, from_below",
    "int64_t *set_of_kind",
    "REAL *weight, *bias, *values, *gradient, *d_weight, *d_bias",
    "void *gather, *spread",
    "REAL *of_labels, *d_of_labels",
)
# The rows of one arity: their step; factors of dropouts [rows, num_masked], or null; what it learns, [num_learned], and
# its gradient, [threads, num_learned].
ARITY = Structure(
    "ARITY",
    "int64_t arity, rows, num_products",
    "Product *products",
    "void *forward, *backward",
    "REAL *mask, *learned, *d_learned",
    "int64_t num_scratch, num_masked, num_learned",
)
# All rows: segments [segments, 5] of begin, end, kind, arity and first child, from the lowest up; states [rows, width];
# features of the leaf rows and of the inner rows, null if there are none; label of each inner row, if there is one row
# of features for each label, else null.
PROBLEM = Structure(
    "PROBLEM",
    "int64_t num_rows, num_leaves, num_given, num_levels, num_arities, num_states, num_threads, hidden_size",
    "int64_t num_labels",
    "int64_t *segments, *segments_of_level, *child, *widths, *num_features, *label",
    "void *gemm",
    "Arity *arities",
    "REAL **states, **features",
)
# Gradients: of states from outside, [rows, width], or null; of the leaf rows that no segment has and of features, null
# if they are not wanted; and memory for those of rows, as planned, [..., sum of widths].
GRADIENTS = Structure("GRADIENTS", "REAL **states, **given, **features, *rows, *spilled")

PAIR = ("gather", "spread")


class NotNative(Exception):
    """Why the C++ cannot run: words that can follow a colon."""


def check_native(tensors: Sequence[torch.Tensor]) -> None:
    reason = why_not_native(tensors)
    if reason is not None:
        raise NotNative(reason)


def compiled(source: Path | Printed, like: torch.Tensor) -> Any:
    if product_function(like.dtype) is None:
        raise NotNative("torch exports no matrix product to C++")
    if isinstance(source, Printed):
        library = native_library(source, [like], f"REAL={TYPE_NAMES[like.dtype]}")
    else:
        library = structured_library(source, [like], PRODUCT, ARITY, PROBLEM, GRADIENTS)
    if library is None:
        raise NotNative("compiling failed, as a warning has said")
    return library


@cache
def row_functions(printed: PrintedCell, dtype: torch.dtype) -> tuple[dict[str, int], int]:
    """Where the functions of a printed cell are, and how many vectors they need."""
    library, vectors = compiled(printed.source, torch.empty(0, dtype=dtype)), ctypes.c_int64()
    library.count_scratch(ctypes.byref(vectors))
    names = ["forward", "backward", *(f"{name}{at}" for at in range(len(printed.products)) for name in PAIR)]
    return {name: ctypes.cast(library[f"{name}_row"], ctypes.c_void_p).value or 0 for name in names}, vectors.value


def integers(values: Sequence[int]) -> torch.Tensor:
    return torch.from_numpy(np.array(values, np.int64))
