from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from treemem.errors import RecipeError
from treemem.tasks.equation_verification import EquationVerification
from treemem.tasks.equation_verification.data import EquationDataOptions
from treemem.tasks.equation_verification.generation import exactness, mixed_generator
from treemem.tasks.equation_verification.generation import heldout as heldout_command
from treemem.tasks.equation_verification.generation.equal_expressions import EqualExpressions
from treemem.tasks.equation_verification.generation.exactness import wrong_labels
from treemem.tasks.equation_verification.generation.expressions import VARIABLES, ExpressionTable
from treemem.tasks.equation_verification.generation.generator import EquationData
from treemem.tasks.equation_verification.generation.heldout import held_out, sorted_text
from treemem.tasks.equation_verification.generation.infinity import holds
from treemem.tasks.equation_verification.generation.mixed_generator import (
    generate_mixed,
    make_shard,
    with_more_mixed_training,
)
from treemem.tasks.equation_verification.generation.real_verification import verify_real
from treemem.tasks.equation_verification.generation.textbook import HALVES, textbook_equations
from treemem.tasks.equation_verification.generation.verification import FALSE, TRUE, UNDECIDED
from treemem.trees.equation_labels import BINARY_FUNCTIONS, LEAF_LABELS, UNARY_FUNCTIONS, UNIFIED_LABELS
from treemem.trees.equation_parser import parse_equation
from treemem.trees.tree import Tree

SIZE = 1500


@pytest.fixture(scope="module")
def data() -> EquationData:
    return generate_mixed(SIZE, seed=5, processes=1)


def verdict(text: str, *, branches: bool = True) -> int:
    table = ExpressionTable()
    return int(verify_real(table, [table.from_tree(parse_equation(text))], branches=branches)[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x*(y + z) = x*y + x*z", TRUE),
        ("(x + y)^2 = x^2 + y^2", FALSE),
        ("2 + 3 = 5", TRUE),
        ("sin(pi) = 0", TRUE),
        ("log(x*y) = log(x) + log(y)", TRUE),
        ("log(x + y) = log(x) + log(y)", FALSE),
        ("sqrt(x^2) = x", UNDECIDED),
        ("acosh(x) = log(x + sqrt(x^2 - 1))", TRUE),
        ("x/0 = x/0", UNDECIDED),
        ("oo + 1 = oo", UNDECIDED),
    ],
)
def test_functions_are_those_of_textbooks(text: str, expected: int) -> None:
    assert verdict(text) == expected


def test_an_identity_of_logarithms_does_not_hold_at_all_complex_points() -> None:
    assert verdict("log(x*y) = log(x) + log(y)", branches=False) == UNDECIDED


@pytest.mark.parametrize("half", HALVES)
def test_textbook_equations_have_sources_and_the_verdict_of_the_numerical_test(half: str) -> None:
    equations = textbook_equations(half)
    assert sum(each.is_true for each in equations) >= 150
    assert sum(not each.is_true for each in equations) >= 150
    assert all(each.source for each in equations)
    table = ExpressionTable()
    numbers = [table.from_tree(parse_equation(each.equation)) for each in equations]
    verdicts = verify_real(table, numbers, branches=True)
    wrong = [each for each, verdict in zip(equations, verdicts, strict=True) if verdict != each.is_true]
    assert not wrong


def test_the_halves_have_no_equation_in_common() -> None:
    heldout, table = held_out(), ExpressionTable()
    for each in textbook_equations("development"):
        assert not heldout.has(table, table.from_tree(parse_equation(each.equation))), each.equation


def test_version_2_gives_the_equations_that_it_always_gave() -> None:
    found = generate_mixed(200, seed=3, processes=1)
    assert (found.version, found.digest) == ("2", "d86be94e55f49e3a48c888497f9c908c7cfb226f5fdbadee24eebec38fddf033")


def reversed_and_renamed(tree: Tree) -> Tree:
    children = [reversed_and_renamed(child) for child in tree.children]
    if tree.label in VARIABLES:
        return Tree(VARIABLES[VARIABLES.index(tree.label) - 1])
    return Tree(tree.label, children[::-1] if tree.label in ("Equality", "Add", "Mul") else children)


def test_held_out_equations_are_recognised_in_any_order_and_with_other_variables() -> None:
    table = ExpressionTable()
    heldout = held_out()
    for each in textbook_equations("heldout"):
        assert heldout.has(table, table.from_tree(reversed_and_renamed(parse_equation(each.equation)))), each.equation
    for text in ("a*(y + z) = z*a + y*a", "(x + y)^2 = x^2 + y^2"):
        assert not heldout.has(table, table.from_tree(parse_equation(text)))


def test_labels_hold_with_50_digits(data: EquationData) -> None:
    wrong, counts = wrong_labels(data.forest, range(0, len(data), 5))
    assert not wrong
    assert counts["undefined"] < 0.02 * counts["correct"]


