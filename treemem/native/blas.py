"""The matrix products of the BLAS that torch has, for C++."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch


@cache
def product_function(dtype: torch.dtype) -> int | None:
    """Return the address of ``sgemm`` or ``dgemm``, or None if torch's library does not export it.

    It is tried on a product whose result tells rows from columns.
    """
    name, number = {torch.float32: ("sgemm_", ctypes.c_float), torch.float64: ("dgemm_", ctypes.c_double)}[dtype]
    libraries = sorted((Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"))
    try:
        function = getattr(ctypes.CDLL(str(libraries[0])), name)
    except (IndexError, OSError, AttributeError):
        return None
    matrices = [torch.arange(rows * columns, dtype=dtype) for rows, columns in ((2, 3), (3, 4), (2, 4))]
    numbers = (ctypes.c_int(2), ctypes.c_int(4), ctypes.c_int(3), number(1), number(0))
    m, n, k, one, zero = (ctypes.pointer(argument) for argument in numbers)
    left, right, out = (ctypes.c_void_p(matrix.data_ptr()) for matrix in matrices)
    function(b"N", b"N", n, m, k, one, right, n, left, k, zero, out, n)
    expected = matrices[0].view(2, 3) @ matrices[1].view(3, 4)
    return ctypes.cast(function, ctypes.c_void_p).value if matrices[2].view(2, 4).equal(expected) else None
