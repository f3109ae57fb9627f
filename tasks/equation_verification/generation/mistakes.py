"""False equations made from true ones: one edit, the side of another equation, or a step that is a classic mistake."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from treemem.tasks.equation_verification.generation.expressions import VARIABLES, ExpressionTable
from treemem.tasks.equation_verification.generation.functions import CONSTANTS
from treemem.tasks.equation_verification.generation.textbook_walks import TextbookWalks
from treemem.trees.formats.equations.labels import BINARY_FUNCTIONS, EQUALITY, NUM_VARIABLES, UNARY_FUNCTIONS

GROW, SHRINK, REPLACE, SIBLING, MISTAKE = 0, 1, 2, 4, 5
"""Kinds of false equations. Edits: put a function around a node; replace a node by one of its children; change the
label of a node. Others: the right side of another equation; a classic mistake."""

EDIT_NAMES = {GROW: "grow", SHRINK: "shrink", REPLACE: "replace", SIBLING: "another side", MISTAKE: "mistake"}

_TRIES = 12
_LABEL_FLOOR = 0.02
"""Share of the labels that are drawn uniformly, so that each occurs."""


class MistakeMaker:
    """Makes candidates of false equations; the caller tests them. Labels are drawn as often as in true equations.

    Args:
        table: holds the expressions.
        walks: has the classic mistakes.
        equations: true equations.
        shares: kind of false equation to its share of the tries.
        rng: source of all choices.
        depths_change: whether a candidate may have another depth than the equation that it comes from.
    """

    def __init__(
        self,
        table: ExpressionTable,
        walks: TextbookWalks,
        equations: Sequence[int],
        shares: Mapping[int, float],
        rng: random.Random,
        *,
        depths_change: bool = False,
    ) -> None:
        self._table = table
        self._walks = walks
        self._rng = rng
        self._kinds, weights = list(shares), list(shares.values())
        self._bounds = list(accumulate(weights))
        self._depths_change = depths_change
        self._labels = _LabelsByArity(table, equations)
        self._right_sides: dict[tuple[int, int], list[int]] = defaultdict(list)
        for equation in equations:
            for side in table.children[equation]:
                self._right_sides[table.height[side], table.variables[side]].append(side)

    def candidate(self, equation: int, most_depth: int) -> tuple[int, int] | None:
        """Return a changed ``equation`` and the kind of change; None if all tries fail."""
        table, rng = self._table, self._rng
        for _ in range(_TRIES):
            (kind,) = rng.choices(self._kinds, cum_weights=self._bounds)
            result = self._changed(equation, kind)
            depth = table.height[result]
            if result != equation and (depth <= most_depth if self._depths_change else depth == table.height[equation]):
                return result, kind
        return None

    def _changed(self, equation: int, kind: int) -> int:
        table, rng = self._table, self._rng
        if kind == MISTAKE:
            return self._walks.rewritten(self._walks.wrong_rules, equation)
        if kind == SIBLING:
            left, right = table.children[equation]
            others = self._right_sides[table.height[right], table.variables[right]]
            other = others[int(rng.random() * len(others))] if others else right
            return table.make(EQUALITY, (left, other)) if abs(table.size[other] - table.size[right]) <= 3 else equation
        path = table.path_to(equation, 1 + int(rng.random() * (table.size[equation] - 1)))
        node = path[-1][0]
        edited = {GROW: self._grown, SHRINK: self._shrunk, REPLACE: self._replaced}[kind](equation, node)
        return table.replace_at(path, edited)

    def _grown(self, equation: int, node: int) -> int:
        rng, table = self._rng, self._table
        if rng.random() < 0.5:
            return table.make(self._labels.draw(1, rng), (node,))
        leaf = self._leaf(equation, "")
        return table.make(self._labels.draw(2, rng), (node, leaf) if rng.random() < 0.5 else (leaf, node))

    def _shrunk(self, equation: int, node: int) -> int:
        children = self._table.children[node]
        return children[int(self._rng.random() * len(children))] if children else node

    def _replaced(self, equation: int, node: int) -> int:
        rng, table = self._rng, self._table
        children, label = table.children[node], table.label[node]
        if not children:
            return self._leaf(equation, label)
        if len(children) == 2 and rng.random() < 0.15:
            return table.make(label, children[::-1])
        return table.make(self._labels.draw(len(children), rng, label), children)

    def _leaf(self, equation: int, other_than: str) -> int:
        """Return a leaf; a variable is one of the equation, or a new one if it has no other."""
        table, rng = self._table, self._rng
        label = self._labels.draw(0, rng, other_than)
        if label in VARIABLES:
            present = [VARIABLES[index] for index in table.variable_indexes(equation)]
            others = [name for name in present if name != other_than]
            if not others and table.variables[equation].bit_length() < NUM_VARIABLES:
                others = [VARIABLES[table.variables[equation].bit_length()]]
            label = others[int(rng.random() * len(others))] if others else label
        return table.make(label)


class _LabelsByArity:
    """Draws labels as often as they occur, and each function and constant at least sometimes."""

    def __init__(self, table: ExpressionTable, equations: Iterable[int]) -> None:
        counts: dict[int, dict[str, float]] = {
            0: dict.fromkeys((*VARIABLES[:3], *CONSTANTS), 0.0),
            1: dict.fromkeys(UNARY_FUNCTIONS, 0.0),
            2: dict.fromkeys(BINARY_FUNCTIONS, 0.0),
        }
        for equation in equations:
            for node in table.postorder(equation):
                label = table.label[node]
                if label != EQUALITY:
                    arity = len(table.children[node])
                    counts[arity][label] = counts[arity].get(label, 0.0) + 1
        self._labels, self._sums = {}, {}
        for arity, label_counts in counts.items():
            floor = max(1.0, _LABEL_FLOOR * sum(label_counts.values()) / len(label_counts))
            self._labels[arity] = list(label_counts)
            self._sums[arity] = list(accumulate(count + floor for count in label_counts.values()))

    def draw(self, arity: int, rng: random.Random, other_than: str = "") -> str:
        """Return a label of this arity that is not ``other_than``."""
        while True:
            (label,) = rng.choices(self._labels[arity], cum_weights=self._sums[arity])
            if label != other_than:
                return str(label)
