"""Trees chosen pair by pair with the straight-through Gumbel-softmax, composed by a Tree-LSTM."""

from __future__ import annotations

from treemem.ops.gumbel_tree_lstm.attention import attend_to_nodes
from treemem.ops.gumbel_tree_lstm.sequences import GumbelTrees, gumbel_trees
from treemem.ops.gumbel_tree_lstm.weights import GumbelTreeWeights

__all__ = ["GumbelTreeWeights", "GumbelTrees", "attend_to_nodes", "gumbel_trees"]
