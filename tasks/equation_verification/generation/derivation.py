"""Many distinct true equations, derived step by step from the identities."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from treemem.checked_options import checked_probability
from treemem.tasks.equation_verification.generation.evaluation import Points
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.identities import BRANCHES, IDENTITIES
from treemem.tasks.equation_verification.generation.quotas import OpenQuotas
from treemem.tasks.equation_verification.generation.rewriting import Rewriter
from treemem.tasks.equation_verification.generation.verification import FALSE, TRUE, verify
from treemem.trees.equation_parser import parse_equation

NODES_BY_DEPTH: dict[int, float] = {8: 28.7, 9: 31.5, 10: 34.0, 11: 36.0, 12: 38.3, 13: 40.0}
"""Mean number of nodes of the published true equations, by depth."""

_NODES_A_LEVEL_BEYOND = 2.2


def target_nodes(depth: int) -> float:
    """The mean number of nodes that true equations of ``depth``, 8 or more, are to have."""
    deepest = max(NODES_BY_DEPTH)
    return NODES_BY_DEPTH[min(depth, deepest)] + _NODES_A_LEVEL_BEYOND * max(0, depth - deepest)


_FREE_SHARE = 1.2
"""Free steps are taken until the stock is so many times the quotas, _LEAST_FREE equations at least."""

_LEAST_FREE = 6000
_IDLE_ROUNDS = 20  # so many in a row without a new equation to derive from
_SMALLEST_ROUND, _LARGEST_ROUND = 256, 4096
_PATIENCE = 20000
"""A depth has no more to give when so many steps aimed at it find nothing new."""

_TRIES_AT_A_PARENT = 10

_BRANCH_SHARE = 0.3
"""So often, where branches are used, a step starts from what they made, be it true or true in part; 27 % of the
published true equations hold in part or nowhere."""


@dataclass(frozen=True)
class DerivationOptions:
    """How true equations are derived, where it is nearer to the published generator than by default.

    Attributes:
        derived_share: how often a step uses an equation derived before as its identity, as the published generator
            always does; 0 to 1.
        branches: whether to use the published identities that hold for one sign of a root alone, too. What they make
            is derived from further, up to a share, but only what is true by the test comes out: where such a root is
            squared, say, or stands on both sides.

    Raises:
        RecipeError: a share that is no number, or out of range.
    """

    derived_share: float = 0.0
    branches: bool = False

    def __post_init__(self) -> None:
        checked_probability("derived_share", self.derived_share)


BY_IDENTITIES = DerivationOptions()
"""By the 142 identities that hold wherever both sides are defined."""


class _Parents:
    """Equations to derive others from.

    Args:
        deepest: the greatest depth.
    """

    def __init__(self, deepest: int) -> None:
        self._all: list[int] = []
        self._of_depth: dict[int, list[int]] = {depth: [] for depth in range(1, deepest + 1)}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, equation: int, depth: int) -> None:
        """Take one more."""
        self._all.append(equation)
        self._of_depth[depth].append(equation)

    def near(self, depth: int | None, rng: random.Random) -> list[int]:
        """Those of ``depth`` or of the depth before, else the deepest that are shallower; all for None."""
        if depth is None:
            return self._all
        near = [d for d in (depth, depth - 1) if self._of_depth.get(d)]
        if near:
            return self._of_depth[near[int(rng.random() * len(near))]]
        return next((self._of_depth[d] for d in range(depth - 1, 0, -1) if self._of_depth[d]), [])


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
        options: which identities serve.

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
        options: DerivationOptions = BY_IDENTITIES,
    ) -> None:
        self.table = table
        self.stock: dict[int, list[int]] = {depth: [] for depth in quota}
        self.keys: set[tuple[int, int]] = set()
        self._points = points
        self._rng = rng
        self._apart_from = apart_from
        self._quotas = OpenQuotas(quota, _PATIENCE, "true")
        self._deepest = max(quota)
        self._parents, self._branch_parents = _Parents(self._deepest), _Parents(self._deepest)
        self._nodes_above_target = dict.fromkeys(quota, 0.0)
        identities = [table.from_tree(parse_equation(text)) for text in IDENTITIES]
        branches = [table.from_tree(parse_equation(text)) for text in (BRANCHES if options.branches else ())]
        self.rewriter = Rewriter(table, [*identities, *branches], options.derived_share)
        self._descendants = set(branches)
        self._add([*identities, *branches])

    def run(self, on_found: Callable[[int], object] = lambda count: None) -> None:
        """Derive until every depth has its quota or its supply has ended.

        Args:
            on_found: called after each round with the number of equations of the quotas found in it.
        """
        wanted = sum(self._quotas.quota.values())
        free = max(_LEAST_FREE, _FREE_SHARE * wanted) if wanted else 0
        on_found(self._quotas.num_found)
        idle = 0
        while (missing := self._quotas.missing) or len(self._parents) < free:
            before, parents = self._quotas.num_found, len(self._parents)
            size = min(max(_SMALLEST_ROUND, parents // 2), _LARGEST_ROUND)
            if parents < free:
                self._add([self._step(self._drawn_parent()) for _ in range(size)])
                idle = 0 if len(self._parents) > parents else idle + 1
                if idle == _IDLE_ROUNDS:
                    free = len(self._parents)  # of the smallest depths there are no more
            else:
                targets = self._rng.choices(list(missing), list(missing.values()), k=size)
                self._add([self._step(self._drawn_parent(target)) for target in targets])
                self._quotas.add_tries(Counter(targets))
                self._quotas.pass_on()
            on_found(self._quotas.num_found - before)

    @property
    def quota(self) -> dict[int, int]:
        """Depth to the number of equations to take from the stock: what was asked for, as far as there is supply."""
        return self._quotas.quota

    def _drawn_parent(self, depth: int | None = None) -> int:
        """An equation to derive from; where ``depth`` is given, one from which such an equation may be a step away."""
        parents: list[int] = []
        if self._descendants and self._rng.random() < _BRANCH_SHARE:
            parents = self._branch_parents.near(depth, self._rng)
        parents = parents or self._parents.near(depth, self._rng)
        return parents[int(self._rng.random() * len(parents))]

    def _step(self, equation: int) -> int:
        """An equation one step away from ``equation``, possibly one known already."""
        result = self._changed(equation)
        if equation in self._descendants:
            self._descendants.add(result)
        return result

    def _changed(self, equation: int) -> int:
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
            if verdict != FALSE and equation in self._descendants:
                self._branch_parents.add(equation, depth)
            if verdict != TRUE or self._is_unbalanced(equation):
                continue
            left, right = self.table.children[equation]
            self._parents.add(equation, depth)
            self.rewriter.teach(equation)
            if (left != right or depth == 1) and key not in self._apart_from:
                self.stock[depth].append(equation)
                self._quotas.add_found(depth)

    def _is_unbalanced(self, equation: int) -> bool:
        """Whether the equation would take the mean size at its depth farther away from the published one."""
        depth = self.table.height[equation]
        if depth < min(NODES_BY_DEPTH):
            return False
        above = self.table.size[equation] - target_nodes(depth)
        if above * self._nodes_above_target[depth] > 0:
            return True
        self._nodes_above_target[depth] += above
        return False
