"""The generated equations: their labels hold, they are distinct, balanced, and like the published ones."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from independent_evaluation import assert_labels_hold

from treemem.errors import RecipeError
from treemem.tasks.equation_verification.generation import generator
from treemem.tasks.equation_verification.generation.equal_expressions import EqualExpressions
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.generator import generate_equations, make_shard, with_more_training
from treemem.tasks.equation_verification.generation.heldout import held_out, sorted_text
from treemem.tasks.equation_verification.generation.infinity import INFINITE_LABELS
from treemem.tasks.equation_verification.generation.quotas import PUBLISHED_COUNTS, depth_quotas
from treemem.tasks.equation_verification.generation.study_sets import deep_published, part_of
from treemem.tasks.equation_verification.generation.verification import FALSE, TRUE, verify
from treemem.tasks.equation_verification.labelling import verdicts
from treemem.tasks.equation_verification.shallow_reader import TokenReader
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.labels import BINARY_FUNCTIONS, LEAF_LABELS, UNARY_FUNCTIONS, UNIFIED_LABELS
from treemem.trees.tree import Tree

SIZE = 3000


@pytest.fixture(scope="module")
def data() -> Forest:
    return generate_equations(SIZE, seed=5, processes=1)


@pytest.fixture(scope="module")
def deep(data: Forest) -> Forest:
    return deep_published(data, 40, (14, 16), seed=7)


def renamed(equation: Tree) -> tuple[tuple[str, ...], ...]:
    """The sides in preorder with variables numbered as they appear, whichever side comes first."""

    def named(sides: tuple[Tree, ...]) -> tuple[tuple[str, ...], ...]:
        names: dict[str, str] = {}
        return tuple(
            tuple(
                names.setdefault(node.label, f"v{len(names)}") if "var_" in node.label else node.label
                for node in side.preorder()
            )
            for side in sides
        )

    return min(named(equation.children), named(equation.children[::-1]))


def test_labels_hold_by_the_verdict_with_200_digits_at_other_points(data: Forest) -> None:
    some = data[::5]
    found = [verdict.label for verdict in verdicts(some)]
    wrong = [
        str(tree) for tree, label, known in zip(some, found, some.tree_data["label"], strict=True) if label != known
    ]
    assert len(wrong) < 0.02 * len(some)
    assert all(label is None for tree, label in zip(some, found, strict=True) if str(tree) in wrong)


def test_labels_of_published_style_equations_hold_by_another_evaluator(deep: Forest) -> None:
    assert_labels_hold(deep, every=5)
    shallow = make_shard("published style", {3: 40, 5: 40, 7: 40}, 0)
    assert len(shallow) == 240
    assert_labels_hold(shallow)


def test_equations_are_balanced_distinct_sorted_and_not_held_out(data: Forest) -> None:
    label, depth, edit = (data.tree_data[name] for name in ("label", "depth", "edit"))
    assert len(data) == SIZE
    assert label.sum() == SIZE / 2
    assert (depth == data.height()[data.begin[1:] - 1]).all()
    assert (np.diff(depth) >= 0).all()
    assert ((edit == -1) == (label == 1)).all()
    assert len({renamed(tree) for tree in data}) == SIZE
    table, heldout = ExpressionTable(), held_out()
    assert not any(heldout.has(table, equation) for equation in table.from_forest(data))
    true = data[(label == 1) & (depth > 1)]
    assert all(tree.children[0] != tree.children[1] for tree in true)


def test_a_fifth_of_every_depth_and_label_is_for_validation(data: Forest) -> None:
    depth, label, split = (data.tree_data[name] for name in ("depth", "label", "split"))
    assert ((split == "test") == (depth >= 8)).all()
    for level in range(1, 8):
        for value in (0, 1):
            members = split[(depth == level) & (label == value)]
            assert abs((members == "validation").sum() - 0.2 * len(members)) <= 0.5


def test_labels_cannot_be_told_by_length_or_tokens(data: Forest) -> None:
    label, depth, length = data.tree_data["label"], data.tree_data["depth"], np.diff(data.begin)
    mean = {(d, v): length[(depth == d) & (label == v)].mean() for d in range(4, 10) for v in (0, 1)}
    ratios = [mean[d, 0] / mean[d, 1] for d in range(4, 10)]
    assert abs(np.mean(ratios) - 1) < 0.02
    assert max(abs(ratio - 1) for ratio in ratios) < 0.05
    label_of_node = np.repeat(label, length)
    shares = [
        np.bincount(data.label[label_of_node == value], minlength=len(data.labels)) / (label_of_node == value).sum()
        for value in (0, 1)
    ]
    assert np.abs(shares[0] - shares[1]).max() < 0.015


def test_counting_tokens_does_not_solve_deep_equations(data: Forest) -> None:
    deep = data.tree_data["depth"] > 7
    reader, tested = TokenReader(data[~deep]), data[deep]
    true = tested.tree_data["label"] == 1
    assert max(true.mean(), 1 - true.mean()) - 0.05 < (reader.predict(tested) == true).mean() <= 0.7


def test_most_variables_are_numbered_as_a_parsed_text_has_them(data: Forest) -> None:
    table = ExpressionTable()
    equations = [equation for equation in table.from_forest(data) if len(table.variable_indexes(equation)) > 1]
    numbered = [table.children[equation] == table.renumbered(*table.children[equation]) for equation in equations]
    assert 0.78 < np.mean(numbered) < 0.95  # without a share that is numbered it is 0.68


def test_published_style_equations_look_like_the_published_ones(shared_data: Path) -> None:
    published = json.loads((shared_data / "equations" / "published_profile.json").read_text())
    forest = generate_equations(6000, seed=1, processes=1)
    true = forest[(forest.tree_data["label"] == 1) & (forest.tree_data["depth"] >= 8)]
    depth, length = true.tree_data["depth"], np.diff(true.begin)
    for level in range(8, 14):
        assert length[depth == level].mean() == pytest.approx(published["by_depth"][str(level)]["nodes_mean"], rel=0.15)
    tokens: Counter[str] = Counter()
    for label, count in published["tokens"].items():
        tokens[UNIFIED_LABELS.get(label, label)] += count
    found = Counter(node.label for tree in true for node in tree.preorder())
    for label in tokens | found:
        assert found[label] / found.total() == pytest.approx(tokens[label] / tokens.total(), abs=0.03), label
    variables = Counter(len({leaf.label for leaf in tree.leaves() if "var_" in leaf.label}) for tree in true)
    shares = {int(number): count for number, count in published["distinct_variables_per_equation"].items()}
    for number, tolerance in ((1, 0.12), (2, 0.12), (3, 0.06), (4, 0.06)):
        expected = shares[number] / sum(shares.values())
        assert variables[number] / len(true) == pytest.approx(expected, abs=tolerance)


def test_the_generator_gives_the_equations_that_it_always_gave_in_any_process() -> None:
    task = "treemem.tasks.equation_verification"
    code = (
        f"from {task} import EquationVerification; from {task}.generation.generator import generate_equations\n"
        "print(EquationVerification().examples(generate_equations(200, seed=3, processes=1)).digest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == "9269b99bf5dcb9b655057f853adf4e6ddcdf1d40584b37b15822817e5e8407eb"


def test_the_number_of_processes_does_not_change_the_equations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "_SHARD", 400)
    one, two = (generate_equations(500, seed=3, max_depth=5, processes=count) for count in (1, 2))
    assert one == two
    assert (one.tree_data["edit"] == two.tree_data["edit"]).all()


@pytest.mark.parametrize("options", [{"size": -1}, {"size": 2.5}, {"max_depth": 1}, {"max_depth": 21}])
def test_bad_arguments_are_refused(options: dict[str, float], data: Forest) -> None:
    with pytest.raises(RecipeError, match="must be a"):
        generate_equations(**{"size": 10, **options})  # type: ignore[arg-type]


def test_more_training_equations_are_new_and_leave_the_old_ones_as_they_are(data: Forest, deep: Forest) -> None:
    num_training = int((data.tree_data["split"] == "train").sum())
    forest = with_more_training(data, num_training + 500, seed=6, processes=1)
    assert forest[:SIZE] == data
    assert len(forest) == SIZE + 500
    assert set(forest.tree_data["split"][SIZE:]) == {"train"}
    assert forest.tree_data["depth"][SIZE:].max() == 7
    assert len({renamed(tree) for tree in (*forest, *deep)}) == len(forest) + len(deep)
    with pytest.raises(RecipeError, match="are for training already; size must be that or more, not 10"):
        with_more_training(data, 10)


def test_deep_equations_are_balanced_verified_and_for_the_test(deep: Forest) -> None:
    columns = deep.tree_data
    counts = Counter(zip(columns["depth"].tolist(), columns["label"].tolist(), strict=True))
    assert counts == {(depth, label): 40 for depth in (14, 15, 16) for label in (0, 1)}
    assert set(columns["split"].tolist()) == {"test"}
    table = ExpressionTable()
    assert verify(table, table.from_forest(deep), 0.9).tolist() == columns["label"].tolist()


def test_a_smaller_part_is_within_each_larger_one(data: Forest) -> None:
    parts = [part_of(data, share) for share in (20, 60)]
    trees = [{str(tree) for tree in part} for part in parts]
    assert trees[0] < trees[1]
    num_training = (data.tree_data["split"] == "train").sum()
    for part, share in zip(parts, (0.2, 0.6), strict=True):
        assert (part.tree_data["split"] == "train").sum() == round(share * num_training)
        assert (part.tree_data["split"] == "test").sum() == (data.tree_data["split"] == "test").sum()


def test_all_labels_occur_for_training_and_infinity_only_in_few_equations() -> None:
    forest = make_shard("labels", {3: 10}, 1600)
    used = {forest.labels[label] for label in np.unique(forest.label)}
    assert {*LEAF_LABELS, *UNARY_FUNCTIONS, *BINARY_FUNCTIONS} - {*UNIFIED_LABELS} <= used
    infinite = [any(leaf.label in INFINITE_LABELS for leaf in tree.leaves()) for tree in forest]
    assert 0 < np.mean(infinite) < 0.02


def test_equal_expressions_are_equal_and_differ_by_more_than_order() -> None:
    table = ExpressionTable()
    source = EqualExpressions(table, random.Random(3))
    equations = [source.candidate() for _ in range(300)]
    found = verify(table, equations, branches=True)
    assert (found == TRUE).mean() > 0.9  # the others are not defined at enough points
    assert not (found == FALSE).any()
    assert len({table.canonical_equation(equation) for equation in equations}) > 250
    for equation in equations:
        left, right = (sorted_text(table, side, {}) for side in table.children[equation])
        assert left != right


def test_the_published_size_has_the_published_counts_and_counts_go_on_falling() -> None:
    expected = {depth: (total - true, true) for depth, (total, true) in PUBLISHED_COUNTS.items()}
    assert depth_quotas(41_894) == expected
    totals = [sum(pair) for pair in depth_quotas(100_000, 20).values()][12:]
    assert totals == sorted(totals, reverse=True)
    assert totals[-1] > 0


@pytest.mark.parametrize("size", [0, 1, 7, 100, 999, 12_000, 418_940])
@pytest.mark.parametrize("max_depth", [2, 7, 13, 20])
def test_counts_add_up_to_the_size(size: int, max_depth: int) -> None:
    quotas = depth_quotas(size, max_depth)
    assert sum(map(sum, quotas.values())) == size
    assert list(quotas) == list(range(1, max_depth + 1))
