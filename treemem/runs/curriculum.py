"""Which examples an epoch trains on where the easier ones come first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from treemem.data.examples import Examples
from treemem.errors import RecipeError
from treemem.runs.options import Curriculum


def examples_of_epoch(
    chosen: NDArray[np.int64], examples: Examples, epoch: int, curriculum: Curriculum
) -> NDArray[np.int64]:
    """Those of the chosen examples that an epoch trains on.

    Args:
        chosen: numbers of all examples to train on.
        examples: all of the data.
        epoch: counted from 0.
        curriculum: as in :class:`treemem.runs.TrainingOptions`: a number of epochs until all groups have come in,
            or stages.

    Raises:
        RecipeError: a stage without examples.
    """
    if isinstance(curriculum, int):
        return _of_lowest_groups(chosen, examples.group, epoch, curriculum)
    difficulty = examples.group if examples.difficulty is None else examples.difficulty
    for most, epochs in curriculum:
        if epoch < epochs:
            return _up_to(most, chosen, difficulty)
        epoch -= epochs
    return chosen


def _of_lowest_groups(
    chosen: NDArray[np.int64], group: NDArray[np.int64], epoch: int, curriculum: int
) -> NDArray[np.int64]:
    """Of m groups the lowest ``ceil(m * (epoch + 1) / curriculum)``, later all."""
    if epoch >= curriculum:
        return chosen
    groups = np.unique(group[chosen])
    count = -(-len(groups) * (epoch + 1) // curriculum)
    return chosen[group[chosen] <= groups[count - 1]]


def _up_to(most: int, chosen: NDArray[np.int64], difficulty: NDArray[np.int64]) -> NDArray[np.int64]:
    found = chosen[difficulty[chosen] <= most]
    if not len(found):
        raise RecipeError(
            f"no training example is for the stage of the curriculum up to {most}: the easiest has "
            f"{int(difficulty[chosen].min())}; begin with that"
        )
    return found
