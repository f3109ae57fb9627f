"""A table of rows that a loop writes once and reads by number, under autograd.

With torch's own indexing each read and each write in place has a gradient as large as the table. Here all of them add
to one table of gradients, so a step takes time for the rows that it reads and writes.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch

Rows = slice | torch.Tensor
"""A slice, or numbers, int64 ``[...]``."""


class RowTable:
    """Rows that are 0 until they are written. Write a row at most once, and do not read it before.

    Gradients of all orders are right. Several threads may run the same graph backwards.

    Args:
        count: how many rows.
        width: of a row.
        like: gives the type and the device.
    """

    def __init__(self, count: int, width: int, like: torch.Tensor) -> None:
        self._values = like.new_zeros(count, width)
        self._gradients = _Gradients(count, width, like.new_empty(0))
        # Autograd does not see the writes in place. This stands for them: each read and each write depends on the last
        # write, so the backward passes come in the opposite order.
        self._written = like.new_empty(())

    def so_far(self) -> RowTable:
        """Return this table without the writes to come, for a function under gradient checkpointing.

        The graph holds such a function. If it held the graph of later writes, nothing would free them.
        """
        return copy.copy(self)

    def write(self, rows: Rows, values: torch.Tensor) -> None:
        """Write ``values`` ``[..., width]``."""
        self._written = _Add.apply(self._written, self._values, self._gradients, rows, values)

    def read(self, rows: Rows) -> torch.Tensor:
        """Return a copy of rows, ``[..., width]``."""
        result: torch.Tensor = _Read.apply(self._written, self._values, self._gradients, rows)
        return result


class _Gradients:
    """The gradients of a table, one table for each backward pass that runs."""

    def __init__(self, count: int, width: int, like: torch.Tensor) -> None:
        self._of_table = count, width, like
        self._tables: dict[int, RowTable] = {}

    def now(self) -> RowTable:
        """Return those of the backward pass that calls this; they are dropped when it ends."""
        number = torch._C._current_graph_task_id()
        if number not in self._tables:
            self._tables[number] = RowTable(*self._of_table)
            torch.autograd.Variable._execution_engine.queue_callback(partial(self._drop, number))
        return self._tables[number]

    def _drop(self, number: int) -> None:
        del self._tables[number]


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, written: torch.Tensor, values: torch.Tensor, gradients: _Gradients, rows: Rows
    ) -> torch.Tensor:
        _save(ctx, gradients, rows)
        if isinstance(rows, slice):
            return values[rows].clone()
        return values.index_select(0, rows.flatten()).view(*rows.shape, values.shape[1])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor | None) -> tuple[None, ...]:
        if gradient is not None:
            ctx.gradients.now().write(_saved(ctx), gradient)
        return None, None, None, None


class _Add(torch.autograd.Function):
    """Adds to rows. A table of values adds to a row once, a table of gradients once for each read."""

    @staticmethod
    def forward(
        ctx: Any, written: torch.Tensor, values: torch.Tensor, gradients: _Gradients, rows: Rows, added: torch.Tensor
    ) -> torch.Tensor:
        _save(ctx, gradients, rows)
        if isinstance(rows, slice):
            values[rows].add_(added)
        else:
            values.index_add_(0, rows.flatten(), added.flatten(0, -2))
        return written.new_empty(())

    @staticmethod
    def backward(ctx: Any, _: None) -> tuple[torch.Tensor | None, ...]:
        return None, None, None, None, ctx.gradients.now().read(_saved(ctx)) if ctx.needs_input_grad[4] else None


def _save(ctx: Any, gradients: _Gradients, rows: Rows) -> None:
    ctx.set_materialize_grads(False)
    ctx.gradients, ctx.slice = gradients, rows if isinstance(rows, slice) else None
    if isinstance(rows, torch.Tensor):
        ctx.save_for_backward(rows)


def _saved(ctx: Any) -> Rows:
    rows: Rows = ctx.slice or ctx.saved_tensors[0]
    return rows
