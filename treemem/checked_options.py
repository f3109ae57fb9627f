"""Checks of options by their range: a wrong value is refused by the option's name."""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from numbers import Integral, Real
from types import FunctionType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from treemem.errors import RecipeError, near_names


@dataclass(frozen=True)
class Range:
    """The values that a number may have, for :func:`check_fields`: ``Annotated[int, Range(1)]``.

    Attributes:
        least, most: the least and the greatest value.
        words: the range in words; by default the end that a value is beyond.
    """

    least: float = 0
    most: float = math.inf
    words: str = ""

    def problem(self, value: float) -> str:
        """Return what a value must be, if it is not in the range."""
        if self.least <= value <= self.most:
            return ""
        return self.words or (f"at least {self.least:g}" if value < self.least else f"at most {self.most:g}")


_MOST_LAYERS = 10_000
_MOST_ROWS = 100_000
_LEAST = 5e-324  # the least number above 0
_MOST = sys.float_info.max

Count = Annotated[int, Range(1)]
Natural = Annotated[int, Range(0)]
Layers = Annotated[int, Range(1, _MOST_LAYERS)]
"""A number of layers. It is checked before any layer is made."""
Rows = Annotated[int, Range(1, _MOST_ROWS)]
"""A number of rows of a memory, or of hypotheses in a beam. No weight depends on it, so the limit keeps a damaged
``config.yaml`` from asking for all memory."""
Probability = Annotated[float, Range(0, 1, "a probability, a number from 0 to 1")]
NonNegative = Annotated[float, Range(0, _MOST, "0 or more")]
Positive = Annotated[float, Range(_LEAST, _MOST, "above 0")]

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


def check_fields(options: Any, prefix: str = "") -> None:
    """Check the fields of a dataclass by their declared types; a number of numpy becomes Python's.

    Checked are texts of a ``Literal``, flags, and numbers with a :class:`Range`; ``None`` where the type has it.

    Args:
        options: the dataclass.
        prefix: of the names in messages, such as ``"data."``.

    Raises:
        RecipeError: a field has another type, or a value out of its range.
    """
    for name, declared in _declared(options.__class__).items():
        object.__setattr__(options, name, _checked(f"{prefix}{name}", getattr(options, name), declared))


@cache
def _declared(options: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(options, include_extras=True)
    return {field.name: hints[field.name] for field in fields(options)}


def checked_arguments(layer: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of a constructor after checking them by their declared types, as :func:`check_fields` does.

    An option that may be set at any time is checked where it is set: it may have former names of its values.

    Raises:
        RecipeError: an argument has another type, or a value out of its range.
    """
    types = _declared_arguments(layer)
    settable = {name for name in types if hasattr(inspect.getattr_static(layer, name, None), "__set__")}
    return {
        name: _checked(name, value, types[name]) if name in types and name not in settable else value
        for name, value in arguments.items()
    }


@cache
def _declared_arguments(layer: Any) -> dict[str, Any]:
    """Return the types of the parameters of a class's constructor and of those of its base classes.

    A parameter that is handed on keeps the range that the base class declares, unless it has one of its own.
    """
    hints: dict[str, Any] = {}
    plain_hints: dict[str, Any] = {}
    for base in layer.__mro__[::-1]:
        if isinstance(constructor := vars(base).get("__init__"), FunctionType):
            with contextlib.suppress(NameError):  # of types that only a type checker imports
                plain, full = (get_type_hints(constructor, include_extras=extras) for extras in (False, True))
                is_new = {
                    name: hint != plain[name] or plain[name] != plain_hints.get(name) for name, hint in full.items()
                }
                hints |= {name: hint for name, hint in full.items() if is_new[name]}
                plain_hints |= plain
    return hints


def _checked(name: str, value: Any, declared: Any, or_none: str = "") -> Any:
    """Return a value as its declared type says, if it is of a kind that :func:`check_fields` checks."""
    origin, parts = get_origin(declared), get_args(declared)
    if origin in (Union, UnionType):
        if value is None and type(None) in parts:
            return None
        kinds = [part for part in parts if part is not type(None)]
        if all(get_origin(kind) is Literal for kind in kinds):
            return checked_choice(name, value, [choice for kind in kinds for choice in get_args(kind)])
        return value if len(kinds) > 1 else _checked(name, value, kinds[0], " or None" * (type(None) in parts))
    if origin is Literal:
        return checked_choice(name, value, parts)
    if declared is bool:
        return checked_flag(name, value)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise RecipeError(f"{name} must be names and numbers, not {_shown(value)}")
        return {key: _checked(f"{name}.{key}", part, parts[1]) for key, part in value.items()}
    if origin is not Annotated:
        return value
    kind, *ranges = parts
    if not isinstance(value, Integral if kind is int else Real):
        number = "a whole number" if kind is int else "a number"
        raise RecipeError(f"{name} must be {number}{or_none}, not {_shown(value)}")
    try:
        plain = kind(value)
    except OverflowError as error:
        raise RecipeError(f"{name} is too large for a number: {_shown(value)}") from error
    for allowed in ranges:
        if problem := allowed.problem(plain):
            raise RecipeError(f"{name} must be {problem}, not {_shown(value)}")
    return plain


def _shown(value: object) -> str:
    """Return a value for a message, at most 100 characters of it."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
