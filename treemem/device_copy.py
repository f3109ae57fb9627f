"""Copies to a device that the host does not wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import accumulate

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

PINNED = {"cuda"}
"""Types of devices that copy from pinned memory while the host goes on."""
_ALIGNED = 64  # bytes, so that any type can be read and kernels may load several numbers at once


@contextmanager
def plain_tensors() -> Iterator[None]:
    """Let what is made in this block be used anywhere: it belongs to no transform, export or inference mode."""
    exporting = _disable_current_modes() if torch.compiler.is_exporting() else nullcontext()
    with torch.inference_mode(False), torch._C._DisableFuncTorch(), exporting:
        yield


def to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Return a tensor, which needs no gradients, on a device; from the CPU to CUDA without waiting."""
    return to_device_together([tensor], device)[0]


def to_device_together(tensors: Sequence[Tensor], device: torch.device | str) -> list[Tensor]:
    """Return tensors, which need no gradients, on a device.

    Those that go from the CPU to CUDA go in one copy from pinned memory. The host does not wait for it, and they share
    one buffer.
    """
    device = torch.device(device)
    here = [tensor for tensor in tensors if tensor.device.type == "cpu" and device.type in PINNED]
    begins = list(accumulate((-(-tensor.nbytes // _ALIGNED) * _ALIGNED for tensor in here), initial=0))
    if not here:
        return [tensor.to(device) for tensor in tensors]
    pinned = torch.empty(begins[-1], dtype=torch.uint8, pin_memory=True)
    for part, tensor in zip(_parts(pinned, begins, here), here, strict=True):
        part.copy_(tensor)
    moved = iter(_parts(pinned.to(device, non_blocking=True), begins, here))
    return [next(moved) if tensor.device.type == "cpu" else tensor.to(device) for tensor in tensors]


def _parts(buffer: Tensor, begins: Sequence[int], like: Sequence[Tensor]) -> list[Tensor]:
    """Views of a buffer of bytes, with the types and shapes of tensors."""
    return [
        buffer[begin : begin + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        for begin, tensor in zip(begins, like, strict=False)
    ]
