from __future__ import annotations

import random

import pytest
from independent_evaluation import differences

from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.identities import IDENTITIES
from treemem.tasks.equation_verification.generation.rewriting import Rewriter
from treemem.trees.equation_parser import parse_equation, parse_expression


@pytest.fixture
def table() -> ExpressionTable:
    return ExpressionTable()


def _rewriter(table: ExpressionTable, *identities: str) -> Rewriter:
    return Rewriter(table, [table.from_tree(parse_equation(text)) for text in identities])


def _expression(table: ExpressionTable, text: str) -> int:
    return table.from_tree(parse_expression(text, variables="indexed"))


def _results(table: ExpressionTable, rewriter: Rewriter, text: str) -> set[int]:
    found = rewriter.replacements(_expression(table, text))
    return {table.substitute(replacement, bindings) for replacement, bindings in found}


def test_an_identity_is_used_in_both_directions(table: ExpressionTable) -> None:
    rewriter = _rewriter(table, "sin(2*a) = 2*(sin(a)*cos(a))")
    expanded = _expression(table, "2*(sin(y + 1)*cos(y + 1))")
    assert _results(table, rewriter, "sin(2*(y + 1))") == {expanded}
    assert _results(table, rewriter, "2*(sin(y + 1)*cos(y + 1))") == {_expression(table, "sin(2*(y + 1))")}


@pytest.mark.parametrize("text", ["sin(x)^2 + cos(y)^2", "sin(x)^2 + cos(x + 0)^2", "sin(x)^3 + cos(x)^2"])
def test_every_occurrence_of_a_variable_has_one_binding(table: ExpressionTable, text: str) -> None:
    rewriter = _rewriter(table, "sin(a)^2 + cos(a)^2 = 1")
    assert _results(table, rewriter, text) == set()
    assert _results(table, rewriter, "sin(x*y)^2 + cos(x*y)^2") == {_expression(table, "1")}


def test_a_leaf_is_rewritten_by_identities_with_that_leaf_on_one_side(table: ExpressionTable) -> None:
    rewriter = _rewriter(table, "1*a = a", "1 + 1 = 2", "sin(a) = csc(a)^(-1)")
    assert _results(table, rewriter, "z") == {_expression(table, "1*z")}
    assert _results(table, rewriter, "2") == {_expression(table, "1 + 1")}
    assert _results(table, rewriter, "pi") == set()


def test_a_variable_that_only_the_result_has_becomes_one_of_the_equation(table: ExpressionTable) -> None:
    rewriter = _rewriter(table, "0*a = 0")
    equation = table.from_tree(parse_equation("y + 0 = y", variables="indexed"))
    expected = table.from_tree(parse_equation("y + 0*y = y", variables="indexed"))
    assert rewriter.rewrite(equation, 3, random.Random(0)) == expected
    assert rewriter.rewrite(equation, 2, random.Random(0)) == equation


def test_growth_does_the_same_to_both_sides(table: ExpressionTable) -> None:
    rewriter = _rewriter(table)
    equation = table.from_tree(parse_equation("sin(x) = sin(x)*1"))
    sides = table.children[equation]
    seen = set()
    for seed in range(60):
        left, right = table.children[rewriter.grow(equation, random.Random(seed))]
        assert table.label[left] == table.label[right] in ("Add", "Mul", "Pow")
        place = table.children[left].index(sides[0])
        assert table.children[right][place] == sides[1]
        operand = table.children[left][1 - place]
        assert operand == table.children[right][1 - place]
        assert not table.children[operand]
        seen.add((table.label[left], place))
        seen.add(table.label[operand])
    assert len(seen & {("Add", 0), ("Add", 1), ("Mul", 0), ("Mul", 1), ("Pow", 0), ("Pow", 1)}) == 6
    assert "Symbol:var_1" in seen
    assert "Symbol:var_0" not in seen


def test_the_identities_are_the_142_sound_ones() -> None:
    equations = [parse_equation(text) for text in IDENTITIES]
    assert len(set(equations)) == 142
    for seed, equation in enumerate(equations):
        assert max(differences(equation, seed)) < 1e-9, str(equation)
