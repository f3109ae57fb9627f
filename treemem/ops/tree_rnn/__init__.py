"""Tree-RNN: one affine map and an activation function."""

from __future__ import annotations

from treemem.ops.tree_rnn.step import tree_rnn_step

__all__ = ["tree_rnn_step"]
