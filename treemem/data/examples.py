"""Examples of a task: trees, targets, splits and groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from treemem.errors import RecipeError, near_names
from treemem.trees.forest import Forest
from treemem.trees.record_reader import SPLITS


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples of a task, as a network reads them.

    Attributes:
        forest: the trees; those of one example are adjacent.
        trees_per_example: 1 for a tree, 2 for a pair.
        targets: name to one entry an example: what the loss and the scores compare with.
        group: int64 ``[examples]``, what scores are told apart by.
        labelled: bool ``[examples]``, whether the answer is known.
        split: int8 ``[examples]``, index into ``SPLITS``; None where the data are not divided.
        difficulty: int64 ``[examples]``, what the stages of a curriculum go by; None where that is the group.
    """

    forest: Forest
    trees_per_example: int
    targets: Mapping[str, NDArray[Any]]
    group: NDArray[np.int64]
    labelled: NDArray[np.bool_]
    split: NDArray[np.int8] | None = None
    difficulty: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.forest) // self.trees_per_example

    def part(self, split: str | None) -> NDArray[np.int64]:
        """Numbers of the examples of one split, or of all for None.

        Raises:
            RecipeError: no such split, or data that are not divided.
        """
        if split is None:
            return np.arange(len(self))
        if split not in SPLITS:
            raise RecipeError(f"no split {split!r}; there are {', '.join(SPLITS)}{near_names(split, SPLITS)}")
        if self.split is None:
            raise RecipeError(f"these data are not divided, so there is no {split!r} part; ask for all of them")
        return np.flatnonzero(self.split == SPLITS.index(split))

    def targets_of(self, chosen: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """The targets of some examples.

        Raises:
            RecipeError: one of them has no label.
        """
        if not self.labelled[chosen].all():
            raise RecipeError(f"example {int(chosen[np.argmin(self.labelled[chosen])])} has no label to compare with")
        return {name: array[chosen] for name, array in self.targets.items()}


def label_numbers(label: NDArray[Any] | None, count: int, num_classes: int, meaning: str) -> NDArray[np.int64]:
    """The classes of examples, int64 ``[examples]``; -1 where nobody said, and everywhere where there are none.

    Args:
        label: what the data say.
        count: how many examples there are.
        num_classes: classes count from 0.
        meaning: what a label must be, for the message.

    Raises:
        RecipeError: labels that mean nothing.
    """
    if label is None:
        return np.full(count, -1, np.int64)
    is_right = label.shape == (count,) and label.dtype.kind in "iub"
    if not is_right or ((label < -1) | (label >= num_classes)).any():
        raise RecipeError(f'tree_data["label"] must be {meaning}')
    return np.array(label, np.int64)


def split_numbers(split: NDArray[Any] | None) -> NDArray[np.int8] | None:
    """The names of splits as :class:`Examples` holds them, int8 ``[examples]``; None where there are none.

    Raises:
        RecipeError: a name that is no split's.
    """
    if split is None:
        return None
    names, place = np.unique(split, return_inverse=True)
    for name in names:
        if not str(name):
            raise RecipeError("some examples say no split, and others do; give each one, or none")
        if str(name) not in SPLITS:
            wanted = f"; it must be one of {', '.join(SPLITS)}{near_names(str(name), SPLITS)}"
            raise RecipeError(f'tree_data["split"] holds {str(name)!r}{wanted}')
    return np.array([SPLITS.index(str(name)) for name in names], np.int8)[place]


def split_and_group(examples: Examples, group: str) -> Iterator[dict[str, Any]]:
    """What a file says of each example besides tree and label: its split, where they are divided, and its group.

    Args:
        examples: the examples.
        group: what the task calls its groups.
    """
    for number, value in enumerate(examples.group.tolist()):
        divided = {} if examples.split is None else {"split": SPLITS[examples.split[number]]}
        yield {**divided, group: value}


def without_empty(forest: Forest, name: str) -> Forest:
    """The forest without the texts ``tree_data[name]`` where each of them is empty: no record had such a field."""
    if (forest.tree_data[name] != "").any():
        return forest
    return forest.with_data(tree_data={key: value for key, value in forest.tree_data.items() if key != name})


class DataSet(Protocol):
    """Whatever has the task's trees in a forest: a generated data set, a file that was read."""

    @property
    def forest(self) -> Forest:
        """The trees, with labels, groups and splits in ``tree_data``."""
        ...


@dataclass(frozen=True, eq=False)
class TaskData:
    """The data of a task.

    Attributes:
        forest: the trees, with labels, groups and splits in ``tree_data``.
        card: what they are and where they come from, as Markdown.
    """

    forest: Forest
    card: str


def forest_of(data: Forest | DataSet) -> Forest:
    """The forest of a data set, or the forest itself."""
    return data if isinstance(data, Forest) else data.forest
