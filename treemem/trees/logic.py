"""Formulas of propositional logic: text to trees."""

from __future__ import annotations

from typing import Literal

from treemem.errors import ParseError, RecipeError, near_names
from treemem.trees.brackets import CONSTITUENT, parse_brackets
from treemem.trees.source_text import decode_source, shorten
from treemem.trees.tree import Tree, tree_from_postorder

VARIABLES = ("a", "b", "c", "d", "e", "f")
NOT, AND, OR = "not", "and", "or"
WORDS = (*VARIABLES, NOT, AND, OR)

LogicForm = Literal["binary", "operators"]

_EXPECTED = "a variable, '( not F )' or '( F ( and F ) )'"


def parse_logic(text: str | bytes, *, form: LogicForm = "binary") -> Tree:
    """Read a formula as Bowman et al. 2015 write them: ``( ( not a ) ( and ( b ( or c ) ) ) )``.

    Args:
        text: the formula.
        form: ``"binary"``: every bracket is a node ``X`` of two children and every word a leaf, as in the text, so that
            ``( a ( and b ) )`` has the leaf ``and`` beside ``b``; ``"operators"``: ``not`` is a node of one child,
            ``and`` and ``or`` nodes of two.

    Raises:
        ParseError: the text is no formula.
        RecipeError: another ``form``.

    Example:
        >>> str(parse_logic("( ( not a ) ( and b ) )"))
        '(X (X not a) (X and b))'
        >>> str(parse_logic("( ( not a ) ( and b ) )", form="operators"))
        '(and (not a) b)'
    """
    if form not in ("binary", "operators"):
        raise RecipeError(f"form={form!r} is none of binary, operators")
    text = decode_source(text)
    tree = parse_brackets(text, first="child")
    operators = _operators(tree, text)
    return tree if form == "binary" else operators


def _operators(tree: Tree, text: str) -> Tree:
    """The formula with its operators at inner nodes, which shows that it is one."""
    labels: list[str] = []
    arities: list[int] = []
    pending: list[tuple[Tree, str | None]] = [(tree, None)]  # a node, or with None left of it a label to write
    while pending:
        node, operator = pending.pop()
        if operator is not None:
            labels.append(operator)
            arities.append(1 if operator == NOT else 2)
            continue
        if not node.children:
            if node.label not in VARIABLES or node.value is not None:
                raise _no_formula(node.label, text)
            labels.append(node.label)
            arities.append(0)
            continue
        pending.extend(_parts(node, text))
    return tree_from_postorder(labels, arities)


def _parts(node: Tree, text: str) -> list[tuple[Tree, str | None]]:
    """What a bracket holds, the last to do first."""
    if len(node.children) == 2:
        left, right = node.children
        if left.label == NOT and not left.children:
            return [(node, NOT), (right, None)]
        if len(right.children) == 2:
            operator, operand = right.children
            if operator.label in (AND, OR) and not operator.children:
                return [(node, operator.label), (operand, None), (left, None)]
    raise ParseError(f"{shorten(str(node).replace(CONSTITUENT + ' ', ''))} is no formula", text, 0, _EXPECTED)


def _no_formula(label: str, text: str) -> ParseError:
    offset = max(0, text.find(label))
    return ParseError(f"{shorten(label)} is no variable{near_names(label, VARIABLES)}", text, offset, _EXPECTED)
