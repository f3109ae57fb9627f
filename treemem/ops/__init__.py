"""The numerics of the networks: stateless steps, and the engines that run a cell over a batch of trees."""

from __future__ import annotations

from treemem.ops.cell import Cell, Product, ProductInput, SplitCell, State
from treemem.ops.compile_mode import compile_steps
from treemem.ops.downward import Direction, DownwardCell
from treemem.ops.propagate import Engine, NodeStates, propagate
from treemem.ops.stack_tree_lstm import StackTreeLSTMOptions

__all__ = [
    "Cell",
    "Direction",
    "DownwardCell",
    "Engine",
    "NodeStates",
    "Product",
    "ProductInput",
    "SplitCell",
    "StackTreeLSTMOptions",
    "State",
    "compile_steps",
    "propagate",
]
