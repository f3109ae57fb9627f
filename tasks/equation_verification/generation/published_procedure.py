"""True equations by the procedure of Arabshahi et al. 2018, without the steps that are not sound."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import lru_cache

from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.heldout import HeldOut, held_out
from treemem.tasks.equation_verification.generation.identities import BRANCHES, IDENTITIES
from treemem.tasks.equation_verification.generation.quotas import TRAINING_DEPTH
from treemem.tasks.equation_verification.generation.rule_book import RuleBook
from treemem.tasks.equation_verification.generation.verification import TRUE, UNDECIDED, verify
from treemem.trees.formats.equations.parser import parse_equation
from treemem.trees.tree import Tree

_SIZES = (500, 1000, 1500)
"""Numbers of equations of a population. In larger ones, leaves are rewritten more often than in the published data."""

_ROUND = 256
_IDLE_ROUNDS = 20
_TRIES_AT_A_PARENT = 10
_LARGEST_REPLACEMENT = 13
"""Derived equations with a larger side are not used as rules. Their results are nearly always too deep."""

_GROWN_SHARE = 0.03
"""Share of steps that grow both sides, beside those whose node is the root."""

_BRANCH_SHARE = 0.2
"""Share of steps from equations that hold for one sign of a root only. A later step may make them true everywhere."""

_KEPT_CONSTANT_SHARE = 0.4
"""Share of the steps at a constant that are drawn again, so that fewer constants grow into large expressions."""

_SQUARED_BRANCHES = (
    "sin(a)^2 = ((1 - cos(a)^2)^(1/2))^2",
    "sin(a)^2 = (-(1 - cos(a)^2)^(1/2))^2",
    "cos(a)^2 = ((1 - sin(a)^2)^(1/2))^2",
    "cos(a)^2 = (-(1 - sin(a)^2)^(1/2))^2",
)
"""What two steps by the identities of one sign of a root make of an even power. It holds everywhere, and the published
equations have it often."""

_NUM_POPULATIONS, _DEEPENING_ROUNDS = 6, 20
_DEEPEST_FOUND = 9
"""Populations have few deeper equations; these are made by further steps from shallower ones."""


_NODES_BY_DEPTH = {8: 28.7, 9: 31.5, 10: 34.0, 11: 36.0, 12: 38.3, 13: 40.0}
"""Mean number of nodes of the published true equations, by depth."""

_NODES_PER_DEEPER_LEVEL = 2.2
_LARGEST = 1.15
"""The largest size of a deepened equation, as a multiple of the published mean of its depth."""

_ON_DEEPEST_PATH = 0.6
"""Share of deepening steps that rewrite a node on the longest path, which may lengthen it; the others take any node."""

_STEPS_BEYOND = 8
"""The largest number of deepening steps after the depth is reached."""

_TRIES_A_LEVEL = 60


class Population:
    """A set of true equations that grows by random steps from its members, which are also its rules.

    A step takes a known equation and one of its nodes. At the root it grows both sides; elsewhere it replaces the node
    by an equal expression, by any known equation in either direction.

    Args:
        table: holds the expressions.
        rng: source of all choices.
        most_depth: deeper equations are discarded.

    Attributes:
        found: the equations, without the identities at the start.
    """

    def __init__(self, table: ExpressionTable, rng: random.Random, most_depth: int) -> None:
        self.table = table
        self.rules = RuleBook(table)
        self.found: list[int] = []
        self._rng = rng
        self._most_depth = most_depth
        self._keys: set[tuple[int, int]] = set()
        identities, branches = ([table.from_tree(tree) for tree in trees] for trees in _seeds())
        self._known, self._partly_true = list(identities), list(branches)
        for equation in (*identities, *branches):
            self._keys.add(table.canonical_equation(equation))
            self.rules.add_equation(equation)

    def grow_to(self, size: int) -> None:
        """Take steps until there are ``size`` equations, or no new ones are found."""
        idle = 0
        while len(self.found) < size and idle < _IDLE_ROUNDS:
            before = len(self.found)
            self._add([self._step() for _ in range(_ROUND)])
            idle = idle + 1 if len(self.found) == before else 0

    def _step(self) -> int:
        rng, table = self._rng, self.table
        parents = self._partly_true if rng.random() < _BRANCH_SHARE else self._known
        equation = parents[int(rng.random() * len(parents))]
        for _ in range(_TRIES_AT_A_PARENT):
            position = int(rng.random() * table.size[equation])
            if not position or rng.random() < _GROWN_SHARE:
                return self.rules.grow(equation, rng)
            node = table.path_to(equation, position)[-1][0]
            if not table.children[node] and not table.variables[node] and rng.random() < _KEPT_CONSTANT_SHARE:
                continue
            result = self.rules.rewrite(equation, position, rng)
            if result != equation:
                return result
        return equation

    def _add(self, candidates: list[int]) -> None:
        """Keep the candidates that are new, not too deep, and true at all points or at some."""
        table = self.table
        fresh = []
        for equation in candidates:
            if table.height[equation] > self._most_depth:
                continue
            key = table.canonical_equation(equation)
            if key not in self._keys:
                self._keys.add(key)
                fresh.append(equation)
        for equation, verdict in zip(fresh, verify(table, fresh).tolist(), strict=True):
            if verdict == UNDECIDED and len(self._partly_true) < len(self._known):
                self._partly_true.append(equation)
            if verdict == TRUE:
                self._known.append(equation)
                self.found.append(equation)
                if max(table.size[side] for side in table.children[equation]) <= _LARGEST_REPLACEMENT:
                    self.rules.add_equation(equation)


@lru_cache
def _seeds() -> tuple[list[Tree], list[Tree]]:
    known = (*IDENTITIES, *_SQUARED_BRANCHES)
    return [parse_equation(text) for text in known], [parse_equation(text) for text in BRANCHES]


def published_equations(
    table: ExpressionTable,
    rng: random.Random,
    quota: Mapping[int, int],
    taken: set[tuple[int, int]],
    heldout: HeldOut,
) -> dict[int, list[int]]:
    """Return true equations by depth, from as many populations as it takes.

    Args:
        table: holds the expressions.
        rng: source of all choices.
        quota: depth to the number of equations. There are fewer if a depth has no more.
        taken: canonical forms of the equations that must not be made; those of new equations are added.
        heldout: equations that must not be made.
    """
    by_depth: dict[int, list[int]] = {depth: [] for depth in quota}
    in_vain = 0

    def add(equation: int) -> bool:
        depth = table.height[equation]
        left, right = table.children[equation]
        if len(by_depth.get(depth, ())) >= quota.get(depth, 0) or (left == right and depth > 1):
            return False
        key = table.canonical_equation(equation)
        if key in taken or heldout.has(table, equation):
            return False
        taken.add(key)
        by_depth[depth].append(equation)
        return True

    while True:
        population = Population(table, rng, max(quota))
        population.grow_to(_SIZES[int(rng.random() * len(_SIZES))])
        new = [add(equation) for equation in rng.sample(population.found, len(population.found))]
        in_vain = 0 if any(new) else in_vain + 1
        missing = any(len(by_depth[depth]) < count for depth, count in quota.items() if depth <= _DEEPEST_FOUND)
        if in_vain == 3 or not missing:
            break
    deep = {depth: count - len(by_depth[depth]) for depth, count in quota.items() if depth > _DEEPEST_FOUND}
    for depth, equations in _deepened_equations([population], deep, taken, heldout, rng).items():
        by_depth[depth] += equations
    return by_depth


def deep_equations(
    table: ExpressionTable, rng: random.Random, quota: Mapping[int, int], taken: set[tuple[int, int]]
) -> dict[int, list[int]]:
    """Return true equations by depth that are each made by own steps from a shallower one of several populations."""
    populations = [Population(table, rng, TRAINING_DEPTH) for _ in range(_NUM_POPULATIONS)]
    for population in populations:
        population.grow_to(_SIZES[1])
    return _deepened_equations(populations, quota, taken, held_out(), rng)


def _deepened_equations(
    populations: Sequence[Population],
    quota: Mapping[int, int],
    taken: set[tuple[int, int]],
    heldout: HeldOut,
    rng: random.Random,
) -> dict[int, list[int]]:
    """Return as many equations of each depth as wanted, each made by steps from one of a population."""
    by_depth: dict[int, list[int]] = {depth: [] for depth in quota}
    for depth, count in sorted(quota.items()):
        for _ in range(_DEEPENING_ROUNDS):
            if len(by_depth[depth]) >= count:
                break
            fresh = []
            for _ in range(count - len(by_depth[depth]) + 8):
                population = populations[int(rng.random() * len(populations))]
                start = population.found[int(rng.random() * len(population.found))]
                equation = _deepened(population.rules, start, depth, rng)
                if equation is not None and (key := population.table.canonical_equation(equation)) not in taken:
                    taken.add(key)
                    fresh.append(equation)
            verdicts = verify(populations[0].table, fresh).tolist()
            true = [equation for equation, verdict in zip(fresh, verdicts, strict=True) if verdict == TRUE]
            by_depth[depth] += [equation for equation in true if not heldout.has(populations[0].table, equation)]
        del by_depth[depth][count:]
    return by_depth


def _deepened(rules: RuleBook, equation: int, depth: int, rng: random.Random) -> int | None:
    """Return a true equation of ``depth`` derived from a shallower one by its own steps. None if they fail.

    If deep equations came from one population, they would belong to few families, as the first deep ones have most
    descendants. Equations that are deepened each from another ancestor do not.
    """
    table = rules.table
    deepest = max(_NODES_BY_DEPTH)
    published = _NODES_BY_DEPTH[min(depth, deepest)] + _NODES_PER_DEEPER_LEVEL * max(0, depth - deepest)
    most = _LARGEST * published
    beyond = int(rng.random() * (_STEPS_BEYOND + 1))
    for _ in range(_TRIES_A_LEVEL * max(1, depth - table.height[equation])):
        reached = table.height[equation] == depth
        if reached and not beyond:
            return equation
        result = _deepening_step(rules, equation, rng)
        if result != equation and table.height[equation] <= table.height[result] <= depth:
            if table.size[result] <= most:
                equation = result
            beyond -= reached
    return equation if table.height[equation] == depth else None


def _deepening_step(rules: RuleBook, equation: int, rng: random.Random) -> int:
    if rng.random() < _ON_DEEPEST_PATH:
        positions = _deepest_path(rules.table, equation, rng)
        position = positions[int(rng.random() * len(positions))]
    else:
        position = int(rng.random() * rules.table.size[equation])
    return rules.rewrite(equation, position, rng) if position else rules.grow(equation, rng)


def _deepest_path(table: ExpressionTable, equation: int, rng: random.Random) -> list[int]:
    """Return the places in preorder of the nodes on a longest path, without the root."""
    node, position, path = equation, 0, []
    while table.children[node]:
        deepest = max(table.height[child] for child in table.children[node])
        candidates, begin = [], position + 1
        for child in table.children[node]:
            if table.height[child] == deepest:
                candidates.append((child, begin))
            begin += table.size[child]
        node, position = candidates[int(rng.random() * len(candidates))]
        path.append(position)
    return path
