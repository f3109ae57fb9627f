"""True and false equations like those of textbooks: an identity or a mistake, substitutions, a few steps."""

from __future__ import annotations

import random
from collections.abc import Sequence

from treemem.tasks.equation_verification.generation.equal_expressions import EqualExpressions
from treemem.tasks.equation_verification.generation.expressions import VARIABLES, ExpressionTable
from treemem.tasks.equation_verification.generation.identities import IDENTITIES
from treemem.tasks.equation_verification.generation.rule_book import RuleBook
from treemem.tasks.equation_verification.generation.textbook import school_equation, textbook_equations
from treemem.trees.formats.equations.labels import EQUALITY
from treemem.trees.formats.equations.parser import parse_equation, parse_expression

_START_SHARES = {"identity": 0.28, "school": 0.2, "axiom": 0.07, "two": 0.1, "instance": 0.1, "equal values": 0.25}
_SUBSTITUTED_SHARE = 0.6
_STEP_SHARES = (0.34, 0.24, 0.16, 0.1, 0.07, 0.05, 0.04)
"""Shares of 0, 1, 2, ... steps."""

_GROWN_SHARE, _MOVED_SHARE = 0.1, 0.08
_LEAF_SHARE = 0.12
"""Share of rewriting steps at a leaf: ``x`` becomes ``1*x``."""

_SUBSTITUTES = (
    *("2*x", "3*x", "x/2", "-x", "x^2", "x^3", "1/x", "x + 1", "x - 1", "1 - x", "x + y", "x - y", "x*y", "x/y"),
    *("2*x + 1", "x^2 + 1", "sqrt(x)", "sin(x)", "cos(x)", "tan(x)", "exp(x)", "log(x)", "exp(-x)", "sinh(x)"),
    *("cosh(x)", "tanh(x)", "atan(x)", "asin(x)", "acos(x)", "sin(y)", "cos(y)", "exp(y)", "y^2", "2*y", "y + 1"),
    *("y", "z", "y + z", "2", "3", "5", "pi", "1/2", "E", "4", "6", "7", "8", "9", "0.7", "2/5", "10"),
    *("sec(x)", "cot(x)", "csc(x)", "coth(x)", "sech(x)", "csch(x)", "acot(x)", "acosh(x)", "asinh(x)", "atanh(x)"),
    *("acoth(x)", "asec(x)", "acsc(x)", "asech(x)", "acsch(x)", "x + pi", "-2*x", "-3*x", "-x/2", "log(x, y)"),
)
_FUNCTIONS_OF_BOTH = ("Add", "Mul", "Add", "Mul", "Pow")


