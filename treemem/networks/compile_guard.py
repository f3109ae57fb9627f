"""Layers that torch.compile leaves as they are."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def without_compile(function: Function) -> Function:
    """Return a function that ``torch.compile`` does not trace: what is around it is compiled.

    The engines choose their own order of steps, which differs from batch to batch. This does as
    ``torch.compiler.disable``, but does not import the compiler with the library.
    """
    disabled: dict[None, Function] = {}

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if not disabled:
            disabled[None] = torch.compiler.disable(function)
        return disabled[None](*args, **kwargs)

    return run  # type: ignore[return-value]
