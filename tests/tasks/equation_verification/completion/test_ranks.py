from __future__ import annotations

import numpy as np
import pytest

from treemem.tasks.equation_verification.completion import Completion
from treemem.tasks.equation_verification.completion.ranks import commonest_first, rank_candidates


def ranks_of(scores: list[float], original: int, classes: list[int], draws: int = 10) -> dict[str, list[int]]:
    found = rank_candidates(
        np.array([scores]), np.array([original]), np.array(classes), draws=draws, random=np.random.default_rng(0)
    )
    return {name: ranks[0].tolist() for name, ranks in found.items()}


def test_ranks_by_hand() -> None:
    # sorted: candidate 2 (class 1), 4 (class 1), 0 (class 0), 3 (class 2), 1 (class 0)
    ranks = ranks_of([3.0, 1.0, 5.0, 2.0, 4.0], 1, [0, 0, 1, 2, 1])
    assert ranks["raw"] == [5], "the original is the last of all"
    assert ranks["class"] == [3], "candidate 0 has its value, and two are before it"
    assert ranks["collapsed"] == [2], "these two are of one class"
    assert set(ranks["random_collapse"]) == {2, 3}, "behind class 2 where candidate 1 is drawn"


def test_of_equal_scores_the_earlier_candidate_is_first() -> None:
    assert ranks_of([1.0, 1.0, 1.0], 0, [0, 1, 2])["raw"] == [1]
    last = ranks_of([1.0, 1.0, 1.0], 2, [0, 1, 0])
    assert (last["raw"], last["class"], last["collapsed"]) == ([3], [1], [1])
    middle = ranks_of([1.0, 1.0, 1.0, 2.0], 1, [0, 1, 0, 0])
    assert (middle["raw"], middle["class"], middle["collapsed"]) == ([3], [3], [2])


def test_random_draws_are_of_the_right_class_and_all_of_its_members() -> None:
    ranks = ranks_of([3.0, 2.0, 1.0, 2.5, 1.5], 0, [0, 0, 0, 1, 2], draws=3000)["random_collapse"]
    shares = np.bincount(ranks, minlength=4)[1:] / 3000
    assert shares == pytest.approx([1 / 3, 1 / 3, 1 / 3], abs=0.04)


def test_scores_by_depth_count_ranks_to_ten_and_mean_the_draws() -> None:
    raw = np.array([[1], [2], [20]])
    completion = Completion(
        np.array([9, 8, 9]), np.zeros(3, np.int64), {"raw": raw, "random_collapse": np.array([[1, 4], [1, 1], [2, 11]])}
    )
    first, second, overall = completion.scores("raw")
    assert (first.group, first.equations, first.top[:2], first.mrr) == (8, 1, (0.0, 1.0), 0.5)
    assert (second.group, second.equations, second.top[0], second.top[9]) == (9, 2, 0.5, 0.5)
    assert second.mrr == pytest.approx((1 + 1 / 20) / 2)
    assert (overall.group, overall.equations, overall.top[9]) == ("all", 3, pytest.approx(2 / 3))
    drawn = completion.scores("random_collapse")[-1]
    assert drawn.top[0] == pytest.approx(3 / 6)
    assert drawn.mrr == pytest.approx((1 + 1 / 4 + 1 + 1 + 1 / 2 + 1 / 11) / 6)


def test_the_commonest_value_is_first_in_a_list_that_is_the_same_for_all() -> None:
    classes = np.array([0, 1, 2, 2])
    assert commonest_first(np.array([3, 2, 0, 1, 1, 3]), classes).tolist() == [[1], [1], [3], [2], [2], [1]]
