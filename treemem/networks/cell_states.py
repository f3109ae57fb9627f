"""Rows of the states of cells: tensors ``[batch, ...]``, tuples of states, or states with methods of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def where(going: torch.Tensor, after: Any, before: Any) -> Any:
    """Return ``after`` in the rows where ``going [batch]`` is true, ``before`` in the others."""

    def chosen(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
        return new if new is old else torch.where(going.view(-1, *[1] * (new.dim() - 1)), new, old)

    return _mapped(chosen, lambda new, old: new.where(going, old), after, before)


def take(state: Any, rows: torch.Tensor) -> Any:
    """Return the state of these rows of a batch; a row may be taken several times."""
    return _mapped(lambda tensor: tensor[rows], lambda memory: memory.take(rows), state)


def _mapped(of_tensor: Callable[..., Any], of_own: Callable[..., Any], *states: Any) -> Any:
    first = states[0]
    if isinstance(first, torch.Tensor):
        return of_tensor(*states)
    if hasattr(first, "take"):
        return of_own(*states)
    parts = [_mapped(of_tensor, of_own, *group) for group in zip(*states, strict=True)]
    return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
