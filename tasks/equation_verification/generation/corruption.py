"""False equations: true ones of the same depth with one edit, and possibly some steps of rewriting after it."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treemem.tasks.equation_verification.generation.expressions import (
    ARITHMETIC_FUNCTIONS,
    LABELS,
    TRIGONOMETRIC_FUNCTIONS,
    VARIABLES,
    ExpressionTable,
)
from treemem.tasks.equation_verification.generation.quotas import OpenQuotas
from treemem.tasks.equation_verification.generation.rewriting import GROWTH_CONSTANTS, Rewriter
from treemem.tasks.equation_verification.generation.verification import FALSE, verify
from treemem.trees.equation_labels import EQUALITY, NUM_VARIABLES

GROW, SHRINK, REPLACE, EXCHANGE = range(4)
"""Edits: put a function around a node; replace a node by one of its children; change the label of a node; exchange base
and exponent of a power, or a trigonometric function and its cofunction."""

EDIT_NAMES: tuple[str, ...] = ("grow", "shrink", "replace", "exchange", "another side", "mistake")
_COFUNCTIONS = {"sin": "cos", "cos": "sin", "tan": "cot", "cot": "tan", "sec": "csc", "csc": "sec"}

EDIT_SHARES: tuple[float, ...] = (0.28, 0.4, 0.32, 0.0)
"""Shares of the edits that are tried. Shrinking keeps the depth least often; with these shares, false equations are as
long as true ones on average."""

_LARGEST_ROUND = 4096
_PATIENCE = 5000
"""A depth is exhausted after this number of edits in a row without a new equation."""

_TRIES_AT_A_SOURCE = 20
_TRIES_AT_A_STEP = 10
_LEAST_SPREAD = 0.05
"""Added to the standard deviation of counts, so that rare labels do not decide alone."""

_LEAST_DIFFERENT = 0.9
"""Stricter than for other false equations, so that these are also false at other points."""


class _WeightedLabels:
    """Draws labels as often as they occur; ``counts`` has at least two."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._labels = sorted(counts)
        self._sums = list(accumulate(counts[label] for label in self._labels))

    def draw(self, rng: random.Random, other_than: str = "") -> str:
        """Return a label that is not ``other_than``."""
        while True:
            (label,) = rng.choices(self._labels, cum_weights=self._sums)
            if label != other_than:
                return label