def test_equations_are_balanced_distinct_and_not_held_out(data: EquationData) -> None:
    forest, table, heldout = data.forest, ExpressionTable(), held_out()
    assert len(forest) == SIZE
    assert abs(int(forest.tree_data["label"].sum()) - SIZE / 2) < 0.05 * SIZE
    equations = table.from_forest(forest)
    assert len(table.canonical_equations(forest)) == SIZE
    assert not any(heldout.has(table, equation) for equation in equations)
    depth = forest.tree_data["depth"]
    assert (depth == forest.height()[forest.begin[1:] - 1]).all()
    assert set(forest.tree_data["split"][depth > 7]) == {"test"}


def test_held_out_equations_of_a_file_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = next(iter(textbook_equations("heldout"))).equation
    (tmp_path / "own.txt").write_text(f"x + y = z*x\t0\n{known}\t1\n")
    assert heldout_command.main([str(tmp_path / "own.txt")]) == 1
    assert "1 of 2 equations are held out" in capsys.readouterr().out
    (tmp_path / "other.txt").write_text("x + y = z*x\t0\n")
    assert heldout_command.main([str(tmp_path / "other.txt")]) == 0
    assert heldout_command.main([str(tmp_path / "none.txt")]) == 2


def test_all_labels_occur_for_training() -> None:
    shard = mixed_generator.Shard("labels", {3: 10}, 1600)
    forest = make_shard(shard)
    used = {forest.labels[label] for label in np.unique(forest.label)}
    assert {*LEAF_LABELS, *UNARY_FUNCTIONS, *BINARY_FUNCTIONS} - {*UNIFIED_LABELS} <= used


def test_the_number_of_processes_does_not_change_the_equations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed_generator, "_SHARD", 400)
    one, two = (generate_mixed(500, seed=3, max_depth=5, processes=count) for count in (1, 2))
    assert one.digest == two.digest


def test_more_training_equations_are_new(data: EquationData) -> None:
    num_training = int((data.forest.tree_data["split"] == "train").sum())
    forest = with_more_mixed_training(data.forest, num_training + 500, seed=6, processes=1)
    assert len(forest) == SIZE + 500
    assert len(ExpressionTable().canonical_equations(forest)) == SIZE + 500
    assert set(forest.tree_data["split"][SIZE:]) == {"train"}


def test_training_equations_are_as_deep_as_asked() -> None:
    options = EquationDataOptions(size=400, version="2", training_size=1000, training_depth=10)
    forest = EquationVerification().make_data(options).forest
    depth = forest.height()[forest.begin[1:] - 1]
    is_training = forest.tree_data["split"] == "train"
    assert is_training.sum() == 1000
    assert depth[is_training].max() == 10
    assert set(forest.tree_data["split"][depth > 10]) == {"test"}


def test_equal_expressions_are_equal_and_differ_by_more_than_order() -> None:
    table = ExpressionTable()
    source = EqualExpressions(table, random.Random(3))
    equations = [source.candidate() for _ in range(300)]
    verdicts = verify_real(table, equations, branches=True)
    assert (verdicts == TRUE).mean() > 0.9  # the others are not defined at enough points
    assert not (verdicts == FALSE).any()
    assert len({table.canonical_equation(equation) for equation in equations}) > 250
    for equation in equations:
        left, right = (sorted_text(table, side, {}) for side in table.children[equation])
        assert left != right


def test_most_variables_are_numbered_as_a_parsed_text_has_them(data: EquationData) -> None:
    table = ExpressionTable()
    equations = [equation for equation in table.from_forest(data.forest) if len(table.variable_indexes(equation)) > 1]
    numbered = [table.children[equation] == table.renumbered(*table.children[equation]) for equation in equations]
    assert 0.78 < np.mean(numbered) < 0.95  # without a share that is numbered it is 0.68


def test_a_recipe_chooses_the_version() -> None:
    task = EquationVerification()
    card = task.make_data(EquationDataOptions(size=400, version="2")).card
    assert "version 2" in card
    assert "28 real points, and at 12 complex ones" in card
    with pytest.raises(RecipeError, match=r"data\.version"):
        EquationDataOptions(version="3")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("oo + x = oo", True), ("exp(-oo) = 0", True), ("oo*oo = 2", False), ("nan = nan", False), ("oo - oo = 0", False)],
)
def test_infinity_and_nan_are_those_of_floating_point_numbers(text: str, expected: bool) -> None:
    table = ExpressionTable()
    assert holds(table, table.from_tree(parse_equation(text))) == expected


def test_labels_of_a_file_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.csv").write_text("equation,label\nx + x = 2*x,1\nx = 2,1\nx = 3,\n")
    assert exactness.main([str(tmp_path / "own.csv")]) == 1
    assert capsys.readouterr().out == "label 1: x = 2\n1 correct, 1 wrong\n"
    (tmp_path / "unlabelled.txt").write_text("x = x\n")
    assert exactness.main([str(tmp_path / "unlabelled.txt")]) == 2
    assert "no equation with a label" in capsys.readouterr().err
    assert exactness.main([str(tmp_path / "other.jsonl")]) == 2
    assert "other.jsonl" in capsys.readouterr().err
