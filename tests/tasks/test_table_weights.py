"""Weights of rows and of classes in the loss of tasks from tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional

import treemem
from treemem.cli.program import main
from treemem.errors import RecipeError
from treemem.networks import NetworkConfig
from treemem.runs import FitResult, TrainingOptions, fit
from treemem.tasks.table import TableDataOptions, task_from_table
from treemem.tasks.table.task import TableTask

NETWORK = NetworkConfig("TreeLSTM", {"hidden_size": 4})
WHOLE = TrainingOptions(
    epochs=3, batch_size=1000, learning_rate=0.05, weight_decay=0.0, threads=1, precision="64-true", seed=1
)
"""Each step has all rows, so that their order does not matter."""


def rows(count: int = 24) -> list[dict[str, Any]]:
    return [
        {
            "tree": f"(f {'xyz'[row % 3]} {'xy'[row % 2]})",
            "class": "abc"[row % 5 % 3],
            "size": row % 7 + 0.5,
            "even": 1 - row % 2,
            "third": int(row % 3 == 0),
            "nodes": ["p", "q", "pq"[row % 2]] if row % 4 else [None, "q", "p"],
            "importance": row % 4,
            "split": "validation" if row % 6 == 5 else "train",
        }
        for row in range(count)
    ]


def weighted(target: Any, table: list[dict[str, Any]] | None = None, **options: Any) -> tuple[TableTask, Any]:
    task = task_from_table(rows() if table is None else table, tree="tree", target=target, **options)
    return task, task.make_data(TableDataOptions())


def trained(folder: Path, table: list[dict[str, Any]], target: Any, **options: Any) -> FitResult:
    task, data = weighted(target, table, **options)
    return fit(task, NETWORK, data, WHOLE, output=folder)


def losses(result: FitResult) -> list[float]:
    return [record[name] for record in result.records for name in ("loss", "validation_loss") if name in record]


def test_the_loss_of_classes_is_the_weighted_mean_of_torch() -> None:
    task, data = weighted("class", class_weight={"a": 0.5, "c": 4})
    assert task.class_weight == (0.5, 1.0, 4.0)
    examples = task.examples(data.forest)
    outputs = torch.randn(len(examples), 3, generator=torch.Generator().manual_seed(0))
    targets = {name: torch.tensor(array) for name, array in examples.targets.items()}
    expected = functional.cross_entropy(outputs, targets["label"], weight=torch.tensor([0.5, 1.0, 4.0]))
    assert float(task.loss(outputs, targets).mean) == pytest.approx(float(expected))
    assert task.validation_record(outputs, dict(examples.targets))["validation_loss"] == pytest.approx(float(expected))


def test_labels_weigh_their_ones_and_numbers_their_rows() -> None:
    task, data = weighted(["even", "third"], class_weight={"third": 3}, weight="importance")
    targets = {name: torch.tensor(array) for name, array in task.examples(data.forest).targets.items()}
    outputs = torch.randn(24, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    row = torch.arange(24)[:, None] % 4
    weight = row * torch.where((targets["label"] == 1) & torch.tensor([False, True]), 3.0, 1.0)
    plain = functional.binary_cross_entropy_with_logits(outputs, targets["label"], reduction="none")
    assert float(task.loss(outputs, targets).mean) == pytest.approx(float((plain * weight).sum() / weight.sum()))
    task, data = weighted("size", weight="importance")
    targets = {name: torch.tensor(array) for name, array in task.examples(data.forest).targets.items()}
    error = ((outputs[:, :1] - targets["label"]) / task.scale[0]) ** 2
    expected = (error * row).sum() / row.sum()
    assert float(task.loss(outputs[:, :1], targets).mean) == pytest.approx(float(expected))


def test_nodes_weigh_as_their_rows_and_classes_and_not_if_they_are_unknown() -> None:
    task, data = weighted("nodes", class_weight=[1, 2, 3], classes=["p", "q", "r"], weight="importance")
    examples = task.examples(data.forest)
    assert examples.targets["weight"][:9].tolist() == [0, 0, 0, 1, 2, 2, 2, 4, 2]
    unknown, _ = weighted("nodes", [{**row, "importance": 1} for row in rows()], weight="importance")
    weights = unknown.examples(unknown.make_data(TableDataOptions()).forest).targets["weight"]
    assert weights[:3].tolist() == [0, 1, 1]
    targets = {name: torch.tensor(array[:9]) for name, array in examples.targets.items()}
    outputs = torch.randn(9, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain = functional.cross_entropy(outputs, targets["label"], reduction="none", ignore_index=-1)
    expected = (plain * targets["weight"]).sum() / 13
    assert float(task.loss(outputs, targets).mean) == pytest.approx(float(expected))


@pytest.mark.parametrize("target", ["class", "size", ["even", "third"], "nodes"])
def test_a_row_of_weight_two_trains_as_two_rows_and_one_of_weight_zero_as_none(tmp_path: Path, target: Any) -> None:
    scale = {"mean": [3.0], "scale": [2.0]} if target == "size" else {}
    by_weight = trained(tmp_path / "weights", rows(), target, weight="importance", **scale)
    repeated = [row for row in rows() for _ in range(row["importance"])]
    assert {label for row in repeated for label in row["tree"]} == {label for row in rows() for label in row["tree"]}
    by_rows = trained(tmp_path / "rows", repeated, target, **scale)
    np.testing.assert_allclose(losses(by_weight), losses(by_rows), rtol=1e-9)
    plain = trained(tmp_path / "plain", rows(), target, **scale)
    assert losses(plain) != pytest.approx(losses(by_rows), rel=1e-3)


def test_weights_matter_by_their_ratios_alone(tmp_path: Path) -> None:
    plain = trained(tmp_path / "plain", rows(), "class")
    table = [{**row, "importance": 1e-4} for row in rows()]
    small = trained(tmp_path / "small", table, "class", weight="importance")
    np.testing.assert_allclose(losses(small), losses(plain), rtol=1e-9)


def test_balanced_weights_are_those_of_scikit_learn_for_the_training_rows() -> None:
    task, _ = weighted("class", class_weight="balanced")
    train = [row["class"] for row in rows() if row["split"] == "train"]
    expected = compute_class_weight("balanced", classes=np.array(["a", "b", "c"]), y=np.array(train))
    assert task.class_weight == pytest.approx(tuple(expected))
    labels, _ = weighted(["even", "third"], class_weight="balanced")
    ones = [sum(row[name] for row in rows() if row["split"] == "train") for name in ("even", "third")]
    assert labels.class_weight == pytest.approx(tuple((20 - one) / one for one in ones))
    nodes, _ = weighted("nodes", class_weight="balanced", classes=["p", "q", "never"])
    of_nodes = [name for row in rows() if row["split"] == "train" for name in row["nodes"] if name is not None]
    expected = compute_class_weight("balanced", classes=np.array(["p", "q"]), y=np.array(of_nodes))
    assert nodes.class_weight == pytest.approx((*expected, 1.0)), "a class that no row has weighs 1"


def test_a_checkpoint_has_the_class_weights_and_needs_no_column_of_weights(tmp_path: Path) -> None:
    result = trained(tmp_path / "run", rows(), "class", weight="importance", class_weight="balanced")
    task: Any = treemem.load(tmp_path / "run").task
    assert task.class_weight == result.model.task.class_weight  # type: ignore[attr-defined]
    others = [{"tree": row["tree"], "class": row["class"]} for row in rows()]
    examples = task.examples(task.read_examples(others))
    (score, *_) = task.scores(torch.zeros(24, 3), examples.targets, np.zeros(24, int))
    assert score.accuracy is not None
    with pytest.raises(RecipeError, match=r"by the column 'importance', and these data have no weights"):
        task.fitted_temperature(torch.zeros(24, 3), {"label": examples.targets["label"]})
    assert "weight" in task.examples(task.read_examples(rows())).targets


def test_a_recipe_weighs_rows_and_classes(tmp_path: Path) -> None:
    file, recipe = tmp_path / "table.csv", tmp_path / "recipe.yaml"
    lines = [f"{row['tree']},{row['class']},{row['importance']}" for row in rows()]
    file.write_text("\n".join(["tree,class,importance", *lines]))
    options = f"path: '{file}', target: [class], weight: importance, class_weight: {{a: 2, c: 0}}"
    recipe.write_text(
        f"task: table_classes\ntask_options: {{{options}}}\n"
        "networks: {Tree-RNN: {network: TreeRNN, options: {hidden_size: 4}}}\n"
        "training: {epochs: 1, threads: 1}\n"
    )
    assert main(["train", str(recipe), "-o", str(tmp_path / "run")]) == 0
    task: Any = treemem.load(tmp_path / "run" / "Tree-RNN").task
    assert (task.weight, task.class_weight) == ("importance", (2.0, 1.0, 0.0))


@pytest.mark.parametrize(
    ("target", "options", "named"),
    [
        ("class", {"weight": "importanc"}, "no column 'importanc'; did you mean importance"),
        ("class", {"weight": [1, 2]}, r"weight is the name of a column, not \[1, 2\]; add the values to the table"),
        ("class", {"weight": "tree"}, r"row 1: the weight 'tree' must be a finite number, not '\(f x x\)'"),
        ("class", {"weight": "gaps"}, "row 3: the weight 'gaps' is missing"),
        ("class", {"weight": "minus"}, "row 5: the weight 'minus' must be 0 or more, not -1"),
        ("class", {"class_weight": {"d": 2}}, "class_weight: no class 'd'; there are 'a', 'b', 'c'"),
        ("class", {"class_weight": {"a": -2}}, "the weight of 'a' must be a number of 0 or more, not -2"),
        ("class", {"class_weight": [1, float("nan"), 1]}, "the weight of 'b' must be a number of 0 or more, not nan"),
        ("class", {"class_weight": [1, 2]}, "class_weight has 2 numbers and there are 3: 'a', 'b', 'c'"),
        ("class", {"class_weight": "even"}, "class_weight must be \"balanced\" or numbers, .* not 'even'"),
        ("class", {"class_weight": [0, 0, 0]}, "class_weight: all weights are 0"),
        ("size", {"class_weight": "balanced"}, "class_weight is for classes and labels, and table_regression has none"),
    ],
)
def test_weights_that_mean_nothing_are_refused(target: str, options: dict[str, Any], named: str) -> None:
    table = [{**row, "gaps": None if place == 2 else 1, "minus": 3 - place} for place, row in enumerate(rows())]
    with pytest.raises(RecipeError, match=named):
        weighted(target, table, **options)


def test_a_training_that_would_leave_out_weights_is_refused(tmp_path: Path) -> None:
    task, data = weighted("class", weight="importance")
    bare = data.forest.with_data(tree_data={**data.forest.tree_data})
    nothing = {name: array for name, array in bare.tree_data.items() if name != "weight"}
    with pytest.raises(RecipeError, match="these data have no weights; take the data"):
        fit(task, NETWORK, bare.with_data(tree_data=nothing), WHOLE, output=tmp_path / "bare")
    for weights, named in (
        (np.zeros(24), "all training examples have the weight 0"),
        (np.where(bare.tree_data["split"] == "train", 1.0, 0.0), "all validation examples have the weight 0"),
        (np.full(24, -1.0), "the weight of tree 1 must be a number of 0 or more, not -1"),
        (np.full((24, 2), 1.0), "must be a number for each of the 24 trees"),
    ):
        given = bare.with_data(tree_data={**nothing, "weight": weights})
        with pytest.raises(RecipeError, match=named):
            fit(task, NETWORK, given, WHOLE, output=tmp_path / "given")
    rewarded = task.networks["RL-SPINN"]
    with pytest.raises(RecipeError, match="learns its trees from rewards, which have no weights"):
        fit(task, rewarded, data, WHOLE, output=tmp_path / "rewards")
