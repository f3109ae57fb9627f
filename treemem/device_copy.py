"""Copies to a device that the host does not wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from treemem.errors import RecipeError

PINNED = {"cuda"}
"""Types of devices that copy from pinned memory while the host goes on."""
_PLACE = "_treemem_place"  # the attribute of a part of a pinned buffer: the buffer, and where the part begins
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
    if not here:
        return [tensor.to(device) for tensor in tensors]
    moved = iter((_copies or _copied)(here, device))
    return [next(moved) if tensor.device.type == "cpu" else tensor.to(device) for tensor in tensors]


def pinned_together(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return copies of tensors of the CPU in one buffer of pinned memory, from which they go to a device in one copy.

    Raises:
        RuntimeError: torch has no device that copies from pinned memory.
    """
    buffer = _packed(tensors)
    parts = _parts(buffer, tensors)
    for begin, part in zip(_begins(tensors), parts, strict=False):
        setattr(part, _PLACE, (buffer, begin))
    return parts


def _copied(here: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    return _parts(_packed(here).to(device, non_blocking=True), here)


class StaticTensors:
    """Tensors that stay in one place on a device.

    Args:
        tensors: what they are at first, on the CPU or on the device.
        device: where they are.

    Attributes:
        tensors: these tensors.
    """

    def __init__(self, tensors: Sequence[Tensor], device: torch.device) -> None:
        here = [tensor for tensor in tensors if tensor.device.type == "cpu"]
        self._buffer = _packed(here).to(device, non_blocking=True) if here else None
        moved = iter([] if self._buffer is None else _parts(self._buffer, here))
        self.tensors = [next(moved) if tensor.device.type == "cpu" else tensor.detach().clone() for tensor in tensors]

    def fill(self, tensors: Sequence[Tensor]) -> None:
        """Put other tensors in their places; from the CPU in one copy, for which the host does not wait."""
        here = [tensor for tensor in tensors if tensor.device.type == "cpu"]
        if self._buffer is not None:
            self._buffer.copy_(_packed(here), non_blocking=True)
        for own, tensor in zip(self.tensors, tensors, strict=True):
            if tensor.device.type != "cpu":
                own.copy_(tensor)


class Constants:
    """What a step copies to a device, which must be the same each time if the step is to be repeated as it was."""

    def __init__(self) -> None:
        self._kept: list[tuple[list[Tensor], list[Tensor]]] = []
        self._next = 0

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep what :func:`to_device_together` copies in this block, in any thread."""
        self._kept.clear()
        with _replaced_copies(self._keep):
            yield

    @contextmanager
    def given(self) -> Iterator[None]:
        """Give back what was kept, in place of copies."""
        self._next = 0
        with _replaced_copies(self._give):
            yield

    def _keep(self, here: Sequence[Tensor], device: torch.device) -> list[Tensor]:
        there = _copied(here, device)
        self._kept.append(([tensor.clone() for tensor in here], there))
        return there

    def _give(self, here: Sequence[Tensor], device: torch.device) -> list[Tensor]:
        before, there = self._kept[self._next] if self._next < len(self._kept) else ([], [])
        self._next += 1
        if len(before) != len(here) or not all(map(torch.equal, before, here)):
            raise RecipeError(
                "this step copies numbers to the device that depend on the batch, such as lengths, so it cannot be "
                "repeated as a CUDA graph; pass them as tensors, or run it with enabled=False, "
                "or train without cuda_graphs"
            )
        return there


_Copies = Callable[[Sequence[Tensor], torch.device], list[Tensor]]
_copies: _Copies | None = None


@contextmanager
def _replaced_copies(copies: _Copies) -> Iterator[None]:
    global _copies
    _copies = copies
    try:
        yield
    finally:
        _copies = None


def _packed(tensors: Sequence[Tensor]) -> Tensor:
    """The bytes of tensors, in pinned memory."""
    before = _buffer_of(tensors)
    if before is not None:
        return before
    pinned = torch.empty(_begins(tensors)[-1], dtype=torch.uint8, pin_memory=True)
    for part, tensor in zip(_parts(pinned, tensors), tensors, strict=True):
        part.copy_(tensor)
    return pinned


def _buffer_of(tensors: Sequence[Tensor]) -> Tensor | None:
    """The buffer that :func:`pinned_together` made for just these tensors, in this order; None for any others."""
    places: list[Any] = [getattr(tensor, _PLACE, None) for tensor in tensors]
    if not places or None in places:
        return None
    buffer: Tensor = places[0][0]
    *begins, end = _begins(tensors)
    if len(buffer) != end or any(place[0] is not buffer for place in places):
        return None
    pointers = [buffer.data_ptr() + begin for begin in begins]  # a copy of a part has its attribute, too
    are_there = all(tensor.data_ptr() in (there, 0) for tensor, there in zip(tensors, pointers, strict=True))
    return buffer if are_there and [begin for _, begin in places] == begins else None


def _begins(tensors: Sequence[Tensor]) -> list[int]:
    return list(accumulate((-(-tensor.nbytes // _ALIGNED) * _ALIGNED for tensor in tensors), initial=0))


def _parts(buffer: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views of a buffer of bytes, with the types and shapes of tensors."""
    return [
        buffer[begin : begin + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        for begin, tensor in zip(_begins(like), like, strict=False)
    ]
