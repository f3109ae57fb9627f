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
def matmul_precision(name: str) -> Iterator[None]:
    """Multiply float32 matrices with this precision in the block; see :func:`torch.set_float32_matmul_precision`."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def bfloat16_parts() -> int:
    """Return as how many bfloat16 numbers the compiled operations multiply a float32 number; 0: as itself.

    That is 2 with ``"high"`` and 1 with ``"medium"``, on processors with AMX. On others it would gain little.
    """
    parts = {"high": 2, "medium": 1}.get(torch.get_float32_matmul_precision(), 0)
    return parts if parts and _has_amx() else 0


@cache
def _has_amx() -> bool:
    """Return whether this process may use the tiles of AMX. Linux wants to be asked once."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    if " amx_bf16" not in Path("/proc/cpuinfo").read_text():
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _ASK_FOR_STATE, _TILE_DATA) == 0)
