"""How exact products of float32 matrices are."""

from __future__ import annotations

import contextlib
import ctypes
import platform
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch

_ARCH_PRCTL, _ASK_FOR_STATE, _TILE_DATA = 158, 0x1023, 18  # of Linux on x86-64


@contextlib.contextmanager
def matmul_precision(name: str | None) -> Iterator[None]:
    """Multiply float32 matrices with this precision in the block; None changes nothing.

    The names are those of :func:`torch.set_float32_matmul_precision`.

    Raises:
        RuntimeError: torch's newer settings, such as ``torch.backends.fp32_precision``, are in use as well.
    """
    if name is None:
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def bfloat16_parts() -> int:
    """Return as how many bfloat16 numbers the compiled operations multiply a float32 number; 0: as itself.

    That is 2 after ``torch.set_float32_matmul_precision("high")`` and 1 after ``"medium"``, on processors with AMX. On
    others it would gain little.
    """
    of_cpu = torch.backends.mkldnn.matmul.fp32_precision  # type: ignore[attr-defined]
    parts = {"tf32": 2, "bf16": 1}.get(of_cpu, 0)
    return parts if parts and _has_amx() else 0


@cache
def _has_amx() -> bool:
    """Return whether this process may use the tiles of AMX. Linux wants to be asked once."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    flags = Path("/proc/cpuinfo").read_text().split()
    if not {"amx_bf16", "avx512_bf16"} <= set(flags):
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ASK_FOR_STATE, _TILE_DATA) == 0)
