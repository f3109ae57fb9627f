"""Structures that C++ reads: they are declared in Python alone, and compiled from the declaration."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
from pathlib import Path
from struct import Struct
from typing import Any, Protocol

import torch

from treemem.ops.native import TYPE_NAMES, native_library, why_not_native

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
    """A structure, which ctypes passes as a pointer. It keeps its tensors."""

    values: dict[str, Any]


class Structure:
    """A structure of numbers and addresses of tensors.

    The C++ says ``struct Problem { PROBLEM };``, and the compiler puts the declarations there. So the two cannot
    differ. Calling the structure with a value for each field fills it in::

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
        self._dtypes: dict[str, tuple[torch.dtype, ...] | None] = {}  # of tensors; None: it is a number
        letters = []
        for declaration in declarations:
            kind, names = re.fullmatch(r"(?:const )?(\w+) (.+)", declaration).groups()  # type: ignore[union-attr]
            for name in names.split(", "):
                is_pointer = name.startswith("*")
                self._dtypes[name.removeprefix("*")] = _DTYPES[kind] if is_pointer else None
                letters.append("P" if is_pointer else _NUMBERS[kind])
        self._pack = Struct("".join(letters)).pack

    def __call__(self, **values: Any) -> Filled:
        """Return the structure with these values.

        Raises:
            TypeError: a field is missing or unknown, or a tensor has another type or is not contiguous.
        """
        if values.keys() != self._dtypes.keys():
            differing = ", ".join(sorted(values.keys() ^ self._dtypes.keys()))
            raise TypeError(f"{self._macro} has the fields {', '.join(self._dtypes)}; see {differing}")
        fields = []
        for name, dtypes in self._dtypes.items():
            value = values[name]
            if dtypes is None:
                fields.append(value)
            elif value is None:
                fields.append(0)
            elif value.dtype in dtypes and value.is_contiguous():
                fields.append(value.data_ptr())
            else:
                wanted = " or ".join(map(str, dtypes))
                raise TypeError(
                    f"{self._macro}.{name} is a contiguous tensor of {wanted}, not one of {value.dtype} and strides "
                    f"{value.stride()}"
                )
        filled = Filled(self._pack(*fields))
        filled.values = values
        return filled


def structured_library(source: Path, tensors: Iterable[torch.Tensor], *defined: Defined) -> ctypes.CDLL | None:
    """Return :func:`treemem.ops.native.native_library` of a source that reads these structures and calls these steps.

    ``REAL`` is the type of the tensors there.
    """
    read = list(tensors)
    if why_not_native(read) is not None:
        return None
    return native_library(source, read, f"REAL={TYPE_NAMES[read[0].dtype]}", *(each.definition for each in defined))
