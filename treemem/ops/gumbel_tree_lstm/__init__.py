"""Trees chosen pair by pair with the straight-through Gumbel-softmax, composed by a Tree-LSTM."""

from __future__ import annotations

from treemem.ops.gumbel_tree_lstm.naive import GumbelTreeWeights
from treemem.ops.gumbel_tree_lstm.sequences import GumbelTrees, attend_to_nodes, gumbel_trees

__all__ = ["GumbelTreeWeights", "GumbelTrees", "attend_to_nodes", "gumbel_trees"]
