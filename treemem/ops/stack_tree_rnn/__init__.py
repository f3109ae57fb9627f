"""Tree-RNN whose nodes carry a stack."""

from __future__ import annotations

from treemem.ops.stack_tree_rnn.step import own_stack_readout, stack_candidates, stack_tree_rnn_step, stack_update

__all__ = [
    "own_stack_readout",
    "stack_candidates",
    "stack_tree_rnn_step",
    "stack_update",
]
