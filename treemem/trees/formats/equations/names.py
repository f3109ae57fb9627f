"""What a name in equation text says: a constant, a function or a variable."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from treemem.errors import GraphError, ParseError, RecipeError, VocabularyError, near_names, shown
from treemem.trees.formats.equations.labels import (
    EQUALITY,
    FUNCTION_ARITIES,
    LEAF_LABELS,
    NUM_VARIABLES,
    NUMBER,
    UNARY_FUNCTIONS,
    variable_label,
)
from treemem.trees.formats.source_text import shorten
from treemem.trees.tree import Tree

VariableNames = Literal["appearance", "indexed"]
"""How variables get their index: by the order in which they appear, or by their published name."""

CONSTANTS: dict[str, str] = {
    "pi": "Pi:pi",
    "e": "Exp1:E",
    "E": "Exp1:E",
    "oo": "Infinity:oo",
    "nan": "NaN:nan",
}
"""Names that are leaves of the table."""

_FUNCTIONS: dict[str, tuple[int, int]] = {**dict.fromkeys(UNARY_FUNCTIONS, (1, 1)), "sqrt": (1, 1), "log": (1, 2)}
_KNOWN_BY_ANOTHER_NAME = {"ln": "log", "arccos": "acos", "arccot": "acot", "tg": "tan", "ctg": "cot"}
_FIRST_VARIABLES = ("x", "y", "z", "w")
VARIABLE_LABEL = re.compile(r"Symbol:var_(0|[1-9][0-9]{0,5})\Z")
"""The label of a variable; the group is its index."""

_INDEXED_VARIABLE = re.compile(r"(?:v|var_)(0|[1-9][0-9]{0,5})\Z")
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*\Z")


def variable_name(index: int) -> str:
    """The published name of variable ``index``: x, y, z, w, v4, v5, ..."""
    return _FIRST_VARIABLES[index] if index < len(_FIRST_VARIABLES) else f"v{index}"


def variable_index(name: str) -> int | None:
    """The index that a published name says (``v2`` and ``var_2`` are ``z``), or None."""
    if name in _FIRST_VARIABLES:
        return _FIRST_VARIABLES.index(name)
    match = _INDEXED_VARIABLE.match(name)
    return int(match[1]) if match else None


class Variables:
    """Gives every variable of one equation its leaf label.

    Args:
        names: ``"appearance"`` numbers any names in order of first appearance; ``"indexed"`` knows the published
            names only, and keeps their index.
    """

    def __init__(self, names: VariableNames) -> None:
        if names not in ("appearance", "indexed"):
            raise RecipeError(f'variables must be "appearance" or "indexed", not {names!r}')
        self.names = names
        self._label_of_name: dict[str, str] = {}

    def label(self, name: str, text: str = "", offset: int = 0) -> str:
        """The leaf label of the variable ``name``, which stands at ``offset`` of ``text``.

        Raises:
            ParseError: not a published name, where these are asked for.
            VocabularyError: more variables than the leaf table has.
        """
        label = self._label_of_name.get(name)
        if label is not None:
            return label
        if self.names == "indexed":
            index = variable_index(name)
            if index is None:
                raise ParseError(f"unknown variable {shorten(name)}", text, offset, "x, y, z, w, v4, v5, ...")
        else:
            index = len(self._label_of_name)
            if index >= NUM_VARIABLES:
                raise VocabularyError(
                    f"{shorten(name)} is variable number {index + 1} of this equation, and there are leaves for"
                    f" {NUM_VARIABLES}; rename or leave out some",
                    text,
                    offset,
                )
        label = self._label_of_name[name] = variable_label(index)
        return label


def check_function_name(name: str) -> None:
    """Raise a ``VocabularyError`` where ``name`` cannot be the name of a user's own function."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise VocabularyError(f"a function's name is made of the letters a to z, digits and '_', not {shown(name)}")
    if name in _FUNCTIONS or name in CONSTANTS or name in FUNCTION_ARITIES:
        raise VocabularyError(f"{name!r} has a meaning already; give your own function another name")


def check_function(node: Tree, *, is_root: bool = True) -> None:
    """Check that an inner node is a function that equation text can say, with the right number of arguments.

    Raises:
        GraphError: a wrong number of arguments, or ``Equality`` where ``is_root`` is false.
        VocabularyError: a label that is no name of a function.
    """
    arity = FUNCTION_ARITIES.get(node.label)
    if arity is None:
        check_function_name(node.label)
    elif node.arity != arity:
        hint = "; binarize() splits it" if node.label in ("Add", "Mul") and node.arity > arity else ""
        arguments = "1 argument" if arity == 1 else f"{arity} arguments"
        raise GraphError(f"{node.label} takes {arguments}, not {node.arity}{hint}")
    elif node.label == EQUALITY and not is_root:
        raise GraphError(f"{EQUALITY} can only be the root of an equation")


def check_leaf(leaf: Tree) -> None:
    """Check that a leaf is one that equation text can say.

    Raises:
        GraphError: a function without arguments, a ``Number`` without a value or another leaf with one.
        VocabularyError: an unknown label, with the near names.
    """
    if (leaf.label == NUMBER) != (leaf.value is not None):
        raise GraphError(f"the leaf {shorten(leaf.label)} has the value {leaf.value}; {NUMBER} leaves alone have one")
    if leaf.label in FUNCTION_ARITIES:
        raise GraphError(f"{leaf.label} takes {FUNCTION_ARITIES[leaf.label]} arguments, not 0")
    if leaf.label != NUMBER and leaf.label not in LEAF_LABELS and not VARIABLE_LABEL.match(leaf.label):
        raise VocabularyError(f"equations have no leaf {shorten(leaf.label)}{near_names(leaf.label, LEAF_LABELS)}")


class Functions:
    """The functions that equation text may call.

    Args:
        user_functions: arities of functions of the user, by name.

    Raises:
        VocabularyError: an own function whose name is taken or is no name, or whose arity is no positive integer.
    """

    def __init__(self, user_functions: Mapping[str, int] | None = None) -> None:
        self._arities = dict(_FUNCTIONS)
        for name, arity in (user_functions or {}).items():
            check_function_name(name)
            if isinstance(arity, bool) or not isinstance(arity, int) or arity < 1:
                raise VocabularyError(f"the arity of {name!r} must be a positive integer, not {arity!r}")
            self._arities[name] = (arity, arity)

    def __contains__(self, name: str) -> bool:
        return name in self._arities

    def arities(self, name: str, text: str = "", offset: int = 0) -> tuple[int, int]:
        """The least and the most arguments that the function ``name`` takes.

        Raises:
            ParseError: an unknown function, with the near names.
        """
        arities = self._arities.get(name)
        if arities is not None:
            return arities
        other = _KNOWN_BY_ANOTHER_NAME.get(name)
        near = f"; did you mean {other}?" if other else near_names(name, self._arities)
        raise ParseError(
            f"unknown function {shorten(name)}{near}", text, offset, "a known function, or '*' where a product is meant"
        )
