"""Whether the engine ``"auto"`` takes the kernels for CUDA."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from treemem.engines.cuda.launcher import launcher
from treemem.errors import RecipeError

ENVIRONMENT_VARIABLE = "TREEMEM_CUDA_KERNELS"

_forced: ContextVar[bool | None] = ContextVar("_forced", default=None)


@contextmanager
def cuda_kernels(chosen: bool) -> Iterator[None]:
    """Let ``engine="auto"`` take Triton kernels on CUDA in this block, or not, in place of ``TREEMEM_CUDA_KERNELS``.

    Outside such a block the environment variable decides: ``1`` takes them, and ``0``, the default, does not: they have
    not run on a GPU yet. Threads started in the block are not affected.

    Example:
        >>> with cuda_kernels(True):
        ...     pass
    """
    token = _forced.set(chosen)
    try:
        yield
    finally:
        _forced.reset(token)


def kernels_wanted() -> bool:
    """Return whether ``engine="auto"`` takes kernels on CUDA where they can run.

    Raises:
        RecipeError: an environment variable that says something else.
    """
    forced = _forced.get()
    if forced is not None:
        return forced
    value = os.environ.get(ENVIRONMENT_VARIABLE) or "0"
    if value not in ("0", "1"):
        raise RecipeError(f"{ENVIRONMENT_VARIABLE}={value!r} is none of 0, 1")
    return value == "1"


def runs_kernels(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether kernels take the place of torch's operations for all that these tensors are read by.

    Raises:
        RecipeError: as of :func:`kernels_wanted`.
    """
    return launcher().why_not(tensors) is None and kernels_wanted()
