"""True equations by the procedure of Arabshahi et al. 2018, without the steps that are not sound."""

from __future__ import annotations

import random
from collections.abc import Mapping

from treemem.tasks.equation_verification.generation.derivation import NODES_BY_DEPTH, target_nodes
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.heldout import HeldOut
from treemem.tasks.equation_verification.generation.identities import IDENTITIES
from treemem.tasks.equation_verification.generation.real_verification import verify_real
from treemem.tasks.equation_verification.generation.rule_book import RuleBook
from treemem.tasks.equation_verification.generation.verification import TRUE
from treemem.trees.equation_parser import parse_equation

_LARGEST_ROUND = 2048
_PATIENCE = 12
"""A depth is exhausted after this number of rounds in a row without a new equation of it."""

_TRIES_AT_A_PARENT = 10
_LARGEST_REPLACEMENT = 13
"""Derived equations with a larger side are not used as rules. Their results are nearly always too deep."""

_SHALLOWER_SHARE = 0.4
"""Share of steps aimed at a depth that start from the depth below it."""

_MOST_NODES = 1.3
"""The largest size of an equation of depth 8 or more, as a multiple of the published mean of its depth."""


class PublishedProcedure:
    """A set of true equations that grows by random steps from its members, which are also its rules.

    A step takes a known equation and one of its nodes. At the root it grows both sides; elsewhere it replaces the node
    by an equal expression, by any known equation in either direction.

    Args:
        table: holds the expressions.
        rng: source of all choices.
        keys: canonical forms of the equations that must not be made; those of new equations are added.
        heldout: equations that must not be made.
    """

    def __init__(
        self, table: ExpressionTable, rng: random.Random, keys: set[tuple[int, int]], heldout: HeldOut
    ) -> None:
        self.table = table
        self.rules = RuleBook(table)
        self._rng = rng
        self._keys = keys
        self._heldout = heldout
        self._known: dict[int, list[int]] = {}
        self.stock: dict[int, list[int]] = {}
        for text in IDENTITIES:
            self._learn(table.from_tree(parse_equation(text)))

    def _learn(self, equation: int) -> None:
        table = self.table
        self._known.setdefault(table.height[equation], []).append(equation)
        if max(table.size[side] for side in table.children[equation]) <= _LARGEST_REPLACEMENT:
            self.rules.add_equation(equation)

    def run(self, quota: Mapping[int, int]) -> dict[int, list[int]]:
        """Return new true equations, by depth. There are fewer than the quota if a depth is exhausted."""
        self.stock = {depth: [] for depth in quota}
        in_vain = dict.fromkeys(quota, 0)
        while True:
            missing = {
                depth: count - len(self.stock[depth])
                for depth, count in quota.items()
                if count > len(self.stock[depth]) and in_vain[depth] < _PATIENCE
            }
            if not missing:
                return self.stock
            before = {depth: len(self.stock[depth]) for depth in missing}
            size = min(_LARGEST_ROUND, 256 + sum(map(len, self._known.values())) // 4)
            targets = self._rng.choices(list(missing), list(missing.values()), k=size)
            self._add([self._step(target) for target in targets], quota)
            for depth, count in before.items():
                in_vain[depth] = 0 if len(self.stock[depth]) > count else in_vain[depth] + 1

    def _step(self, target: int) -> int:
        depth = target - (self._rng.random() < _SHALLOWER_SHARE)
        while depth > 1 and depth not in self._known:
            depth -= 1
        parents = self._known[max(depth, 1)]
        equation = parents[int(self._rng.random() * len(parents))]
        for _ in range(_TRIES_AT_A_PARENT):
            position = int(self._rng.random() * self.table.size[equation])
            if not position:
                return self.rules.grow(equation, self._rng)
            result = self.rules.rewrite(equation, position, self._rng)
            if result != equation:
                return result
        return equation

    def _add(self, candidates: list[int], quota: Mapping[int, int]) -> None:
        """Keep the candidates that are new, true, and not too deep or too large."""
        table, deepest = self.table, max(quota)
        fresh = []
        for equation in candidates:
            depth = table.height[equation]
            if depth > deepest or _is_too_large(depth, table.size[equation]):
                continue
            key = table.canonical_equation(equation)
            if key not in self._keys:
                self._keys.add(key)
                fresh.append(equation)
        for equation, verdict in zip(fresh, verify_real(table, fresh), strict=True):
            if verdict != TRUE or self._heldout.has(table, equation):
                continue
            self._learn(equation)
            depth = table.height[equation]
            left, right = table.children[equation]
            if depth in quota and (left != right or depth == 1) and len(self.stock[depth]) < quota[depth]:
                self.stock[depth].append(equation)


def _is_too_large(depth: int, size: int) -> bool:
    return depth >= min(NODES_BY_DEPTH) and size > _MOST_NODES * target_nodes(depth)
