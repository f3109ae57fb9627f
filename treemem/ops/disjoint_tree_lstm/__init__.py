"""A parser that chooses a tree pair by pair, and a Tree-LSTM of its own that composes it."""

from __future__ import annotations

from treemem.ops.disjoint_tree_lstm.naive import ParserWeights
from treemem.ops.disjoint_tree_lstm.plan import TreePlan, tree_plan
from treemem.ops.disjoint_tree_lstm.sequences import (
    Choices,
    choices_of,
    choose_trees,
    compose_trees,
)

__all__ = [
    "Choices",
    "ParserWeights",
    "TreePlan",
    "choices_of",
    "choose_trees",
    "compose_trees",
    "tree_plan",
]
