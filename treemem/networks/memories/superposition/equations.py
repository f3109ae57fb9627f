"""The steps of Joulin & Mikolov 2015, section 3."""

from __future__ import annotations

import torch


def stack_step(
    stack: torch.Tensor, value: torch.Tensor, push: torch.Tensor, pop: torch.Tensor, no_op: torch.Tensor, empty: float
) -> torch.Tensor:
    """Return the next stack, row 0 the top: ``push * [value, S[:-1]] + pop * [S[1:], empty] + no_op * S``.

    Args:
        stack: ``[batch, depth, size]``. What is pushed beyond the depth is lost.
        value: ``[batch, size]``.
        push, pop, no_op: ``[batch]``.
        empty: what comes up from below the last row: -1 in the paper.
    """
    pushed = torch.cat([value[:, None], stack[:, :-1]], 1)
    popped = torch.cat([stack[:, 1:], torch.full_like(value, empty)[:, None]], 1)
    return push[:, None, None] * pushed + pop[:, None, None] * popped + no_op[:, None, None] * stack


def list_step(
    cells: torch.Tensor,
    value: torch.Tensor,
    insert: torch.Tensor,
    left: torch.Tensor,
    right: torch.Tensor,
    no_op: torch.Tensor,
    empty: float,
) -> torch.Tensor:
    """Return the next list. Its head is the middle cell; moving the head moves all cells the other way.

    ``insert`` puts the value at the head, and all cells to its left, the former head among them, go one place to the
    left. ``left`` brings the cell on the left to the head, ``right`` that on the right.

    Args:
        cells: ``[batch, length, size]``. What leaves at an end is lost.
        value: ``[batch, size]``.
        insert, left, right, no_op: ``[batch]``.
        empty: what comes in at an end.
    """
    head = cells.shape[1] // 2
    edge = torch.full_like(value, empty)[:, None]
    inserted = torch.cat([cells[:, 1 : head + 1], value[:, None], cells[:, head + 1 :]], 1)
    from_left = torch.cat([edge, cells[:, :-1]], 1)
    from_right = torch.cat([cells[:, 1:], edge], 1)
    actions = ((insert, inserted), (left, from_left), (right, from_right), (no_op, cells))
    return torch.stack([weight[:, None, None] * result for weight, result in actions]).sum(0)
