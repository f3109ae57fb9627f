"""Trees found with a beam, composed by the gated recursive cell."""

from __future__ import annotations

from treemem.ops.beam_tree.sequences import BeamTrees, beam_trees
from treemem.ops.beam_tree.weights import BeamTreeWeights, ChildrenScore

__all__ = ["BeamTreeWeights", "BeamTrees", "ChildrenScore", "beam_trees"]
