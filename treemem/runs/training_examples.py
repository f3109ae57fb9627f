"""Which examples a run trains on, validates with, and has never seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.data.examples import Examples
from treemem.errors import GraphError, RecipeError
from treemem.model import Model
from treemem.runs.options import Curriculum
from treemem.trees.forest_arrays import blocks_of_trees
from treemem.trees.vocabulary import Vocabulary, label_arity_pairs


def split_examples(examples: Examples) -> tuple[Any, Any]:
    """Return the numbers of the examples to train on and to validate with.

    Raises:
        RecipeError: there is no training example, an example has no label, or all of a part have the weight 0.
    """
    if examples.split is None:
        train, validation = examples.part(None), examples.part(None)[:0]
    else:
        train, validation = examples.part("train"), examples.part("validation")
    if not len(train):
        raise RecipeError("there is no example to train on")
    for part, purpose in ((train, "training"), (validation, "validation")):
        examples.check_labelled(part)
        if "weight" in examples.targets and len(part) and not examples.targets_of(part)["weight"].any():
            raise RecipeError(f"all {purpose} examples have the weight 0, so their mean loss is undefined")
    return train, validation


def check_lengths(model: Model, examples: Examples) -> None:
    """Refuse an example that is too long for the network.

    Raises:
        GraphError: the message names its place.
    """
    refused = model.first_too_long(examples)
    if refused is not None:
        place, error = refused
        raise GraphError(f"{model.task.example_name(place, len(examples))}: {error}") from error


def examples_of_epoch(
    chosen: NDArray[np.int64], examples: Examples, epoch: int, curriculum: Curriculum
) -> NDArray[np.int64]:
    """Return the numbers of the examples that an epoch trains on.

    Args:
        chosen: numbers of all training examples.
        examples: the whole data set.
        epoch: counted from 0.
        curriculum: as in :class:`treemem.runs.TrainingOptions`.

    Raises:
        RecipeError: a stage has no examples.
    """
    if isinstance(curriculum, int):
        if epoch >= curriculum:
            return chosen
        groups = np.unique(examples.group[chosen])
        count = -(-len(groups) * (epoch + 1) // curriculum)
        return chosen[examples.group[chosen] <= groups[count - 1]]
    difficulty = (examples.group if examples.difficulty is None else examples.difficulty)[chosen]
    for most, epochs in curriculum:
        if epoch < epochs:
            if not (difficulty <= most).any():
                raise RecipeError(
                    f"no training example is for the stage of the curriculum up to {most}: the easiest has "
                    f"{int(difficulty.min())}; begin with that"
                )
            return chosen[difficulty <= most]
        epoch -= epochs
    return chosen


def unseen_labels(
    vocabulary: Vocabulary, examples: Any, train_ids: NDArray[np.int64]
) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...]]:
    """Return the labels of the vocabulary that no training example has, and the functions of other labels.

    Both are empty for examples that are no trees. A label outside the vocabulary is seen as its unknown one.
    """
    if not isinstance(examples, Examples):
        return (), ()
    forest, per_example = examples.forest, examples.trees_per_example
    is_used = np.zeros(len(forest), bool)
    is_used.reshape(-1, per_example)[train_ids] = True
    functions: set[tuple[str, int]] = set()
    for trees, nodes in blocks_of_trees(forest.begin):
        of_nodes = np.repeat(is_used[trees], np.diff(forest.begin[trees.start : trees.stop + 1]))
        label, arity = forest.label[nodes][of_nodes], forest.arity[nodes][of_nodes]
        for chosen in (arity == 0, arity > 0):  # a few nodes with many children would make a large table
            pairs, _ = label_arity_pairs(forest.labels, label[chosen], arity[chosen])
            functions.update((forest.labels[label], arity) for label, arity in pairs)
    seen = {label for label, _ in functions}
    if any(vocabulary.is_unknown(label, arity) for label, arity in functions):
        seen.add(str(vocabulary.unknown))
    kinds = [kind for kind in vocabulary.functions if kind[0] in seen and kind not in functions]
    return tuple(sorted(set(vocabulary.labels) - seen)), tuple(sorted(kinds))


def merged_outputs(parts: Sequence[tuple[list[NDArray[np.int64]], Any]]) -> Any:
    """Return the outputs of several processes in the order of the examples."""
    places = np.concatenate([place for of_process, _ in parts for place in of_process] or [np.empty(0, np.int64)])
    order = np.argsort(places, kind="stable")
    if isinstance(parts[0][1], list):
        items = [item for _, kept in parts for item in kept]
        return [items[place] for place in order.tolist()]
    return torch.cat([kept for _, kept in parts if len(kept)])[torch.from_numpy(order)]
