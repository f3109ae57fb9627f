"""The vectors of a memory that grows by one item a step, kept once for all steps.

Autograd would keep a copy of all items for each step that reads them, which takes memory in the square of the time.
Here all steps share one buffer: an item is written once and never changed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable


class _Buffer:
    """Storage ``[batch, capacity, size]`` of which the first ``filled`` items are written."""

    def __init__(self, data: torch.Tensor, filled: int) -> None:
        self.data, self.filled = data, filled


class Items(NamedTuple):
    """The items of a memory.

    Attributes:
        value: ``[batch, items, size]``, oldest first.
        buffer: where they are kept; states that began as one share it.
    """

    value: torch.Tensor
    buffer: Any

    @classmethod
    def none(cls, batch: int, size: int, like: torch.Tensor) -> Items:
        """Return no items, with the device and type of ``like``."""
        data = like.new_empty(batch, 8, size)
        return cls(data[:, :0], _Buffer(data, 0))


def appended(items: Items, value: torch.Tensor) -> Items:
    """Return the items and one more, ``[batch, size]``. The given items stay as they are."""
    count = items.value.shape[1]
    buffer = items.buffer
    if buffer.filled != count or count == buffer.data.shape[1]:  # another state has gone on from here, or it is full
        data = buffer.data.new_empty(len(value), max(8, 2 * count), value.shape[1])
        data[:, :count] = items.value.detach()
        buffer = _Buffer(data, count)
    joined: torch.Tensor = _Append.apply(items.value, value, buffer)
    return Items(joined, buffer)


def read(items: Items, weight: torch.Tensor) -> torch.Tensor:
    """Return the weighted sum of the items, ``[batch, size]``, for weights ``[batch, items]``."""
    found: torch.Tensor = _WeightedSum.apply(items.value, weight)
    return found


class _Append(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, items: torch.Tensor, value: torch.Tensor, buffer: _Buffer) -> torch.Tensor:
        count = buffer.filled
        buffer.data[:, count] = value
        buffer.filled = count + 1
        return buffer.data[:, : count + 1].detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        return grad[:, :-1], grad[:, -1], None


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, items: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.items, ctx.weight = items.detach(), weight.detach()  # items that come later do not change these
        return torch.bmm(weight[:, None], items).squeeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return ctx.weight[:, :, None] * grad[:, None], torch.bmm(ctx.items, grad[:, :, None]).squeeze(2)
