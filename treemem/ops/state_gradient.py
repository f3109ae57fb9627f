"""The gradient of a state of all rows, which the sweep from the roots to the leaves completes."""

from __future__ import annotations

import torch

from treemem.ops.large_pages import empty_rows
from treemem.ops.level_plan import Selection

_FEW = 3  # rows that are added faster one by one, which chains are made of


class StateGradient:
    """The gradient of a state, ``[rows, ...]``.

    If the gradient of the leaves is not wanted, all leaves share one meaningless row, to save memory.

    Args:
        state: of all rows, ``[rows, ...]``.
        gradient: what is known of its gradient before, ``[rows, ...]``; None for nothing.
        num_leaves: number of leaf rows.
        of_leaves: whether the gradient of the leaves is wanted.

    Attributes:
        values: the gradients, the first ``num_leaves - 1`` rows missing where those of the leaves are not wanted.
    """

    def __init__(self, state: torch.Tensor, gradient: torch.Tensor | None, num_leaves: int, of_leaves: bool) -> None:
        self._skipped = 0 if of_leaves else num_leaves - 1
        self.values = empty_rows(state, len(state) - self._skipped, *state.shape[1:])
        if gradient is None:
            self.values.zero_()
        else:
            self.values.copy_(gradient[self._skipped :])

    def places(self, rows: torch.Tensor) -> torch.Tensor:
        """Where the gradients of some rows (int64) are in ``values``."""
        return (rows - self._skipped).clamp_(min=0) if self._skipped else rows

    def add(self, places: torch.Tensor, values: torch.Tensor) -> None:
        """Add ``values[i]`` to the gradient at ``places[i]``."""
        if len(places) <= _FEW and places.device.type == "cpu":  # reading them elsewhere would wait for the device
            for place, value in zip(places.tolist(), values.unbind(0), strict=True):
                self.values[place].add_(value)
        else:
            self.values.index_add_(0, places, values)

    def of_rows(self, rows: Selection) -> torch.Tensor:
        """The gradients of some rows."""
        if isinstance(rows, slice):
            return self.values[rows.start - self._skipped : rows.stop - self._skipped]
        return self.values.index_select(0, self.places(rows))
