"""Structures that C++ reads: they are declared in Python alone, and compiled from the declaration."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from treemem.ops.native import TYPE_NAMES, native_library

_DTYPES = {
    "int64_t": (torch.int64,),
    "uint8_t": (torch.uint8, torch.bool),
    "double": (torch.float64,),
    "REAL": (torch.float32, torch.float64),
}
_NUMBERS = {"int64_t": ctypes.c_int64, "double": ctypes.c_double}


class Structure:
    """A structure of numbers and addresses of tensors.

    The C++ says ``struct Problem { PROBLEM };``, and the compiler puts the declarations there. So the two cannot
    differ. Calling the structure with a value for each field returns a pointer to it, which keeps the tensors::

        PROBLEM = Structure("PROBLEM", "int64_t rows, columns", "const REAL *values")
        library = structured_library(source, [values], PROBLEM)
        library.forward(PROBLEM(rows=2, columns=3, values=values))

    Args:
        macro: its name in C++.
        declarations: of fields, as in C++. A field is ``int64_t`` or ``double``, or a pointer to one of these, to
            ``uint8_t`` or to ``REAL``, which is float or double. The value of a pointer is a tensor of this type, or
            None for null.
    """

    def __init__(self, macro: str, *declarations: str) -> None:
        self.definition = f"{macro}={' '.join(f'{each};' for each in declarations)}"
        self._macro = macro
        self._fields: dict[str, Callable[[Any], Any]] = {}
        types: list[tuple[str, Any]] = []
        for declaration in declarations:
            kind, names = re.fullmatch(r"(?:const )?(\w+) (.+)", declaration).groups()  # type: ignore[union-attr]
            for name in names.split(", "):
                own = name.removeprefix("*")
                types.append((own, _NUMBERS[kind] if own == name else ctypes.c_void_p))
                self._fields[own] = _number if own == name else _address_of(f"{macro}.{own}", kind)
        self._type = type(macro, (ctypes.Structure,), {"_fields_": types})

    def __call__(self, **values: Any) -> Any:
        """Return a pointer to the structure with these values.

        Raises:
            TypeError: a field is missing or unknown, or a tensor has another type or is not contiguous.
        """
        if values.keys() != self._fields.keys():
            differing = ", ".join(sorted(values.keys() ^ self._fields.keys()))
            raise TypeError(f"{self._macro} has the fields {', '.join(self._fields)}; see {differing}")
        filled = self._type(*[convert(values[name]) for name, convert in self._fields.items()])
        filled._values = values
        return ctypes.pointer(filled)


def structured_library(source: Path, tensors: Iterable[torch.Tensor], *structures: Structure) -> ctypes.CDLL | None:
    """Return :func:`treemem.ops.native.native_library` of a source that reads these structures.

    ``REAL`` is the type of the tensors there.
    """
    first, *others = tensors
    real = TYPE_NAMES.get(first.dtype)
    return native_library(source, [first, *others], f"REAL={real}", *(each.definition for each in structures))


def _number(value: float) -> float:
    return value


def _address_of(field: str, kind: str) -> Callable[[torch.Tensor | None], int | None]:
    dtypes = _DTYPES[kind]

    def address(tensor: torch.Tensor | None) -> int | None:
        if tensor is None:
            return None
        if tensor.dtype not in dtypes or not tensor.is_contiguous():
            raise TypeError(f"{field} is a contiguous tensor of {kind}, not of {tensor.dtype} and {tensor.stride()}")
        return tensor.data_ptr()

    return address
