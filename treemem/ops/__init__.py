"""The numerics of the networks: stateless steps, and the engines that run a cell over a batch of trees."""

from __future__ import annotations

from treemem.ops.cell import Cell, LearnedStepPair, Product, SplitCell, State, StepPair
from treemem.ops.downward import Direction, DownwardCell
from treemem.ops.propagate import Engine, NodeStates, propagate
from treemem.ops.reading import ChildrenInOrder, ChildrenSum, EachChild, HiddenLayer, Reading, StackRows
from treemem.ops.stack_tree_lstm import StackTreeLSTMOptions

__all__ = [
    "Cell",
    "ChildrenInOrder",
    "ChildrenSum",
    "Direction",
    "DownwardCell",
    "EachChild",
    "Engine",
    "HiddenLayer",
    "LearnedStepPair",
    "NodeStates",
    "Product",
    "Reading",
    "SplitCell",
    "StackRows",
    "StackTreeLSTMOptions",
    "State",
    "StepPair",
    "propagate",
]
