"""Conversion of formulas from the form ``"binary"`` to ``"operators"``."""

from __future__ import annotations

import numpy as np

from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.formats.logic import AND, NOT, OR


def with_operators(forest: Forest) -> Forest:
    """Return formulas of the form ``"binary"`` in the form ``"operators"``. Other brackets stay as they are.

    In post-order, ``( F ( and G ) )`` is ``F and G X X`` and becomes ``F G and``; ``( not F )`` is ``not F X`` and
    becomes ``F not``.
    """
    pointer, child = forest.children()
    is_leaf = forest.arity == 0
    word = {name: place for place, name in enumerate(forest.labels)}
    is_pair = (forest.arity == 2) & (forest.label == word.get(CONSTITUENT, -1))
    pair = np.flatnonzero(is_pair)
    left, right = child[pointer[pair]], child[pointer[pair] + 1]
    negates = is_leaf[left] & (forest.label[left] == word.get(NOT, -1))
    waits = is_leaf[left] & np.isin(forest.label[left], [word.get(name, -1) for name in (AND, OR)])
    is_waiting = np.zeros(forest.num_nodes, bool)
    is_waiting[pair[waits]] = True
    whole = ~negates & ~waits & is_waiting[right]

    label, arity = forest.label.copy(), forest.arity.copy()
    kept = np.ones(forest.num_nodes, bool)
    label[pair[negates]], arity[pair[negates]], kept[left[negates]] = word.get(NOT, -1), 1, False
    operator = child[pointer[right[whole]]]
    label[pair[whole]], kept[operator], kept[right[whole]] = forest.label[operator], False, False
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
    result = Forest(forest.labels, label[kept], arity[kept], before[forest.begin])
    return result.with_data(tree_data=forest.tree_data)
