"""Equations with infinity or with nan, whose truth is that of floating-point arithmetic (IEEE 754).

``oo - oo`` and ``0*oo`` are nan. No equation with nan is true, not even ``nan = nan``.
"""

from __future__ import annotations

import random

import numpy as np

from treemem.tasks.equation_verification.generation.evaluation import CONSTANTS
from treemem.tasks.equation_verification.generation.expressions import VARIABLES, ExpressionTable
from treemem.tasks.equation_verification.generation.real_functions import REAL_FUNCTIONS
from treemem.trees.equation_labels import EQUALITY
from treemem.trees.equation_parser import parse_expression

INFINITE_LABELS = ("Infinity:oo", "NaN:nan")

_CONSTANTS = {**CONSTANTS, "Infinity:oo": np.inf, "NaN:nan": np.nan}
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
    with np.errstate(all="ignore"):
        for point in _POINTS:
            left, right = (_value(table, side, point) for side in table.children[equation])
            if left != right and not abs(left - right) < 1e-9:
                return False
    return True


def _value(table: ExpressionTable, node: int, point: float) -> float:
    label, children = table.label[node], table.children[node]
    if not children:
        return point if label in VARIABLES else _CONSTANTS[label]
    operands = [np.float64(_value(table, child, point)) for child in children]
    return float(REAL_FUNCTIONS[label](*operands))
