from __future__ import annotations

import base64

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from page_reading import value_of

from treemem.explore.decimals import coded, packed, shown


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=True), max_size=30))
def test_a_code_is_the_number_to_four_significant_digits(numbers: list[float]) -> None:
    codes = coded(np.array(numbers, np.float64))
    assert [value_of(int(code)) for code in codes] == [float(f"{number:.3e}") for number in numbers]


@given(st.integers(-99_999, 99_999), st.integers(-300, 290))
def test_halves_are_rounded_as_they_are_shown(digits: int, power: int) -> None:
    number = float(f"{digits}e{power}")
    assert value_of(int(coded(np.array([number]))[0])) == float(shown(number))


def test_a_number_near_a_half_is_rounded_as_it_is_and_not_as_its_product_with_a_power_of_ten() -> None:
    near_halves = [float(f"{digits}5e{power}") for digits in range(1000, 9999, 7) for power in (-5, -4, 0, 3)]
    assert [value_of(int(code)) for code in coded(np.array(near_halves))] == [float(shown(n)) for n in near_halves]


def test_every_number_that_a_page_can_show_has_a_code_of_its_own_below_24_bits() -> None:
    edges = [5e-324, -5e-324, 1.797e308, -1.797e308, 0.1, 9.9995, 99995.0, 1.0, -1.0, 0.99995]
    codes = coded(np.array(edges))
    assert len(set(codes.tolist())) == len(edges) - 1  # 0.99995 is shown as 1.000, too
    assert codes.max() < 2**24
    assert coded(np.array([0.0, -0.0, np.nan, np.inf, -np.inf])).tolist() == [0, 0, 1, 2, 3]


def test_numbers_are_shown_with_four_digits_and_what_is_none_by_name() -> None:
    numbers = [0.0, 1.0, -0.12345, 1234.4, 12345.0, 1e-7, float("nan"), float("inf"), -float("inf")]
    expected = ["0", "1.000", "-0.1235", "1234", "1.234e+04", "1.000e-07", "NaN", "Infinity", "-Infinity"]
    assert [shown(number) for number in numbers] == expected


def test_packed_codes_take_four_characters_each() -> None:
    codes = np.array([0, 1, 2**24 - 1, 12345], np.uint32)
    text = packed(codes)
    assert len(text) == 16
    assert [int.from_bytes(base64.b64decode(text[4 * i : 4 * i + 4]), "big") for i in range(4)] == codes.tolist()
