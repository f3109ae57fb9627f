"""Finds true equations that no list has: among many small expressions, those with the same values are equal."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from treemem.tasks.equation_verification.generation.evaluation import evaluate
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.functions import USABLE
from treemem.tasks.equation_verification.generation.heldout import sorted_text
from treemem.tasks.equation_verification.generation.verification import POINTS
from treemem.trees.formats.equations.labels import EQUALITY
from treemem.trees.formats.equations.parser import parse_expression

_T = TypeVar("_T")

_NUM_DRAWN = 600
"""Expressions drawn together, of the same functions and arguments."""

_COLUMNS = np.array([13, 17, 21, 25])
"""Of the test's points: positive, two below 1 and two above."""

_MOST_PAIRS = 2  # of expressions with the same values

_FAMILIES = (
    ("sin", "cos", "tan", "sec", "csc", "cot"),
    ("sinh", "cosh", "tanh", "sech", "csch", "coth"),
    ("exp", "log"),
    ("asin", "acos", "atan", "acot", "asec", "acsc"),
    ("asinh", "acosh", "atanh", "acoth", "asech", "acsch"),
    (),
)
_FAMILY_SHARES = (0.3, 0.2, 0.15, 0.08, 0.05, 0.22)
_SECOND_FAMILY_SHARE = 0.2

_ARGUMENTS = (
    *("x", "x, 2*x", "x, -x", "x, x/2", "x, pi/2 - x", "x, x + pi", "x, pi - x", "x, 3*x", "x, y", "x, y, x + y"),
    *("x, y, x - y", "x, y, x*y", "x, y, x/y", "x, 1/x", "x, x^2", "x, sqrt(x)", "x, 1 - x", "x, x + 1"),
    *("x, x^2, x^3", "x, y, z"),
)
_CONSTANTS = ("1", "1", "1", "2", "2", "3", "4", "1/2", "0", "pi")
_FACTORS = ("2", "3", "-1", "-1", "1/2", "4", "-2")
_EXPONENTS = ("2", "2", "2", "-1", "-1", "1/2", "3", "-2")


class EqualExpressions:
    """Draws equations of two expressions with the same values; the caller tests them.

    Args:
        table: holds the expressions.
        rng: source of all choices.
    """

    def __init__(self, table: ExpressionTable, rng: random.Random) -> None:
        self._table = table
        self._rng = rng
        self._pending: list[int] = []
        self._functions: tuple[str, ...] = ()
        self._arguments: list[int] = []
        texts = {"E", *_CONSTANTS, *_FACTORS, *_EXPONENTS, *", ".join(_ARGUMENTS).split(", ")}
        self._parsed = {text: table.from_tree(parse_expression(text, variables="indexed")) for text in sorted(texts)}

    def candidate(self) -> int:
        """Return an equation whose sides have the same values at a few points and differ by more than order."""
        while not self._pending:
            self._pending = self._pairs(self._expressions())
        return self._pending.pop()

    def _expressions(self) -> list[int]:
        rng = self._rng
        self._functions = rng.choices(_FAMILIES, _FAMILY_SHARES)[0]
        if rng.random() < _SECOND_FAMILY_SHARE:
            self._functions += rng.choices(_FAMILIES, _FAMILY_SHARES)[0]
        self._arguments = [self._parsed[text] for text in self._drawn(_ARGUMENTS).split(", ")]
        return list(dict.fromkeys(self._expression() for _ in range(_NUM_DRAWN)))

    def _pairs(self, expressions: list[int]) -> list[int]:
        values = evaluate(self._table, expressions, POINTS[:, _COLUMNS], len(_COLUMNS))
        usable = values.status == USABLE
        groups: dict[tuple[str, ...], list[int]] = {}
        for place in np.flatnonzero(usable.sum(1) >= 2).tolist():
            row = zip(values.value[place].real.tolist(), usable[place].tolist(), strict=True)
            groups.setdefault(tuple(f"{value:.8g}" if is_usable else "" for value, is_usable in row), []).append(place)
        pairs = []
        for places in groups.values():
            forms = {sorted_text(self._table, expressions[place], {}): expressions[place] for place in places}
            different = self._rng.sample(list(forms.values()), min(len(forms), 2 * _MOST_PAIRS))
            pairs += [self._table.make(EQUALITY, pair) for pair in zip(different[::2], different[1::2], strict=False)]
        self._rng.shuffle(pairs)
        return pairs

    def _expression(self) -> int:
        """Return one to three parts joined by operations, sometimes within a function or a power."""
        result = self._part()
        for _ in range(self._rng.choices((0, 1, 2), (0.3, 0.45, 0.25))[0]):
            other = self._part()
            result = self._joined(*((result, other) if self._rng.random() < 0.7 else (other, result)))
        if self._rng.random() < 0.15:
            return self._power(result)
        if self._functions and self._rng.random() < 0.08:
            return self._applied(result)
        return result

    def _part(self) -> int:
        """Return a constant, or a function of an argument, or the argument; often to a power or with a factor."""
        rng = self._rng
        if rng.random() < 0.15:
            return self._parsed[self._drawn(_CONSTANTS)]
        part = self._arguments[int(rng.random() * len(self._arguments))]
        if self._functions and rng.random() < 0.85:
            part = self._applied(part)
        if rng.random() < 0.35:
            part = self._power(part)
        if rng.random() < 0.2:
            part = self._table.make("Mul", (self._parsed[self._drawn(_FACTORS)], part))
        return part

    def _applied(self, argument: int) -> int:
        name = self._drawn(self._functions)
        return self._table.make(name, (argument, self._parsed["E"]) if name == "log" else (argument,))

    def _power(self, base: int) -> int:
        return self._table.make("Pow", (base, self._parsed[self._drawn(_EXPONENTS)]))

    def _joined(self, left: int, right: int) -> int:
        table, minus_one = self._table, self._parsed["-1"]
        drawn = self._rng.random()
        if drawn < 0.3:
            return table.make("Add", (left, right))
        if drawn < 0.55:
            return table.make("Add", (left, table.make("Mul", (minus_one, right))))
        if drawn < 0.8:
            return table.make("Mul", (left, right))
        return table.make("Mul", (left, table.make("Pow", (right, minus_one))))

    def _drawn(self, choices: Sequence[_T]) -> _T:
        return choices[int(self._rng.random() * len(choices))]
