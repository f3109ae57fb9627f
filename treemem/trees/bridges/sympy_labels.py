"""Labels of sympy expressions with any functions, which differ where the expressions do."""

from __future__ import annotations

import functools
import re

import sympy

from treemem.errors import GraphError
from treemem.trees.formats.number_text import number_text

_NUMBER = re.compile(r"[-+]?[0-9.][0-9.]*(?:[eE][-+]?[0-9]+)?(?:/[0-9]+)?")
_OWN = ("Symbol:", "Function:")


def sympy_label(item: sympy.Basic, names: dict[tuple[str, bool], object]) -> str:
    """Return the label of a node of an expression.

    Args:
        item: the node, with its arguments.
        names: the symbols and functions of one tree by their labels; grows.

    Raises:
        GraphError: two different symbols or functions of a tree have the same name, or a number has too many digits.
    """
    if item.args:
        name = type(item).__name__
        is_own = not (type(item).__module__ or "").startswith("sympy.")
        if not is_own:
            return name
        known = getattr(sympy, name, None)
        label = f"Function:{name}" if isinstance(known, type) or name.startswith(_OWN) else name
        _remember(label, item.func, "functions", names, is_leaf=False)
        return label
    if isinstance(item, sympy.Symbol):
        sort = type(item).__name__
        is_taken = item.name in _constants() or _NUMBER.fullmatch(item.name) or item.name.startswith(_OWN)
        label = f"{sort}:{item.name}" if sort != "Symbol" or is_taken else item.name
        _remember(label, item, "symbols", names, is_leaf=True)
        return label
    if isinstance(item, sympy.Rational):
        numerator = number_text(item.p)
        return numerator if item.q == 1 else f"{numerator}/{number_text(item.q)}"
    return str(item)


def _remember(label: str, item: object, what: str, names: dict[tuple[str, bool], object], *, is_leaf: bool) -> None:
    if names.setdefault((label, is_leaf), item) != item:
        raise GraphError(f"two different {what} of this tree have the name {label!r:.40}; give them different names")


@functools.cache
def _constants() -> frozenset[str]:
    """The texts of sympy's constants, such as ``E``, ``I``, ``oo`` and ``True``."""
    constants = [getattr(sympy.S, name) for name in dir(sympy.S) if not name.startswith("_")]
    return frozenset(str(constant) for constant in constants if isinstance(constant, sympy.Basic))
