"""The operations of torch that move, repeat or fill in entries, as operations of numpy; and those that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def at_index(dim: int, ndim: int, what: Any) -> tuple[Any, ...]:
    """Return the index of places along an axis, with all others whole."""
    index: list[Any] = [slice(None)] * ndim
    index[dim] = what
    return tuple(index)


def _split(shape: Any, x: Any, sizes: Any, dim: int = 0) -> list[Any]:
    bounds = np.cumsum(sizes)[:-1] if isinstance(sizes, (list, tuple)) else range(sizes, x.shape[dim], sizes)
    return np.split(x, list(bounds), dim)


def _reshaped(shape: Any, x: Any, *_: Any, **__: Any) -> Any:
    return np.reshape(x, shape)


def _same(shape: Any, x: Any, *_: Any, **__: Any) -> Any:
    return x


VIEWS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze"), _reshaped),
    **dict.fromkeys(("clone", "detach", "alias", "contiguous"), _same),
    "expand": lambda shape, x, *_, **__: np.broadcast_to(x, shape),
    "permute": lambda shape, x, dims: x.transpose(dims),
    "transpose": lambda shape, x, a, b: x.swapaxes(a, b),
    "t": lambda shape, x: x.T,
    "slice": lambda shape, x, dim=0, begin=None, end=None, step=1: x[at_index(dim, x.ndim, slice(begin, end, step))],
    "select": lambda shape, x, dim, at: x[at_index(dim, x.ndim, at)],
    "cat": lambda shape, xs, dim=0: np.concatenate([x for x in xs if np.ndim(x) == len(shape)], dim),
    "stack": lambda shape, xs, dim=0: np.stack(xs, dim),
    "unbind": lambda shape, x, dim=0: list(np.moveaxis(x, dim, 0)),
    "split_with_sizes": _split,
    **dict.fromkeys(("split", "unsafe_split"), _split),
    "roll": lambda shape, x, shifts, dims: np.roll(x, shifts, dims),
    "repeat": lambda shape, x, sizes: np.tile(x, sizes),
    "flip": lambda shape, x, dims: np.flip(x, dims),
}

REFUSED = {
    "_local_scalar_dense": "it decides by the numbers in a tensor",
    "addmm": "it multiplies by a matrix",
    **dict.fromkeys(("rand_like", "randn_like", "bernoulli", "rand", "randn"), "it draws random numbers"),
}

FILLED: dict[str, Callable[..., float]] = {
    **dict.fromkeys(("full", "full_like", "new_full"), lambda *args: args[-1]),
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros"), lambda *_: 0.0),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), lambda *_: 1.0),
    "scalar_tensor": lambda value: value,
}
