"""Memory for many rows, in large pages where the system has them."""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import cache
from typing import Any

import torch

_LEAST_BYTES = 1 << 22
_ADVICE = getattr(mmap, "MADV_HUGEPAGE", None)


def empty_rows(like: torch.Tensor, *shape: int) -> torch.Tensor:
    """Return ``like.new_empty(shape)``, in large pages if it is large and the system grants them.

    New memory is handed out page by page, when a page is first written. With pages of 4 kB that takes longer for a
    million rows than what is computed of them.
    """
    rows = like.new_empty(shape)
    num_bytes = rows.numel() * rows.element_size()
    if num_bytes >= _LEAST_BYTES and rows.device.type == "cpu" and type(rows) is torch.Tensor:
        advise = _advise()
        if advise is not None:
            page = mmap.PAGESIZE
            begin = -(-rows.data_ptr() // page) * page
            advise(ctypes.c_void_p(begin), ctypes.c_size_t(rows.data_ptr() + num_bytes - begin), _ADVICE)
    return rows


@cache
def _advise() -> Any:
    """Return the system's ``madvise``, or None. Nothing depends on whether the system takes the advice."""
    if _ADVICE is None or not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), "madvise", None)
