"""Which examples an epoch trains on where they come in group by group."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def examples_of_epoch(
    examples: NDArray[np.int64], group: NDArray[np.int64], epoch: int, curriculum: int
) -> NDArray[np.int64]:
    """The examples of the lowest groups: ``ceil(groups * (epoch + 1) / curriculum)`` of them, later all.

    Args:
        examples: numbers of all examples to train on.
        group: int64, of every example of the data.
        epoch: counted from 0.
        curriculum: epochs until all examples have come in; 0: they are there from the first.
    """
    if epoch >= curriculum:
        return examples
    groups = np.unique(group[examples])
    count = -(-len(groups) * (epoch + 1) // curriculum)
    return examples[group[examples] <= groups[count - 1]]
