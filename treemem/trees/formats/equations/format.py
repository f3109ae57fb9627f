"""Trees printed as equations that people read, and that parse back to the same tree.

``Add(x, Mul(-1, y))`` prints as ``x - y``, ``Mul(x, Pow(y, -1))`` as ``x/y``, ``Pow(x, 1/2)`` as ``sqrt(x)``. Wherever
the short spelling would be read as another tree (``-3`` for ``Mul(-1, 3)``, say) the long one is used: ``(-1)*3``.
"""

from __future__ import annotations

import re

from treemem.trees.formats.equations.labels import EQUALITY, LEAF_LABELS, NUMBER, UNIFIED_LABELS
from treemem.trees.formats.equations.names import CONSTANTS, VARIABLE_LABEL, check_function, check_leaf, variable_name
from treemem.trees.tree import Tree, words_of

_SPELLING: dict[str, str] = {
    **{label: label.partition(":")[2] for label in LEAF_LABELS if not label.startswith("Symbol:")},
    **{label: name for name, label in reversed(CONSTANTS.items())},
    **{label: unified.partition(":")[2] for label, unified in UNIFIED_LABELS.items()},
}

_UNSIGNED = re.compile(r"[0-9][^/]*\Z")

# Where a subtree stands decides which of its forms needs parentheses.
_WHOLE, _FIRST_TERM, _LATER_TERMS, _TERM, _LATER_FACTORS, _FACTOR, _ATOM = range(7)

_Piece = str | tuple[Tree, int, Tree | None]


def format_equation(tree: Tree) -> str:
    """The infix text of an equation or expression, in published variable names (x y z w v4 v5 ...).

    ``parse_equation(text, variables="indexed")``, or ``parse_expression`` where the root is not ``Equality``, reads the
    same tree back; with ``numeric=True`` where the tree has ``Number`` leaves, and with ``functions`` where it has own
    functions. The labels ``One:1`` and ``Rational:0`` read back as ``Integer:1`` and ``Integer:0``.

    Raises:
        GraphError: a function with a wrong number of arguments, ``Equality`` below the root, a ``Number`` without a
            value or another leaf with one.
        VocabularyError: a label that equation text has no spelling for.

    Example:
        >>> format_equation(Tree("Mul", [Tree("Symbol:var_0"), Tree("Pow", [Tree("Pi:pi"), Tree("NegativeOne:-1")])]))
        'x/pi'
    """
    pieces: list[_Piece] = [(tree, _WHOLE, None)]
    if tree.label == EQUALITY:
        check_function(tree)
        left, right = tree.children
        pieces = [(left, _WHOLE, None), " = ", (right, _WHOLE, None)]
    return "".join(words_of(pieces, lambda piece: _expand(*piece)))


def _expand(tree: Tree, place: int, before: Tree | None) -> list[_Piece]:
    """What ``tree`` prints as at ``place``, in pieces of which some are subtrees with their own places.

    ``before`` is the factor to the left, at the place ``_LATER_FACTORS``.
    """
    if not tree.children:
        return _expand_leaf(tree, place, before)
    _checked_children(tree)
    if place == _LATER_TERMS:
        if tree.label == "Add":
            left, right = tree.children
            return [*_expand_later_term(left), (right, _LATER_TERMS, None)]
        return _expand_later_term(tree)
    if place == _LATER_FACTORS:
        if tree.label == "Mul" and not _is_negation(tree):
            left, right = tree.children
            return [*_expand_later_factor(left, before), (right, _LATER_FACTORS, left)]
        return _expand_later_factor(tree, before)
    if _is_negation(tree):
        if place > _FIRST_TERM:
            return ["(", (tree, _WHOLE, None), ")"]
        return _expand_negation(tree.children[1])
    if tree.label == "Add":
        if place > _WHOLE:
            return ["(", (tree, _WHOLE, None), ")"]
        return [(tree.children[0], _FIRST_TERM, None), (tree.children[1], _LATER_TERMS, None)]
    if tree.label == "Mul":
        if place > _TERM:
            return ["(", (tree, _WHOLE, None), ")"]
        return [(tree.children[0], _FACTOR, None), (tree.children[1], _LATER_FACTORS, tree.children[0])]
    return _expand_power_or_call(tree, place)


def _expand_later_term(tree: Tree) -> list[_Piece]:
    if _is_negation(tree):
        return [" - ", (tree.children[1], _TERM, None)]
    return [" + ", (tree, _TERM, None)]


def _expand_later_factor(tree: Tree, before: Tree | None) -> list[_Piece]:
    if tree.label == "Pow" and _is_leaf(_checked_children(tree)[1], "NegativeOne:-1"):
        divisor = tree.children[0]
        if not (_is_natural(divisor) and before is not None and _is_natural(before)):
            return ["/", (divisor, _FACTOR, None)]
    return ["*", (tree, _FACTOR, None)]


def _expand_negation(negated: Tree) -> list[_Piece]:
    """``-negated``, unless the minus would be read as the sign of the number that ``negated`` begins with."""
    first = negated
    if first.label == "Mul":
        first = _checked_children(first)[0]
    if first.label == "Pow" and not _is_leaf(_checked_children(first)[1], "Half:1/2"):
        first = first.children[0]
    if not first.children and _UNSIGNED.match(_leaf_text(first)):
        return ["(-1)", (negated, _LATER_FACTORS, None)]
    return ["-", (negated, _TERM, None)]


def _expand_power_or_call(tree: Tree, place: int) -> list[_Piece]:
    children = tree.children
    if tree.label == "Pow":
        base, exponent = children
        if _is_leaf(exponent, "Half:1/2"):
            return ["sqrt(", (base, _WHOLE, None), ")"]
        if place > _FACTOR:
            return ["(", (tree, _WHOLE, None), ")"]
        return [(base, _ATOM, None), "^", (exponent, _FACTOR, None)]
    if tree.label == "log" and _is_leaf(children[1], "Exp1:E"):
        children = children[:1]
    pieces: list[_Piece] = [f"{tree.label}("]
    for position, child in enumerate(children):
        pieces += [", " if position else "", (child, _WHOLE, None)]
    return [*pieces, ")"]


def _expand_leaf(leaf: Tree, place: int, before: Tree | None) -> list[_Piece]:
    if place == _LATER_TERMS:
        return _expand_later_term(leaf)
    if place == _LATER_FACTORS:
        return _expand_later_factor(leaf, before)
    text = _leaf_text(leaf)
    return [f"({text})" if place > _WHOLE and ("/" in text or text.startswith("-")) else text]


def _leaf_text(leaf: Tree) -> str:
    check_leaf(leaf)
    if leaf.label == NUMBER:
        return "0.70" if leaf.value == 0.7 else repr(leaf.value)
    match = VARIABLE_LABEL.match(leaf.label)
    return variable_name(int(match[1])) if match else _SPELLING[leaf.label]


def _checked_children(tree: Tree) -> tuple[Tree, ...]:
    check_function(tree, is_root=False)
    return tree.children


def _is_negation(tree: Tree) -> bool:
    return tree.label == "Mul" and tree.arity == 2 and _is_leaf(tree.children[0], "NegativeOne:-1")


def _is_leaf(tree: Tree, label: str) -> bool:
    return tree.label == label and not tree.children


def _is_natural(tree: Tree) -> bool:
    """Whether ``tree`` is printed as digits alone, so that ``/`` between two of them may make a rational."""
    return not tree.children and _leaf_text(tree).isdigit()