class Editor:
    """Edits equations with labels drawn as often as they occur in true ones, so token counts reveal little."""

    def __init__(self, table: ExpressionTable, equations: Iterable[int]) -> None:
        self.table = table
        constants = {label for group in GROWTH_CONSTANTS for label in group}
        counts = dict.fromkeys((*TRIGONOMETRIC_FUNCTIONS, *ARITHMETIC_FUNCTIONS, *sorted(constants), *VARIABLES), 1)
        for equation in equations:
            for node in table.postorder(equation):
                label = table.label[node]
                counts[label] = counts.get(label, 0) + 1
        counts.pop(EQUALITY, None)
        self._unary = _WeightedLabels({label: counts.pop(label) for label in TRIGONOMETRIC_FUNCTIONS})
        self._binary = _WeightedLabels({label: counts.pop(label) for label in ARITHMETIC_FUNCTIONS})
        num_variables = sum(counts.pop(label) for label in VARIABLES)
        self._constants = _WeightedLabels(counts)
        self._variable_share = num_variables / (num_variables + sum(counts.values()))

    def edit(self, equation: int, kind: int, position: int, rng: random.Random) -> int:
        """Return ``equation`` with an edit at ``position`` (preorder, not the root), or itself if it is impossible."""
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
        """Return a variable as often as true equations have one as a leaf, else a constant.

        The variable is one of the equation, or a new one if it has no other than ``other_than``.
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


@dataclass(frozen=True)
class CorruptionOptions:
    """How false equations are made of true ones.

    Attributes:
        edits: shares of the edits that are tried: grow, shrink, replace, exchange; in any unit.
        steps: number of identities applied to the edited equation; each keeps its depth.
        even_counts: whether to leave out equations that move the mean length and label counts at their depth away from
            those of the true ones.
    """

    edits: tuple[float, ...] = EDIT_SHARES
    steps: int = 0
    even_counts: bool = False


ONE_EDIT = CorruptionOptions()


class FalseEquation(NamedTuple):
    """A false equation, the true one that was edited, and the edit: ``GROW``, ``SHRINK``, ``REPLACE``, ``EXCHANGE``."""

    equation: int
    source: int
    edit: int


class Corruption:
    """Edits true equations until each depth has its quota of distinct false ones.

    The node to edit is drawn uniformly, and so are the nodes to rewrite after it. A result is discarded if it has
    another depth, if it is not false by the numerical test, or if it equals another equation up to renaming of
    variables and swapping of sides.

    Args:
        rewriter: applies identities to edited equations.
        sources: depth to the true equations to edit.
        quota: depth to the number of false equations.
        keys: canonical forms of the equations that must not be made; those of new equations are added.
        rng: source of all choices.
        options: edits, steps of rewriting, and lengths.

    Attributes:
        found: depth to the false equations.
    """

    def __init__(
        self,
        rewriter: Rewriter,
        sources: Mapping[int, Sequence[int]],
        quota: Mapping[int, int],
        keys: set[tuple[int, int]],
        rng: random.Random,
        options: CorruptionOptions,
    ) -> None:
        self.found: dict[int, list[FalseEquation]] = {depth: [] for depth in quota}
        self._table = rewriter.table
        self._sources = sources
        self._keys = keys
        self._rng = rng
        self._editor = Editor(rewriter.table, [equation for depth in sorted(sources) for equation in sources[depth]])
        self._quotas = OpenQuotas(quota, _PATIENCE, "false")
        self._rewriter = rewriter
        self._options = options
        self._edit_bounds = [bound / sum(options.edits) for bound in accumulate(options.edits[:-1])]
        self._place_of_label = {label: place for place, label in enumerate(LABELS)}
        self._counts: dict[int, tuple[NDArray[np.float64], ...]] = {}
        for depth, drawn in sources.items() if options.even_counts else ():
            if drawn:
                counts = self._label_counts(drawn)
                self._counts[depth] = counts.mean(0), counts.std(0) + _LEAST_SPREAD, np.zeros(counts.shape[1])

    def run(self, on_found: Callable[[int], object] = lambda count: None) -> None:
        """Edit until each depth has its quota or is exhausted; call ``on_found`` with the number found in a round."""
        while missing := self._quotas.missing:
            before = self._quotas.num_found
            scale = min(1.5, _LARGEST_ROUND / sum(missing.values()))
            self._round({depth: int(scale * count) + 16 for depth, count in missing.items()})
            on_found(self._quotas.num_found - before)
            self._quotas.pass_on()

    def _round(self, tries: Mapping[int, int]) -> None:
        self._quotas.add_tries(tries)
        edited = [self._edited(depth) for depth, count in tries.items() for _ in range(count) if self._sources[depth]]
        candidates = [candidate for candidate in edited if candidate is not None]
        equations = [candidate.equation for candidate in candidates]
        verdicts = verify(self._table, equations, _LEAST_DIFFERENT)
        for candidate, verdict in zip(candidates, verdicts, strict=True):
            depth = self._table.height[candidate.equation]
            if verdict == FALSE and depth in self._quotas.missing and not self._is_unbalanced(candidate.equation):
                self.found[depth].append(candidate)
                self._quotas.add_found(depth)

    def _is_unbalanced(self, equation: int) -> bool:
        """Return whether the equation moves the mean label counts at its depth away from those of the true ones."""
        if not self._options.even_counts:
            return False
        depth = self._table.height[equation]
        mean, scale, excess = self._counts[depth]
        above = (self._label_counts([equation])[0] - mean) / scale
        if above @ excess > 0:
            return True
        excess += above  # kept in self._counts
        return False

    def _label_counts(self, equations: Sequence[int]) -> NDArray[np.float64]:
        """Return the count of each label in each equation, and its length: ``[equations, labels + 1]``."""
        counts = np.zeros((len(equations), len(self._place_of_label) + 1))
        for row, equation in enumerate(equations):
            for node in self._table.postorder(equation):
                counts[row, self._place_of_label[self._table.label[node]]] += 1
            counts[row, -1] = self._table.size[equation]
        return counts

    def _edited(self, depth: int) -> FalseEquation | None:
        """Return a new equation of ``depth``: an edited and rewritten true one. None if all tries fail.

        All tries edit the same true equation. Else larger ones, which have more edits that keep the depth, would be
        the source more often.
        """
        sources = self._sources[depth]
        source = sources[int(self._rng.random() * len(sources))]
        for _ in range(_TRIES_AT_A_SOURCE):
            edit = bisect_right(self._edit_bounds, self._rng.random())
            position = 1 + int(self._rng.random() * (self._table.size[source] - 1))
            equation = self._editor.edit(source, edit, position, self._rng)
            if equation != source and self._table.height[equation] == depth:
                equation = self._rewritten(equation)
                key = self._table.canonical_equation(equation)
                if key not in self._keys:
                    self._keys.add(key)
                    return FalseEquation(equation, source, edit)
        return None

    def _rewritten(self, equation: int) -> int:
        """Return ``equation`` after the steps of rewriting. A step whose tries all fail is left out."""
        depth = self._table.height[equation]
        passed = {equation}
        for _ in range(self._options.steps):
            for _ in range(_TRIES_AT_A_STEP):
                position = 1 + int(self._rng.random() * (self._table.size[equation] - 1))
                result = self._rewriter.rewrite(equation, position, self._rng)
                if result not in passed and self._table.height[result] == depth:
                    passed.add(result)
                    equation = result
                    break
        return equation
