"""False equations, each one edit away from a true one of the same depth."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from treemem.tasks.equation_verification.editing import Editor
from treemem.tasks.equation_verification.evaluation import Points
from treemem.tasks.equation_verification.expressions import ExpressionTable
from treemem.tasks.equation_verification.quotas import OpenQuotas
from treemem.tasks.equation_verification.verification import FALSE, verify

_LARGEST_ROUND = 4096
_PATIENCE = 5000
"""A depth has no more to give when so many edits of its equations find nothing new."""


_TRIES_AT_A_SOURCE = 20
_LEAST_DIFFERENT = 0.9
"""More than a false equation needs, so that it is false by any other choice of points too."""

_EDIT_BOUNDS = (0.28, 0.68)
"""Edits grow, shrink and replace with probability 0.28, 0.4 and 0.32. Shrinking keeps the depth least often; so drawn,
false equations are as long as true ones on average."""


class FalseEquation(NamedTuple):
    """A false equation and where it comes from.

    Attributes:
        equation: its number.
        source: the true equation that was edited.
        edit: ``GROW``, ``SHRINK`` or ``REPLACE``.
    """

    equation: int
    source: int
    edit: int


class Corruption:
    """Edits true equations until each depth has so many distinct false ones.

    The node to edit is drawn uniformly; what changes the depth, or does not make the equation false by
    the numerical test, is thrown away. No equation equals another, true or false, up to renaming and swapping.

    Args:
        table: where expressions are kept.
        sources: depth to the true equations to edit.
        quota: depth to the number of false equations wanted.
        keys: canonical forms of the equations that may not come out; those that do are added.
        points: where equations are tested.
        rng: where all choices are drawn from.

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
    ) -> None:
        self.found: dict[int, list[FalseEquation]] = {depth: [] for depth in quota}
        self._table = table
        self._sources = sources
        self._keys = keys
        self._points = points
        self._rng = rng
        self._editor = Editor(table, [equation for depth in sorted(sources) for equation in sources[depth]])
        self._quotas = OpenQuotas(quota, _PATIENCE, "false")

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
            if verdict == FALSE and depth in self._quotas.missing:
                self.found[depth].append(candidate)
                self._quotas.add_found(depth)

    def _edited(self, depth: int) -> FalseEquation | None:
        """A new equation of ``depth`` by an edit of a true one; None where the tries at one did not give any.

        An equation that was drawn is tried again: larger ones, with more room for edits that keep the depth, would else
        be the source of more false equations than their share.
        """
        sources = self._sources[depth]
        source = sources[int(self._rng.random() * len(sources))]
        for _ in range(_TRIES_AT_A_SOURCE):
            edit = bisect_right(_EDIT_BOUNDS, self._rng.random())
            position = 1 + int(self._rng.random() * (self._table.size[source] - 1))
            equation = self._editor.edit(source, edit, position, self._rng)
            if equation != source and self._table.height[equation] == depth:
                key = self._table.canonical_equation(equation)
                if key not in self._keys:
                    self._keys.add(key)
                    return FalseEquation(equation, source, edit)
        return None
