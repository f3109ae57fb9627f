"""Types in words, for messages to people who write recipes."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

_WORDS = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true or false"),
    str: ("a text", "texts"),
    type(None): ("null", "null"),
}


def type_words(declared: Any, *, several: bool = False) -> str:
    """Return what a value of a type is, such as ``"a list of whole numbers"``.

    Args:
        declared: the type, as :func:`typing.get_type_hints` returns it.
        several: in the plural.
    """
    if declared in _WORDS:
        return _WORDS[declared][several]
    origin, arguments = get_origin(declared), get_args(declared)
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin in (Union, types.UnionType):
        return " or ".join(type_words(argument, several=several) for argument in arguments)
    lists = "lists" if several else "a list"
    if origin is tuple and arguments[-1] is not Ellipsis:
        kinds = dict.fromkeys(type_words(argument, several=True) for argument in arguments)
        return f"{lists} of {len(arguments)} {' and '.join(kinds)}"
    if origin in (tuple, list, Sequence):
        return f"{lists} of {type_words(arguments[0], several=True)}"
    if origin in (dict, Mapping):
        return f"names and {type_words(arguments[1], several=True)}"
    return inspect.formatannotation(declared)
