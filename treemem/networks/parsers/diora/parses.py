"""Views of charts, and the best binary tree of each sequence by the scores of its splits (CKY)."""

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


def best_parses(scores: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return the tree whose splits have the largest sum of scores, of equal ones that with the shortest left part.

    Args:
        scores: of the split of ``[i, j]`` after ``k`` tokens at ``[i, j, k]``, ``[longest, longest + 1, longest,
            sequences]``, on the CPU.
        lengths: int64 ``[sequences]``, on the CPU.

    Returns:
        How many tokens the constituent has that is split before each token, ``[sequences, longest]``; 0 at the first
        token and at padding.
    """
    longest = len(scores)
    best = scores.new_zeros(longest, longest + 1, len(lengths))
    chosen = torch.zeros(best.shape, dtype=torch.int64)
    for size in range(2, longest + 1):
        parts = lefts_of(best, size) + rights_of(best, size)
        value, left = (spans_of(scores, size)[:, 1:size] + parts).max(1)
        spans_of(best, size).copy_(value)
        spans_of(chosen, size).copy_(left + 1)
    found = torch.zeros(len(lengths), longest)
    tables = chosen.movedim(2, 0).tolist()
    for row, length in enumerate(lengths.tolist()):
        pending = [(0, length)] if length > 1 else []
        while pending:
            begin, end = pending.pop()
            middle = begin + tables[row][begin][end]
            found[row, middle] = end - begin
            pending += [part for part in ((begin, middle), (middle, end)) if part[1] - part[0] > 1]
    return found
