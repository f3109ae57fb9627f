"""A second, plain evaluator of equations: Python's complex numbers, node by node."""

from __future__ import annotations

import cmath
import random

import numpy as np

from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

_CONSTANTS = {
    **{f"Integer:{integer}": integer for integer in (*range(11), -2, -3)},
    "Rational:2/5": 0.4,
    "Rational:-1/2": -0.5,
    "Float:0.7": 0.7,
    "NegativeOne:-1": -1,
    "Pi:pi": cmath.pi,
    "Exp1:E": cmath.e,
    "Half:1/2": 0.5,
}
_WAVES = ("sin", "cos", "tan", "sinh", "cosh", "tanh")
_FUNCTIONS = {name: getattr(cmath, name) for name in ("exp", *_WAVES, *(f"a{wave}" for wave in _WAVES))}
_ONE_OVER = {"csc": "sin", "sec": "cos", "cot": "tan", "csch": "sinh", "sech": "cosh", "coth": "tanh"}
_AT_RECIPROCAL = {f"a{name}": f"a{other}" for name, other in _ONE_OVER.items()}


def value_of(tree: Tree, variables: list[complex]) -> complex:
    """The value of an expression; raises an ArithmeticError or ValueError where it has none."""
    done: list[complex] = []
    for node in tree.postorder():
        first = len(done) - node.arity
        done[first:] = [_apply(node.label, done[first:], variables) if node.value is None else complex(node.value)]
    return done.pop()


def _apply(label: str, operands: list[complex], variables: list[complex]) -> complex:
    if not operands:
        return complex(_CONSTANTS[label]) if label in _CONSTANTS else variables[int(label.removeprefix("Symbol:var_"))]
    first, last = operands[0], operands[-1]
    if label == "Add":
        return first + last
    if label == "Mul":
        return first * last
    if label == "Pow":
        return complex(first**last)
    if label == "log":
        return cmath.log(first) / cmath.log(last)
    if label in _ONE_OVER:
        return 1 / _FUNCTIONS[_ONE_OVER[label]](first)
    if label in _AT_RECIPROCAL:
        return _FUNCTIONS[_AT_RECIPROCAL[label]](1 / first)
    return _FUNCTIONS[label](first)


def differences(equation: Tree, seed: int, num_points: int = 12) -> list[float]:
    """Relative differences of the two sides at random real points, then complex ones, where both are defined."""
    rng = random.Random(seed)
    found = []
    for sort in ("real", "complex"):
        for _ in range(num_points):
            variables = [
                complex(rng.uniform(-3.1, 3.1), rng.uniform(-1, 1) if sort == "complex" else 0) for _ in range(10)
            ]
            try:
                left, right = (value_of(side, variables) for side in equation.children)
            except (ArithmeticError, ValueError):
                continue
            if cmath.isfinite(left) and cmath.isfinite(right):
                largest = max(abs(left), abs(right))
                found.append(abs(left - right) / largest if largest else 0.0)
    return found


def assert_labels_hold(forest: Forest, every: int = 1) -> None:
    """Check that the sides of true equations are equal, and that those of false ones differ at most points."""
    for tree in range(0, len(forest), every):
        found = np.array(differences(forest[tree], seed=tree))
        assert len(found) >= 8, str(forest[tree])
        if forest.tree_data["label"][tree]:
            assert found.max() < 1e-6, str(forest[tree])
        else:
            assert (found > 1e-3).mean() >= 0.7, str(forest[tree])
