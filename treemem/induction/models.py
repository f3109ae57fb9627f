"""Trees that encoders induce over sentences."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from treemem.checked_options import checked_count
from treemem.errors import GraphError, RecipeError, VocabularyError
from treemem.networks.encoder import INDUCE_TREES
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree


def induced_trees(
    encoder: torch.nn.Module,
    sentences: TreeBatch | Forest | Iterable[Tree],
    *,
    sentences_at_once: int = 256,
    **options: Any,
) -> list[Tree]:
    """Return the tree that an encoder induces over each sentence; see its own ``induced_trees``.

    The encoder reads each sentence as if alone and without dropout. The leaves are the tokens that it read, brackets
    included; :func:`treemem.induction.remove_brackets` removes these for a comparison with gold trees.

    Args:
        encoder: one whose ``can_induce_trees`` is true. The encoder of a ``Model`` is its ``encoder``.
        sentences: a batch of trees, or trees of any number. Of pairs, the two sentences: the ``children`` of what a
            task's ``parse`` returns.
        sentences_at_once: how many trees make a batch, if ``sentences`` is not one.
        options: of the encoder, such as ``layer`` and ``gate`` of ONLSTM.

    Returns:
        A tree for each sentence, in order.

    Raises:
        RecipeError: the encoder does not induce trees, or has no such layer.
        GraphError: a batch made from a graph, or a sentence for which the encoder computed numbers that are not finite.
        VocabularyError: a label that the encoder does not know, or a root that joins sentences.
    """
    network: Any = encoder
    if not getattr(network, "can_induce_trees", False):
        hint = "; give its .encoder" if getattr(getattr(network, "encoder", None), "can_induce_trees", False) else ""
        raise RecipeError(f"{type(network).__name__} does not induce trees{hint}; {INDUCE_TREES}")
    checked_count("sentences_at_once", sentences_at_once)
    if isinstance(sentences, TreeBatch):
        return list(network.induced_trees(sentences, **options))
    forest = sentences if isinstance(sentences, Forest) else Forest.from_trees(sentences)
    index = _index(forest, network)
    device = next(network.parameters()).device
    trees: list[Tree] = []
    for first in range(0, len(forest), sentences_at_once):
        chosen = slice(first, first + sentences_at_once)
        try:
            trees += network.induced_trees(TreeBatch.from_index(index, chosen).to(device), **options)
        except GraphError as error:
            raise GraphError(f"in the batch that begins with sentence {first}: {error}") from error
    return trees


def _index(forest: Forest, encoder: Any) -> SubtreeIndex:
    try:
        return SubtreeIndex(forest, encoder.vocabulary)
    except VocabularyError as error:
        for root in forest.begin[1:] - 1:
            label, arity = forest.labels[forest.label[root]], int(forest.arity[root])
            if arity > 1 and encoder.vocabulary.find(label, arity) is None:
                hint = f"if {label!r} joins sentences, as the root of a pair does, give its .children"
                raise VocabularyError(f"{error}; {hint}") from error
        raise
