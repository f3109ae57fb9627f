"""Many distinct true equations, derived step by step from the identities."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from treemem.checked_options import checked_probability
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.identities import BRANCHES, IDENTITIES
from treemem.tasks.equation_verification.generation.quotas import OpenQuotas
from treemem.tasks.equation_verification.generation.rewriting import Rewriter
from treemem.tasks.equation_verification.generation.rule_book import RuleBook
from treemem.tasks.equation_verification.generation.verification import FALSE, TRUE, verify
from treemem.trees.equation_parser import parse_equation
from treemem.trees.forest import Forest

NODES_BY_DEPTH: dict[int, float] = {8: 28.7, 9: 31.5, 10: 34.0, 11: 36.0, 12: 38.3, 13: 40.0}
"""Mean number of nodes of the published true equations, by depth."""

_NODES_PER_DEEPER_LEVEL = 2.2

_FREE_SHARE = 1.2
"""Steps are not aimed at a depth until the stock is this multiple of the quotas, at least _LEAST_FREE equations."""

_LEAST_FREE = 6000
_IDLE_ROUNDS = 20  # rounds in a row without a new equation
_SMALLEST_ROUND, _LARGEST_ROUND = 256, 4096
_PATIENCE = 20000
"""A depth is exhausted after this number of steps aimed at it in a row without a new equation."""

_TRIES_AT_A_PARENT = 10

_BRANCH_SHARE = 0.3
"""Share of steps from equations that branches made, true or true in part. Of the published true equations, 27 % hold in
part or nowhere."""

_ON_DEEPEST_PATH = 0.6
"""Share of deepening steps that rewrite a node on the longest path, which may lengthen it; the others take any node."""

_STEPS_BEYOND = 8
"""The largest number of deepening steps after the depth is reached."""

_TRIES_A_LEVEL = 60
_LARGEST = 1.15
"""The largest size of a deepened equation, as a multiple of the published mean of its depth."""


def target_nodes(depth: int) -> float:
    """Return the intended mean number of nodes of true equations of ``depth``, 8 or more."""
    deepest = max(NODES_BY_DEPTH)
    return NODES_BY_DEPTH[min(depth, deepest)] + _NODES_PER_DEEPER_LEVEL * max(0, depth - deepest)


@dataclass(frozen=True)
class DerivationOptions:
    """How true equations are derived.

    Attributes:
        derived_share: share of the steps that use an equation derived before as their identity; the published generator
            always does.
        branches: whether to use the four published identities that hold for one sign of a root only, too. Their
            results are derived from further, but only those that are true by the test are kept: for example if the root
            is squared, or stands on both sides.

    Raises:
        RecipeError: the share is not a number from 0 to 1.
    """

    derived_share: float = 0.0
    branches: bool = False

    def __post_init__(self) -> None:
        checked_probability("derived_share", self.derived_share)


BY_IDENTITIES = DerivationOptions()
"""The 142 identities that hold wherever both sides are defined."""


class _Parents:
    """Equations to derive others from."""

    def __init__(self) -> None:
        self._all: list[int] = []
        self._of_depth: dict[int, list[int]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._all)

    def add(self, equation: int, depth: int) -> None:
        """Add an equation."""
        self._all.append(equation)
        self._of_depth[depth].append(equation)

    def near(self, depth: int | None, rng: random.Random) -> list[int]:
        """Return those of ``depth`` or of the depth before, else the deepest shallower ones. None: return all."""
        if depth is None:
            return self._all
        near = [d for d in (depth, depth - 1) if self._of_depth.get(d)]
        if near:
            return self._of_depth[near[int(rng.random() * len(near))]]
        return next((self._of_depth[d] for d in range(depth - 1, 0, -1) if self._of_depth.get(d)), [])


class Derivation:
    """A growing stock of true equations, distinct up to renaming of variables and swapping of sides.

    A step takes an equation of the stock and rewrites one of its nodes, drawn uniformly, by an identity. If it draws
    the root, it applies the same operation to both sides. Results are tested numerically, round by round.

    Args:
        quota: depth to the number of true equations.
        rng: source of all choices.
        apart_from: equations that must not enter the stock. Others are derived from them.
        options: which identities are used.

    Attributes:
        table: holds the expressions.
        stock: depth to the true equations of that depth, in the order found.
        quotas: how many to take from the stock.
        apart_from: canonical forms of the equations that must not enter the stock.
        keys: canonical forms of the equations of the stock and of those that failed the test.
        rewriter: applies the identities.
    """

    def __init__(
        self,
        quota: Mapping[int, int],
        rng: random.Random,
        apart_from: Forest | None = None,
        options: DerivationOptions = BY_IDENTITIES,
    ) -> None:
        self.table = table = ExpressionTable()
        self.apart_from = set() if apart_from is None else table.canonical_equations(apart_from)
        self.stock: dict[int, list[int]] = {depth: [] for depth in quota}
        self.keys: set[tuple[int, int]] = set()
        self._rng = rng
        self.quotas = OpenQuotas(quota, _PATIENCE, "true")
        self._deepest = max(quota)
        self._parents, self._branch_parents = _Parents(), _Parents()
        self._nodes_above_target = dict.fromkeys(quota, 0.0)
        identities = [table.from_tree(parse_equation(text)) for text in IDENTITIES]
        branches = [table.from_tree(parse_equation(text)) for text in (BRANCHES if options.branches else ())]
        self.rewriter = Rewriter(table, [*identities, *branches], options.derived_share)
        self._descendants = set(branches)
        self._add([*identities, *branches])

    def run(self, on_found: Callable[[int], object] = lambda count: None) -> None:
        """Derive until each depth has its quota or is exhausted; call ``on_found`` with the number found in a round."""
        wanted = sum(self.quotas.quota.values())
        free = max(_LEAST_FREE, _FREE_SHARE * wanted) if wanted else 0
        on_found(self.quotas.num_found)
        idle = 0
        while (missing := self.quotas.missing) or len(self._parents) < free:
            before, parents = self.quotas.num_found, len(self._parents)
            size = min(max(_SMALLEST_ROUND, parents // 2), _LARGEST_ROUND)
            if parents < free:
                self._add([self._step(self._drawn_parent()) for _ in range(size)])
                idle = 0 if len(self._parents) > parents else idle + 1
                if idle == _IDLE_ROUNDS:
                    free = len(self._parents)  # the smallest depths have no more
            else:
                targets = self._rng.choices(list(missing), list(missing.values()), k=size)
                self._add([self._step(self._drawn_parent(target)) for target in targets])
                self.quotas.add_tries(Counter(targets))
                self.quotas.pass_on()
            on_found(self.quotas.num_found - before)

    def _drawn_parent(self, depth: int | None = None) -> int:
        """Return an equation to derive from; with ``depth``, one from which a step may reach that depth."""
        parents: list[int] = []
        if self._descendants and self._rng.random() < _BRANCH_SHARE:
            parents = self._branch_parents.near(depth, self._rng)
        parents = parents or self._parents.near(depth, self._rng)
        return parents[int(self._rng.random() * len(parents))]

    def _step(self, equation: int) -> int:
        """Return an equation one step away from ``equation``, possibly a known one."""
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
        """Add the candidates that are new, true, not too deep, and not too large or small for their depth."""
        fresh: dict[int, tuple[int, int]] = {}
        for equation in candidates:
            if self.table.height[equation] > self._deepest:
                continue
            key = self.table.canonical_equation(equation)
            if key not in self.keys:
                self.keys.add(key)
                fresh[equation] = key
        verdicts = verify(self.table, list(fresh))
        for (equation, key), verdict in zip(fresh.items(), verdicts, strict=True):
            depth = self.table.height[equation]
            if verdict != FALSE and equation in self._descendants:
                self._branch_parents.add(equation, depth)
            if verdict != TRUE or self._is_unbalanced(equation):
                continue
            left, right = self.table.children[equation]
            self._parents.add(equation, depth)
            self.rewriter.teach(equation)
            if (left != right or depth == 1) and key not in self.apart_from:
                self.stock[depth].append(equation)
                self.quotas.add_found(depth)

    def _is_unbalanced(self, equation: int) -> bool:
        """Return whether the equation moves the mean size at its depth away from the published one."""
        depth = self.table.height[equation]
        if depth < min(NODES_BY_DEPTH):
            return False
        above = self.table.size[equation] - target_nodes(depth)
        if above * self._nodes_above_target[depth] > 0:
            return True
        self._nodes_above_target[depth] += above
        return False


def deepened(rewriter: Rewriter | RuleBook, equation: int, depth: int, rng: random.Random) -> int | None:
    """Return a true equation of ``depth`` derived from a shallower one by its own steps. None if they fail.

    The deep equations of a :class:`Derivation` belong to few families, as the first deep ones have most descendants.
    Equations that are deepened each from another ancestor do not.
    """
    table = rewriter.table
    most = _LARGEST * target_nodes(depth)
    beyond = int(rng.random() * (_STEPS_BEYOND + 1))
    for _ in range(_TRIES_A_LEVEL * max(1, depth - table.height[equation])):
        reached = table.height[equation] == depth
        if reached and not beyond:
            return equation
        result = _deepening_step(rewriter, equation, rng)
        if result != equation and table.height[equation] <= table.height[result] <= depth:
            if table.size[result] <= most:
                equation = result
            beyond -= reached
    return equation if table.height[equation] == depth else None


def _deepening_step(rewriter: Rewriter | RuleBook, equation: int, rng: random.Random) -> int:
    if rng.random() < _ON_DEEPEST_PATH:
        positions = _deepest_path(rewriter.table, equation, rng)
        position = positions[int(rng.random() * len(positions))]
    else:
        position = int(rng.random() * rewriter.table.size[equation])
    return rewriter.rewrite(equation, position, rng) if position else rewriter.grow(equation, rng)


def _deepest_path(table: ExpressionTable, equation: int, rng: random.Random) -> list[int]:
    """Return the places in preorder of the nodes on a longest path, without the root."""
    node, position, found = equation, 0, []
    while table.children[node]:
        deepest = max(table.height[child] for child in table.children[node])
        candidates, begin = [], position + 1
        for child in table.children[node]:
            if table.height[child] == deepest:
                candidates.append((child, begin))
            begin += table.size[child]
        node, position = candidates[int(rng.random() * len(candidates))]
        found.append(position)
    return found
