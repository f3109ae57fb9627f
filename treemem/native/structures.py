"""Structures that C++ reads: they are declared in Python alone, and compiled from the declaration."""

from __future__ import annotations

import ctypes
import re
from collections import namedtuple
from collections.abc import Iterable
from pathlib import Path
from struct import Struct
from typing import Any, Protocol

import torch

from treemem.native import TYPE_NAMES, native_library, why_not_native

_DTYPES = {
    "int64_t": (torch.int64,),
    "uint8_t": (torch.uint8, torch.bool),
    "double": (torch.float64,),
    "REAL": (torch.float32, torch.float64),
}
_NUMBERS = {"int64_t": "q", "double": "d"}  # the letters of the module struct


class Defined(Protocol):
    """What the compiler takes from Python: a structure or a printed step.

    Attributes:
        definition: a macro with its text.
    """

    @property
    def definition(self) -> str: ...


class Filled(bytes):
    """A structure, which ctypes passes as a pointer. It keeps what it points to."""

    values: dict[str, Any]
    arrays: list[Any]


class Structure:
    """A structure of numbers, addresses of tensors, and arrays of them or of other structures.

    The C++ says ``struct Problem { PROBLEM };``, and the compiler puts the declarations there. So the two cannot
    differ. Calling the structure with a value for each field fills it in::

        PROBLEM = Structure("PROBLEM", "int64_t rows, columns", "const REAL *values")
        library = structured_library(source, [values], PROBLEM)
        library.forward(PROBLEM(rows=2, columns=3, values=values))

    Args:
        macro: its name in C++.
        declarations: of fields, as in C++. A field is ``int64_t`` or ``double``, or a pointer to one of these, to
            ``uint8_t`` or to ``REAL``, which is float or double. The value of a pointer is a tensor of this type, or
            None for null. A pointer to pointers is a list of them. ``void`` is at an address, such as a function; and
            a pointer to any other type is a list of structures.
    """

    def __init__(self, macro: str, *declarations: str) -> None:
        self.definition = f"{macro}={' '.join(f'{line};' for line in declarations)}"
        self._macro = macro
        self._fields: dict[str, tuple[int, str]] = {}  # number of stars, and type
        letters = []
        for declaration in declarations:
            kind, names = re.fullmatch(r"(?:const )?(\w+) (.+)", declaration).groups()  # type: ignore[union-attr]
            for name in names.split(", "):
                field = name.lstrip("*")
                self._fields[field] = len(name) - len(field), kind
                letters.append("P" if field != name else _NUMBERS[kind])
        self._pack = Struct("".join(letters)).pack

    def __call__(self, **values: Any) -> Filled:
        """Return the structure with these values.

        Raises:
            TypeError: a field is missing or unknown, or a tensor has another type or is not contiguous.
        """
        if values.keys() != self._fields.keys():
            differing = ", ".join(sorted(values.keys() ^ self._fields.keys()))
            raise TypeError(f"{self._macro} has the fields {', '.join(self._fields)}; see {differing}")
        numbers: list[Any] = []
        arrays: list[Any] = []
        for name, (stars, kind) in self._fields.items():
            value = values[name]
            if stars == 1 and kind in _DTYPES:
                numbers.append(self._address(name, kind, value))
            elif stars == 2:
                arrays.append((ctypes.c_void_p * len(value))(*[self._address(name, kind, tensor) for tensor in value]))
                numbers.append(ctypes.addressof(arrays[-1]))
            elif stars and kind != "void":
                arrays.append(ctypes.create_string_buffer(b"".join(value)))
                numbers.append(ctypes.addressof(arrays[-1]))
            else:
                numbers.append(value or 0)
        filled = Filled(self._pack(*numbers))
        filled.values, filled.arrays = values, arrays
        return filled

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple(self._fields)

    def tuple_of(self, first: str, last: str | None = None) -> Any:
        """Return a type of named tuples of the fields from ``first`` to ``last``; by default to the end."""
        end = None if last is None else self.names.index(last) + 1
        return namedtuple("Fields", self.names[self.names.index(first) : end])

    def _address(self, name: str, kind: str, value: Any) -> int:
        if value is None:
            return 0
        if value.dtype in _DTYPES[kind] and value.is_contiguous():
            address: int = value.data_ptr()
            return address
        raise TypeError(
            f"{self._macro}.{name} is a contiguous tensor of {' or '.join(map(str, _DTYPES[kind]))}, not one of "
            f"{value.dtype} and strides {value.stride()}"
        )


def structured_library(source: Path, tensors: Iterable[torch.Tensor], *defined: Defined) -> ctypes.CDLL | None:
    """Return :func:`treemem.native.native_library` of a source that reads these structures and calls these steps.

    ``REAL`` is the type of the tensors there.
    """
    read = list(tensors)
    if why_not_native(read) is not None:
        return None
    return native_library(source, read, f"REAL={TYPE_NAMES[read[0].dtype]}", *(item.definition for item in defined))
