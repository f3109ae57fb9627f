"""The numerics of the networks: stateless steps, and the engines that run a cell over a batch of trees."""

from __future__ import annotations

from treemem.engines.cell import Cell, Product, ProductInput, SplitCell, State
from treemem.engines.cuda.choice import cuda_kernels
from treemem.engines.cuda.graphs import CapturedStep
from treemem.engines.downward import Direction, DownwardCell
from treemem.engines.propagate import Engine, NodeStates, propagate
from treemem.native.compile_mode import compile_steps
from treemem.networks.trees.stack_tree_lstm.equations import StackTreeLSTMOptions

__all__ = [
    "CapturedStep",
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
    "cuda_kernels",
    "propagate",
]
