"""False equations, each one edit away from a true one of the same depth, or an edit and some steps of rewriting."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treemem.tasks.equation_verification.generation.editing import Editor
from treemem.tasks.equation_verification.generation.evaluation import Points
from treemem.tasks.equation_verification.generation.expressions import LABELS, ExpressionTable
from treemem.tasks.equation_verification.generation.quotas import OpenQuotas
from treemem.tasks.equation_verification.generation.rewriting import Rewriter
from treemem.tasks.equation_verification.generation.verification import FALSE, verify

_LARGEST_ROUND = 4096
_PATIENCE = 5000
"""A depth has no more to give when so many edits of its equations find nothing new."""

_TRIES_AT_A_SOURCE = 20
_TRIES_AT_A_STEP = 10
_LEAST_SPREAD = 0.05
"""Added to the standard deviation of counts, so that labels that hardly ever occur do not decide alone."""

_LEAST_DIFFERENT = 0.9
"""More than a false equation needs, so that it is false by any other choice of points too."""

EDIT_SHARES: tuple[float, ...] = (0.28, 0.4, 0.32, 0.0)
"""How often edits that grow, shrink, replace and exchange are tried. Shrinking keeps the depth least often; so drawn,
false equations are as long as true ones on average."""


@dataclass(frozen=True)
class CorruptionOptions:
    """How false equations are made of true ones.

    Attributes:
        edits: how often each kind of edit is tried, grow, shrink, replace, exchange; in any unit.
        steps: number of times that an identity is applied to the edited equation, inside and keeping its depth.
        even_counts: whether false equations are left out that would take the mean length and the mean counts of labels
            at their depth farther away from those of the true ones.

    """

    edits: tuple[float, ...] = EDIT_SHARES
    steps: int = 0
    even_counts: bool = False

    @classmethod
    def with_even_counts(cls, false_steps: int, edits: Sequence[float]) -> CorruptionOptions:
        """These steps and edits, and even counts but for the default of both, which are even enough by themselves."""
        options = cls(tuple(edits), false_steps)
        return options if options == cls() else cls(options.edits, options.steps, even_counts=True)


class FalseEquation(NamedTuple):
    """A false equation and where it comes from.

    Attributes:
        equation: its number.
        source: the true equation that was edited.
        edit: ``GROW``, ``SHRINK``, ``REPLACE`` or ``EXCHANGE``.
    """

    equation: int
    source: int
    edit: int


class Corruption:
    """Edits true equations until each depth has so many distinct false ones.

    The node to edit is drawn uniformly, and so are the nodes to rewrite after it; what changes the depth, or does not
    make the equation false by the numerical test, is thrown away. No equation equals another, true or false, up to
    renaming and swapping.

    Args:
        table: where expressions are kept.
        sources: depth to the true equations to edit.
        quota: depth to the number of false equations wanted.
        keys: canonical forms of the equations that may not come out; those that do are added.
        points: where equations are tested.
        rng: where all choices are drawn from.
        rewriter: applies identities to edited equations.
        options: edits, steps of rewriting and lengths.

    Attributes:
        found: depth to the false equations.
    """

    def __init__(
        self,
        table: ExpressionTable,
        sources: Mapping[int, Sequence[int]],
        quota: Mapping[int, int],
        keys: set[tuple[int, int]],
        points: Points,
        rng: random.Random,
        rewriter: Rewriter,
        options: CorruptionOptions,
    ) -> None:
        self.found: dict[int, list[FalseEquation]] = {depth: [] for depth in quota}
        self._table = table
        self._sources = sources
        self._keys = keys
        self._points = points
        self._rng = rng
        self._editor = Editor(table, [equation for depth in sorted(sources) for equation in sources[depth]])
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
        """Edit until every depth has its quota or its supply has ended.

        Args:
            on_found: called after each round with the number of equations found in it.
        """
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
        verdicts = verify(self._table, equations, self._points, _LEAST_DIFFERENT)
        for candidate, verdict in zip(candidates, verdicts, strict=True):
            depth = self._table.height[candidate.equation]
            if verdict == FALSE and depth in self._quotas.missing and not self._is_unbalanced(candidate.equation):
                self.found[depth].append(candidate)
                self._quotas.add_found(depth)

    def _is_unbalanced(self, equation: int) -> bool:
        """Whether the equation would take the mean counts of labels at its depth farther away from the true ones'."""
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
        """How often each label occurs in each equation, and its length: ``[equations, labels + 1]``."""
        counts = np.zeros((len(equations), len(self._place_of_label) + 1))
        for row, equation in enumerate(equations):
            for node in self._table.postorder(equation):
                counts[row, self._place_of_label[self._table.label[node]]] += 1
            counts[row, -1] = self._table.size[equation]
        return counts

    def _edited(self, depth: int) -> FalseEquation | None:
        """A new equation of ``depth`` by an edit of a true one and the steps after it.

        None where the tries at one did not give any.

        An equation that was drawn is tried again: larger ones, with more room for edits that keep the depth, would else
        be the source of more false equations than their share.
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
        """``equation`` after the steps of rewriting; each of them gives another equation of the same depth.

        A step is left out where the tries at one do not give any.
        """
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
