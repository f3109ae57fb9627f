"""The functions of the vocabulary as real functions of floating-point numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_Function = Callable[..., Any]


def _reciprocal(function: _Function) -> _Function:
    return lambda argument: 1 / function(argument)


def _of_reciprocal(function: _Function) -> _Function:
    return lambda argument: function(1 / argument)


REAL_FUNCTIONS: dict[str, _Function] = {
    "Add": np.add,
    "Mul": np.multiply,
    "Pow": np.power,
    "log": lambda value, base: np.log(value) / np.log(base),
    "exp": np.exp,
    **{"sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh},
    **{"asin": np.arcsin, "acos": np.arccos, "atan": np.arctan},
    **{"asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh},
    **{"csc": _reciprocal(np.sin), "sec": _reciprocal(np.cos), "cot": _reciprocal(np.tan)},
    **{"csch": _reciprocal(np.sinh), "sech": _reciprocal(np.cosh), "coth": _reciprocal(np.tanh)},
    **{"acsc": _of_reciprocal(np.arcsin), "asec": _of_reciprocal(np.arccos), "acot": _of_reciprocal(np.arctan)},
    **{"acsch": _of_reciprocal(np.arcsinh), "asech": _of_reciprocal(np.arccosh), "acoth": _of_reciprocal(np.arctanh)},
}
"""For numbers or arrays. What is not real or not there is NaN or infinite; numpy warns of it."""
