"""The published JSON format of equations: by depth, lists of records that hold a tree in comma-separated preorder."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from treemem.errors import GraphError, ParseError, TreememError, VocabularyError, near_names
from treemem.records import open_source
from treemem.trees.equation_labels import EQUALITY, FUNCTION_ARITIES, LEAF_LABELS, NUMBER, UNIFIED_LABELS
from treemem.trees.tree import Tree

MISSING = "#"
"""Stands for a child that is not there."""

_LEAF_CLASSES = frozenset(label.partition(":")[0] for label in LEAF_LABELS)
_FORM = "a list over depth of lists of records"


def read_published_records(source: str | os.PathLike[str]) -> Iterator[tuple[str, Any]]:
    """Each record of a file with its place, such as ``"depth 8, record 2"``; the first record of a depth is number 1.

    Raises:
        RecipeError: there is no such file.
        ParseError: it is no JSON, or not a list of lists.
    """
    name = os.fspath(source)
    with open_source(source) as stream:
        try:
            text = stream.read().decode("utf-8-sig")
            depths = json.loads(text)
        except json.JSONDecodeError as error:
            raise ParseError(f"no JSON here ({error.msg})", text, error.pos, _FORM, source=name) from error
        except (UnicodeDecodeError, ValueError, RecursionError, EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ParseError(f"no JSON file ({error})", expected=_FORM, source=name) from error
    if not isinstance(depths, list) or not all(isinstance(records, list) for records in depths):
        raise ParseError("JSON of another form", expected=_FORM, source=name)
    for depth, records in enumerate(depths):
        for number, record in enumerate(records, start=1):
            yield f"depth {depth}, record {number}", record


def published_tree(record: Any) -> tuple[Tree, int]:
    """The equation of a record, and 1 if it is correct, 0 if not, -1 if the record does not say.

    Raises:
        GraphError: the record's fields, or the arities that they say, do not make a tree.
        VocabularyError: a function or leaf that the published data do not have.
    """
    equation = record.get("equation") if isinstance(record, Mapping) else None
    if not isinstance(equation, Mapping):
        raise GraphError("it has no field 'equation' with 'func' and 'vars'")
    columns = []
    for name in ("func", "vars"):
        if not isinstance(equation.get(name), str):
            raise GraphError(f"its equation has no field {name!r} of comma-separated text")
        columns.append(equation[name].split(","))
    functions, variables = columns
    if len(functions) != len(variables):
        raise GraphError(f"'func' has {len(functions)} entries and 'vars' {len(variables)}")
    label = str(record.get("label", "-1")).strip()
    if label not in ("1", "0", "-1"):
        raise GraphError(f"its label is {label!r}; expected 1, 0 or -1")
    tree = _tree_of(functions, variables)
    if tree.label != EQUALITY:
        raise GraphError(f"the root is {tree.label!r}; it must be {EQUALITY!r}")
    return tree, int(label)


def published_trees(records: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, tuple[Tree, int] | TreememError]]:
    """Each record's place with its equation and label, or with what is wrong with it."""
    for place, record in records:
        try:
            yield place, published_tree(record)
        except (GraphError, VocabularyError) as error:
            yield place, error


def _tree_of(functions: list[str], variables: list[str]) -> Tree:
    """The tree of a preorder in which every node has two places for children, ``#`` standing for a missing child."""
    pending: list[Tree | None] = []
    for position in range(len(functions) - 1, -1, -1):
        function = functions[position]
        if function == MISSING:
            pending.append(None)
            continue
        if len(pending) < 2:
            raise GraphError(f"entry {position} ({function!r}) lacks the entries of its two children")
        first, second = pending.pop(), pending.pop()
        if first is None and second is not None:
            raise GraphError(f"entry {position} ({function!r}) has a second child without a first")
        children = [child for child in (first, second) if child is not None]
        pending.append(_node(function, variables[position], children, position))
    if len(pending) != 1 or pending[0] is None:
        raise GraphError(f"its entries make {len(pending)} trees, not one")
    return pending[0]


def _node(function: str, variable: str, children: list[Tree], position: int) -> Tree:
    if children:
        arity = FUNCTION_ARITIES.get(function)
        if arity is None:
            raise VocabularyError(
                f"entry {position}: unknown function {function!r}{near_names(function, FUNCTION_ARITIES)}"
            )
        if arity != len(children):
            raise GraphError(f"entry {position}: {function!r} has {len(children)} children, not {arity}")
        return Tree(function, children)
    if function == NUMBER:
        try:
            value = float(variable)
        except ValueError as error:
            raise VocabularyError(f"entry {position}: {variable!r} is no number") from error
        return Tree(NUMBER, value=value)
    label = f"{function}:{variable}"
    if label not in LEAF_LABELS:
        known = LEAF_LABELS if function in _LEAF_CLASSES else (*sorted(_LEAF_CLASSES), *FUNCTION_ARITIES)
        near = near_names(label if function in _LEAF_CLASSES else function, known)
        raise VocabularyError(f"entry {position}: unknown leaf {label!r}{near}")
    return Tree(UNIFIED_LABELS.get(label, label))
