"""Checks of options by their range: a wrong value is refused by the option's name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

from treemem.errors import RecipeError, near_names

_MOST_LAYERS = 10_000
_MOST_ROWS = 100_000
_Choice = TypeVar("_Choice", bound="str | int")


def checked_count(name: str, value: Any, least: int = 1) -> int:
    """Return ``value`` if it is a whole number of at least ``least``.

    Raises:
        RecipeError: it is not.
    """
    if not isinstance(value, Integral):
        raise RecipeError(f"{name} must be a whole number, not {_shown(value)}")
    if value < least:
        raise RecipeError(f"{name} must be at least {least}, not {value}")
    return int(value)


def checked_layers(name: str, value: Any) -> int:
    """Return ``value`` if it is a number of layers, from 1 to 10,000. It is checked before any layer is made.

    Raises:
        RecipeError: it is not.
    """
    return _checked_most(name, value, _MOST_LAYERS)


def checked_rows(name: str, value: Any) -> int:
    """Return ``value`` if it is a number of rows of a memory, or of hypotheses in a beam, from 1 to 100,000.

    No weight depends on it, so the limit keeps a damaged ``config.yaml`` from asking for all memory.

    Raises:
        RecipeError: it is not.
    """
    return _checked_most(name, value, _MOST_ROWS)


def _checked_most(name: str, value: Any, most: int) -> int:
    count = checked_count(name, value)
    if count > most:
        raise RecipeError(f"{name} must be at most {most}, not {_shown(value)}")
    return count


def checked_choice(name: str, value: _Choice, known: Sequence[_Choice]) -> _Choice:
    """Return ``value`` if it is one of ``known``.

    Raises:
        RecipeError: it is not. The message has the near names.
    """
    if value not in known:
        names = list(map(str, known))
        raise RecipeError(f"{name}={_shown(value)} is none of {', '.join(names)}{near_names(str(value), names)}")
    return value


def checked_flag(name: str, value: Any) -> bool:
    """Return ``value`` if it is True or False; a text such as ``"no"`` would count as True.

    Raises:
        RecipeError: it is not.
    """
    if not isinstance(value, bool):
        raise RecipeError(f"{name} must be True or False, not {_shown(value)}")
    return value


def count_range(value: Any) -> tuple[int, int] | None:
    """Return ``value`` as a tuple if it is two whole numbers, the first not above the second, else None."""
    if isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(number, Integral) for number in value):
        low, high = map(int, value)
        return (low, high) if low <= high else None
    return None


def checked_probability(name: str, value: Any) -> float:
    """Return ``value`` if it is a number from 0 to 1.

    Raises:
        RecipeError: it is not.
    """
    if not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise RecipeError(f"{name} must be a probability, a number from 0 to 1, not {_shown(value)}")
    return float(value)


def checked_scale(name: str, value: Any, *, or_zero: bool = False) -> float:
    """Return ``value`` if it is a finite number above 0, or, with ``or_zero``, 0.

    Raises:
        RecipeError: it is not.
    """
    if not isinstance(value, Real) or not 0 <= float(value) < math.inf or (value == 0 and not or_zero):
        raise RecipeError(f"{name} must be {'0 or more' if or_zero else 'above 0'}, not {_shown(value)}")
    return float(value)


def _shown(value: object) -> str:
    """Return a value for a message, at most 100 characters of it."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
