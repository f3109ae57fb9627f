from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from independent_evaluation import assert_labels_hold

from treemem.errors import RecipeError
from treemem.tasks.equation_verification.generation.derivation import DerivationOptions
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.generator import (
    EquationData,
    generate_equations,
    training_equations,
    with_more_training,
)
from treemem.tasks.equation_verification.generation.quotas import depth_quotas
from treemem.tasks.equation_verification.generation.study_sets import deep as deep_equations
from treemem.trees.equation_format import format_equation
from treemem.trees.forest import Forest


@pytest.fixture(scope="module")
def data() -> EquationData:
    return generate_equations(1500, seed=5)


@pytest.fixture(scope="module")
def training(data: EquationData) -> Forest:
    return training_equations(2000, seed=6, apart_from=data.forest)


@pytest.fixture(scope="module")
def deep(data: EquationData) -> Forest:
    return deep_equations(data.forest, 6, (14, 16), seed=7)


def _counts(forest: Forest) -> dict[tuple[int, int], int]:
    columns = forest.tree_data
    return Counter(zip(columns["depth"].tolist(), columns["label"].tolist(), strict=True))


def _num_distinct(*forests: Forest) -> int:
    table = ExpressionTable()
    return len(set().union(*(table.canonical_equations(forest) for forest in forests)))


def test_training_equations_are_to_depth_7_and_for_training(training: Forest) -> None:
    assert len(training) == 2000
    assert (training.height()[training.begin[1:] - 1] == training.tree_data["depth"]).all()
    assert training.tree_data["depth"].max() == 7
    assert set(training.tree_data["split"].tolist()) == {"train"}


def test_training_equations_have_the_published_shares_from_depth_4(training: Forest) -> None:
    counts, quota = _counts(training), depth_quotas(2000, 7)
    assert {depth: (counts[depth, 0], counts[depth, 1]) for depth in (5, 6, 7)} == {d: quota[d] for d in (5, 6, 7)}
    assert sum(counts[depth, 1] for depth in range(1, 5)) == sum(quota[depth][1] for depth in range(1, 5))


def test_no_equation_is_equal_to_one_it_must_stay_apart_from(
    data: EquationData, training: Forest, deep: Forest
) -> None:
    assert _num_distinct(data.forest, training, deep) == len(data) + len(training) + len(deep)


def test_more_training_leaves_the_old_equations_as_they_are_and_counts_sources_on(data: EquationData) -> None:
    forest = with_more_training(data.forest, 1700, seed=6)
    assert forest[: len(data)] == data.forest
    assert (forest.tree_data["split"] == "train").sum() == 1700
    assert set(forest.tree_data["split"][len(data) :].tolist()) == {"train"}
    assert _num_distinct(forest) == len(forest)
    columns = forest.tree_data
    edited = np.flatnonzero(columns["source"] >= 0)
    source = columns["source"][edited]
    assert ((source >= len(data)) == (edited >= len(data))).all()
    assert (columns["label"][source] == 1).all()
    assert (columns["depth"][source] == columns["depth"][edited]).all()


def test_deep_equations_are_balanced_and_for_the_test(deep: Forest) -> None:
    assert _counts(deep) == {(depth, label): 6 for depth in (14, 15, 16) for label in (0, 1)}
    assert set(deep.tree_data["split"].tolist()) == {"test"}


def test_labels_hold_by_another_evaluator(training: Forest, deep: Forest) -> None:
    assert_labels_hold(training, every=20)
    assert_labels_hold(deep)


def test_too_small_a_size_is_refused(data: EquationData) -> None:
    with pytest.raises(RecipeError, match="size must be at least 0"):
        training_equations(-1)
    with pytest.raises(RecipeError, match="are for training already; size must be that or more, not 10"):
        with_more_training(data.forest, 10)


def test_derived_equations_serve_as_identities_and_what_they_make_is_true() -> None:
    plain, derived = (training_equations(300, seed=3, derivation=DerivationOptions(share)) for share in (0.0, 0.8))
    assert len(plain) == len(derived) == 300
    assert len({str(tree) for tree in plain} & {str(tree) for tree in derived}) < 150
    assert_labels_hold(derived)
    with pytest.raises(RecipeError, match="derived_share must be a probability"):
        DerivationOptions(derived_share=2)


def test_branches_of_a_root_make_true_equations_only() -> None:
    forest = training_equations(3000, seed=4, derivation=DerivationOptions(branches=True))
    assert_labels_hold(forest, every=5)
    true = [format_equation(tree) for tree in forest[forest.tree_data["label"] == 1]]
    assert sum("sqrt(1 - cos(x)^2)" in text for text in true) > 5
