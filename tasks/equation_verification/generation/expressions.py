"""Hash-consed expressions: equal subexpressions share one number, so each is stored and evaluated once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from treemem.trees.forest import Forest
from treemem.trees.formats.equations.labels import (
    BINARY_FUNCTIONS,
    EQUALITY,
    LEAF_LABELS,
    NUM_VARIABLES,
    UNARY_FUNCTIONS,
    variable_label,
)
from treemem.trees.tree import Tree

VARIABLES: tuple[str, ...] = tuple(variable_label(index) for index in range(NUM_VARIABLES))
_INDEX_OF_VARIABLE = {label: index for index, label in enumerate(VARIABLES)}
LABELS: tuple[str, ...] = (EQUALITY, *BINARY_FUNCTIONS, *UNARY_FUNCTIONS, *LEAF_LABELS)

TRIGONOMETRIC_FUNCTIONS = UNARY_FUNCTIONS[:6]
ARITHMETIC_FUNCTIONS = BINARY_FUNCTIONS[:3]
"""The functions, with those above, of the published equations."""


class ExpressionTable:
    """Expressions by number. The same label over the same children always has the same number.

    Children have smaller numbers than their parents. The lists are indexed by the number of an expression.

    Attributes:
        label: label of the root.
        children: numbers of the children of the root.
        size: number of nodes, counted as a tree.
        height: length of the longest path to a leaf; a leaf has 0.
        variables: bit ``i`` is set if ``var_i`` occurs.
    """

    def __init__(self) -> None:
        self.label: list[str] = []
        self.children: list[tuple[int, ...]] = []
        self.size: list[int] = []
        self.height: list[int] = []
        self.variables: list[int] = []
        self._number: dict[tuple[str, tuple[int, ...]], int] = {}

    def __len__(self) -> int:
        return len(self.label)

    def make(self, label: str, children: tuple[int, ...] = ()) -> int:
        """Return the number of the expression ``label`` over ``children``."""
        key = (label, children)
        number = self._number.get(key)
        if number is not None:
            return number
        size, height, variables = 1, -1, 0
        for child in children:
            size += self.size[child]
            height = max(height, self.height[child])
            variables |= self.variables[child]
        if label in _INDEX_OF_VARIABLE:
            variables = 1 << _INDEX_OF_VARIABLE[label]
        number = len(self.label)
        self.label.append(label)
        self.children.append(children)
        self.size.append(size)
        self.height.append(height + 1)
        self.variables.append(variables)
        self._number[key] = number
        return number

    def from_tree(self, tree: Tree) -> int:
        """Return the number of ``tree``."""
        return self.from_forest(Forest.from_trees([tree]))[0]

    def from_forest(self, forest: Forest) -> list[int]:
        """Return the number of each tree of ``forest``. Values of number leaves are ignored."""
        done: list[int] = []
        labels = forest.labels
        for label, arity in zip(forest.label.tolist(), forest.arity.tolist(), strict=True):
            first = len(done) - arity
            done[first:] = [self.make(labels[label], tuple(done[first:]))]
        return done

    def to_forest(self, expressions: Sequence[int], tree_data: Mapping[str, ArrayLike] | None = None) -> Forest:
        """Return ``expressions`` as a forest, in the order given."""
        nodes = [node for expression in expressions for node in self.postorder(expression)]
        used = {self.label[node] for node in nodes}
        labels = [name for name in LABELS if name in used]
        index = {name: number for number, name in enumerate(labels)}
        return Forest.from_arrays(
            labels,
            np.array([index[self.label[node]] for node in nodes], dtype=np.int32),
            np.array([len(self.children[node]) for node in nodes], dtype=np.int32),
            np.cumsum([0, *(self.size[expression] for expression in expressions)]),
            tree_data=tree_data,
        )

    def variable_indexes(self, expression: int) -> list[int]:
        """Return the indexes of the variables that occur, ascending."""
        occurring = self.variables[expression]
        return [index for index in range(NUM_VARIABLES) if occurring >> index & 1]

    def subexpressions(self, expressions: Iterable[int]) -> list[int]:
        """Return the distinct subexpressions of ``expressions``, themselves included, ascending."""
        distinct = set(expressions)
        stack = list(distinct)
        while stack:
            for child in self.children[stack.pop()]:
                if child not in distinct:
                    distinct.add(child)
                    stack.append(child)
        return sorted(distinct)

    def postorder(self, expression: int) -> list[int]:
        """Return the numbers of all nodes of the tree in post-order."""
        reversed_order, stack = [], [expression]
        children = self.children
        while stack:
            node = stack.pop()
            reversed_order.append(node)
            stack.extend(children[node])
        return reversed_order[::-1]

    def path_to(self, expression: int, position: int) -> list[tuple[int, int]]:
        """Return the path from the root to the node at ``position`` in preorder.

        Each entry is (node, index of the next child); the last one is the node itself with -1.
        """
        path = []
        size, children = self.size, self.children
        node, remaining = expression, position
        while remaining:
            remaining -= 1
            for place, child in enumerate(children[node]):
                if remaining < size[child]:
                    path.append((node, place))
                    node = child
                    break
                remaining -= size[child]
        path.append((node, -1))
        return path

    def replace_at(self, path: list[tuple[int, int]], replacement: int) -> int:
        """Return the expression at the start of ``path`` with the last node of the path replaced."""
        for node, place in reversed(path[:-1]):
            siblings = self.children[node]
            replacement = self.make(self.label[node], (*siblings[:place], replacement, *siblings[place + 1 :]))
        return replacement

    def substitute(self, expression: int, bindings: dict[int, int]) -> int:
        """Return ``expression`` with each leaf in ``bindings`` replaced, all at once."""
        if expression in bindings:
            return bindings[expression]
        children = self.children[expression]
        if not children or not self.variables[expression]:
            return expression
        return self.make(self.label[expression], tuple([self.substitute(child, bindings) for child in children]))

    def canonical_equation(self, equation: int) -> tuple[int, int]:
        """Return a key that is equal for equations that differ only in names of variables and order of sides."""
        left, right = self.children[equation]
        forward = self.renumbered(left, right)
        backward = self.renumbered(right, left)
        return min(forward, backward)

    def canonical_equations(self, forest: Forest) -> set[tuple[int, int]]:
        """Return the keys of the equations of ``forest``."""
        return {self.canonical_equation(equation) for equation in self.from_forest(forest)}

    def renumbered(self, first: int, second: int) -> tuple[int, int]:
        """Return both expressions with their variables renamed in order of appearance, left to right."""
        both = self.variables[first] | self.variables[second]
        order: list[int] = []
        if both & (both - 1):
            self._collect_variables(first, order)
            self._collect_variables(second, order)
        elif both:
            order = [self.make(VARIABLES[both.bit_length() - 1])]
        renaming = {variable: self.make(VARIABLES[index]) for index, variable in enumerate(order)}
        renaming = {old: new for old, new in renaming.items() if old != new}
        if not renaming:
            return first, second
        return self.substitute(first, renaming), self.substitute(second, renaming)

    def _collect_variables(self, expression: int, order: list[int]) -> None:
        """Append the variables of ``expression`` to ``order`` in order of appearance."""
        stack = [expression]
        while stack:
            node = stack.pop()
            children = self.children[node]
            if children:
                stack.extend([child for child in reversed(children) if self.variables[child]])
            elif self.variables[node] and node not in order:
                order.append(node)
