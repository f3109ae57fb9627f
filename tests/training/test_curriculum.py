from __future__ import annotations

import math

import numpy as np
import pytest

from treemem.training.curriculum import examples_of_epoch

GROUP = np.array([4, 1, 9, 2, 1, 7, 4, 2, 0, 11])  # of all examples; 0 and 11 are of examples not trained on
TRAIN = np.array([6, 0, 1, 2, 3, 4, 5, 7])


@pytest.mark.parametrize("curriculum", [1, 2, 3, 4, 5, 7, 11])
def test_groups_come_in_from_the_lowest_up(curriculum: int) -> None:
    groups = [1, 2, 4, 7, 9]
    for epoch in range(curriculum + 2):
        lowest = groups[: math.ceil(len(groups) * min(1, (epoch + 1) / curriculum) - 1e-9)]
        found = examples_of_epoch(TRAIN, GROUP, epoch, curriculum)
        assert found.tolist() == [example for example in TRAIN if GROUP[example] in lowest]
        assert len(found) > 0


def test_no_curriculum_trains_on_all_from_the_first_epoch() -> None:
    assert examples_of_epoch(TRAIN, GROUP, 0, 0) is TRAIN
