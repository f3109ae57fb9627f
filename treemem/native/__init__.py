"""Operations in C++, compiled at first use.

A source is plain C++ without headers of torch, so it compiles in seconds. Its functions take pointers.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch.autograd import forward_ad

from treemem.data_parallel import launched_processes
from treemem.errors import OutOfMemoryError, TreememError
from treemem.native.compile_mode import compiler, give_up, native_wanted, run_compiler
from treemem.native.matmul_precision import bfloat16_parts

_logger = logging.getLogger(__name__)
_warned = False
_FLAGS = (
    *("-std=c++17", "-O2", "-ftree-vectorize", "-march=native", "-fPIC", "-shared", "-fopenmp"),
    *("-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros", "-freciprocal-math"),
)
"""Sums may be reordered; NaN and infinity stay what they are, but see bfloat16.h."""


class Printed(NamedTuple):
    """A source that is not a file.

    Attributes:
        name: of what it computes.
        text: in C++.
    """

    name: str
    text: str


TYPE_NAMES = {torch.float32: "float", torch.float64: "double"}
"""The types of C++ for those of torch."""


def native_library(source: Path | Printed, tensors: Iterable[torch.Tensor], *definitions: str) -> ctypes.CDLL | None:
    """Return the compiled functions of a source, or None if they cannot be used, see :func:`why_not_native`.

    Their products of matrices are as exact as :func:`torch.set_float32_matmul_precision` says.

    The compiled file is kept in ``~/.cache/treemem`` (or ``$XDG_CACHE_HOME/treemem``) for other processes; see
    ``kept_libraries.py``. If compiling fails, there is one warning.

    A function returns ``error_of(...)`` of ``errors.h``, and so raises what went wrong.

    Args:
        source: the file, or the text.
        tensors: what the functions read.
        definitions: macros for the compiler, such as ``"REAL=float"``.
    """
    read = list(tensors)
    if why_not_native(read) is not None:
        return None
    parts = bfloat16_parts() if read[0].dtype == torch.float32 else 0
    return _library(source, *definitions, *([f"BFLOAT16_PARTS={parts}"] if parts else []))


def why_not_native(tensors: Sequence[torch.Tensor]) -> str | None:
    """Return why no C++ may run on some tensors, at least one; None if it may.

    It needs a C++ compiler, unless compiling is switched off, and tensors on a CPU of one type, float32 or float64. It
    runs neither under autocast nor within transforms of ``torch.func``, forward-mode AD or a mode that sees each
    operation, such as that of ``torch.export``.
    """
    if not native_wanted():
        return "there is no C++ compiler that works, or compiling is switched off"
    if torch.is_autocast_enabled("cpu"):
        return "C++ does not run under autocast"
    transformed = getattr(torch._C, "_are_functorch_transforms_active", None)
    if (transformed is not None and transformed()) or forward_ad._current_level >= 0:  # C++ would lose the tangents
        return "C++ does not run within transforms of torch.func and forward-mode AD"
    if torch._C._len_torch_dispatch_stack():
        return "C++ does not run in a mode of torch that must see each operation, such as that of torch.export"
    for tensor in tensors:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            return f"C++ does not run on a {type(tensor).__name__}"
        if tensor.device.type != "cpu":
            return f"C++ runs on a CPU, and the layer is on {tensor.device}"
        if tensor.dtype not in TYPE_NAMES or tensor.dtype != tensors[0].dtype:
            names = sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors})
            return f"C++ runs in float32 or in float64, not in {' and '.join(names)}"
    return None


@contextmanager
def nothing_compiled() -> Iterator[None]:
    """Compile all operations anew in this block, and forget them afterwards."""
    before = os.environ.get("XDG_CACHE_HOME")
    _library.cache_clear()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        try:
            yield
        finally:
            os.environ.pop("XDG_CACHE_HOME") if before is None else os.environ.update(XDG_CACHE_HOME=before)
            _library.cache_clear()


class _Library(ctypes.CDLL):
    """A library whose functions return None, or raise what went wrong."""

    def __getitem__(self, name: Any) -> Any:
        function = super().__getitem__(name)
        function.restype = ctypes.c_char_p
        function.errcheck = _raise_error  # type: ignore[assignment]
        return function


def _raise_error(error: bytes | None, function: Any, arguments: Any) -> None:
    """Raise what an exported function returns, a text of ``errors.h``.

    Raises:
        OutOfMemoryError: there is not enough memory.
        TreememError: another exception of C++.
    """
    if error == b"out of memory":
        raise OutOfMemoryError("out of memory in C++; take fewer or smaller examples at once")
    if error is not None:
        raise TreememError(f"error in C++: {error.decode(errors='replace')}")


@cache
def _library(source: Path | Printed, *definitions: str) -> ctypes.CDLL | None:
    from treemem.native.kept_libraries import kept_library, reason_of  # of Unix, as the compiler's options are

    begin = time.perf_counter()
    try:
        kept = kept_library(*_compilation(source, definitions), _Library)
    except (OSError, subprocess.SubprocessError) as error:
        if isinstance(source, Printed):  # others may well compile
            warnings.warn(f"{source.name} runs uncompiled: {reason_of(error)}", RuntimeWarning, stacklevel=2)
        else:
            give_up(reason_of(error))
        return None
    if kept.is_new:
        level, seconds = logging.INFO if launched_processes().is_first else logging.DEBUG, time.perf_counter() - begin
        _logger.log(level, "compiled %s in %.1f s; kept in %s", _name(source), seconds, kept.folder)
    if kept.problem:
        _warn_of_another_folder(kept.problem, kept.folder)
    return cast(ctypes.CDLL, kept.library)


def _compilation(source: Path | Printed, definitions: tuple[str, ...]) -> tuple[str, Callable[[Path], None]]:
    """Return the name of the library of a source, and what compiles it."""
    macros = _macros(tuple(compiler()))
    of_compiler = () if "__clang__" in macros else ("-fvect-cost-model=dynamic",)  # what clang does anyway
    command = [*compiler(), *_FLAGS, *of_compiler, *(f"-D{definition}" for definition in definitions)]
    text = source.text if isinstance(source, Printed) else source.read_text()
    texts = [text, *(header.read_text() for header in sorted(Path(__file__).parent.glob("*.h")))]
    digest = hashlib.sha256("\0".join([*command, macros, *texts]).encode()).hexdigest()[:16]

    def compile_to(path: Path) -> None:
        file = path.with_suffix(".cpp")
        file.write_text(text)
        run_compiler([*command, f"-I{Path(__file__).parent}", str(file), "-o", str(path)], path.parent)

    return f"{_name(source)}-{digest}", compile_to


def _name(source: Path | Printed) -> str:
    if isinstance(source, Printed):
        return source.name
    return source.parent.name if source.stem == "kernel" else source.stem


@cache
def _macros(command: tuple[str, ...]) -> str:
    """Return what the compiler defines: its version, and all that the processor can do."""
    return run_compiler([*command, "-march=native", "-dM", "-E", "-x", "c++", os.devnull])


def _warn_of_another_folder(problem: str, folder: Path) -> None:
    """Warn once in a process."""
    global _warned
    if _warned:
        return
    _warned = True
    warnings.warn(
        f"compiled operations are kept in {folder}, not in the user's cache: {problem} "
        "(XDG_CACHE_HOME may name a folder that only you can write)",
        RuntimeWarning,
        stacklevel=2,
    )
