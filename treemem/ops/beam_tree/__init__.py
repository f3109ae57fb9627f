"""Trees found with a beam, composed by the gated recursive cell."""

from __future__ import annotations

from treemem.ops.beam_tree.naive import BeamTreeWeights, ChildrenScore
from treemem.ops.beam_tree.sequences import BeamTrees, beam_trees

__all__ = ["BeamTreeWeights", "BeamTrees", "ChildrenScore", "beam_trees"]
