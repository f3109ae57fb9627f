"""Formulas of propositional logic: text to trees."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from treemem.checked_options import checked_choice
from treemem.errors import GraphError, ParseError, near_names
from treemem.trees.formats.brackets import CONSTITUENT, parse_brackets
from treemem.trees.formats.source_text import decode_source, shorten
from treemem.trees.tree import Tree, tree_from_postorder, words_of

VARIABLES = ("a", "b", "c", "d", "e", "f")
NOT, AND, OR = "not", "and", "or"
WORDS = (*VARIABLES, NOT, AND, OR)

LogicForm = Literal["binary", "operators"]

_EXPECTED = "a variable, '( not F )' or '( F ( and F ) )'"
_BEGIN_OF_NODE = re.compile(r'\(|"(?:[^"\\]|\\.)*"[^ \t\r\n\f\v()]*|[^ \t\r\n\f\v()]+', re.DOTALL)


def parse_logic(text: str | bytes, *, form: LogicForm = "binary") -> Tree:
    """Read a formula as Bowman et al. 2015 write them: ``( ( not a ) ( and ( b ( or c ) ) ) )``.

    Args:
        text: the formula.
        form: ``"binary"``: every bracket is a node ``X`` of two children and every word a leaf, as in the text, so that
            ``( a ( and b ) )`` has the leaf ``and`` beside ``b``; ``"operators"``: ``not`` is a node of one child,
            ``and`` and ``or`` nodes of two.

    Raises:
        ParseError: the text is no formula; says where, and what was expected.
        RecipeError: another ``form``.

    Example:
        >>> str(parse_logic("( ( not a ) ( and b ) )"))
        '(X (X not a) (X and b))'
        >>> str(parse_logic("( ( not a ) ( and b ) )", form="operators"))
        '(and (not a) b)'
    """
    checked_choice("form", form, ("binary", "operators"))
    text = decode_source(text)
    tree = parse_brackets(text, first="child")
    operators = _operators(tree, text)
    return tree if form == "binary" else operators


def format_logic(tree: Tree) -> str:
    """The text of a formula in either form, as published; :func:`parse_logic` reads the same tree back.

    Raises:
        GraphError: the tree is no formula.

    Example:
        >>> format_logic(parse_logic("( ( not a ) ( and b ) )", form="operators"))
        '( ( not a ) ( and b ) )'
    """
    form: LogicForm = "binary" if tree.label == CONSTITUENT else "operators"
    return " ".join(words_of([tree], lambda node: _written(node, form)))


def _written(node: Tree, form: LogicForm) -> Sequence[Tree | str]:
    """The words of a formula, and the formulas within it in their places."""
    match form, node.label, node.children:
        case _, label, () if label in VARIABLES and node.value is None:
            return [label]
        case "operators", "not", (operand,):
            return ["(", NOT, operand, ")"]
        case "operators", "and" | "or" as operator, (left, right):
            return ["(", left, "(", operator, right, ")", ")"]
        case "binary", "X", (Tree(label="not", children=(), value=None), operand):
            return ["(", NOT, operand, ")"]
        case "binary", "X", (
            left,
            Tree(label="X", children=(Tree(label="and" | "or" as operator, children=(), value=None), right)),
        ):
            return ["(", left, "(", operator, right, ")", ")"]
    raise GraphError(f"{shorten(str(node))} stands in no formula of the form {form!r}")


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
                near = "" if node.label in VARIABLES else near_names(node.label, VARIABLES)
                raise _no_formula(f"{shorten(str(node))} is no variable{near}", node, tree, text)
            labels.append(node.label)
            arities.append(0)
            continue
        pending.extend(_parts(node, tree, text))
    return tree_from_postorder(labels, arities)


def _parts(node: Tree, tree: Tree, text: str) -> list[tuple[Tree, str | None]]:
    """What a bracket of ``tree`` holds, the last to do first."""
    if len(node.children) == 2:
        left, right = node.children
        if left.label == NOT and not left.children:
            return [(node, NOT), (right, None)]
        operator = right.children[0] if len(right.children) == 2 else left
        if operator.label in (AND, OR) and operator is not left and not operator.children:
            return [(node, operator.label), (right.children[1], None), (left, None)]
        if operator.label not in WORDS and not operator.children:
            near = near_names(operator.label, (NOT, AND, OR))
            raise _no_formula(f"unknown operator {shorten(operator.label)}{near}", operator, tree, text)
    shown = str(node).replace(CONSTITUENT + " ", "")
    raise _no_formula(f"{shorten(shown)} is no formula", node, tree, text)


def _no_formula(problem: str, node: Tree, tree: Tree, text: str) -> ParseError:
    """What is wrong with a node of ``tree``, and where that begins in the text."""
    before = next(number for number, other in enumerate(tree.preorder()) if other is node)
    begins = [token.start() for token in _BEGIN_OF_NODE.finditer(text)]
    return ParseError(problem, text, begins[before], _EXPECTED)
