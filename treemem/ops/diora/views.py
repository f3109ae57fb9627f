"""Views of charts ``[longest, longest + 1, ...]``: the spans of a size and their parts, each entry another one."""

from __future__ import annotations

import torch


def spans_of(chart: torch.Tensor, size: int) -> torch.Tensor:
    """Return a view of the spans of a size, ``[i, i + size]``, by ``i``."""
    row, column, *rest = chart.stride()
    shape = (len(chart) - size + 1, *chart.shape[2:])
    return chart.as_strided(shape, (row + column, *rest), chart.storage_offset() + size * column)


def lefts_of(chart: torch.Tensor, size: int) -> torch.Tensor:
    """Return a view of the left parts of the spans of a size, ``[i, i + k]``, by ``i`` and ``k``."""
    row, column, *rest = chart.stride()
    shape = (len(chart) - size + 1, size - 1, *chart.shape[2:])
    return chart.as_strided(shape, (row + column, column, *rest), chart.storage_offset() + column)


def rights_of(chart: torch.Tensor, size: int) -> torch.Tensor:
    """Return a view of the right parts, ``[i + k, i + size]``, by ``i`` and ``k``."""
    row, column, *rest = chart.stride()
    shape = (len(chart) - size + 1, size - 1, *chart.shape[2:])
    return chart.as_strided(shape, (row + column, row, *rest), chart.storage_offset() + row + size * column)
