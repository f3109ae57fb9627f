"""Numeric equations: values of functions, sums and products, and decimal expansions; true, or with a wrong number."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from decimal import Decimal

import numpy as np

from treemem.tasks.equation_verification.generation.functions import FUNCTIONS
from treemem.tasks.equation_verification.generation.quotas import VALIDATION_SHARE
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.labels import EQUALITY, NUMBER
from treemem.trees.tree import Tree

_LOG = logging.getLogger(__name__)

KINDS: tuple[str, ...] = ("function", "arithmetic", "decimal")
"""``sin(2.5) = 0.6``; ``1.2 + 0.85 = 2.05``; ``2.57 = 2*10^0 + 5*10^-1 + 7*10^(-1*2)``."""

SYMBOLIC = -1
"""The kind of an equation that is not numeric, in data that have both."""

LARGEST = 3.14
"""Numbers have two decimals and lie between -3.14 and 3.14."""

LEAST_ERROR = 0.1
"""How far the number of a false equation is from the true one, at least."""

_FUNCTIONS = ("cos", "cot", "csc", "sec", "sin", "tan")

_PATIENCE = 2000
"""A kind is exhausted after this number of known equations in a row."""


def generate_numeric(size: int = 2000, *, seed: int = 0) -> Forest:
    """Generate equations between decimal numbers, distinct up to the order of sides and operands.

    A third of them are values of the six trigonometric functions, a third rounded sums or products of two numbers, and
    a third expansions of a number as a sum of digits times powers of ten. All training equations are true, because a
    network learns the value of an expression from them. Every second validation and test equation is false: in place
    of the value stands another number, drawn evenly from those at least 0.1 away (``sin(0.5) = 0.7``).

    Args:
        size: number of equations; there are fewer if not enough exist.
        seed: of all random choices.

    Returns:
        Trees with root ``Equality`` and ``Number`` leaves with values. ``tree_data``: ``label`` (int8), ``kind``
        (int8, index into ``KINDS``), ``split`` (a fifth ``"validation"``, a fifth ``"test"``, the others ``"train"``).

    Example:
        >>> print(generate_numeric(3, seed=3)[0])
        (Equality Number=-1.25 (sin Number=-1.7))
    """
    rng = random.Random(f"numeric {seed}")
    equations: dict[str, tuple[Tree, Decimal, int]] = {}
    for kind, stream in enumerate((_function_values(rng), _arithmetic(rng), _decimal_expansions(rng))):
        enough = len(equations) + (size * (kind + 1)) // len(KINDS) - (size * kind) // len(KINDS)
        misses = 0
        while len(equations) < enough and misses < _PATIENCE:
            expression, value = next(stream)
            form = _canonical(Tree(EQUALITY, [expression, _leaf(value)]))
            misses = misses + 1 if form in equations else 0
            equations.setdefault(form, (expression, value, kind))
    if len(equations) < size:
        _LOG.warning("there are only %d of %d numeric equations", len(equations), size)
    order = sorted(equations.values(), key=lambda _: rng.random())
    held_out = int(VALIDATION_SHARE * len(order) + 0.5)
    split = np.full(len(order), "train", dtype="<U10")
    split[:held_out], split[held_out : 2 * held_out] = "validation", "test"
    label = np.ones(len(order), np.int8)
    label[: 2 * held_out : 2] = 0
    trees = [
        _either_way(rng, EQUALITY, expression, _leaf(value if true else _wrong(rng, value)))
        for (expression, value, _), true in zip(order, label, strict=True)
    ]
    kinds = np.array([kind for _, _, kind in order], np.int8)
    return Forest.from_trees(trees, tree_data={"label": label, "kind": kinds, "split": split})


def exact_value(expression: Tree) -> float:
    """Return the value of a side of a numeric equation, not rounded.

    Example:
        >>> f"{exact_value(Tree('sin', [Tree(NUMBER, value=0.5)])):.4f}"
        '0.4794'
    """
    if expression.label == NUMBER:
        assert expression.value is not None
        return expression.value
    if not expression.children:
        return float(expression.label.partition(":")[2])
    return float(FUNCTIONS[expression.label].real(*map(exact_value, expression.children)))


def _function_values(rng: random.Random) -> Iterator[tuple[Tree, Decimal]]:
    while True:
        name = _FUNCTIONS[int(rng.random() * len(_FUNCTIONS))]
        argument = _number(rng)
        with np.errstate(divide="ignore"):
            value = float(FUNCTIONS[name].real(np.float64(argument)))
        if abs(value) <= LARGEST:
            yield Tree(name, [_leaf(argument)]), Decimal(f"{value:.2f}")


def _arithmetic(rng: random.Random) -> Iterator[tuple[Tree, Decimal]]:
    while True:
        first, second = _number(rng), _number(rng)
        label = "Add" if rng.random() < 0.5 else "Mul"
        value = first + second if label == "Add" else first * second
        if abs(value) <= LARGEST:
            yield Tree(label, [_leaf(first), _leaf(second)]), Decimal(f"{value:.2f}")


def _decimal_expansions(rng: random.Random) -> Iterator[tuple[Tree, Decimal]]:
    while True:
        number = _number(rng)
        yield _expansion(rng, number), number


def _expansion(rng: random.Random, number: Decimal) -> Tree:
    """Return ``number`` as a sum of its digits times powers of ten, operands in random order, nested to the right."""
    ten, minus = Tree("Integer:10"), Tree("NegativeOne:-1")
    powers = [
        None,
        Tree("Pow", [ten, minus]),
        Tree("Pow", [ten, _either_way(rng, "Mul", minus, Tree("Integer:2"))]),
    ]
    terms = []
    for digit, power in zip(f"{abs(number):.2f}".replace(".", ""), powers, strict=True):
        if digit != "0":
            factor = Tree(f"Integer:{digit}")
            terms.append(factor if power is None else _either_way(rng, "Mul", factor, power))
    total = terms.pop() if terms else Tree("Integer:0")
    while terms:
        total = _either_way(rng, "Add", terms.pop(), total)
    return _either_way(rng, "Mul", minus, total) if number < 0 else total


def _either_way(rng: random.Random, label: str, first: Tree, second: Tree) -> Tree:
    return Tree(label, [first, second] if rng.random() < 0.5 else [second, first])


def _canonical(tree: Tree) -> str:
    """Return a text that is equal for equations that differ only in the order of sides and of operands."""
    operands = [_canonical(child) for child in tree.children]
    if tree.label in (EQUALITY, "Add", "Mul"):
        operands.sort()
    return f"({tree.label} {tree.value} {' '.join(operands)})"


def _wrong(rng: random.Random, value: Decimal) -> Decimal:
    while True:
        number = _number(rng)
        if abs(number - value) >= LEAST_ERROR:
            return number


def _number(rng: random.Random) -> Decimal:
    hundredths = round(100 * LARGEST)
    return Decimal(int(rng.random() * (2 * hundredths + 1)) - hundredths) / 100


def _leaf(number: Decimal) -> Tree:
    return Tree(NUMBER, value=float(number))
