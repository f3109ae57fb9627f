"""Formulas with their operators at inner nodes, out of those whose words are leaves."""

from __future__ import annotations

import numpy as np

from treemem.trees.forest import Forest
from treemem.trees.logic import AND, NOT, OR


def with_operators(forest: Forest) -> Forest:
    """The formulas of ``forest``, read in the form ``"binary"``, in the form ``"operators"``.

    In post-order ``( F ( and G ) )`` is ``F and G X X`` and becomes ``F G and``; ``( not F )`` is ``not F X`` and
    becomes ``F not``.
    """
    word = {label: place for place, label in enumerate(forest.labels)}
    negation, binary = word.get(NOT, -1), [word[label] for label in (AND, OR) if label in word]
    pointer, child = forest.children()
    is_leaf = forest.arity == 0
    inner = np.flatnonzero(~is_leaf)
    left, right = child[pointer[inner]], child[pointer[inner] + 1]
    starts = is_leaf[left] & np.isin(forest.label[left], binary)  # ( and G ), which waits for its left operand
    negates = is_leaf[left] & (forest.label[left] == negation)
    label, arity = forest.label.copy(), forest.arity.copy()
    label[inner[negates]], arity[inner[negates]] = negation, 1
    whole = ~starts & ~negates
    label[inner[whole]] = forest.label[child[pointer[right[whole]]]]
    kept = np.ones(forest.num_nodes, bool)
    kept[inner[starts]] = False
    kept[left[starts | negates]] = False
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
    result = Forest(forest.labels, label[kept], arity[kept], before[forest.begin])
    return result.with_data(tree_data=forest.tree_data)
