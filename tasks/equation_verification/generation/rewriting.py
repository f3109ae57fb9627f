"""True equations from true ones: by an identity applied inside, or the same operation applied to both sides."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

from treemem.tasks.equation_verification.generation.expressions import ARITHMETIC_FUNCTIONS, VARIABLES, ExpressionTable
from treemem.trees.equation_labels import EQUALITY, NUM_VARIABLES

GROWTH_CONSTANTS: tuple[tuple[str, ...], ...] = (
    ("NegativeOne:-1",),
    ("Pi:pi",),
    ("Integer:1",),
    ("Half:1/2",),
    ("Integer:0", "Integer:2", "Integer:3", "Integer:4", "Integer:10"),
    ("Rational:2/5",),
    ("Float:0.7",),
)
"""Constants by class: a class is drawn first, then one of its constants."""

NEW_VARIABLE_SHARE = 0.7
"""Share of growth steps that add a new variable, not a constant. It is one half in the published generator, which also
makes equations of several variables that do not hold."""

_DEEPEST_DERIVED = 5
"""Deeper equations do not become identities, because their results are nearly always too deep."""

_TRIES_AT_DERIVED = 20


class Rewriter:
    """Applies identities in both directions, with one binding for all occurrences of a variable.

    A leaf is rewritten by the identities that have this leaf as a side: ``x`` becomes ``1*x`` or ``0 + x``; a variable
    matches any variable. An inner node is rewritten if it is an instance of a side.

    The published generator uses every derived equation as an identity of later steps. So does this one, in a share of
    the steps.

    Args:
        table: holds the expressions.
        equations: the identities.
        derived_share: share of the steps that use an equation given to :meth:`teach`, if one fits.
    """

    def __init__(self, table: ExpressionTable, equations: Iterable[int], derived_share: float = 0.0) -> None:
        self.table = table
        self._derived_share = derived_share
        self._derived: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._rules_of_leaf: dict[str, list[int]] = defaultdict(list)
        self._rules_of_function: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._variable_rules: list[tuple[int, int]] = []
        for equation in equations:
            left, right = table.children[equation]
            for pattern, replacement in ((left, right), (right, left)):
                if pattern == replacement:
                    continue
                if table.children[pattern]:
                    self._rules_of_function[table.label[pattern]].append((pattern, replacement))
                elif table.variables[pattern]:
                    self._variable_rules.append((pattern, replacement))
                else:
                    self._rules_of_leaf[table.label[pattern]].append(replacement)

    def teach(self, equation: int) -> None:
        """Use a true equation as an identity in later steps."""
        left, right = self.table.children[equation]
        if self._derived_share and left != right and self.table.height[equation] <= _DEEPEST_DERIVED:
            for pattern, replacement in ((left, right), (right, left)):
                self._derived[self._rule_key(pattern)].append((pattern, replacement))

    def _rule_key(self, node: int) -> str:
        """Return the key of the rules for ``node``; all variables share one."""
        return VARIABLES[0] if self.table.label[node] in VARIABLES else self.table.label[node]

    def _derived_replacement(self, node: int, rng: random.Random) -> list[tuple[int, dict[int, int]]]:
        """Return the replacement of ``node`` by a random derived equation; empty if no tried one fits."""
        rules = self._derived.get(self._rule_key(node), [])
        for _ in range(min(len(rules), _TRIES_AT_DERIVED)):
            pattern, replacement = rules[int(rng.random() * len(rules))]
            bindings: dict[int, int] = {}
            if self._match(pattern, node, bindings):
                return [(replacement, bindings)]
        return []

    def replacements(self, node: int) -> list[tuple[int, dict[int, int]]]:
        """Return all replacements of ``node``: right-hand sides with the bindings of their variables."""
        table = self.table
        label = table.label[node]
        if table.children[node]:
            found = []
            for pattern, replacement in self._rules_of_function[label]:
                bindings: dict[int, int] = {}
                if self._match(pattern, node, bindings):
                    found.append((replacement, bindings))
            return found
        if table.variables[node]:
            return [(replacement, {pattern: node}) for pattern, replacement in self._variable_rules]
        return [(replacement, {}) for replacement in self._rules_of_leaf[label]]

    def _match(self, pattern: int, node: int, bindings: dict[int, int]) -> bool:
        """Return whether ``node`` is an instance of ``pattern``. Fills ``bindings``."""
        table = self.table
        if pattern == node and not table.variables[pattern]:
            return True
        below = table.children[pattern]
        if not below:
            if not table.variables[pattern]:
                return False
            return bindings.setdefault(pattern, node) == node
        if table.label[pattern] != table.label[node]:
            return False
        return all(self._match(part, child, bindings) for part, child in zip(below, table.children[node], strict=True))

    def rewrite(self, equation: int, position: int, rng: random.Random) -> int:
        """Return ``equation`` with the node at ``position`` (preorder, not the root) rewritten by a random identity.

        Returns ``equation`` itself if no identity fits.
        """
        table = self.table
        path = table.path_to(equation, position)
        node = path[-1][0]
        candidates: list[tuple[int, dict[int, int]]] = []
        if self._derived_share and rng.random() < self._derived_share:
            candidates = self._derived_replacement(node, rng)
        candidates = candidates or self.replacements(node)
        if not candidates:
            return equation
        replacement, bindings = candidates[int(rng.random() * len(candidates))]
        free = [v for v in table.variable_indexes(replacement) if table.make(VARIABLES[v]) not in bindings]
        for variable in free:
            bindings[table.make(VARIABLES[variable])] = self._fresh_leaf(equation, rng)
        return table.replace_at(path, table.substitute(replacement, bindings))

    def _fresh_leaf(self, equation: int, rng: random.Random) -> int:
        occurring = self.table.variable_indexes(equation)
        if not occurring:
            return self.table.make(VARIABLES[0])
        return self.table.make(VARIABLES[occurring[int(rng.random() * len(occurring))]])

    def grow(self, equation: int, rng: random.Random) -> int:
        """Return ``equation`` with a function of each side and one leaf, a new variable or a constant."""
        table = self.table
        left, right = table.children[equation]
        function = ARITHMETIC_FUNCTIONS[int(rng.random() * len(ARITHMETIC_FUNCTIONS))]
        leaf = table.make(self._growth_leaf(equation, rng))
        leaf_first = rng.random() < 0.5
        sides = [table.make(function, (leaf, side) if leaf_first else (side, leaf)) for side in (left, right)]
        return table.make(EQUALITY, tuple(sides))

    def _growth_leaf(self, equation: int, rng: random.Random) -> str:
        occurring = self.table.variables[equation]
        new_variable = occurring.bit_length()
        if rng.random() < NEW_VARIABLE_SHARE and new_variable < NUM_VARIABLES:
            return VARIABLES[new_variable]
        group: Sequence[str] = GROWTH_CONSTANTS[int(rng.random() * len(GROWTH_CONSTANTS))]
        return group[int(rng.random() * len(group))]
