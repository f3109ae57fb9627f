"""How many threads torch computes with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Let torch compute with ``count`` threads inside the block; None changes nothing.

    The levels of a batch are many small operations. Their threads wait busily for one another, so that a second thread
    gains little below a thousand examples a batch, and costs a hundredfold where another process has the core.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
