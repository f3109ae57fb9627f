"""Steps from true equations to true ones, and the identities they start from."""

from __future__ import annotations

import random

import pytest
from independent_evaluation import differences

from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.identities import IDENTITIES
from treemem.tasks.equation_verification.generation.mistakes import (
    EDIT_NAMES,
    GROW,
    REPLACE,
    SHRINK,
    SIBLING,
    MistakeMaker,
)
from treemem.tasks.equation_verification.generation.rule_book import RuleBook
from treemem.tasks.equation_verification.generation.textbook_walks import TextbookWalks
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.labels import EQUALITY
from treemem.trees.formats.equations.parser import parse_equation, parse_expression
from treemem.trees.tree import Tree


@pytest.fixture
def table() -> ExpressionTable:
    return ExpressionTable()


def _expression(table: ExpressionTable, text: str) -> int:
    return table.from_tree(parse_expression(text, variables="indexed"))


def _results(table: ExpressionTable, identities: list[str], text: str) -> set[int]:
    """All that the left side of ``text = 0`` is rewritten into, at its root."""
    rules = RuleBook(table)
    for identity in identities:
        rules.add_equation(table.from_tree(parse_equation(identity)))
    side = _expression(table, text)
    equation = table.make(EQUALITY, (side, _expression(table, "0")))
    found = {table.children[rules.rewrite(equation, 1, random.Random(seed))][0] for seed in range(20)}
    return found - {side}


DOUBLE, PYTHAGORAS = "sin(2*a) = 2*(sin(a)*cos(a))", "sin(a)^2 + cos(a)^2 = 1"


@pytest.mark.parametrize(
    ("identities", "text", "results"),
    [
        ([DOUBLE], "sin(2*(y + 1))", ["2*(sin(y + 1)*cos(y + 1))"]),  # in both directions
        ([DOUBLE], "2*(sin(y + 1)*cos(y + 1))", ["sin(2*(y + 1))"]),
        ([PYTHAGORAS], "sin(x*y)^2 + cos(x*y)^2", ["1"]),
        ([PYTHAGORAS], "sin(x)^2 + cos(y)^2", []),  # each occurrence of a variable has one binding
        ([PYTHAGORAS], "sin(x)^2 + cos(x + 0)^2", []),
        ([PYTHAGORAS], "sin(x)^3 + cos(x)^2", []),
        (["1*a = a", "1 + 1 = 2", "sin(a) = csc(a)^(-1)"], "z", ["1*z"]),  # a variable matches only variables
        (["1*a = a", "1 + 1 = 2"], "2", ["1 + 1"]),
        (["1*a = a", "1 + 1 = 2"], "pi", []),
        ([PYTHAGORAS], "1", ["sin(x)^2 + cos(x)^2"]),
    ],
)
def test_a_node_is_rewritten_by_the_rules_that_match(
    table: ExpressionTable, identities: list[str], text: str, results: list[str]
) -> None:
    assert _results(table, identities, text) == {_expression(table, result) for result in results}


def test_a_variable_that_only_the_result_has_is_drawn(table: ExpressionTable) -> None:
    rules = RuleBook(table, lambda equation, rng: _expression(table, "y"))
    rules.add_equation(table.from_tree(parse_equation("0*a = 0")))
    equation = table.from_tree(parse_equation("y + 0 = y", variables="indexed"))
    expected = table.from_tree(parse_equation("y + 0*y = y", variables="indexed"))
    assert rules.rewrite(equation, 3, random.Random(0)) == expected
    assert rules.rewrite(equation, 2, random.Random(0)) == equation


def test_growth_does_the_same_to_both_sides(table: ExpressionTable) -> None:
    rules = RuleBook(table)
    equation = table.from_tree(parse_equation("sin(x) = sin(x)*1"))
    sides = table.children[equation]
    seen = set()
    for seed in range(60):
        left, right = table.children[rules.grow(equation, random.Random(seed))]
        assert table.label[left] == table.label[right] in ("Add", "Mul", "Pow")
        place = table.children[left].index(sides[0])
        assert table.children[right][place] == sides[1]
        operand = table.children[left][1 - place]
        assert operand == table.children[right][1 - place]
        assert not table.children[operand]
        seen |= {(table.label[left], place), table.label[operand]}
    assert len(seen & {("Add", 0), ("Add", 1), ("Mul", 0), ("Mul", 1), ("Pow", 0), ("Pow", 1)}) == 6
    assert "Symbol:var_1" in seen
    assert "Symbol:var_0" not in seen


def test_the_identities_are_the_142_sound_ones() -> None:
    equations = [parse_equation(text) for text in IDENTITIES]
    assert len(set(equations)) == 142
    for seed, equation in enumerate(equations):
        assert max(differences(equation, seed)) < 1e-9, str(equation)


def _is_one_edit(source: Tree, edited: Tree, kind: int) -> bool:
    while True:
        if kind == GROW and source in edited.children:
            return edited.arity == 1 or any(child.is_leaf for child in edited.children)
        if kind == SHRINK and edited in source.children:
            return True
        if source.label != edited.label:
            return source.children == edited.children
        if kind == REPLACE and source.children == edited.children[::-1]:
            return True
        changed = [(a, b) for a, b in zip(source.children, edited.children, strict=True) if a != b]
        if len(changed) != 1:
            return False
        source, edited = changed[0]


@pytest.mark.parametrize("kind", EDIT_NAMES, ids=EDIT_NAMES.values())
def test_a_mistake_is_one_edit_or_another_right_side_at_the_same_depth(table: ExpressionTable, kind: int) -> None:
    texts = [text for text in IDENTITIES if "a" in text and "b" not in text and text.count("=") == 1]
    equations = [table.from_tree(parse_equation(text)) for text in texts]
    rng = random.Random(1)
    maker = MistakeMaker(table, TextbookWalks(table, rng), equations, {kind: 1.0}, rng)
    made = [(equation, found) for equation in equations if (found := maker.candidate(equation, 7)) is not None]
    assert len(made) > 0.2 * len(equations)
    for source, (equation, found) in made:
        before, after = table.to_forest([source, equation])
        assert found == kind
        assert after != before
        assert after.height == before.height
        if kind == SIBLING:
            assert after.children[0] == before.children[0]
        elif kind in (GROW, SHRINK, REPLACE):
            assert _is_one_edit(before, after, kind), (str(before), str(after))


def test_expressions_come_back_from_their_table() -> None:
    table = ExpressionTable()
    forest = Forest.from_trees([parse_equation(text) for text in IDENTITIES])
    assert list(table.to_forest(table.from_forest(forest))) == list(forest)
