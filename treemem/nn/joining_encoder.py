"""Base class of the sequence encoders that build a binary tree of their own over the tokens."""

from __future__ import annotations

from collections.abc import Mapping

from treemem.evaluation_mode import in_evaluation_mode
from treemem.nn.recorded_options import SettableOption
from treemem.nn.sequence_encoder import SequenceEncoder
from treemem.nn.token_trees import trees_over_tokens
from treemem.ops.sequence_engine import SequenceEngine, checked_engine
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.induced import tree_from_splits
from treemem.trees.tree import Tree


class JoiningEncoder(SequenceEncoder):
    """A sequence encoder that joins neighbours step by step, and whose trace ``"joined"`` tells its tree.

    ``"joined"``, ``[sequences, longest]``, is the larger, the later the constituent that begins at a token is joined
    with the constituent on its left. It is 0 at the first token, and NaN where the network's own numbers are not
    finite.
    """

    engine: SettableOption[SequenceEngine] = SettableOption(checked_engine)

    lengths_on_cpu = True

    can_induce_trees = True

    @property
    def trace_axes(self) -> Mapping[str, tuple[str, ...]]:
        return {"joined": ("sequences", "tokens")}

    def induced_trees(self, batch: TreeBatch) -> list[Tree]:
        """Return the tree over each sequence, which splits it where ``"joined"`` is largest, without noise and dropout.

        Raises:
            GraphError: a batch made from a graph, an empty sequence, or an encoding that is not finite; names the
                sequence.
        """
        with in_evaluation_mode(self):
            joined = self(batch, trace=True).trace["joined"]
        return trees_over_tokens(self, batch, joined, tree_from_splits)
