"""The vocabulary of equations: every published function and leaf, whatever the data at hand hold."""

from __future__ import annotations

from treemem.trees.equation_labels import BINARY_FUNCTIONS, LEAF_LABELS, NUMBER, UNARY_FUNCTIONS
from treemem.trees.vocabulary import Vocabulary


def equation_vocabulary(*, numeric: bool = False) -> Vocabulary:
    """25 unary and 4 binary functions, each with parameters of its own, and 34 leaves.

    Args:
        numeric: whether ``Number`` leaves, which carry a value, are known too.
    """
    functions = [(label, 1) for label in UNARY_FUNCTIONS] + [(label, 2) for label in BINARY_FUNCTIONS]
    return Vocabulary(LEAF_LABELS, functions, number=NUMBER if numeric else None)
