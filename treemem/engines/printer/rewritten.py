"""Functions of torch in terms of others that are printed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear


class _Values(NamedTuple):
    """What a maximum over a dimension returns; nobody may read the indices."""

    values: Tensor
    indices: None = None


def _extreme(is_better: Callable[..., Tensor], x: Tensor, dim: int, keepdim: bool = False) -> _Values:
    """The first of the largest (or smallest) entries; NaN if there is one."""

    def better(best: Tensor, other: Tensor) -> Tensor:
        return torch.where(is_better(other, best) | (other != other), other, best)

    extreme = reduce(better, x.unbind(dim))
    return _Values(extreme.unsqueeze(dim) if keepdim else extreme)


def _product(x: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    product = reduce(operator.mul, x.unbind(dim))
    return product.unsqueeze(dim) if keepdim else product


def _gru_cell(x: Tensor, h: Tensor, w_x: Tensor, w_h: Tensor, b_x: Any = None, b_h: Any = None) -> Tensor:
    of_x, of_h = linear(x, w_x, b_x).chunk(3, 1), linear(h, w_h, b_h).chunk(3, 1)
    reset, update = (torch.sigmoid(a + b) for a, b in zip(of_x[:2], of_h[:2], strict=True))
    candidate = torch.tanh(of_x[2] + reset * of_h[2])
    return candidate + update * (h - candidate)


def _lstm_cell(
    x: Tensor, states: Sequence[Tensor], w_x: Tensor, w_h: Tensor, b_x: Any = None, b_h: Any = None
) -> tuple[Tensor, Tensor]:
    h, c = states
    input, forget, update, output = (linear(x, w_x, b_x) + linear(h, w_h, b_h)).chunk(4, 1)
    c = torch.sigmoid(forget) * c + torch.sigmoid(input) * torch.tanh(update)
    return torch.sigmoid(output) * torch.tanh(c), c


def _rnn_cell(
    activation: Callable[[Tensor], Tensor], x: Tensor, h: Tensor, w_x: Tensor, w_h: Tensor, b_x: Any, b_h: Any
) -> Tensor:
    return activation(linear(x, w_x, b_x) + linear(h, w_h, b_h))


_CELLS: dict[Any, Callable[..., Any]] = {
    torch.gru_cell: _gru_cell,
    torch.lstm_cell: _lstm_cell,
    torch.rnn_tanh_cell: partial(_rnn_cell, torch.tanh),
    torch.rnn_relu_cell: partial(_rnn_cell, torch.relu),
}
_OVER_A_DIMENSION: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((torch.max, torch.Tensor.max), partial(_extreme, torch.gt)),
    **dict.fromkeys((torch.min, torch.Tensor.min), partial(_extreme, torch.lt)),
    **dict.fromkeys((torch.prod, torch.Tensor.prod), _product),
}


def rewritten(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
    """Return what computes the same as a call of a function of torch; None if the call itself is printed."""
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    return _OVER_A_DIMENSION.get(func) if isinstance(dim, int) else _CELLS.get(func)
