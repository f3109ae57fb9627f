from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from page_reading import numbers_of

from treemem.explore.decimals import coded, packed, shown


@given(st.lists(st.floats(-1e38, 1e38).filter(lambda number: number == 0 or abs(number) > 1e-37), max_size=30))
def test_numbers_come_back_to_four_significant_digits_in_four_characters(numbers: list[float]) -> None:
    text = packed(coded(np.array(numbers, np.float64)))
    assert len(text) == 4 * len(numbers)
    np.testing.assert_allclose(numbers_of(text), numbers, rtol=5.001e-4)


def test_numbers_are_rounded_as_they_are_shown() -> None:
    numbers = [float(f"{digits}{last}e{power}") for digits in range(1000, 9999, 7) for last in (0, 4, 6, 9)
               for power in (-5, -1, 0, 3)]  # fmt: skip
    assert numbers_of(packed(coded(np.array(numbers)))) == [float(shown(number)) for number in numbers]


def test_zeros_are_one_code_and_what_is_no_number_comes_back() -> None:
    codes = coded(np.array([0.0, -0.0, np.nan, np.inf, -np.inf]))
    assert codes[0] == codes[1]
    np.testing.assert_array_equal(numbers_of(packed(codes)), [0, 0, np.nan, np.inf, -np.inf])


def test_numbers_are_shown_with_four_digits_and_what_is_none_by_name() -> None:
    numbers = [0.0, 1.0, -0.12345, 1234.4, 12345.0, 1e-7, float("nan"), float("inf"), -float("inf")]
    expected = ["0", "1.000", "-0.1235", "1234", "1.234e+04", "1.000e-07", "NaN", "Infinity", "-Infinity"]
    assert [shown(number) for number in numbers] == expected
