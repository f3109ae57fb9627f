from __future__ import annotations

from math import comb

import numpy as np
import pytest

from treemem import RecipeError
from treemem.runs import compare


def test_the_difference_is_that_of_the_accuracies() -> None:
    first, second = np.array([1, 1, 1, 0, 0], bool), np.array([1, 0, 0, 0, 1], bool)
    found = compare(first, second)
    assert found.difference == pytest.approx(first.mean() - second.mean())
    assert (found.only_first, found.only_second) == (2, 1)


def test_mcnemar_is_the_two_sided_binomial_test_of_the_examples_that_only_one_has_right() -> None:
    first = np.array([True] * 9 + [False] * 2 + [True] * 50)
    second = np.array([False] * 9 + [True] * 2 + [True] * 50)
    expected = 2 * sum(comb(11, count) for count in range(3)) / 2**11
    assert compare(first, second).p_values == pytest.approx((expected,))


def test_equal_models_differ_in_nothing() -> None:
    answers = np.array([True, False, True])
    found = compare(answers, answers)
    assert (found.difference, found.interval, found.p_values) == (0.0, (0.0, 0.0), (1.0,))


def test_the_interval_is_that_of_the_normal_approximation_where_there_are_many_examples() -> None:
    draw = np.random.default_rng(1)
    first, second = draw.random(20_000) < 0.8, draw.random(20_000) < 0.75
    found = compare(first, second)
    own = first.astype(float) - second
    half = 1.96 * own.std() / np.sqrt(len(own))
    assert found.interval == pytest.approx((own.mean() - half, own.mean() + half), abs=half / 20)


def test_seeds_are_taken_together_for_the_interval_and_one_by_one_for_the_test() -> None:
    first = np.array([[True, True, False, True], [True, False, False, True]])
    second = np.array([[False, True, False, True], [True, True, False, True]])
    found = compare(first, second)
    assert (found.difference, found.differences) == (0, (0.25, -0.25))
    assert (found.only_first, found.only_second, len(found.p_values)) == (1, 1, 2)


def test_a_p_value_below_the_smallest_float_is_shown_as_a_bound() -> None:
    ours = np.array([[True] * 2000, [True] * 2 + [False] * 1998])
    assert compare(ours, np.zeros_like(ours)).p_text() == "<1e-300, 0.5"


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([True], [True, False], "same examples"),
        ([], [], "must be bool"),
        ([0.9], [0.1], "must be bool"),
        (np.zeros((1, 1, 1), bool), np.zeros((1, 1, 1), bool), "must be bool"),
        (np.zeros(0, bool), np.zeros(0, bool), "same examples"),
    ],
)
def test_what_cannot_be_compared_is_refused(first: object, second: object, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        compare(first, second)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="level"):
        compare([True], [False], level=95)
