"""One edit that turns a true equation into what is most likely a false one."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate

from treemem.tasks.equation_verification.generation.expressions import VARIABLES, ExpressionTable
from treemem.tasks.equation_verification.generation.rewriting import GROWTH_CONSTANTS, GROWTH_FUNCTIONS
from treemem.trees.equation_labels import EQUALITY, NUM_VARIABLES

TRIGONOMETRIC_FUNCTIONS: tuple[str, ...] = ("sin", "cos", "csc", "sec", "tan", "cot")

GROW, SHRINK, REPLACE, EXCHANGE = range(4)
"""A function put around a node; a node replaced by one of its children; the label of a node changed; base and exponent
of a power changed for each other, or a trigonometric function for its cofunction."""

EDIT_NAMES: tuple[str, ...] = ("grow", "shrink", "replace", "exchange")

_COFUNCTIONS = {"sin": "cos", "cos": "sin", "tan": "cot", "cot": "tan", "sec": "csc", "csc": "sec"}


class WeightedLabels:
    """Labels drawn as often as they occur.

    Args:
        counts: label to the number of its occurrences; two labels at least.
    """

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._labels = sorted(counts)
        self._sums = list(accumulate(counts[label] for label in self._labels))

    def draw(self, rng: random.Random, other_than: str = "") -> str:
        """A label that is not ``other_than``."""
        label = other_than
        while label == other_than:
            label = self._labels[bisect_right(self._sums, rng.random() * self._sums[-1])]
        return label


class Editor:
    """Edits equations with labels drawn as often as they occur in the true ones.

    So the tokens that edits bring in are the tokens that true equations are made of, and counting tokens tells
    little about the label of an equation.

    Args:
        table: where expressions are kept.
        equations: true equations, whose labels are counted.
    """

    def __init__(self, table: ExpressionTable, equations: Iterable[int]) -> None:
        self.table = table
        constants = {label for group in GROWTH_CONSTANTS for label in group}
        counts = dict.fromkeys((*TRIGONOMETRIC_FUNCTIONS, *GROWTH_FUNCTIONS, *sorted(constants), *VARIABLES), 1)
        for equation in equations:
            for node in table.postorder(equation):
                label = table.label[node]
                counts[label] = counts.get(label, 0) + 1
        counts.pop(EQUALITY, None)
        self._unary = WeightedLabels({label: counts.pop(label) for label in TRIGONOMETRIC_FUNCTIONS})
        self._binary = WeightedLabels({label: counts.pop(label) for label in GROWTH_FUNCTIONS})
        num_variables = sum(counts.pop(label) for label in VARIABLES)
        self._constants = WeightedLabels(counts)
        self._variable_share = num_variables / (num_variables + sum(counts.values()))

    def edit(self, equation: int, kind: int, position: int, rng: random.Random) -> int:
        """``equation`` with one edit at the node at ``position`` in preorder (not the root).

        Args:
            equation: an expression with root ``Equality``.
            kind: ``GROW``, ``SHRINK``, ``REPLACE`` or ``EXCHANGE``.
            position: which node is edited.
            rng: where choices are drawn from.

        Returns:
            The edited equation; ``equation`` itself where this edit is not possible.
        """
        path = self.table.path_to(equation, position)
        node = path[-1][0]
        edited = (self._grow, self._shrink, self._replace, self._exchange)[kind](equation, node, rng)
        return self.table.replace_at(path, edited)

    def _grow(self, equation: int, node: int, rng: random.Random) -> int:
        if rng.random() < 0.5:
            return self.table.make(self._unary.draw(rng), (node,))
        leaf = self._leaf(equation, rng)
        return self.table.make(self._binary.draw(rng), (node, leaf) if rng.random() < 0.5 else (leaf, node))

    def _shrink(self, equation: int, node: int, rng: random.Random) -> int:
        children = self.table.children[node]
        return children[int(rng.random() * len(children))] if children else node

    def _replace(self, equation: int, node: int, rng: random.Random) -> int:
        children, label = self.table.children[node], self.table.label[node]
        if not children:
            return self._leaf(equation, rng, label)
        return self.table.make((self._unary if len(children) == 1 else self._binary).draw(rng, label), children)

    def _exchange(self, equation: int, node: int, rng: random.Random) -> int:
        children, label = self.table.children[node], self.table.label[node]
        if label == "Pow":
            return self.table.make(label, children[::-1])
        return self.table.make(_COFUNCTIONS.get(label, label), children)

    def _leaf(self, equation: int, rng: random.Random, other_than: str = "") -> int:
        """A leaf: a variable as often as one is a leaf of the true equations, else a constant.

        Variables are the equation's own; where its only one is to be replaced, a new one.
        """
        if rng.random() < self._variable_share:
            indexes = self.table.variable_indexes(equation)
            candidates = [VARIABLES[index] for index in indexes if VARIABLES[index] != other_than]
            unused = self.table.variables[equation].bit_length()
            if not candidates and unused < NUM_VARIABLES:
                candidates = [VARIABLES[unused]]
            if candidates:
                return self.table.make(candidates[int(rng.random() * len(candidates))])
        return self.table.make(self._constants.draw(rng, other_than))
