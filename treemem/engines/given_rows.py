"""A cell that continues an earlier run."""

from __future__ import annotations

from typing import Any

import torch

from treemem.engines.cell import Cell, State
from treemem.schedule.schedule import GIVEN


class GivenRows:
    """A cell whose leaves of the kind ``GIVEN`` have the states of rows that were run before.

    Args:
        cell: runs all other rows.
        states: of the given rows, ``[given rows, ...]``.

    Attributes:
        cell: as given.
    """

    def __init__(self, cell: Cell, states: State) -> None:
        self.cell = cell
        self._states = states

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        """The states of ``m`` leaves, or of all given rows."""
        return self._states if kind == GIVEN else self.cell.leaf(x, kind)

    def __call__(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        """The states of ``m`` inner nodes."""
        return self.cell(children, x, kind)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cell, name)
