"""Equations with infinity or with nan, whose truth is that of floating-point arithmetic (IEEE 754).

``oo - oo`` and ``0*oo`` are nan. No equation with nan is true, not even ``nan = nan``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from treemem.tasks.equation_verification.generation.expressions import VARIABLES, ExpressionTable
from treemem.tasks.equation_verification.generation.functions import CONSTANTS, FUNCTIONS
from treemem.trees.formats.equations.labels import EQUALITY
from treemem.trees.formats.equations.parser import parse_expression

NAN = "NaN:nan"
INFINITE_LABELS = ("Infinity:oo", NAN)

_CONSTANTS = {**CONSTANTS, "Infinity:oo": np.inf, NAN: np.nan}
_POINTS = (0.7, -1.3, 2.9)
_NAN_SHARE = 0.3
"""Share of the false equations that have nan."""

_OPERATIONS = (
    *("{} + {}", "{} - {}", "{} * {}", "{} / {}", "({})^2", "({})^3", "1/({})", "-({})", "exp({})", "exp(-({}))"),
    *("atan({})", "tanh({})", "sqrt({})", "log({})", "sinh({})", "cosh({})", "sech({})", "csch({})", "coth({})"),
    *("asinh({})", "acosh({})", "acot({})", "acsc({})", "asec({})", "acoth({})", "acsch({})", "2^({})", "(1/2)^({})"),
)
_LEAVES = ("oo", "-oo", "oo", "2", "3", "10", "1", "x", "pi")
_VALUES = ("oo", "-oo", "0", "1", "-1", "pi/2", "-pi/2", "2", "x")


def infinite_equation(table: ExpressionTable, rng: random.Random, *, true: bool) -> int | None:
    """Return a random equation with infinity or nan that is true, or false. None if the try fails."""
    has_nan = not true and rng.random() < _NAN_SHARE
    left = _expression(rng, "nan" if has_nan else "oo", 1 + int(rng.random() * 2))
    right = _VALUES[int(rng.random() * len(_VALUES))]
    sides = [table.from_tree(parse_expression(text)) for text in (left, right)]
    if rng.random() < 0.3:
        sides = sides[::-1]
    equation = table.make(EQUALITY, tuple(sides))
    return equation if holds(table, equation) == true else None


def _expression(rng: random.Random, leaf: str, operations: int) -> str:
    text = leaf
    for _ in range(operations):
        form = _OPERATIONS[int(rng.random() * len(_OPERATIONS))]
        others = [_LEAVES[int(rng.random() * len(_LEAVES))]] * (form.count("{}") - 1)
        parts = [f"({text})", *(f"({other})" for other in others)]
        text = form.format(*(parts if rng.random() < 0.5 else parts[::-1]))
    return text


def holds(table: ExpressionTable, equation: int) -> bool:
    """Return whether the sides are equal numbers, or the same infinity, at three real points."""
    for point in _POINTS:
        left, right = side_values(table, equation, [point] * len(VARIABLES))
        if left != right and not abs(left - right) < 1e-9:
            return False
    return True


def side_values(table: ExpressionTable, equation: int, variables: Sequence[float]) -> tuple[float, float]:
    """Return the values of both sides where ``var_i`` is ``variables[i]``; they may be infinite or nan."""
    known: dict[int, float] = {}
    with np.errstate(all="ignore"):
        for node in table.postorder(equation)[:-1]:
            label, children = table.label[node], table.children[node]
            if node not in known and children:
                operands = [np.float64(known[child]) for child in children]
                known[node] = float(FUNCTIONS[label].real(*operands))
            elif node not in known:
                known[node] = variables[VARIABLES.index(label)] if label in VARIABLES else _CONSTANTS[label]
    left, right = table.children[equation]
    return known[left], known[right]
