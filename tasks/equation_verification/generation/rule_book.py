"""Rewriting by a growing set of rules, found by their root and its children."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence

from treemem.tasks.equation_verification.generation.expressions import ARITHMETIC_FUNCTIONS, VARIABLES, ExpressionTable
from treemem.trees.formats.equations.labels import EQUALITY, NUM_VARIABLES

_GROWTH_CONSTANTS: tuple[tuple[str, ...], ...] = (
    ("NegativeOne:-1",),
    ("Pi:pi",),
    ("Integer:1",),
    ("Half:1/2",),
    ("Integer:0", "Integer:2", "Integer:3", "Integer:4", "Integer:10"),
    ("Rational:2/5",),
    ("Float:0.7",),
)
"""Constants by class: a class is drawn first, then one of its constants."""

_ANY = ""
_TRIES = 10
"""Number of rules that are tried at a node. Nearly all rules found by their root and its children match."""


class RuleBook:
    """Rules that replace an instance of a pattern; all occurrences of a variable have one binding.

    A variable in the tree matches only rules whose pattern is a variable, as in Arabshahi et al. 2018.

    Args:
        table: holds the expressions.
        leaf_of: draws the leaf for a variable that the pattern does not have, from the equation; without it, the
            variable stays as it is.
        growth_constant_share: share of growth steps whose new leaf is a constant, not a new variable.
    """

    def __init__(
        self,
        table: ExpressionTable,
        leaf_of: Callable[[int, random.Random], int] | None = None,
        growth_constant_share: float = 0.5,
    ) -> None:
        self.table = table
        self._leaf_of = leaf_of
        self._constant_share = growth_constant_share
        self._rules: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)

    def add_equation(self, equation: int) -> None:
        """Use an equation as a rule in both directions."""
        left, right = self.table.children[equation]
        if left != right:
            self.add(left, right)
            self.add(right, left)

    def add(self, pattern: int, replacement: int) -> None:
        """Add a rule."""
        self._rules[self._key(pattern)].append((pattern, replacement))

    def _key(self, pattern: int) -> tuple[str, ...]:
        table = self.table
        parts = [
            _ANY if table.variables[child] and not table.children[child] else table.label[child]
            for child in table.children[pattern]
        ]
        return (self._root(pattern), *parts)

    def _root(self, node: int) -> str:
        table = self.table
        return VARIABLES[0] if table.variables[node] and not table.children[node] else table.label[node]

    def draw(self, node: int, rng: random.Random) -> tuple[int, dict[int, int]] | None:
        """Return a random rule for ``node``: its replacement, and the bindings. None if no tried one matches."""
        table, rules = self.table, self._rules
        root, children = self._root(node), table.children[node]
        if not children:
            keys: Sequence[tuple[str, ...]] = ((root,),)
        elif len(children) == 1:
            keys = ((root, table.label[children[0]]), (root, _ANY))
        else:
            first, last = table.label[children[0]], table.label[children[1]]
            keys = ((root, first, last), (root, first, _ANY), (root, _ANY, last), (root, _ANY, _ANY))
        matching = [rules[key] for key in keys if key in rules]
        total = sum(map(len, matching))
        for _ in range(min(total, _TRIES)):
            place = int(rng.random() * total)
            for part in matching:
                if place < len(part):
                    break
                place -= len(part)
            pattern, replacement = part[place]
            bindings: dict[int, int] = {}
            if self._match(pattern, node, bindings):
                return replacement, bindings
        return None

    def _match(self, pattern: int, node: int, bindings: dict[int, int]) -> bool:
        table = self.table
        below = table.children[pattern]
        if not below:
            if table.variables[pattern]:
                return bindings.setdefault(pattern, node) == node
            return pattern == node
        if not table.variables[pattern]:
            return pattern == node
        if table.label[pattern] != table.label[node]:
            return False
        return all(self._match(part, child, bindings) for part, child in zip(below, table.children[node], strict=True))

    def rewrite(self, equation: int, position: int, rng: random.Random) -> int:
        """Return ``equation`` with the node at ``position`` (preorder, not the root) rewritten, or itself."""
        table = self.table
        path = table.path_to(equation, position)
        rule = self.draw(path[-1][0], rng)
        if rule is None:
            return equation
        replacement, bindings = rule
        if self._leaf_of is not None:
            for index in table.variable_indexes(replacement):
                variable = table.make(VARIABLES[index])
                if variable not in bindings:
                    bindings[variable] = self._leaf_of(equation, rng)
        return table.replace_at(path, table.substitute(replacement, bindings))

    def grow(self, equation: int, rng: random.Random) -> int:
        """Return ``equation`` with a function of each side and one leaf, a new variable or a constant."""
        table = self.table
        function = ARITHMETIC_FUNCTIONS[int(rng.random() * len(ARITHMETIC_FUNCTIONS))]
        leaf, leaf_first = table.make(self._growth_leaf(equation, rng)), rng.random() < 0.5
        sides = [
            table.make(function, (leaf, side) if leaf_first else (side, leaf)) for side in table.children[equation]
        ]
        return table.make(EQUALITY, tuple(sides))

    def _growth_leaf(self, equation: int, rng: random.Random) -> str:
        new_variable = self.table.variables[equation].bit_length()
        if rng.random() >= self._constant_share and new_variable < NUM_VARIABLES:
            return VARIABLES[new_variable]
        group = _GROWTH_CONSTANTS[int(rng.random() * len(_GROWTH_CONSTANTS))]
        return group[int(rng.random() * len(group))]
