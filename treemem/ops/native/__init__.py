"""Operations in C++, compiled at first use.

A source is plain C++ without headers of torch, so it compiles in seconds. Its functions take pointers. Products are
those of the BLAS that torch brings.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

from treemem.data_parallel import launched_processes
from treemem.ops.compile_mode import compiler, give_up, native_wanted

_logger = logging.getLogger(__name__)
_FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-fPIC", "-shared", "-fopenmp"),
    *("-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros", "-freciprocal-math"),
)
"""Sums may be reordered; NaN and infinity stay what they are."""


def native_library(source: Path, *definitions: str) -> ctypes.CDLL | None:
    """Return the compiled functions of a source, or None without a C++ compiler or if compiling is switched off.

    The compiled file is kept in ``~/.cache/treemem`` (or ``$XDG_CACHE_HOME/treemem``) for other processes. If compiling
    fails, there is one warning.

    Args:
        source: the file.
        definitions: macros for the compiler, such as ``"REAL=float"``.
    """
    return _library(source, *definitions) if native_wanted() else None


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


def product_function(dtype: torch.dtype) -> int | None:
    """Return the address of ``sgemm`` or ``dgemm``, or None if torch's library does not export it."""
    return _product_function(dtype)


@cache
def _library(source: Path, *definitions: str) -> ctypes.CDLL | None:
    if product_function(torch.float64) is None:
        return None
    try:
        return ctypes.CDLL(str(_compiled(source, definitions)))
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or str(error)
        give_up((output.strip().splitlines() or [type(error).__name__])[0])
        return None


def _compiled(source: Path, definitions: tuple[str, ...]) -> Path:
    """Return the library of a source, compiled now or by an earlier process."""
    command = [*compiler(), *_FLAGS, f"-I{Path(__file__).parent}", *(f"-D{each}" for each in definitions)]
    version = subprocess.run([*compiler(), "--version"], capture_output=True, text=True, check=True).stdout
    texts = [source.read_text(), *(each.read_text() for each in sorted(Path(__file__).parent.glob("*.h")))]
    digest = hashlib.sha256("\0".join([*command, version, _processor(), *texts]).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "treemem"
    library = folder / f"{source.parent.name}-{digest}.so"
    if not library.exists():
        begin = time.perf_counter()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as made:
            output = Path(made) / "library.so"
            subprocess.run([*command, str(source), "-o", str(output)], capture_output=True, text=True, check=True)
            output.replace(library)
        level = logging.INFO if launched_processes().is_first else logging.DEBUG
        _logger.log(level, "compiled %s in %.1f s; kept in %s", source.parent.name, time.perf_counter() - begin, folder)
    return library


def _processor() -> str:
    """Return what ``-march=native`` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "model name", "Features"))}))


@cache
def _product_function(dtype: torch.dtype) -> int | None:
    """Look the function up, and try it on a product whose result tells rows from columns."""
    name, number = {torch.float32: ("sgemm_", ctypes.c_float), torch.float64: ("dgemm_", ctypes.c_double)}[dtype]
    libraries = sorted((Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"))
    try:
        function = getattr(ctypes.CDLL(str(libraries[0])), name)
    except (IndexError, OSError, AttributeError):
        return None
    matrices = [torch.arange(rows * columns, dtype=dtype) for rows, columns in ((2, 3), (3, 4), (2, 4))]
    numbers = (ctypes.c_int(2), ctypes.c_int(4), ctypes.c_int(3), number(1), number(0))
    m, n, k, one, zero = (ctypes.pointer(each) for each in numbers)
    left, right, out = (ctypes.c_void_p(each.data_ptr()) for each in matrices)
    function(b"N", b"N", n, m, k, one, right, n, left, k, zero, out, n)
    expected = matrices[0].view(2, 3) @ matrices[1].view(3, 4)
    return ctypes.cast(function, ctypes.c_void_p).value if matrices[2].view(2, 4).equal(expected) else None
