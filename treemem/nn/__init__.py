"""Layers and heads."""

from __future__ import annotations

from treemem.nn.child_sum_tree_lstm import ChildSumTreeLSTM
from treemem.nn.leaf_encoder import LeafEncoder
from treemem.nn.number import NumberDecoder, NumberEncoder
from treemem.nn.stack_tree_lstm import StackTreeLSTM
from treemem.nn.stack_tree_rnn import StackTreeRNN
from treemem.nn.tree_lstm import TreeLSTM
from treemem.nn.tree_network import TreeLayer, TreeNetwork
from treemem.nn.tree_rnn import TreeRNN
from treemem.nn.tree_states import TreeStates

__all__ = [
    "ChildSumTreeLSTM",
    "LeafEncoder",
    "NumberDecoder",
    "NumberEncoder",
    "StackTreeLSTM",
    "StackTreeRNN",
    "TreeLSTM",
    "TreeLayer",
    "TreeNetwork",
    "TreeRNN",
    "TreeStates",
]
