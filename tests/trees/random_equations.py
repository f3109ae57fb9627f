"""Random equation trees over every label of the published table."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st

from treemem.trees.formats.equations.labels import (
    BINARY_FUNCTIONS,
    LEAF_LABELS,
    NUMBER,
    UNARY_FUNCTIONS,
    UNIFIED_LABELS,
)
from treemem.trees.tree import Tree

PROPERTY = settings(max_examples=300, deadline=None, derandomize=True, database=None)

LEAVES = [label for label in LEAF_LABELS if label not in UNIFIED_LABELS]
NUMBERS = [0.7, -0.7, 0.0, 2.0, -3.0, 2.5, -2.5, 0.1, 1e-7, 1e20, -1e300, 5e-324, 123456.789]
# The labels that printing treats specially come up often enough to meet each other.
_FREQUENT = ["NegativeOne:-1", "NegativeOne:-1", "Half:1/2", "Rational:2/5", "Integer:-3", "Exp1:E"]
_FREQUENT += [f"Integer:{integer}" for integer in (1, 2, 3, 5)] + ["Symbol:var_0", "Symbol:var_1"]


def random_expression(draw: random.Random, size: int, *, numeric: bool = False) -> Tree:
    """A random expression of ``size`` nodes, with ``Number`` leaves among its leaves where ``numeric``."""
    if size <= 1:
        if numeric and draw.random() < 0.4:
            return Tree(NUMBER, value=draw.choice(NUMBERS))
        return Tree(draw.choice(_FREQUENT if draw.random() < 0.7 else LEAVES))
    if size == 2 or draw.random() < 0.15:
        return Tree(draw.choice(UNARY_FUNCTIONS), [random_expression(draw, size - 1, numeric=numeric)])
    left = 1 if draw.random() < 0.4 else draw.randint(1, size - 2)
    label = draw.choice(("Add", "Mul", "Pow", *BINARY_FUNCTIONS))
    return Tree(
        label,
        [
            random_expression(draw, left, numeric=numeric),
            random_expression(draw, size - 1 - left, numeric=numeric),
        ],
    )


def leaves(*, numeric: bool = False) -> st.SearchStrategy[Tree]:
    """Leaves of the table, and ``Number`` leaves of any finite value where ``numeric``."""
    of_table = st.sampled_from(LEAVES).map(Tree)
    if not numeric:
        return of_table
    values = st.sampled_from(NUMBERS) | st.floats(allow_nan=False, allow_infinity=False)
    return of_table | values.map(lambda value: Tree(NUMBER, value=value))


def expressions(*, numeric: bool = False) -> st.SearchStrategy[Tree]:
    """Expressions of any shape over all labels."""
    binary = st.sampled_from(BINARY_FUNCTIONS)

    def extend(children: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        pairs = st.tuples(binary, children, children).map(lambda drawn: Tree(drawn[0], drawn[1:]))
        calls = st.tuples(st.sampled_from(UNARY_FUNCTIONS), children).map(lambda drawn: Tree(drawn[0], drawn[1:]))
        negations = children.map(lambda child: Tree("Mul", [Tree("NegativeOne:-1"), child]))
        return pairs | calls | negations

    return st.recursive(leaves(numeric=numeric), extend, max_leaves=12)


def equations(*, numeric: bool = False) -> st.SearchStrategy[Tree]:
    """Trees with ``Equality`` as root."""
    sides = expressions(numeric=numeric)
    return st.tuples(sides, sides).map(lambda pair: Tree("Equality", pair))
