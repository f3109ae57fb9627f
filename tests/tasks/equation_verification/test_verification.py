"""The numerical test: values with error bounds, values of 50 digits, and the verdicts that follow from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from independent_evaluation import value_of
from numpy.typing import NDArray

from treemem.tasks.equation_verification.generation import heldout as heldout_command
from treemem.tasks.equation_verification.generation.evaluation import (
    UndefinedValueError,
    evaluate,
    evaluate_exactly,
    sides_agree,
)
from treemem.tasks.equation_verification.generation.expressions import VARIABLES, ExpressionTable
from treemem.tasks.equation_verification.generation.functions import (
    CONSTANTS,
    DOUBTFUL,
    FUNCTIONS,
    UNDEFINED,
    USABLE,
    Values,
)
from treemem.tasks.equation_verification.generation.generator import generate_equations
from treemem.tasks.equation_verification.generation.heldout import held_out
from treemem.tasks.equation_verification.generation.infinity import INFINITE_LABELS, holds
from treemem.tasks.equation_verification.generation.textbook import HALVES, textbook_equations
from treemem.tasks.equation_verification.generation.verification import (
    FALSE,
    NUM_REAL,
    POINTS,
    TRUE,
    UNDECIDED,
    verify,
)
from treemem.trees.formats.equations.labels import BINARY_FUNCTIONS, LEAF_LABELS, UNARY_FUNCTIONS, UNIFIED_LABELS
from treemem.trees.formats.equations.parser import parse_equation, parse_expression
from treemem.trees.tree import Tree


def _evaluate(text: str, points: NDArray[np.complex128] = POINTS, num_real: int = 0) -> Values:
    table = ExpressionTable()
    return evaluate(table, [table.from_tree(parse_expression(text, variables="indexed"))], points, num_real)


def _verdict(text: str, least_different: float = 0.75, *, branches: bool = False) -> int:
    table = ExpressionTable()
    return int(verify(table, [table.from_tree(parse_equation(text))], least_different, branches=branches)[0])


def test_the_table_has_all_functions_and_constants_of_the_vocabulary() -> None:
    assert set(FUNCTIONS) == {*UNARY_FUNCTIONS, *BINARY_FUNCTIONS}
    assert {*CONSTANTS, *VARIABLES, *INFINITE_LABELS, *UNIFIED_LABELS} == set(LEAF_LABELS)


@pytest.mark.parametrize("label", UNARY_FUNCTIONS)
def test_every_function_has_the_same_value_in_each_form_and_by_another_evaluator(label: str) -> None:
    table, tree = ExpressionTable(), Tree(label, [Tree("Symbol:var_0")])
    node = table.from_tree(tree)
    values = evaluate(table, [node], POINTS)
    for point in np.flatnonzero(values.status[0] == USABLE).tolist():
        variables = POINTS[:, point].tolist()
        value, exact = values.value[0, point], complex(evaluate_exactly(table, node, variables))
        if variables[0].imag or not exact.imag:  # on a branch cut either side may be taken
            assert abs(exact - value) <= values.error[0, point] + 1e-300
            assert value_of(tree, variables) == pytest.approx(exact, rel=1e-12)
    with np.errstate(all="ignore"):
        real = FUNCTIONS[label].real(POINTS[0, :NUM_REAL].real)
    of_reals = evaluate(table, [node], POINTS, NUM_REAL)
    usable = of_reals.status[0, :NUM_REAL] == USABLE
    assert usable.any()
    assert (np.isfinite(real) == usable).all()
    np.testing.assert_allclose(real[usable], of_reals.value[0, :NUM_REAL].real[usable], rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("0^0", 1), ("x^0", 1), ("1^x", 1), ("0^2", 0), ("0*tan(x)", 0), ("x - x", 0), ("4^(1/2)", 2)),
        *(("(-1)^(1/2)", 1j), ("2^3^2", 512), ("2/5 + 0.7 + (-1/2)", 0.6), ("cos(pi)", -1), ("log(8, 2)", 3)),
        ("sec(0) + csc(pi/2) + cot(pi/4) + tan(pi/4)", 4),
    ],
)
def test_values_are_principal_values(text: str, value: complex) -> None:
    values = _evaluate(text)
    assert (values.status == USABLE).all()
    np.testing.assert_allclose(values.value, np.full(values.value.shape, complex(value)), atol=1e-14)


@pytest.mark.parametrize(
    ("status", "texts"),
    [
        (UNDEFINED, ["0^(-1)", "0^(-1)*0", "(1 - 1)^(-2)", "csc(0)", "cot(1 + (-1))", "10^10^10", "oo", "nan + x"]),
        (
            DOUBTFUL,
            ["csc(pi)", "tan(pi/2)", "cot(2*pi)", "1/(sin(x)^2 + cos(x)^2 - 1)", "(sin(x)^2 + cos(x)^2 - 1)^0.7"],
        ),
    ],
)
def test_what_has_no_value_is_undefined_and_what_rounding_hides_is_a_doubt(status: int, texts: list[str]) -> None:
    assert [text for text in texts if not (_evaluate(text).status == status).all()] == []


def test_powers_of_zero_with_a_real_exponent_vanish_or_are_undefined() -> None:
    status = _evaluate("0^x").status[0]
    real = POINTS[0].imag == 0
    assert (status[real] == np.where(POINTS[0, real].real > 0, USABLE, UNDEFINED)).all()
    assert (status[~real] == UNDEFINED).all()


def test_roots_of_negative_numbers_are_taken_from_above_or_are_not_real() -> None:
    sine = np.sin(POINTS[0])
    negative = (sine.imag == 0) & (sine.real < 0)
    assert negative.any()
    values = _evaluate("sin(x)^(1/2)")
    np.testing.assert_allclose(values.value[0, negative], 1j * np.sqrt(-sine.real[negative]))
    of_reals = _evaluate("sin(x)^(1/2)", num_real=NUM_REAL)
    assert (of_reals.status[0, negative] == UNDEFINED).all()


def test_error_bounds_hold_against_50_digits() -> None:
    table = ExpressionTable()
    equations = generate_equations(60, seed=2, processes=1)
    sides = sorted({table.from_tree(side) for tree in equations for side in tree.children})
    points = POINTS[:, [0, 13, NUM_REAL, NUM_REAL + 1]]
    values = evaluate(table, sides, points)
    checked = 0
    for row, side in enumerate(sides):
        for point in np.flatnonzero(values.status[row] == USABLE).tolist():
            exact = complex(evaluate_exactly(table, side, points[:, point].tolist()))
            assert abs(exact - values.value[row, point]) <= values.error[row, point] + 1e-300, table.label[side]
            checked += 1
    assert checked > 200


def test_fifty_digits_see_a_pole_and_an_exact_zero() -> None:
    table, variables = ExpressionTable(), POINTS[:, 3].tolist()
    for text in ("csc(pi)", "tan(pi/2)", "cot(2*pi)", "1/(sin(x)^2 + cos(x)^2 - 1)", "0^(-1)", "coth(0)", "exp(10^10)"):
        with pytest.raises(UndefinedValueError):
            evaluate_exactly(table, table.from_tree(parse_expression(text)), variables)
    zero = table.from_tree(parse_expression("sin(x)^2 + cos(x)^2 - 1 + cos(pi/2)"))
    assert evaluate_exactly(table, zero, variables) == 0


@pytest.mark.parametrize(
    ("text", "agree"), [("sqrt(x)^2 = x", True), ("x = x + 10^(-10)", False), ("log(-x) = log(-x)", None)]
)
def test_sides_are_compared_at_a_real_point(text: str, agree: bool | None) -> None:
    table = ExpressionTable()
    assert sides_agree(table, table.from_tree(parse_equation(text)), [2.0] * len(VARIABLES)) is agree


TRUE_ONES = [
    *("sin(x)^2 + cos(x)^2 = 1", "0*x = 0*y", "x^(1/2) + y = y + x^(1/2)", "tan(x)*cos(x) = sin(x)", "0^0 = 1"),
    *("cos(pi) = -1", "sin(pi) = 0", "2 + 3 = 5", "y^(sin(x)^2 + cos(x)^2) = y", "tan(pi*(1 + 0) + x) = tan(x)"),
    *("x*(y + z) = x*y + x*z", "(10^(2*10) + x) - 10^(2*10) = x"),  # more digits settle a cancellation
]
FALSE_ONES = [
    *("x = y", "1 = 2", "sin(x)^2 + cos(x)^2 = 2", "sin(x) = -sin(x)", "x^2 = x^3", "x = x + 0.7*10^(-2)"),
    *("1/(sin(x)^2 + 1) = 1/(sin(x)^2 + 1.01)", "(x + y)^2 = x^2 + y^2", "log(x + y) = log(x) + log(y)"),
    "(10^(2*10) + x) - 10^(2*10) = 2*x",
]
NEITHER = [
    *("(x^2)^(1/2) = x", "sin(x) = (1 - cos(x)^2)^(1/2)"),  # hold on half of the plane
    "x = x + 10^(-10)",  # too near
    *("0^(-1) = 0^(-1)", "csc(pi) = csc(pi)", "tan(pi/2)*0 = 0", "1/(sin(x)^2 + cos(x)^2 - 1) = 2"),  # undefined
    *("x/0 = x/0", "oo + 1 = oo"),
    "0^x = 0",  # undefined at complex points
]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (text, verdict)
        for verdict, texts in ((TRUE, TRUE_ONES), (FALSE, FALSE_ONES), (UNDECIDED, NEITHER))
        for text in texts
    ],
)
def test_the_verdict_of_an_equation(text: str, verdict: int) -> None:
    assert _verdict(text) == verdict


@pytest.mark.parametrize(
    "text", ["log(x*y) = log(x) + log(y)", "acosh(x) = log(x + sqrt(x^2 - 1))", "sqrt(x*y) = sqrt(x)*sqrt(y)"]
)
def test_an_identity_of_functions_with_branches_holds_at_real_points(text: str) -> None:
    assert _verdict(text, branches=True) == TRUE
    assert _verdict(text) == UNDECIDED


def test_a_stricter_share_can_be_asked_for() -> None:
    equation = "x*sin(10*pi*x)^2 = 0.7*cos(x/10)"
    shares = [_verdict(text, share) for text in (equation, "(x^2)^(1/2) = x + 0*y") for share in (0.2, 1.0)]
    assert shares == [FALSE, FALSE, UNDECIDED, UNDECIDED]


@pytest.mark.parametrize("half", HALVES)
def test_textbook_equations_have_sources_and_the_verdict_of_the_numerical_test(half: str) -> None:
    equations = textbook_equations(half)
    assert all(sum(each.is_true == value for each in equations) >= 150 for value in (True, False))
    assert all(each.source for each in equations)
    table = ExpressionTable()
    numbers = [table.from_tree(parse_equation(each.equation)) for each in equations]
    verdicts = verify(table, numbers, branches=True)
    assert [each for each, verdict in zip(equations, verdicts, strict=True) if verdict != each.is_true] == []


def reversed_and_renamed(tree: Tree) -> Tree:
    children = [reversed_and_renamed(child) for child in tree.children]
    if tree.label in VARIABLES:
        return Tree(VARIABLES[VARIABLES.index(tree.label) - 1])
    return Tree(tree.label, children[::-1] if tree.label in ("Equality", "Add", "Mul") else children)


def test_held_out_equations_are_recognised_in_any_order_and_with_other_variables() -> None:
    table, heldout = ExpressionTable(), held_out()
    for each in textbook_equations("heldout"):
        assert heldout.has(table, table.from_tree(reversed_and_renamed(parse_equation(each.equation)))), each.equation
    others = [each.equation for each in textbook_equations("development")]
    for text in (*others, "a*(y + z) = z*a + y*a", "(x + y)^2 = x^2 + y^2"):
        assert not heldout.has(table, table.from_tree(parse_equation(text))), text


@pytest.mark.parametrize(
    ("text", "expected"),
    [("oo + x = oo", True), ("exp(-oo) = 0", True), ("oo*oo = 2", False), ("nan = nan", False), ("oo - oo = 0", False)],
)
def test_infinity_and_nan_are_those_of_floating_point_numbers(text: str, expected: bool) -> None:
    table = ExpressionTable()
    assert holds(table, table.from_tree(parse_equation(text))) == expected


def test_held_out_equations_of_a_file_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = next(iter(textbook_equations("heldout"))).equation
    (tmp_path / "own.txt").write_text(f"x + y = z*x\t0\n{known}\t1\n")
    assert heldout_command.main([str(tmp_path / "own.txt")]) == 1
    assert "1 of 2 equations are held out" in capsys.readouterr().out
    (tmp_path / "other.txt").write_text("x + y = z*x\t0\n")
    assert heldout_command.main([str(tmp_path / "other.txt")]) == 0
    assert heldout_command.main([str(tmp_path / "none.txt")]) == 2
