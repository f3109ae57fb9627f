"""A parser that chooses a tree pair by pair, and a Tree-LSTM of its own that composes it."""

from __future__ import annotations

from treemem.ops.disjoint_tree_lstm.plan import TreePlan, tree_plan
from treemem.ops.disjoint_tree_lstm.sequences import (
    Choices,
    choices_of,
    choose_trees,
    compose_trees,
)
from treemem.ops.disjoint_tree_lstm.weights import ParserWeights

__all__ = [
    "Choices",
    "ParserWeights",
    "TreePlan",
    "choices_of",
    "choose_trees",
    "compose_trees",
    "tree_plan",
]
