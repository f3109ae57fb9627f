"""Many distinct true equations, derived step by step from the identities."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from treemem.tasks.equation_verification.evaluation import Points
from treemem.tasks.equation_verification.expressions import ExpressionTable
from treemem.tasks.equation_verification.identities import IDENTITIES
from treemem.tasks.equation_verification.quotas import OpenQuotas
from treemem.tasks.equation_verification.rewriting import Rewriter
from treemem.tasks.equation_verification.verification import TRUE, verify
from treemem.trees.equation_parser import parse_equation

NODES_BY_DEPTH: dict[int, float] = {8: 28.7, 9: 31.5, 10: 34.0, 11: 36.0, 12: 38.3, 13: 40.0}
"""Mean number of nodes of the published true equations, by depth."""

_NODES_A_LEVEL_BEYOND = 2.2

_FREE_SHARE = 1.2
"""Free steps are taken until the stock is so many times the quotas, _LEAST_FREE equations at least."""

_LEAST_FREE = 6000
_SMALLEST_ROUND, _LARGEST_ROUND = 256, 4096
_PATIENCE = 20000
"""A depth has no more to give when so many steps aimed at it find nothing new."""

_TRIES_AT_A_PARENT = 10


class Derivation:
    """A growing stock of true equations, no two of them equal up to renaming of variables and swapping of sides.

    One step takes an equation of the stock and rewrites one of its nodes, drawn uniformly, by an identity; where the
    root is drawn, it does the same operation to both sides. Every result is tested numerically, a round at once.

    Args:
        table: where expressions are kept.
        quota: depth to the number of true equations wanted.
        points: where equations are tested.
        rng: where all choices are drawn from.
        apart_from: canonical forms of the equations that may not come into the stock. Others are derived from them.
        derived_share: how often a step uses an equation derived before as its identity; 0 to 1.

    Attributes:
        stock: depth to the true equations of that depth, in the order found.
        keys: the canonical forms of the stock's equations and of those that failed the test.
        rewriter: applies the identities.
    """

    def __init__(
        self,
        table: ExpressionTable,
        quota: Mapping[int, int],
        points: Points,
        rng: random.Random,
        apart_from: AbstractSet[tuple[int, int]] = frozenset(),
        derived_share: float = 0.0,
    ) -> None:
        self.table = table
        self.stock: dict[int, list[int]] = {depth: [] for depth in quota}
        self.keys: set[tuple[int, int]] = set()
        self._points = points
        self._rng = rng
        self._apart_from = apart_from
        self._quotas = OpenQuotas(quota, _PATIENCE, "true")
        self._deepest = max(quota)
        self._parents: list[int] = []
        self._parents_of_depth: dict[int, list[int]] = {depth: [] for depth in range(1, self._deepest + 1)}
        self._nodes_above_target = dict.fromkeys(quota, 0.0)
        identities = [table.from_tree(parse_equation(text)) for text in IDENTITIES]
        self.rewriter = Rewriter(table, identities, derived_share)
        self._add(identities)

    def run(self, on_found: Callable[[int], object] = lambda count: None) -> None:
        """Derive until every depth has its quota or its supply has ended.

        Args:
            on_found: called after each round with the number of equations of the quotas found in it.
        """
        wanted = sum(self._quotas.quota.values())
        free = max(_LEAST_FREE, _FREE_SHARE * wanted) if wanted else 0
        on_found(self._quotas.num_found)
        while (missing := self._quotas.missing) or len(self._parents) < free:
            before = self._quotas.num_found
            size = min(max(_SMALLEST_ROUND, len(self._parents) // 2), _LARGEST_ROUND)
            if len(self._parents) < free:
                self._add([self._step(self._parents) for _ in range(size)])
            else:
                targets = self._rng.choices(list(missing), list(missing.values()), k=size)
                self._add([self._step(self._parents_near(target)) for target in targets])
                self._quotas.add_tries(Counter(targets))
                self._quotas.pass_on()
            on_found(self._quotas.num_found - before)

    @property
    def quota(self) -> dict[int, int]:
        """Depth to the number of equations to take from the stock: what was asked for, as far as there is supply."""
        return self._quotas.quota

    def _parents_near(self, depth: int) -> list[int]:
        """Equations from which one of ``depth`` may be a step away."""
        near = [d for d in (depth, depth - 1) if self._parents_of_depth.get(d)]
        if near:
            return self._parents_of_depth[near[int(self._rng.random() * len(near))]]
        return next(self._parents_of_depth[d] for d in range(depth - 1, 0, -1) if self._parents_of_depth[d])

    def _step(self, parents: list[int]) -> int:
        """An equation one step away from one of ``parents``, possibly one known already."""
        equation = parents[int(self._rng.random() * len(parents))]
        for _ in range(_TRIES_AT_A_PARENT):
            position = int(self._rng.random() * self.table.size[equation])
            if position == 0:
                return self.rewriter.grow(equation, self._rng)
            result = self.rewriter.rewrite(equation, position, self._rng)
            if result != equation:
                return result
        return equation

    def _add(self, candidates: list[int]) -> None:
        """Take into the stock what is new, true, not too deep and not of a size that its depth has too much of."""
        fresh: dict[int, tuple[int, int]] = {}
        for equation in candidates:
            if self.table.height[equation] > self._deepest:
                continue
            key = self.table.canonical_equation(equation)
            if key not in self.keys:
                self.keys.add(key)
                fresh[equation] = key
        verdicts = verify(self.table, list(fresh), self._points)
        for (equation, key), verdict in zip(fresh.items(), verdicts, strict=True):
            depth = self.table.height[equation]
            if verdict != TRUE or self._is_unbalanced(equation):
                continue
            left, right = self.table.children[equation]
            self._parents.append(equation)
            self.rewriter.teach(equation)
            self._parents_of_depth[depth].append(equation)
            if (left != right or depth == 1) and key not in self._apart_from:
                self.stock[depth].append(equation)
                self._quotas.add_found(depth)

    def _is_unbalanced(self, equation: int) -> bool:
        """Whether the equation would take the mean size at its depth farther away from the published one."""
        depth = self.table.height[equation]
        if depth < min(NODES_BY_DEPTH):
            return False
        deepest = max(NODES_BY_DEPTH)
        target = NODES_BY_DEPTH[min(depth, deepest)] + _NODES_A_LEVEL_BEYOND * max(0, depth - deepest)
        above = self.table.size[equation] - target
        if above * self._nodes_above_target[depth] > 0:
            return True
        self._nodes_above_target[depth] += above
        return False
