from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from treemem.tasks.equation_verification.generation.evaluation import (
    DOUBTFUL,
    POINTS,
    UNDEFINED,
    USABLE,
    UndefinedValueError,
    Values,
    evaluate,
    evaluate_exactly,
)
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.generator import generate_equations
from treemem.trees.equation_parser import parse_expression


def _evaluate(text: str, points: NDArray[np.complex128] = POINTS) -> Values:
    table = ExpressionTable()
    return evaluate(table, [table.from_tree(parse_expression(text, variables="indexed"))], points)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0^0", 1),
        ("x^0", 1),
        ("1^x", 1),
        ("0^2", 0),
        ("0*tan(x)", 0),
        ("x - x", 0),
        ("4^(1/2)", 2),
        ("(-1)^(1/2)", 1j),
        ("2^3^2", 512),
        ("2/5 + 0.7 + (-1/2)", 0.6),
        ("cos(pi)", -1),
        ("sec(0) + csc(pi/2) + cot(pi/4) + tan(pi/4)", 4),
    ],
)
def test_values_are_principal_values(text: str, value: complex) -> None:
    values = _evaluate(text)
    assert (values.status == USABLE).all()
    np.testing.assert_allclose(values.value, np.full(values.value.shape, complex(value)), atol=1e-14)


@pytest.mark.parametrize("text", ["0^(-1)", "0^(-1)*0", "(1 - 1)^(-2)", "csc(0)", "cot(1 + (-1))", "10^10^10"])
def test_what_has_no_value_is_undefined(text: str) -> None:
    assert (_evaluate(text).status == UNDEFINED).all()


@pytest.mark.parametrize(
    "text", ["csc(pi)", "tan(pi/2)", "cot(2*pi)", "1/(sin(x)^2 + cos(x)^2 - 1)", "(sin(x)^2 + cos(x)^2 - 1)^0.7"]
)
def test_a_denominator_that_rounding_keeps_from_zero_is_a_doubt(text: str) -> None:
    assert (_evaluate(text).status == DOUBTFUL).all()


def test_powers_of_zero_with_a_real_exponent_vanish_or_are_undefined() -> None:
    status = _evaluate("0^x").status[0]
    real = POINTS[0].imag == 0
    assert (status[real] == np.where(POINTS[0, real].real > 0, USABLE, UNDEFINED)).all()
    assert (status[~real] == UNDEFINED).all()


def test_roots_of_negative_numbers_are_taken_from_above_and_marked() -> None:
    values = _evaluate("sin(x)^(1/2)")
    sine = np.sin(POINTS[0])
    negative = (sine.imag == 0) & (sine.real < 0)
    assert negative.any()
    assert (values.on_cut[0] == negative).all()
    np.testing.assert_allclose(values.value[0, negative], 1j * np.sqrt(-sine.real[negative]))
    assert not _evaluate("sin(x)^2").on_cut.any()


def test_error_bounds_hold_against_50_digits() -> None:
    table = ExpressionTable()
    sides = sorted({table.from_tree(side) for tree in generate_equations(60, seed=2).forest for side in tree.children})
    points = POINTS[:, [0, 1, 24, 25]]
    values = evaluate(table, sides, points)
    checked = 0
    for row, side in enumerate(sides):
        for point in np.flatnonzero(values.status[row] == USABLE).tolist():
            exact = evaluate_exactly(table, side, points[:, point].tolist())
            assert abs(complex(exact) - values.value[row, point]) <= values.error[row, point] + 1e-300, table.label[
                side
            ]
            checked += 1
    assert checked > 300


def test_fifty_digits_see_a_pole_and_an_exact_zero() -> None:
    table, variables = ExpressionTable(), POINTS[:, 3].tolist()
    for text in ("csc(pi)", "tan(pi/2)", "cot(2*pi)", "1/(sin(x)^2 + cos(x)^2 - 1)", "0^(-1)"):
        with pytest.raises(UndefinedValueError):
            evaluate_exactly(table, table.from_tree(parse_expression(text)), variables)
    zero = table.from_tree(parse_expression("sin(x)^2 + cos(x)^2 - 1 + cos(pi/2)"))
    assert evaluate_exactly(table, zero, variables) == 0
