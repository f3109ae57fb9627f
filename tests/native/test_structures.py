"""Structures of C++ that are declared in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from treemem.native import compile_mode
from treemem.native.structures import Structure, structured_library

SOURCE = Path(__file__).with_name("structures.cpp")
PROBLEM = Structure(
    "PROBLEM",
    "int64_t rows, columns",
    "const REAL *values, *nothing",
    "double rate",
    "const uint8_t *flags",
    "const int64_t *indices",
    "double *sums",
)


def fields(dtype: torch.dtype = torch.float32, **changed: Any) -> dict[str, Any]:
    values = torch.tensor([1.0, 2.0, 4.0], dtype=dtype)
    flags, indices = torch.tensor([True, False, True]), torch.tensor([5, 6])
    sums = torch.zeros(3, dtype=torch.float64)
    tensors = {"values": values, "nothing": None, "flags": flags, "indices": indices, "sums": sums}
    return {"rows": 2, "columns": 3, "rate": 0.5, **tensors, **changed}


@pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cpp_reads_each_field_by_its_name(dtype: torch.dtype) -> None:
    library, given = structured_library(SOURCE, [torch.zeros(1, dtype=dtype)], PROBLEM), fields(dtype)
    assert library is not None
    library.forward(PROBLEM(**given))
    assert given["sums"].tolist() == [2 + 30 + 50, 5, 6]


ROW = Structure("ROW", "int64_t size", "REAL *values")
TABLE = Structure("TABLE", "int64_t rows, others", "Row *own", "REAL **more", "void *nowhere", "double *sums")


@pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")
def test_cpp_reads_arrays_of_structures_and_of_pointers() -> None:
    library = structured_library(SOURCE.with_name("tables.cpp"), [torch.zeros(1)], ROW, TABLE)
    assert library is not None
    sums = torch.zeros(4, dtype=torch.float64)
    own = [ROW(size=size, values=torch.full((size,), 2.0)) for size in (1, 3)]
    more = [torch.tensor([5.0]), None]
    library.forward(TABLE(rows=2, others=2, own=own, more=more, nowhere=None, sums=sums))
    assert sums.tolist() == [2, 6, 5, -1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({**fields(), "row": 2}, "has the fields rows, columns, .*; see row$"),
        ({name: value for name, value in fields().items() if name != "sums"}, "; see sums$"),
        (
            fields(values=torch.zeros(3, dtype=torch.int64)),
            r"PROBLEM\.values is a contiguous tensor of torch\.float32 or torch\.float64, not one of torch\.int64",
        ),
        (
            fields(indices=torch.zeros(2)),
            r"PROBLEM\.indices is a contiguous tensor of torch\.int64, not one of torch\.float32",
        ),
        (fields(values=torch.zeros(3, 2)[:, 0]), r"PROBLEM.values .* \(2,\)"),
    ],
)
def test_a_field_that_does_not_fit_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        PROBLEM(**given)
