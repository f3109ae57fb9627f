"""The states of the children of some rows, gathered only where somebody looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch


class Children(Mapping[str, torch.Tensor]):
    """Each state of the children of ``m`` rows of one arity, ``[m, arity, ...]``, gathered when first asked for.

    Args:
        buffers: the states of all rows, ``[rows, ...]``.
        rows: int64 ``[m, arity]``, which of them are the children.
    """

    def __init__(self, buffers: Mapping[str, torch.Tensor], rows: torch.Tensor) -> None:
        self.buffers = buffers
        self.rows = rows
        self._gathered: dict[str, torch.Tensor] = {}

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self._gathered:
            buffer = self.buffers[name]
            self._gathered[name] = buffer.index_select(0, self.rows.view(-1)).view(*self.rows.shape, *buffer.shape[1:])
        return self._gathered[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.buffers)

    def __len__(self) -> int:
        return len(self.buffers)
