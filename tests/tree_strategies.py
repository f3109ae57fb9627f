"""Trees for tests: hypothesis strategies, and seeded random trees where size matters."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import strategies as st

from treemem.schedule.schedule import Schedule
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

LEAVES = ("x", "y", "1", "f")
FUNCTIONS = (("f", 1), ("g", 1), ("add", 2), ("f", 2), ("max", 3), ("max", 4), ("max", 5))
NUMBER = "Number"
VOCABULARY = Vocabulary(LEAVES, FUNCTIONS, number=NUMBER)

_values = st.sampled_from([0.0, 1.0, -2.5]) | st.floats(-1e6, 1e6, allow_nan=False)


def trees(max_leaves: int = 12, values: bool = True, widest: int = 5) -> st.SearchStrategy[Tree]:
    """Trees of the labels in ``VOCABULARY``; small, so that equal subtrees are common."""
    functions = [function for function in FUNCTIONS if function[1] <= widest]
    leaf = st.sampled_from(LEAVES).map(Tree)
    if values:
        leaf = leaf | st.builds(lambda value: Tree(NUMBER, value=value), _values)

    def node(children: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
        return st.sampled_from(functions).flatmap(
            lambda function: st.lists(children, min_size=function[1], max_size=function[1]).map(
                lambda parts: Tree(function[0], parts)
            )
        )

    return st.recursive(leaf, node, max_leaves=max_leaves)


def forests(max_trees: int = 6, values: bool = True, widest: int = 5) -> st.SearchStrategy[Forest]:
    """Forests of :func:`trees`, the empty one included."""
    return st.lists(trees(values=values, widest=widest), max_size=max_trees).map(Forest.from_trees)


def random_tree(generator: random.Random, size: int, widest: int = 5) -> Tree:
    """A tree of ``size`` nodes, or a few less, of the labels in ``VOCABULARY`` with up to ``widest`` children."""
    labels, arities = [], []
    open_places, left = 1, size
    while open_places:  # in preorder
        choices = [function for function in FUNCTIONS if function[1] <= min(widest, left - open_places)]
        if not choices or (open_places > 1 and generator.random() < 0.4):
            label, arity = generator.choice(LEAVES), 0
        else:
            label, arity = generator.choice(choices)
        labels.append(label)
        arities.append(arity)
        open_places += arity - 1
        left -= 1
    done: list[Tree] = []
    for label, arity in zip(reversed(labels), reversed(arities), strict=True):
        children = [done.pop() for _ in range(arity)]
        done.append(Tree(label, children))
    return done.pop()


def random_forest(seed: int, num_trees: int, size: int, widest: int = 5) -> Forest:
    """``num_trees`` of :func:`random_tree`, of 1 to ``size`` nodes; C++ is compiled for each number of children."""
    generator = random.Random(seed)
    return Forest.from_trees([random_tree(generator, generator.randint(1, size), widest) for _ in range(num_trees)])


def chain(length: int) -> Tree:
    """A chain of ``length`` nodes ``g`` over one leaf."""
    tree = Tree("x")
    for _ in range(length):
        tree = Tree("g", [tree])
    return tree


def subtrees(forest: Forest) -> list[Tree]:
    """The subtree at every node of ``forest``, in node order."""
    return [node for tree in forest for node in tree.postorder()]


def shuffled_edges(forest: Forest, seed: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The edges of a forest as child, parent and position; in another order if there is a seed."""
    pointer, child = forest.children()
    target = np.repeat(np.arange(forest.num_nodes), forest.arity)
    position = np.arange(len(child)) - pointer[target]
    order = np.arange(len(child)) if seed is None else np.random.default_rng(seed).permutation(len(child))
    return child[order], target[order], position[order]


def rebuilt_rows(schedule: Schedule, labels: list[str], values: list[float | None] | None = None) -> list[Tree]:
    """The tree of every row, built level by level as an engine would.

    Args:
        schedule: of some trees.
        labels: of their nodes.
        values: of their nodes; if None, those of the schedule.
    """
    rows: list[Tree] = []
    child, node_of_row = schedule.child.tolist(), schedule.node_of_row.tolist()
    for level in schedule.levels:
        for segment in level.segments:
            for place in range(segment.end - segment.begin):
                first = segment.first_child + place * segment.arity
                children = [rows[row] for row in child[first : first + segment.arity]]
                row = segment.begin + place
                if values is not None:
                    value = values[node_of_row[row]]
                else:
                    value = None if children or schedule.value[row].isnan() else schedule.value[row].item()
                assert row == len(rows)
                rows.append(Tree(labels[node_of_row[row]], children, value))
    return rows
