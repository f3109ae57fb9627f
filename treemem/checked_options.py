"""Options that are numbers, flags, paths or names: what is none, or lies outside, is refused by its name."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from numbers import Integral, Real
from typing import TypeVar

from treemem.errors import RecipeError, near_names

_Choice = TypeVar("_Choice", bound=str)


def checked_count(name: str, value: object, least: int = 1) -> int:
    """``value`` if it is a whole number of at least ``least``.

    Args:
        name: of the option.
        value: what was given; True and 4.0 are no whole numbers.
        least: the smallest that will do.

    Raises:
        RecipeError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise RecipeError(f"{name} must be a whole number, not {value!r}")
    if value < least:
        raise RecipeError(f"{name} must be at least {least}, not {value}")
    return int(value)


def checked_choice(name: str, value: _Choice, known: Sequence[_Choice]) -> _Choice:
    """``value`` if it is one of ``known``.

    Raises:
        RecipeError: it is none; names the near ones.
    """
    if value not in known:
        raise RecipeError(f"{name}={value!r} is none of {', '.join(known)}{near_names(str(value), known)}")
    return value


def checked_flag(name: str, value: object) -> bool:
    """``value`` if it is True or False; a text such as ``"no"`` is neither.

    Raises:
        RecipeError: it is neither.
    """
    if not isinstance(value, bool):
        raise RecipeError(f"{name} must be True or False, not {value!r}")
    return value


def checked_path(name: str, value: object) -> str:
    """``value`` as text if it is a path: a text, or what stands for one, such as a :class:`pathlib.Path`.

    Raises:
        RecipeError: it is none.
    """
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(path, str):
        raise RecipeError(f"{name} must be a path, a text, not {value!r}")
    return path


def checked_probability(name: str, value: object) -> float:
    """``value`` if it is a number from 0 to 1.

    Raises:
        RecipeError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise RecipeError(f"{name} must be a probability, a number from 0 to 1, not {value!r}")
    return float(value)


def checked_scale(name: str, value: object, *, or_zero: bool = False) -> float:
    """``value`` if it is a finite number above 0, or with ``or_zero`` 0 itself.

    Raises:
        RecipeError: it is none.
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    number = float(value) if is_number else math.nan  # type: ignore[arg-type]
    if not 0 <= number < math.inf or (number == 0 and not or_zero):
        raise RecipeError(f"{name} must be {'0 or more' if or_zero else 'above 0'}, not {value!r}")
    return number
