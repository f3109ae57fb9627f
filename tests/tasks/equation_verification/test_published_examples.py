"""The examples of the paper: their depths, and at how many points they hold."""

from __future__ import annotations

import pytest

from treemem.tasks.equation_verification.published_examples import EXAMPLES, PublishedExample, share_of_points
from treemem.tasks.equation_verification.task import EquationVerification


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.equation[:12])
def test_an_example_has_the_published_depth(example: PublishedExample) -> None:
    assert EquationVerification().parse(example.equation).height == example.depth


@pytest.mark.parametrize(
    ("equation", "held", "defined"),
    [("x + y = y + x", 400, 400), ("(x^2)^(1/2) = x", 204, 400), ("log(x) = log(x)", 204, 204), ("x = x + 1", 0, 400)],
)
def test_an_equation_holds_at_a_share_of_the_points_where_it_is_defined(equation: str, held: int, defined: int) -> None:
    assert share_of_points(EquationVerification().parse(equation)) == (held, defined)
