from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from treemem.data.examples import Examples
from treemem.runs.curriculum import examples_of_epoch
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

GROUP = np.array([4, 1, 9, 2, 1, 7, 4, 2, 0, 11])  # of all examples; 0 and 11 are of examples not trained on
TRAIN = np.array([6, 0, 1, 2, 3, 4, 5, 7])
EXAMPLES = Examples(Forest.from_trees([Tree("x")] * len(GROUP)), 1, {}, GROUP, np.ones(len(GROUP), bool))
STAGES = ((2, 1), (4, 2))


@pytest.mark.parametrize("curriculum", [1, 2, 3, 4, 5, 7, 11])
def test_groups_come_in_from_the_lowest_up(curriculum: int) -> None:
    groups = [1, 2, 4, 7, 9]
    for epoch in range(curriculum + 2):
        lowest = groups[: math.ceil(len(groups) * min(1, (epoch + 1) / curriculum) - 1e-9)]
        found = examples_of_epoch(TRAIN, EXAMPLES, epoch, curriculum)
        assert found.tolist() == [example for example in TRAIN if GROUP[example] in lowest]
        assert len(found) > 0


def test_no_curriculum_trains_on_all_from_the_first_epoch() -> None:
    assert examples_of_epoch(TRAIN, EXAMPLES, 0, 0) is TRAIN


def test_each_stage_lasts_its_epochs_and_all_examples_come_after_the_last() -> None:
    by_epoch = [examples_of_epoch(TRAIN, EXAMPLES, epoch, STAGES).tolist() for epoch in range(5)]
    assert by_epoch == [[1, 3, 4, 7], [6, 0, 1, 3, 4, 7], [6, 0, 1, 3, 4, 7], TRAIN.tolist(), TRAIN.tolist()]


def test_stages_go_by_the_difficulty_of_a_task_that_has_one() -> None:
    harder = dataclasses.replace(EXAMPLES, difficulty=10 - GROUP)
    assert examples_of_epoch(TRAIN, harder, 0, STAGES).tolist() == [2]
