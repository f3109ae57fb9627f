"""Read JSON of any depth. Python's own reader gives up at about 990 levels."""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from treemem.errors import ParseError
from treemem.records.source import two_fields, unique_fields

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_CONSTANTS = {"null": None, "true": True, "false": False, "NaN": float("nan"), "Infinity": float("inf")}
_CONSTANT = re.compile("|".join(_CONSTANTS))
_EXPECTED = "a value of JSON"
_CLOSES = {"[": "]", "{": "}"}


def parse_json(text: str) -> Any:
    """Return what ``json.loads`` returns, for lists and dictionaries of any depth.

    Raises:
        ParseError: the text is not JSON, an object has two fields of one name, or an integer has more digits than
            Python reads.

    Example:
        >>> parse_json('["f", {"label": "x"}]')
        ['f', {'label': 'x'}]
    """
    text = text.removeprefix("\ufeff")
    try:
        try:
            return json.loads(text, object_pairs_hook=unique_fields)
        except RecursionError:
            return _parse(text)
    except json.JSONDecodeError as error:
        raise ParseError(f"this is not JSON: {error.msg}", text, error.pos, _EXPECTED) from error
    except ValueError as error:  # two fields of one name, or an integer of thousands of digits
        expected = "distinct names, and numbers of fewer than 4,300 digits"
        raise ParseError(f"this JSON cannot be read: {error}", text, 0, expected) from error


def _parse(text: str) -> Any:
    """Read JSON with a stack of the lists and dictionaries that are open."""
    pending: list[tuple[Any, str]] = []  # what is open, and the key that its next value has
    place = _skip(text, 0)
    while True:
        sign = text[place : place + 1]
        if sign and sign in "[{":
            opened: Any = [] if sign == "[" else {}
            place = _skip(text, place + 1)
            if text[place : place + 1] != _CLOSES[sign]:
                key, place = _key(text, place) if sign == "{" else ("", place)
                pending.append((opened, key))
                continue
            value, place = opened, place + 1
        else:
            value, place = _plain_value(text, place)
        while True:  # put the value in its place, and close what ends behind it
            place = _skip(text, place)
            if not pending:
                if place < len(text):
                    raise json.JSONDecodeError("Extra data", text, place)
                return value
            parent, key = pending[-1]
            is_list = isinstance(parent, list)
            if is_list:
                parent.append(value)
            elif key in parent:
                raise two_fields(key)
            else:
                parent[key] = value
            sign = text[place : place + 1]
            if sign == ",":
                place = _skip(text, place + 1)
                if not is_list:
                    key, place = _key(text, place)
                    pending[-1] = (parent, key)
                break
            if sign != ("]" if is_list else "}"):
                raise json.JSONDecodeError("Expecting ',' delimiter", text, place)
            value, _ = pending.pop()
            place += 1


def _skip(text: str, place: int) -> int:
    space = _SPACE.match(text, place)
    return place if space is None else space.end()


def _key(text: str, place: int) -> tuple[str, int]:
    """Return a key of a dictionary, and where its value begins."""
    if text[place : place + 1] != '"':
        raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, place)
    key, place = scanstring(text, place + 1, True)
    place = _skip(text, place)
    if text[place : place + 1] != ":":
        raise json.JSONDecodeError("Expecting ':' delimiter", text, place)
    return key, _skip(text, place + 1)


def _plain_value(text: str, place: int) -> tuple[Any, int]:
    """Return a text, number or constant, and where it ends."""
    if text[place : place + 1] == '"':
        value, place = scanstring(text, place + 1, True)
        return value, place
    if (number := _NUMBER.match(text, place)) is not None:
        is_whole = number[2] is None and number[3] is None
        return int(number[0]) if is_whole else float(number[0]), number.end()
    if text.startswith("-Infinity", place):
        return float("-inf"), place + len("-Infinity")
    if (constant := _CONSTANT.match(text, place)) is not None:
        return _CONSTANTS[constant[0]], constant.end()
    raise json.JSONDecodeError("Expecting value", text, place)
