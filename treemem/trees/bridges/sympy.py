"""Equation trees from sympy and to sympy, as they stand: nothing is evaluated or simplified on the way."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from treemem.errors import GraphError, near_names, shown
from treemem.trees.formats.equations.labels import EQUALITY, FUNCTION_ARITIES, NUMBER
from treemem.trees.formats.equations.literals import LEAVES, MINUS_ONE, RATIONAL_LEAVES, literal_leaf, literal_tree
from treemem.trees.formats.equations.names import (
    VARIABLE_LABEL,
    Functions,
    VariableNames,
    Variables,
    check_function,
    check_leaf,
    variable_index,
    variable_name,
)
from treemem.trees.formats.number_text import MOST_DIGITS
from treemem.trees.formats.source_text import shorten
from treemem.trees.tree import Tree

if TYPE_CHECKING:
    import sympy

_CONSTANTS = {"NaN": "NaN:nan", "Infinity": "Infinity:oo", "Exp1": "Exp1:E", "Pi": "Pi:pi"}
_SYMPY_FUNCTIONS = ("Equality", "Add", "Mul", "Pow")


def tree_from_sympy(
    expression: sympy.Basic,
    *,
    variables: VariableNames | None = None,
    numeric: bool = False,
    functions: Mapping[str, int] | None = None,
) -> Tree:
    """The tree of a sympy expression or ``Eq``, in the order of its ``args``; sums and products of many nest right.

    sympy itself evaluates and reorders whatever was built without ``evaluate=False`` (``x - x`` is ``0`` before it
    arrives here). ``log(x)`` is read as ``log(x, e)``.

    Args:
        expression: arithmetic over numbers, symbols, ``pi``, ``E``, ``oo``, ``nan``, the functions of equation trees
            and own functions.
        variables: ``"indexed"`` for published names (x y z w v4 v5 ...), ``"appearance"`` to number symbols in the
            order in which they appear; by default indexed where every symbol has a published name.
        numeric: whether a ``Float`` or ``Integer`` outside the leaf table becomes a ``Number`` leaf, instead of being
            composed out of leaves of the table.
        functions: arities of own functions, by name.

    Raises:
        GraphError: no sympy expression, or one with a node that equation trees do not have; names it.
        ParseError: a number with more than 1,000 digits, or a symbol that is no published name.
        VocabularyError: more than ten variables, or an own function that cannot be declared.
    """
    import sympy

    if not isinstance(expression, sympy.Basic):
        raise GraphError(
            f"from_sympy takes a sympy expression, not {shown(expression)}; read a text with the parser, "
            "parse_equation or, without =, parse_expression"
        )
    calls = Functions(functions)
    nodes: list[sympy.Basic] = []
    pending = [expression]
    while pending:
        node = pending.pop()
        nodes.append(node)
        if node.args:
            _check_function(node, calls)
        pending.extend(reversed(node.args))
    names = _symbol_names(nodes)
    if variables is None:
        variables = "appearance" if any(variable_index(name) is None for name in names) else "indexed"
    numbering = Variables(variables)
    for name in names:
        numbering.label(name, name)
    done: list[Tree] = []
    for node in reversed(nodes):
        arity = len(node.args)
        if arity == 0:
            done.append(_leaf_from_sympy(node, numbering, numeric))
        else:
            children = done[: -arity - 1 : -1]
            del done[-arity:]
            done.append(_node_from_sympy(node, children))
    return done.pop()


def _symbol_names(nodes: list[sympy.Basic]) -> list[str]:
    """The names of the symbols, each once, in order of first appearance."""
    import sympy

    symbols: dict[str, sympy.Symbol] = {}
    for node in nodes:
        if isinstance(node, sympy.Symbol) and symbols.setdefault(node.name, node) != node:
            raise GraphError(f"two different symbols have the name {shorten(node.name)}")
    return list(symbols)


def _check_function(node: sympy.Basic, calls: Functions) -> None:
    name = type(node).__name__
    if name in _SYMPY_FUNCTIONS:
        return
    if name not in calls or name == "sqrt":
        raise GraphError(f"equation trees have no sympy node {shorten(name)}{near_names(name, FUNCTION_ARITIES)}")
    least, most = calls.arities(name)
    if not least <= len(node.args) <= most:
        raise GraphError(f"{name} takes {most} arguments, not {len(node.args)}")


def _node_from_sympy(node: sympy.Basic, children: list[Tree]) -> Tree:
    name = type(node).__name__
    if name == "log" and len(children) == 1:
        return Tree("log", (*children, LEAVES["Exp1:E"]))
    if name not in ("Add", "Mul"):
        return Tree(name, children)
    tree = children[-1]
    for child in reversed(children[:-1]):
        tree = Tree(name, (child, tree))
    return tree


def _leaf_from_sympy(node: sympy.Basic, numbering: Variables, numeric: bool) -> Tree:
    import sympy

    if isinstance(node, sympy.Symbol):
        label = numbering.label(node.name, node.name)
        return LEAVES.get(label) or Tree(label)
    name = type(node).__name__
    if name in _CONSTANTS:
        return LEAVES[_CONSTANTS[name]]
    if name == "NegativeInfinity":
        return Tree("Mul", (MINUS_ONE, LEAVES["Infinity:oo"]))
    if isinstance(node, sympy.Float):
        size = abs(node)
        as_float = float(size)
        is_double = node._prec <= sys.float_info.mant_dig and math.isfinite(as_float) and (as_float > 0 or size == 0)
        return _number_tree(repr(as_float) if is_double else str(size), bool(node < 0), numeric)
    if isinstance(node, sympy.Integer):
        return _integer_tree(node.p, numeric)
    if isinstance(node, sympy.Rational):
        leaf = RATIONAL_LEAVES.get(f"{node.p}/{node.q}") if max(abs(node.p), node.q) < 10 else None
        if leaf is not None:
            return leaf
        divisor = Tree("Pow", (_integer_tree(node.q, numeric), MINUS_ONE))
        return Tree("Mul", (_integer_tree(node.p, numeric), divisor))
    is_truth = isinstance(node, sympy.logic.boolalg.BooleanAtom)
    hint = "; sympy has evaluated an equation away, build it with evaluate=False" if is_truth else ""
    raise GraphError(f"equation trees have no sympy node {shorten(name)}{hint}")


def _integer_tree(integer: int, numeric: bool) -> Tree:
    if abs(integer) >= 10**MOST_DIGITS:
        raise GraphError(f"an integer of {integer.bit_length()} bits; at most {MOST_DIGITS} digits")
    return _number_tree(str(abs(integer)), integer < 0, numeric)


def _number_tree(literal: str, negative: bool, numeric: bool) -> Tree:
    leaf = literal_leaf(literal, negative=negative, numeric=numeric)
    if leaf is not None:
        return leaf
    tree = literal_tree(literal)
    return Tree("Mul", (MINUS_ONE, tree)) if negative else tree


def tree_to_sympy(tree: Tree) -> sympy.Basic:
    """The sympy expression, or ``Eq``, that an equation tree says, built with ``evaluate=False`` throughout.

    Variables become the symbols x, y, z, w, v4, v5, ... and own functions undefined functions of sympy.
    :func:`tree_from_sympy` reads the same tree back, but for what sympy has one object for: ``One:1`` comes back as
    ``Integer:1``, ``Rational:0`` as ``Integer:0``, and a ``Number`` of 0.7 as ``Float:0.7``.

    Raises:
        GraphError: a function with a wrong number of arguments, ``Equality`` below the root, a ``Number`` without a
            value, or a tree so high that sympy's own recursion gives up.
        VocabularyError: a label that equations do not have.
    """
    import sympy

    done: list[sympy.Basic] = []
    try:
        for node in tree.postorder():
            if not node.children:
                done.append(_leaf_to_sympy(node))
                continue
            check_function(node, is_root=node is tree)
            children = done[-node.arity :]
            del done[-node.arity :]
            if node.label == EQUALITY:
                function = sympy.Eq
            elif node.label in FUNCTION_ARITIES:
                function = getattr(sympy, node.label)
            else:
                function = sympy.Function(node.label)
            done.append(function(*children, evaluate=False))
    except RecursionError as error:
        raise GraphError(
            f"sympy works by recursion and gives up on a tree of height {tree.height}; only smaller trees go to sympy"
        ) from error
    return done.pop()


def _leaf_to_sympy(leaf: Tree) -> sympy.Basic:
    import sympy

    check_leaf(leaf)
    match = VARIABLE_LABEL.match(leaf.label)
    if match:
        return sympy.Symbol(variable_name(int(match[1])))
    if leaf.label == NUMBER:
        return sympy.Float(leaf.value)
    sort, _, value = leaf.label.partition(":")
    if sort in _CONSTANTS:
        return getattr(sympy.S, sort)
    return sympy.Float(value) if sort == "Float" else sympy.Rational(value)