class TextbookWalks:
    """Makes candidates of equations; the caller tests them.

    Args:
        table: holds the expressions.
        rng: source of all choices.
    """

    def __init__(self, table: ExpressionTable, rng: random.Random) -> None:
        self.table = table
        self._rng = rng
        development = textbook_equations("development")
        self._identities = [self._equation(entry.equation) for entry in development if entry.is_true]
        self._mistakes = [self._equation(entry.equation) for entry in development if not entry.is_true]
        self._axioms = [self._equation(text) for text in IDENTITIES]
        self._substitutes = [table.from_tree(parse_expression(text, variables="indexed")) for text in _SUBSTITUTES]
        self._others = [table.make(VARIABLES[index]) for index in range(4)]
        self._equal_expressions = EqualExpressions(table, rng)
        self.rules = RuleBook(table, self._leaf_of, growth_constant_share=0.6)
        for equation in (*self._identities, *self._axioms):
            self.rules.add_equation(equation)
        self.wrong_rules = RuleBook(table, self._leaf_of)
        for equation in self._mistakes:
            left, right = table.children[equation]
            if table.children[left]:
                self.wrong_rules.add(left, right)

    def _equation(self, text: str) -> int:
        return self.table.from_tree(parse_equation(text, variables="appearance"))

    def _leaf_of(self, equation: int, rng: random.Random) -> int:
        occurring = self.table.variable_indexes(equation)
        index = occurring[int(rng.random() * len(occurring))] if occurring else 0
        return self.table.make(VARIABLES[index])

    def true_candidate(self) -> int:
        """Return an equation that is true if its steps are."""
        (kind,) = self._rng.choices(list(_START_SHARES), list(_START_SHARES.values()))
        return self._walked(self._start(kind))

    def false_candidate(self) -> int:
        """Return an equation that comes from a mistake."""
        return self._walked(self._drawn(self._mistakes))

    def _drawn(self, equations: Sequence[int]) -> int:
        return equations[int(self._rng.random() * len(equations))]

    def _start(self, kind: str) -> int:
        table = self.table
        if kind == "identity":
            return self._drawn(self._identities)
        if kind == "axiom":
            return self._drawn(self._axioms)
        if kind == "school":
            return self._equation(school_equation(self._rng))
        if kind == "equal values":
            return self._equal_expressions.candidate()
        if kind == "two":
            first, second = (
                self._substituted(self._start("identity" if self._rng.random() < 0.7 else "school")) for _ in range(2)
            )
            function = _FUNCTIONS_OF_BOTH[int(self._rng.random() * len(_FUNCTIONS_OF_BOTH))]
            sides = zip(table.children[first], table.children[second], strict=True)
            return table.make(EQUALITY, tuple(table.make(function, pair) for pair in sides))
        side = table.children[self._start("identity")][int(self._rng.random() * 2)]
        return table.make(EQUALITY, (side, side))

    def _walked(self, equation: int) -> int:
        """Return ``equation`` after substitutions and steps, with its sides swapped half of the time."""
        rng, table = self._rng, self.table
        if rng.random() < _SUBSTITUTED_SHARE:
            equation = self._substituted(equation)
        left, right = table.children[equation]
        steps = rng.choices(range(len(_STEP_SHARES)), _STEP_SHARES)[0] + 2 * (left == right)
        for _ in range(steps):
            equation = self._step(equation)
        left, right = table.children[equation]
        return equation if rng.random() < 0.5 else table.make(EQUALITY, (right, left))

    def _substituted(self, equation: int) -> int:
        """Return ``equation`` with one or two of its variables replaced by small expressions or other variables."""
        table, rng = self.table, self._rng
        indexes = table.variable_indexes(equation)
        if not indexes:
            return equation
        bindings = {}
        for index in rng.sample(indexes, min(len(indexes), 1 + (rng.random() < 0.3))):
            substitute = self._drawn(self._substitutes)
            if rng.random() < 0.2:
                substitute = self._drawn(self._others)
            elif rng.random() < 0.5 and index < 2:  # from x to this variable
                substitute = table.substitute(substitute, {table.make(VARIABLES[0]): table.make(VARIABLES[index])})
            bindings[table.make(VARIABLES[index])] = substitute
        return table.substitute(equation, bindings)

    def _step(self, equation: int) -> int:
        rng = self._rng
        drawn = rng.random()
        if drawn < _GROWN_SHARE:
            return self.rules.grow(equation, rng)
        if drawn < _GROWN_SHARE + _MOVED_SHARE:
            return self._moved(equation)
        return self.rewritten(self.rules, equation)

    def rewritten(self, rules: RuleBook, equation: int) -> int:
        """Return ``equation`` with one node rewritten, seldom a leaf; or itself if no rule fits at the nodes tried."""
        table, rng = self.table, self._rng
        for _ in range(6):
            position = 1 + int(rng.random() * (table.size[equation] - 1))
            node = table.path_to(equation, position)[-1][0]
            if not table.children[node] and rng.random() > _LEAF_SHARE:
                continue
            result = rules.rewrite(equation, position, rng)
            if result != equation:
                return result
        return equation

    def _moved(self, equation: int) -> int:
        """Return ``equation`` with a term or factor brought to the other side."""
        table = self.table
        left, right = table.children[equation]
        if self._rng.random() < 0.5:
            left, right = right, left
        label = table.label[left]
        if label not in ("Add", "Mul"):
            return equation
        kept, moved = table.children[left] if self._rng.random() < 0.5 else table.children[left][::-1]
        minus_one = table.make("NegativeOne:-1")
        inverse = table.make("Mul", (minus_one, moved)) if label == "Add" else table.make("Pow", (moved, minus_one))
        return table.make(EQUALITY, (kept, table.make(label, (right, inverse))))
