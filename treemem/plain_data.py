"""Tensors and plain data as ``torch.save`` wrote them; what else such a file may hold is never loaded."""

from __future__ import annotations

import io
from typing import Any

import torch

from treemem.errors import CheckpointError


def plain_data(content: bytes) -> Any:
    """What a file of ``torch.save`` holds, on the CPU.

    Python's own reader of pickles is never used, so nothing in the file can run. That holds from torch 2.10 on; earlier
    ones read some files unsafely in this way too (CVE-2025-32434, CVE-2026-24747).

    Args:
        content: of the file.

    Raises:
        CheckpointError: it is damaged, or holds more than tensors and plain data.
    """
    try:
        return torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    # Foreign bytes make the reader raise errors of many classes. Some advise to load the file unsafely, so none is
    # told, not even as the cause.
    except Exception:
        raise CheckpointError(
            "it is damaged, or holds more than tensors, numbers, texts, lists and dictionaries"
        ) from None
