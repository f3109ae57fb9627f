"""Expressions in the prefix notation of SymbolicMathematics (Lample & Charton 2020): ``sub Y' mul INT+ 2 x``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from treemem.errors import GraphError, ParseError, near_names
from treemem.trees.formats.preorder import read_prefix
from treemem.trees.formats.source_text import shorten
from treemem.trees.tree import Tree

_UNARY = (
    *("inv", "pow2", "pow3", "pow4", "pow5", "sqrt", "exp", "ln", "abs", "sign"),
    *("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "acot", "asec", "acsc"),
    *("sinh", "cosh", "tanh", "coth", "sech", "csch", "asinh", "acosh", "atanh", "acoth", "asech", "acsch"),
)
OPERATORS = {
    **dict.fromkeys(("add", "sub", "mul", "div", "pow", "rac", "derivative"), 2),
    **dict.fromkeys(_UNARY, 1),
    **{"f": 1, "g": 2, "h": 3},
}
"""The operators with their numbers of arguments."""

LEAVES = (*"xyzt", *(f"a{place}" for place in range(10)), "pi", "E", "I", "Y", "Y'", "Y''")
"""The variables, coefficients, constants and unknown functions."""

_COUNT = re.compile(r"[0-9]+\|")
_WORD = re.compile(r"INT[+-](?:\s+[0-9]+)+|\S+")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")


def parse_symbolic_prefix(text: str) -> Tree:
    """Read one expression. The digits after ``INT+`` or ``INT-`` are one number, in base 10.

    A count before the expression, as in the published files (``12|sub Y' x``), is left out.

    Raises:
        ParseError: an unknown word, a number in another base, a missing argument, or words after the end.

    Example:
        >>> str(parse_symbolic_prefix("mul INT- 1 2 pow x INT+ 2"))
        '(mul -12 (pow x 2))'
    """
    count = _COUNT.match(text)
    return read_prefix(
        text,
        _WORD.finditer(text, count.end() if count else 0),
        OPERATORS,
        lambda word, offset: _leaf(word, text, offset),
    )


def _leaf(word: str, text: str, offset: int) -> Tree:
    if word in LEAVES:
        return Tree(word)
    sign, *digits = word.split()
    if not digits or sign not in ("INT+", "INT-"):
        problem = f"unknown word {shorten(word)}{near_names(word, [*OPERATORS, *LEAVES])}"
        if word in ("INT", "INT+", "INT-"):
            problem = f"{word} without its digits" if word != "INT" else "INT, which begins a number in a negative base"
        raise ParseError(problem, text, offset, "an operator, a variable, or INT+ or INT- and the digits of a number")
    number = "-" * (sign == "INT-") + "".join(digits)
    if any(len(digit) > 1 for digit in digits) or not _INTEGER.fullmatch(number) or number == "-0":
        problem = f"{shorten(word)} is no whole number in base 10"
        raise ParseError(problem, text, offset, "its digits with a space between")
    return Tree(number)


def format_symbolic_prefix(tree: Tree) -> str:
    """Return the words of an expression, as :func:`parse_symbolic_prefix` reads them.

    Raises:
        GraphError: a label that the notation does not have, or an operator with another number of arguments.

    Example:
        >>> format_symbolic_prefix(Tree("mul", ["-12", "x"]))
        'mul INT- 1 2 x'
    """
    words = []
    for node in tree.preorder():
        if node.children:
            if OPERATORS.get(node.label) != node.arity:
                raise GraphError(f"the notation has no operator {shorten(node.label)} of {node.arity} arguments")
            words.append(node.label)
        elif _INTEGER.fullmatch(node.label) and node.label != "-0":
            words += ["INT-" if node.label[0] == "-" else "INT+", *node.label.removeprefix("-")]
        elif node.label in LEAVES:
            words.append(node.label)
        else:
            raise GraphError(f"the notation has no leaf {shorten(node.label)}{near_names(node.label, LEAVES)}")
    return " ".join(words)


def problems_and_solutions(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield the expressions of lines. A published line is a problem and its solution, with a tab between."""
    for number, line in lines:
        for part in line.split("\t"):
            if line.strip():
                yield number, part
