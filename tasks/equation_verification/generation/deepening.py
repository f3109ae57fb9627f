"""Deep true equations, each on a way of its own from a shallow one."""

from __future__ import annotations

import random
from collections.abc import Sequence

from treemem.tasks.equation_verification.generation.derivation import target_nodes
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.rewriting import Rewriter

_ON_DEEPEST_PATH = 0.6
"""So often a step rewrites a node on the longest way down, which may lengthen it; else any node."""

_STEPS_BEYOND = 8
"""At most so many steps are taken after the depth is reached."""

_TRIES_A_LEVEL = 60
_LARGEST = 1.15
"""An equation has at most so many times the nodes of the published ones of its depth."""


class Deepening:
    """Deepens shallow true equations by identities, until they have a given depth.

    A stock from which deep equations are derived, as :class:`Derivation` keeps one, has deep ones of few families: what
    was deep first has the most descendants. Here each has its own ancestor and its own steps.

    Args:
        table: where expressions are kept.
        rewriter: applies the identities.
        parents: true equations to start from.
        rng: where all choices are drawn from.
    """

    def __init__(self, table: ExpressionTable, rewriter: Rewriter, parents: Sequence[int], rng: random.Random) -> None:
        self._table = table
        self._rewriter = rewriter
        self._parents = parents
        self._rng = rng

    def equation(self, depth: int) -> int | None:
        """An equation of ``depth`` from a parent drawn at random; None where its steps did not lead there."""
        table, rng = self._table, self._rng
        equation = self._parents[int(rng.random() * len(self._parents))]
        most = _LARGEST * target_nodes(depth)
        beyond = int(rng.random() * (_STEPS_BEYOND + 1))
        for _ in range(_TRIES_A_LEVEL * max(1, depth - table.height[equation])):
            reached = table.height[equation] == depth
            if reached and not beyond:
                return equation
            result = self._step(equation)
            if result != equation and table.height[equation] <= table.height[result] <= depth:
                if table.size[result] <= most:
                    equation = result
                beyond -= reached
        return equation if table.height[equation] == depth else None

    def _step(self, equation: int) -> int:
        rng = self._rng
        if rng.random() < _ON_DEEPEST_PATH:
            positions = self._deepest_path(equation)
            position = positions[int(rng.random() * len(positions))]
        else:
            position = int(rng.random() * self._table.size[equation])
        if position == 0:
            return self._rewriter.grow(equation, rng)
        return self._rewriter.rewrite(equation, position, rng)

    def _deepest_path(self, equation: int) -> list[int]:
        """Places, in preorder, of the nodes on a longest way down, without the root."""
        table, node, position, found = self._table, equation, 0, []
        while table.children[node]:
            deepest = max(table.height[child] for child in table.children[node])
            ways, begin = [], position + 1
            for child in table.children[node]:
                if table.height[child] == deepest:
                    ways.append((child, begin))
                begin += table.size[child]
            node, position = ways[int(self._rng.random() * len(ways))]
            found.append(position)
        return found
