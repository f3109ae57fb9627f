"""What is printed of a formula, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from treemem.engines.cell import State
from treemem.engines.printer.cpp import cpp_source
from treemem.engines.printer.program import Place, Program
from treemem.engines.printer.symbolic import StepError, SymbolicRun
from treemem.engines.printer.trace import StepProgram, StepShape, trace_step

D = 7


def traced(function: object, parts: int = 2, arity: int = 2) -> StepProgram:
    """The program of ``h = function(*blocks of the product, children)``."""

    def step(products: State, children: State) -> State:
        return {"h": function(*products["g"].split(D, 1), children["h"])}  # type: ignore[operator]

    return trace_step(step, StepShape(arity, D, {"g": (1, (D,) * parts)}, {"h": (D,)}))


def test_equal_nodes_are_one_and_constants_are_computed() -> None:
    program = Program()
    x, y = (program.load(Place("x", at, 0, True)) for at in (0, 1))
    assert program.of("add", x, y) is program.of("add", y, x)
    assert program.of("sub", x, y) is not program.of("sub", y, x)
    assert program.of("mul", program.constant(2), program.constant(3)).value == 6
    assert program.of("mul", x, program.constant(1)) is x
    assert program.of("sub", program.constant(0), program.of("neg", x)) is x
    assert program.of("sum", x).is_vector is False


def test_symbols_tell_sums_over_children_from_sums_over_positions() -> None:
    program = Program()
    run = SymbolicRun(program, 3)
    places = [Place(name, 0, 0, True) for name in ("a", "b")]
    numbers = torch.randn(2, 3, dtype=torch.float64)
    run.know(numbers, run.symbols_of_places([[(place, at) for at in range(3)] for place in places]))
    with run:
        over_children, over_positions = numbers.sum(0), numbers.sum(1)
    a, b = (program.load(place) for place in places)
    assert {run.node(each) for each in run.symbols(over_children)} == {program.of("add", a, b)}
    assert [run.node(each) for each in run.symbols(over_positions)] == [program.of("sum", a), program.of("sum", b)]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda a, b, h: a if a.sum() > 0 else b, "it decides by the numbers in a tensor"),
        (lambda a, b, h: write_through_a_view(a.clone(), b), "in place|cannot be printed"),
        (lambda a, b, h: a + torch.randn_like(a), "it draws random numbers"),
        (lambda a, b, h: a.half().double(), "it casts to float16"),
        (lambda a, b, h: a - a.mean(0), "a row does not depend on its own inputs alone"),
        (lambda a, b, h: a @ torch.eye(D, dtype=a.dtype), "cannot be printed|some positions"),
        (lambda a, b, h: a * OUTSIDE, "not a learned parameter of the cell"),
        (lambda a, b, h: a.roll(1, 1), "different positions|cannot be printed|not computed alike"),
        (lambda a, b, h: torch.cat([a[:, :3], b[:, 3:]], 1), "the positions of a state are not computed alike"),
        (lambda a, b, h: a * b[:, :1], "different positions of a state meet"),
    ],
)
def test_what_cannot_be_printed_is_refused_with_the_reason(function: object, reason: str) -> None:
    with pytest.raises(StepError, match=reason):
        traced(function)


def write_through_a_view(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a[:].mul_(b)
    return a


OUTSIDE = torch.randn(D, dtype=torch.float64)


def test_a_refusal_names_the_line() -> None:
    with pytest.raises(StepError, match=r"test_printer.py, line \d+: .*a.sort"):
        traced(lambda a, b, h: a.sort(1).values)


def test_tracing_leaves_the_random_numbers_of_the_user_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    traced(lambda a, b, h: torch.tanh(a) * b + h.sum(1))
    assert torch.equal(torch.rand(2), expected)


def test_cells_of_several_widths_share_one_text() -> None:
    def text(width: int) -> str:
        def step(products: State, children: State) -> State:
            a, b = products["g"].split(width, 1)
            mixed = torch.sigmoid(a) * children["h"].sum(1) + functional.layer_norm(b, (width,))
            return {"h": mixed}

        shape = StepShape(2, width, {"g": (1, (width, width))}, {"h": (width,)})
        return cpp_source(trace_step(step, shape))

    assert text(7) == text(50)


def test_a_step_may_keep_values_in_the_place_of_its_products() -> None:
    program = traced(lambda a, b, h: torch.sigmoid(a) * h.sum(1) + b * b)
    (place,) = program.kept
    assert place.vectors == 0, "b is needed as it is"


def test_children_that_are_treated_alike_share_a_loop() -> None:
    def lines(arity: int) -> int:
        return cpp_source(traced(lambda a, b, h: a + (b[:, None] * h.sin()).sum(1), arity=arity)).count("\n")

    assert lines(9) == lines(40) < lines(7)
