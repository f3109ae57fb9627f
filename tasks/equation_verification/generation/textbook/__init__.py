"""Textbook identities and classic mistakes, with their sources, and random equations of school algebra.

``development.csv`` is for training. ``heldout.csv`` is for tests only: no generated equation equals one
of its equations.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

HALVES = ("development", "heldout")


class TextbookEquation(NamedTuple):
    """An equation as people write it, whether it is true, and where it comes from."""

    equation: str
    is_true: bool
    source: str


@lru_cache
def textbook_equations(half: str) -> tuple[TextbookEquation, ...]:
    """Return the equations of ``"development"`` or ``"heldout"``."""
    path = Path(__file__).parent / f"{half}.csv"
    with path.open(encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream)
        return tuple(TextbookEquation(row["equation"], row["label"] == "1", row["source"]) for row in rows)


def school_equation(rng: random.Random) -> str:
    """Return a random true equation of arithmetic or of polynomials and powers."""
    return _KINDS[int(rng.random() * len(_KINDS))](rng)


def _number(rng: random.Random, least: int = 1, most: int = 10) -> int:
    return least + int(rng.random() * (most - least + 1))


def _literal(value: Fraction) -> str:
    text = str(abs(value.numerator)) + ("" if value.denominator == 1 else f"/{value.denominator}")
    return text if value >= 0 else f"(-{text})"


def _arithmetic(rng: random.Random) -> str:
    """Return a calculation and its result, or two calculations with the same result."""
    text, value = _calculation(rng, 1 + int(rng.random() * 3))
    if rng.random() < 0.3 and value.denominator == 1:
        other = _number(rng)
        forms = (f"{_literal(value - other)} + {other}", f"{_literal(value + other)} - {other}")
        return f"{text} = {forms[int(rng.random() * 2)]}"
    return f"{text} = {_literal(value)}"


def _calculation(rng: random.Random, operations: int) -> tuple[str, Fraction]:
    while True:
        text, value = _tried_calculation(rng, operations)
        if abs(value.numerator) <= 100 and value.denominator <= 12:
            return text, value


def _tried_calculation(rng: random.Random, operations: int) -> tuple[str, Fraction]:
    if not operations:
        value = Fraction(_number(rng, 0 if rng.random() < 0.2 else 1))
        if rng.random() < 0.15:
            value = -value
        if rng.random() < 0.12:
            value /= _number(rng, 2, 6)
        text = _literal(value)
        return text if value.denominator == 1 else f"({text})", value
    if rng.random() < 0.12:
        text, value = _tried_calculation(rng, operations - 1)
        return (f"({text})^2", value**2) if operations > 1 or "/" in text else (f"{text}^2", value**2)
    place = int(rng.random() * operations)
    (left, a), (right, b) = (_tried_calculation(rng, n) for n in (place, operations - 1 - place))
    left, right = (f"({side})" if n else side for side, n in ((left, place), (right, operations - 1 - place)))
    operator = "+-*/"[int(rng.random() * 4)]
    if operator == "/" and not b:
        operator = "+"
    value = {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else a}[operator]
    return f"{left} {operator} {right}", value


def _term(coefficient: int, body: str) -> str:
    """Return ``coefficient*body`` as people write it; ``body`` may be empty."""
    if not body:
        return str(coefficient)
    return {1: body, -1: f"-{body}"}.get(coefficient, f"{coefficient}*{body}")


def polynomial_text(terms: list[tuple[int, str]]) -> str:
    """Return the sum of the terms with a coefficient that is not zero, with minus signs for negative ones."""
    text = ""
    for coefficient, body in terms:
        if not coefficient:
            continue
        if not text:
            text = _term(coefficient, body)
        else:
            text += (" - " if coefficient < 0 else " + ") + _term(abs(coefficient), body)
    return text or "0"


def _signed(rng: random.Random, most: int = 6) -> int:
    return _number(rng, 1, most) * (1 if rng.random() < 0.6 else -1)


def _linear_product(rng: random.Random) -> str:
    """Return ``(a*x + b)*(c*x + d)`` and its expansion."""
    a, c = (1 if rng.random() < 0.6 else _number(rng, 2, 4) for _ in range(2))
    b, d = _signed(rng), _signed(rng)
    if rng.random() < 0.25:
        c, d = a, b
    factors = [f"({polynomial_text([(p, 'x'), (q, '')])})" for p, q in ((a, b), (c, d))]
    product = f"{factors[0]}^2" if factors[0] == factors[1] and rng.random() < 0.8 else "*".join(factors)
    return f"{product} = {polynomial_text([(a * c, 'x^2'), (a * d + b * c, 'x'), (b * d, '')])}"


def _two_variable_square(rng: random.Random) -> str:
    """Return ``(a*x + b*y)^2`` or ``(a*x + b*y)*(a*x - b*y)`` and its expansion."""
    a, b = _number(rng, 1, 4), _signed(rng, 4)
    first = f"({polynomial_text([(a, 'x'), (b, 'y')])})"
    if rng.random() < 0.6:
        return f"{first}^2 = {polynomial_text([(a * a, 'x^2'), (2 * a * b, 'x*y'), (b * b, 'y^2')])}"
    second = f"({polynomial_text([(a, 'x'), (-b, 'y')])})"
    return f"{first}*{second} = {polynomial_text([(a * a, 'x^2'), (-b * b, 'y^2')])}"


def _cube(rng: random.Random) -> str:
    a, b = _number(rng, 1, 2), _signed(rng, 3)
    body = [(a**3, "x^3"), (3 * a * a * b, "x^2"), (3 * a * b * b, "x"), (b**3, "")]
    return f"({polynomial_text([(a, 'x'), (b, '')])})^3 = {polynomial_text(body)}"


def _distribution(rng: random.Random) -> str:
    """Return a number or variable times a sum, and the sum of the products."""
    a, b, c = _signed(rng), _signed(rng), _signed(rng)
    variables = ("x", "y") if rng.random() < 0.5 else ("x", "")
    inner = polynomial_text([(a, variables[0]), (b, variables[1])])
    if rng.random() < 0.6:
        expanded = polynomial_text([(c * a, variables[0]), (c * b, variables[1])])
        return f"{_term(c, f'({inner})')} = {expanded}"
    rest = "z" if variables[1] else "y"
    bodies = [(a, f"{rest}*{variables[0]}"), (b, f"{rest}*{variables[1]}" if variables[1] else rest)]
    return f"{rest}*({inner}) = {polynomial_text(bodies)}"


def _like_terms(rng: random.Random) -> str:
    """Return a sum of multiples of the same term, and their sum."""
    bodies = ("x", "y", "x*y", "x^2", "sin(x)", "exp(x)", "sqrt(x)", "cos(x)", "log(x)", "x^3")
    body = bodies[int(rng.random() * len(bodies))]
    a, b = _signed(rng), _signed(rng)
    if rng.random() < 0.5:
        return f"{polynomial_text([(a, body), (b, body)])} = {polynomial_text([(a + b, body)])}"
    c = _signed(rng)
    left = polynomial_text([(a, body), (c, "z"), (b, body)])
    return f"{left} = {polynomial_text([(a + b, body), (c, 'z')])}"


def _powers(rng: random.Random) -> str:
    """Return a rule of powers with numbers as exponents or bases."""
    m, n, k = _number(rng, 1, 6), _number(rng, 2, 5), _number(rng, 2, 4)

    def power(base: str, exponent: int) -> str:
        if exponent == 1:
            return base
        return f"{base}^{exponent}" if exponent >= 0 else f"1/{base}^{-exponent}" if exponent < -1 else f"1/{base}"

    forms: tuple[Callable[[], str], ...] = (
        lambda: f"{power('x', m)}*x^{n} = x^{m + n}",
        lambda: f"x^{n}/{power('x', m)} = {power('x', n - m) if n != m else '1'}",
        lambda: f"(x^{n})^{k} = x^{n * k}",
        lambda: f"({k}*x)^{n if n < 4 else 2} = {k ** (n if n < 4 else 2)}*x^{n if n < 4 else 2}",
        lambda: f"(x*y)^{n} = x^{n}*y^{n}",
        lambda: f"(x/y)^{n} = x^{n}/y^{n}",
        lambda: f"x^(-{n}) = 1/x^{n}",
        lambda: f"{k}^x*{k}^y = {k}^(x + y)",
        lambda: f"{k}^(x + {m}) = {k}^{m}*{k}^x",
        lambda: f"{k}^x*{n}^x = {k * n}^x",
        lambda: f"({k}^x)^{n} = {k}^({n}*x)",
        lambda: f"log(x^{n}) = {n}*log(x)",
        lambda: f"exp({n}*x) = exp(x)^{n}",
        lambda: f"log({k}*x) = log({k}) + log(x)",
        lambda: f"sqrt({k * k}*x) = {k}*sqrt(x)",
        lambda: f"exp(x + {m}) = exp({m})*exp(x)",
    )
    return forms[int(rng.random() * len(forms))]()


def _fractions(rng: random.Random) -> str:
    """Return a sum, product or quotient of fractions."""
    a, b, c, d = (_number(rng, 1, 6) for _ in range(4))
    forms = (
        f"{a}/x + {b}/x = {a + b}/x",
        f"x/{a + 1} + x/{b + 1} = {a + b + 2}*x/{(a + 1) * (b + 1)}",
        f"{a}/x + {b}/y = ({polynomial_text([(a, 'y'), (b, 'x')])})/(x*y)",
        f"(x + {a})/{b + 1} = x/{b + 1} + {a}/{b + 1}",
        f"{a * b}*x/({a * c}*y) = {b}*x/({c}*y)",
        f"({a}*x/{b + 1})*({c}*y/{d + 1}) = {a * c}*x*y/{(b + 1) * (d + 1)}",
        f"x/(x + {a}) = 1 - {a}/(x + {a})",
        f"(x^2 - {a * a})/(x - {a}) = x + {a}",
        f"1/(x - {a}) - 1/(x + {a}) = {2 * a}/(x^2 - {a * a})",
    )
    return forms[int(rng.random() * len(forms))]


_KINDS = (
    _arithmetic,
    _arithmetic,
    _linear_product,
    _two_variable_square,
    _cube,
    _distribution,
    _distribution,
    _like_terms,
    _powers,
    _powers,
    _fractions,
)
