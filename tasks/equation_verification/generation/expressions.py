"""Hash-consed expressions: equal subexpressions are one number, so that they are stored and evaluated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from treemem.trees.equation_labels import (
    BINARY_FUNCTIONS,
    EQUALITY,
    LEAF_LABELS,
    NUM_VARIABLES,
    UNARY_FUNCTIONS,
    variable_label,
)
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

VARIABLES: tuple[str, ...] = tuple(variable_label(index) for index in range(NUM_VARIABLES))
_INDEX_OF_VARIABLE = {label: index for index, label in enumerate(VARIABLES)}
LABELS: tuple[str, ...] = (EQUALITY, *BINARY_FUNCTIONS, *UNARY_FUNCTIONS, *LEAF_LABELS)


class ExpressionTable:
    """Expressions by number; the same label over the same children always has the same number.

    Children have smaller numbers than their parents. The lists are indexed by an expression's number.

    Attributes:
        label: what the root of the expression says.
        children: numbers of the expressions below the root.
        size: number of nodes, counted as a tree.
        height: longest way down to a leaf; a leaf has 0.
        variables: bit ``i`` is set where ``var_i`` occurs.
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
        """The number of the expression ``label`` over ``children``."""
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
        """The number of the expression that ``tree`` says."""
        done: list[int] = []
        for node in tree.postorder():
            first = len(done) - node.arity
            done[first:] = [self.make(node.label, tuple(done[first:]))]
        return done.pop()

    def from_forest(self, forest: Forest) -> list[int]:
        """The numbers of the expressions that the trees of ``forest`` say; the values of number leaves are left out."""
        done: list[int] = []
        labels = forest.labels
        for label, arity in zip(forest.label.tolist(), forest.arity.tolist(), strict=True):
            first = len(done) - arity
            done[first:] = [self.make(labels[label], tuple(done[first:]))]
        return done

    def to_forest(self, expressions: Sequence[int], tree_data: Mapping[str, ArrayLike] | None = None) -> Forest:
        """A forest of ``expressions``, built of the labels of equations, in the order given."""
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
        """Indexes of the variables that occur, ascending."""
        occurring = self.variables[expression]
        return [index for index in range(NUM_VARIABLES) if occurring >> index & 1]

    def postorder(self, expression: int) -> list[int]:
        """The numbers of all nodes of the tree, children from left to right before their parent."""
        reversed_order, stack = [], [expression]
        children = self.children
        while stack:
            node = stack.pop()
            reversed_order.append(node)
            stack.extend(children[node])
        return reversed_order[::-1]

    def path_to(self, expression: int, position: int) -> list[tuple[int, int]]:
        """The way from the root to the node at ``position`` in preorder: (node, which child is next), root first.

        The last entry is the node itself with -1.
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
        """The expression of ``path``'s root with ``replacement`` in place of the path's last node."""
        for node, place in reversed(path[:-1]):
            siblings = self.children[node]
            replacement = self.make(self.label[node], (*siblings[:place], replacement, *siblings[place + 1 :]))
        return replacement

    def substitute(self, expression: int, bindings: dict[int, int]) -> int:
        """``expression`` with every leaf that ``bindings`` has replaced, all at once."""
        if expression in bindings:
            return bindings[expression]
        children = self.children[expression]
        if not children or not self.variables[expression]:
            return expression
        return self.make(self.label[expression], tuple([self.substitute(child, bindings) for child in children]))

    def canonical_equation(self, equation: int) -> tuple[int, int]:
        """A key that equations share exactly if they are equal up to renaming of variables and swapping of sides."""
        left, right = self.children[equation]
        forward = self._renumbered(left, right)
        backward = self._renumbered(right, left)
        return min(forward, backward)

    def _renumbered(self, first: int, second: int) -> tuple[int, int]:
        """The two expressions with variables renamed by first appearance, read from left to right."""
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
        """Append the variables of ``expression`` to ``order`` as they first appear."""
        stack = [expression]
        while stack:
            node = stack.pop()
            children = self.children[node]
            if children:
                stack.extend([child for child in reversed(children) if self.variables[child]])
            elif self.variables[node] and node not in order:
                order.append(node)
