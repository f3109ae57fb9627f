from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from independent_evaluation import assert_labels_hold

from treemem.errors import RecipeError
from treemem.tasks.equation_verification.generation.corruption import GROW, SHRINK
from treemem.tasks.equation_verification.generation.generator import EquationData, generate_equations
from treemem.tasks.equation_verification.generation.quotas import depth_quotas
from treemem.tasks.equation_verification.shallow_reader import TokenReader
from treemem.trees.equation_labels import UNIFIED_LABELS
from treemem.trees.tree import Tree

SIZE, SEED = 3000, 5


@pytest.fixture(scope="module")
def data() -> EquationData:
    return generate_equations(SIZE, seed=SEED)


def test_labels_hold_by_another_evaluator(data: EquationData) -> None:
    assert_labels_hold(data.forest, every=3)


def test_depths_and_labels_have_their_quotas(data: EquationData) -> None:
    forest = data.forest
    roots = forest.begin[1:] - 1
    assert (forest.height()[roots] == forest.tree_data["depth"]).all()
    assert {forest.labels[label] for label in forest.label[roots]} == {"Equality"}
    found = Counter(zip(forest.tree_data["depth"].tolist(), forest.tree_data["label"].tolist(), strict=True))
    expected = {(depth, label): count for depth, pair in depth_quotas(SIZE).items() for label, count in enumerate(pair)}
    assert found == {key: count for key, count in expected.items() if count}


def test_no_two_equations_are_equal_up_to_renaming_and_swapping(data: EquationData) -> None:
    def renamed(sides: tuple[Tree, ...]) -> tuple[str, ...]:
        names: dict[str, str] = {}
        return tuple(
            names.setdefault(node.label, f"v{len(names)}") if node.label.startswith("Symbol:") else node.label
            for side in sides
            for node in (*side.preorder(), Tree("end"))
        )

    keys = {min(renamed(tree.children), renamed(tree.children[::-1])) for tree in data.forest}
    assert len(keys) == len(data)


def test_true_equations_have_two_different_sides_but_at_depth_1(data: EquationData) -> None:
    true = data.forest[data.forest.tree_data["label"] == 1]
    assert all(tree.children[0] != tree.children[1] for tree in true if tree.height > 1)


def _is_one_edit(source: Tree, edited: Tree, kind: int) -> bool:
    while True:
        if kind == GROW and source in edited.children:
            return edited.arity == 1 or any(child.is_leaf for child in edited.children)
        if kind == SHRINK and edited in source.children:
            return True
        if source.label != edited.label:
            return source.children == edited.children
        changed = [(a, b) for a, b in zip(source.children, edited.children, strict=True) if a != b]
        if len(changed) != 1:
            return False
        source, edited = changed[0]


def test_false_equations_are_one_edit_from_a_true_one_of_the_same_depth(data: EquationData) -> None:
    columns = data.forest.tree_data
    assert (columns["edit"][columns["label"] == 1] == -1).all()
    assert (columns["source"][columns["label"] == 1] == -1).all()
    checked = 0
    for tree in np.flatnonzero(columns["label"] == 0).tolist():
        source = int(columns["source"][tree])
        if source >= 0:
            assert columns["label"][source] == 1
            assert columns["depth"][source] == columns["depth"][tree]
            assert _is_one_edit(data.forest[source], data.forest[tree], int(columns["edit"][tree])), tree
            checked += 1
    assert checked > 0.95 * (columns["label"] == 0).sum()


def test_labels_cannot_be_told_by_length_or_tokens(data: EquationData) -> None:
    forest, label = data.forest, data.forest.tree_data["label"]
    length = np.diff(forest.begin)
    depth = forest.tree_data["depth"]
    mean = {(d, v): length[(depth == d) & (label == v)].mean() for d in range(4, 10) for v in (0, 1)}
    ratios = [mean[d, 0] / mean[d, 1] for d in range(4, 10)]
    assert abs(np.mean(ratios) - 1) < 0.02
    assert max(abs(ratio - 1) for ratio in ratios) < 0.05
    label_of_node = np.repeat(label, length)
    shares = [
        np.bincount(forest.label[label_of_node == value], minlength=len(forest.labels)) / (label_of_node == value).sum()
        for value in (0, 1)
    ]
    assert np.abs(shares[0] - shares[1]).max() < 0.015


def test_counting_tokens_does_not_solve_deep_equations(data: EquationData) -> None:
    deep = data.forest.tree_data["depth"] > 7
    reader, tested = TokenReader(data.forest[~deep]), data.forest[deep]
    true = tested.tree_data["label"] == 1
    assert max(true.mean(), 1 - true.mean()) - 0.05 < (reader.predict(tested) == true).mean() <= 0.7


def test_functions_are_trigonometric(data: EquationData) -> None:
    inner = {data.forest.labels[label] for label in np.unique(data.forest.label[data.forest.arity > 0])}
    assert inner == {"Equality", "Add", "Mul", "Pow", "sin", "cos", "tan", "cot", "sec", "csc"}


def test_a_fifth_of_every_depth_and_label_is_for_validation(data: EquationData) -> None:
    depth, label, split = (data.forest.tree_data[name] for name in ("depth", "label", "split"))
    assert ((split == "test") == (depth >= 8)).all()
    for level in range(1, 8):
        for value in (0, 1):
            members = split[(depth == level) & (label == value)]
            assert abs((members == "validation").sum() - 0.2 * len(members)) <= 0.5


def test_version_1_gives_the_equations_that_it_always_gave_in_any_process() -> None:
    expected = "a5798916bc35d7bbc6d7cb838e19ceff9f53b473bac1459ad47121859e9c6712"
    module = "treemem.tasks.equation_verification.generation.generator"
    code = f"from {module} import *; print(generate_equations(200, seed=3).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == expected
    data = generate_equations(200, seed=3)
    assert (data.version, data.digest) == ("1", expected)
    shallow = generate_equations(500, seed=0, max_depth=7)
    assert shallow.digest == "71c8eda9f0d8368840b3670373684e37db7f79c69c1aa6e468a55906148196ee"


@pytest.mark.parametrize("options", [{"size": -1}, {"size": 2.5}, {"max_depth": 1}, {"max_depth": 21}])
def test_bad_arguments_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(RecipeError, match="must be a"):
        generate_equations(**options)  # type: ignore[arg-type]


def test_generated_equations_look_like_the_published_ones(shared_data: Path) -> None:
    published = json.loads((shared_data / "equations" / "published_profile.json").read_text())
    forest = generate_equations(6000, seed=1).forest
    true = forest[(forest.tree_data["label"] == 1) & (forest.tree_data["depth"] >= 8)]
    depth, length = true.tree_data["depth"], np.diff(true.begin)
    for level in range(8, 14):
        assert length[depth == level].mean() == pytest.approx(published["by_depth"][str(level)]["nodes_mean"], rel=0.1)
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
