from __future__ import annotations

import pytest

from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.verification import FALSE, TRUE, UNDECIDED, verify
from treemem.trees.equation_parser import parse_equation


def _verdict(text: str) -> int:
    table = ExpressionTable()
    return int(verify(table, [table.from_tree(parse_equation(text))])[0])


@pytest.mark.parametrize(
    "text",
    [
        "sin(x)^2 + cos(x)^2 = 1",
        "0*x = 0*y",
        "x^(1/2) + y = y + x^(1/2)",
        "tan(x)*cos(x) = sin(x)",
        "0^0 = 1",
        "cos(pi) = -1",
        "y^(sin(x)^2 + cos(x)^2) = y",
        "tan(pi*(1 + 0) + x) = tan(x)",
    ],
)
def test_identities_are_true(text: str) -> None:
    assert _verdict(text) == TRUE


@pytest.mark.parametrize(
    "text",
    [
        "x = y",
        "1 = 2",
        "sin(x)^2 + cos(x)^2 = 2",
        "sin(x) = -sin(x)",
        "x^2 = x^3",
        "1/(sin(x)^2 + 1) = 1/(sin(x)^2 + 1.01)",
        "x = x + 0.7*10^(-2)",
    ],
)
def test_what_differs_nearly_everywhere_is_false(text: str) -> None:
    assert _verdict(text) == FALSE


@pytest.mark.parametrize(
    "text",
    [
        "(x^2)^(1/2) = x",  # holds on half of the plane
        "sin(x) = (1 - cos(x)^2)^(1/2)",
        "x = x + 10^(-10)",  # too near
        "0^(-1) = 0^(-1)",
        "csc(pi) = csc(pi)",
        "tan(pi/2)*0 = 0",
        "1/(sin(x)^2 + cos(x)^2 - 1) = 2",
        "0^x = 0",  # undefined at complex points
    ],
)
def test_what_is_undefined_or_holds_in_part_is_neither(text: str) -> None:
    assert _verdict(text) == UNDECIDED


def test_truth_does_not_hang_on_the_sign_of_a_zero() -> None:
    assert _verdict("sin(x)^(1/2) = sin(x)^(1/2)*1") == TRUE
    assert _verdict("sin(x)^(1/2) = (csc(x)^(-1))^(1/2)") == UNDECIDED
    assert _verdict("(1 + sin(x)^2)^(1/2) = (csc(x)^(-2) + 1)^(1/2)") == TRUE


def test_a_cancellation_is_settled_with_more_digits() -> None:
    assert _verdict("(10^(2*10) + x) - 10^(2*10) = x") == TRUE
    assert _verdict("(10^(2*10) + x) - 10^(2*10) = 2*x") == FALSE


def test_a_stricter_share_can_be_asked_for() -> None:
    table = ExpressionTable()
    equation = table.from_tree(parse_equation("sin(sin(x)^2) + cos(x)^2 = 1"))
    assert verify(table, [equation], least_different=0.5).tolist() == [FALSE]
    assert verify(table, [equation], least_different=0.9).tolist() == [UNDECIDED]
