"""Occlusion: what the model says without a subtree."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.data.examples import Examples
from treemem.errors import RecipeError
from treemem.trees.forest import Forest
from treemem.trees.postorder import concatenated_ranges, offsets

if TYPE_CHECKING:
    from treemem.model import Model

MOST_NODES = 2000
"""The largest number of nodes of an example: occlusion takes time in its square."""

_MOST_LABELS = 16
_NODES_AT_ONCE = 1 << 18


def occlusion_scores(
    model: Model, examples: Examples, chosen: NDArray[np.int64], value: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the score of each node, float64 ``[nodes]``: the effect of its subtree less those of its children.

    All variants of an example run in few batches. A tree network computes their equal subtrees once, so a variant costs
    the nodes above the subtree that it lacks.

    Args:
        model: the model.
        examples: the trees.
        chosen: the column of the explained answer of each example, ``[examples]``.
        value: its value, ``[examples]``.

    Raises:
        RecipeError: the nodes have vectors of their own.
    """
    forest = examples.forest
    if forest.vectors is not None:
        raise RecipeError(
            "occlusion needs a leaf that says nothing, and the nodes of these trees have vectors of their own; choose "
            'method="gradient_times_input" or "integrated_gradients"'
        )
    labels = replacements(model)
    begin = forest.begin[:: examples.trees_per_example]
    example = np.repeat(np.arange(len(examples)), np.diff(begin))
    without = np.zeros(forest.num_nodes)
    for first, last in _parts(np.diff(begin)[example] * len(labels)):
        nodes = np.repeat(np.arange(first, last), len(labels))
        variants = _variants(forest, nodes, labels * (last - first), begin, examples.trees_per_example)
        kept = model.outputs(_unlabelled(examples, variants))
        columns = torch.from_numpy(chosen[example[nodes]])
        scores = model.task.answer_scores(kept).double().gather(1, columns[:, None]).numpy()
        without[first:last] = scores.reshape(-1, len(labels)).mean(1)
    effect = value[example] - without
    pointer, child = forest.children()
    parent = np.repeat(np.arange(forest.num_nodes), np.diff(pointer))
    return effect - np.bincount(parent, effect[child], minlength=forest.num_nodes)


def replacements(model: Model) -> list[str]:
    """Return the labels of the leaves that replace a subtree: the unknown one if it was trained, or known leaves."""
    vocabulary, untrained = model.vocabulary, {*model.unseen}
    if vocabulary.unknown is not None and vocabulary.unknown not in untrained:
        return [vocabulary.unknown]
    known = [label for label in vocabulary.leaves if label not in untrained and label != vocabulary.unknown]
    places = np.linspace(0, len(known) - 1, min(_MOST_LABELS, len(known))).round().astype(int)
    return [known[place] for place in places]


def check_occlusion(model: Model) -> None:
    """Raise a RecipeError if the model knows no label of a leaf."""
    if not replacements(model):
        raise RecipeError(
            "occlusion needs a leaf in the place of a subtree, and the model knows no leaf but numbers; choose another "
            "method"
        )


def _parts(cost: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return ranges of nodes whose variants have few nodes together, and at least one node each."""
    number = (np.cumsum(cost) - cost) // _NODES_AT_ONCE
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    return list(zip(starts.tolist(), [*starts[1:].tolist(), len(cost)], strict=True))


def _variants(
    forest: Forest, nodes: NDArray[np.int64], labels: list[str], begin: NDArray[np.int64], trees_per_example: int
) -> Forest:
    """Return the example of each of ``nodes`` with a leaf in the place of this node's subtree.

    Args:
        forest: the trees of the examples.
        nodes: ``[variants]``.
        labels: of the leaves, one for each variant.
        begin: the first node of each example, and the number of nodes.
        trees_per_example: how many adjacent trees an example has.
    """
    table = {label: number for number, label in enumerate(forest.labels)}
    leaf = np.array([table.setdefault(label, len(table)) for label in labels], np.int32)
    example = np.searchsorted(begin, nodes, side="right") - 1
    first, last, from_here = begin[example], begin[example + 1], forest.subtree_begin()[nodes]
    starts, counts = np.stack([first, nodes], 1), np.stack([from_here - first, last - nodes], 1)
    source = concatenated_ranges(starts.ravel(), counts.ravel())
    variant_begin = offsets(counts.sum(1))
    place = variant_begin[:-1] + counts[:, 0]
    label, arity = forest.label[source], forest.arity[source]
    label[place], arity[place] = leaf, 0
    value = None if forest.value is None else forest.value[source]
    if value is not None:
        value[place] = np.nan
    tree = example[:, None] * trees_per_example + np.arange(trees_per_example)
    tree_begin = forest.begin[tree]
    removed = np.where(tree_begin > nodes[:, None], (nodes - from_here)[:, None], 0)
    of_trees = (variant_begin[:-1, None] + tree_begin - first[:, None] - removed).ravel()
    return Forest(tuple(table), label, arity, np.append(of_trees, variant_begin[-1]), value)


def _unlabelled(examples: Examples, forest: Forest) -> Examples:
    """Return other trees as examples like some, without targets."""
    count = len(forest) // examples.trees_per_example
    return replace(
        examples,
        forest=forest,
        targets={},
        group=np.zeros(count, np.int64),
        labelled=np.zeros(count, bool),
        split=None,
        difficulty=None,
        node_targets=frozenset(),
    )
