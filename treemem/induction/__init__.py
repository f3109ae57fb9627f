"""Induced trees: drawn, scored against gold trees, and compared with each other."""

from __future__ import annotations

from treemem.induction.bracket_removal import remove_brackets
from treemem.induction.branching import (
    balanced_branching,
    baseline_trees,
    left_branching,
    random_branching,
    right_branching,
)
from treemem.induction.drawing import tree_svg
from treemem.induction.models import induced_trees
from treemem.induction.page import RunTrees, differing_sentences, write_tree_page
from treemem.induction.runs import Agreement, RunsScore, score_runs
from treemem.induction.scores import SpanScore, corpus_f1, mean_sentence_f1, sentence_f1
from treemem.induction.spans import tree_spans
from treemem.trees.induced import (
    tree_from_distances,
    tree_from_pointer_probabilities,
    tree_from_pointers,
    tree_from_splits,
)

__all__ = [
    "Agreement",
    "RunTrees",
    "RunsScore",
    "SpanScore",
    "balanced_branching",
    "baseline_trees",
    "corpus_f1",
    "differing_sentences",
    "induced_trees",
    "left_branching",
    "mean_sentence_f1",
    "random_branching",
    "remove_brackets",
    "right_branching",
    "score_runs",
    "sentence_f1",
    "tree_from_distances",
    "tree_from_pointer_probabilities",
    "tree_from_pointers",
    "tree_from_splits",
    "tree_spans",
    "tree_svg",
    "write_tree_page",
]
