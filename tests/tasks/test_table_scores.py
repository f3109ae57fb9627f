"""The metrics that choose the best epoch of a classifier, its report, and its threshold."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import treemem
from treemem.cli.program import main
from treemem.errors import CheckpointError, RecipeError
from treemem.metrics.threshold import best_threshold
from treemem.networks import NetworkConfig
from treemem.plain_yaml import dump_yaml, load_yaml
from treemem.predict import TreePredictor
from treemem.runs import FitResult, TrainingOptions, evaluate, fit
from treemem.runs.calibrate import calibrate
from treemem.tasks.table import TableDataOptions, TableNodes, task_from_table

NETWORK = NetworkConfig("TreeLSTM", {"hidden_size": 4})
OPTIONS = TrainingOptions(epochs=3, batch_size=16, learning_rate=0.03, threads=1, seed=1)


def rows(count: int = 160) -> list[dict[str, Any]]:
    """Trees of three classes, and a rare class that depends on the tree but for some noise."""
    draw = np.random.default_rng(1)
    table = []
    for place in range(count):
        a, b, c = (str(draw.choice(list("xyz"))) for _ in range(3))
        table.append(
            {
                "tree": f"(f (g {a} {b}) {c})",
                "class": {"x": "red", "y": "green", "z": "blue"}[a],
                "rare": int(a == "x" and (b == "x" or draw.random() < 0.2)),
                "also": int(c == "y"),
                "size": place + 0.5,
                "split": ("train", "train", "validation", "test")[place % 4],
            }
        )
    return table


def data_of(target: Any, table: list[dict[str, Any]] | None = None) -> tuple[Any, Any]:
    task = task_from_table(rows() if table is None else table, tree="tree", target=target)
    return task, task.make_data(TableDataOptions())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> FitResult:
    """A network whose threshold was chosen for F1."""
    options = dataclasses.replace(OPTIONS, threshold="f1", epochs=6, monitor="average precision")
    task, data = data_of("rare")
    return fit(task, NETWORK, data, options, output=tmp_path_factory.mktemp("run") / "run")


@pytest.mark.parametrize("monitor", ["loss", "macro f1", "balanced accuracy", "auc", "average precision"])
def test_the_best_epoch_has_the_best_value_of_the_monitor_that_is_chosen(tmp_path: Path, monitor: str) -> None:
    task, data = data_of("class")
    options = dataclasses.replace(OPTIONS, monitor=monitor)
    result = fit(task, NETWORK, data, options, output=tmp_path / "run")
    values = [record[f"validation_{monitor}"] for record in result.records]
    assert result.best_record[f"validation_{monitor}"] == (min if monitor == "loss" else max)(values)


def test_a_monitor_that_validation_does_not_define_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = [{**row, "rare": 0 if row["split"] == "validation" else row["rare"]} for row in rows()]
    task, data = data_of("rare", table)
    options = dataclasses.replace(OPTIONS, monitor="auc")
    with pytest.raises(RecipeError, match=r"the validation examples have no auc, .* their targets are all alike"):
        fit(task, NETWORK, data, options, output=tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").glob("*")] == [".lock"]


def test_a_command_refuses_an_unknown_monitor_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, recipe = tmp_path / "table.jsonl", tmp_path / "recipe.yaml"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    recipe.write_text(
        f"task: table_classes\ntask_options: {{path: '{file}', target: [class]}}\n"
        "networks: {Tree-RNN: {network: TreeRNN, options: {hidden_size: 4}}}\n"
        "training: {epochs: 1, threads: 1, monitor: balanced}\n"
    )
    assert main(["train", str(recipe), "-o", str(tmp_path / "run")]) == 2
    assert (
        "validation reports no 'balanced'; training.monitor may be accuracy, macro f1, balanced accuracy,"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "run" / "Tree-RNN").exists()
    assert main(["train", str(recipe), "training.monitor=macro f1", "-o", str(tmp_path / "run")]) == 0
    assert "macro f1 | balanced accuracy |" in capsys.readouterr().out
    scores = tmp_path / "scores.json"
    assert main(["evaluate", str(tmp_path / "run" / "Tree-RNN"), "--json", str(scores)]) == 0
    said = capsys.readouterr().out
    assert "predicted blue | predicted green | predicted red |" in said
    assert "| class | examples | precision |" in said
    report = json.loads(scores.read_text())["classes"]
    assert report["names"] == ["blue", "green", "red"]
    assert np.sum(report["confusion"], 1).tolist() == report["examples"]
    assert main(["evaluate", str(tmp_path / "run" / "Tree-RNN"), "--threshold", "0.3"]) == 2
    assert "a threshold has no effect on table_classes" in capsys.readouterr().err


def test_the_table_of_a_run_has_the_means_of_each_class_and_the_confusion_of_all_seeds(tmp_path: Path) -> None:
    file, recipe, run = tmp_path / "table.jsonl", tmp_path / "recipe.yaml", tmp_path / "run"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    recipe.write_text(
        f"task: table_classes\ntask_options: {{path: '{file}', target: [class]}}\n"
        "networks: {Tree-RNN: {network: TreeRNN, options: {hidden_size: 4}}}\n"
        "training: {epochs: 1, threads: 1}\nseeds: [1, 2]\n"
    )
    assert main(["train", str(recipe), "-o", str(run)]) == 0
    reports = []
    for seed in (1, 2):
        scores = tmp_path / f"{seed}.json"
        assert main(["evaluate", str(run / f"Tree-RNN/seed-{seed}"), "--json", str(scores)]) == 0
        reports.append(json.loads(scores.read_text())["classes"])
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in (run / "table.md").read_text().splitlines()]
    red = [row for row in lines if row[:1] == ["red"]]
    assert len(red) == 2
    examples, *metrics = red[0][1:]
    assert int(examples) == reports[0]["examples"][2] == 16
    names = ("precision", "recall", "f1", "auc", "average_precision")
    assert metrics == [f"{50 * sum(report[name][2] for report in reports):.2f}" for name in names]
    assert [*map(int, red[1][1:])] == np.sum([report["confusion"] for report in reports], 0)[2].tolist()


def test_commands_print_all_metrics_of_a_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, recipe, run = tmp_path / "table.jsonl", tmp_path / "recipe.yaml", tmp_path / "run"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    recipe.write_text(
        f"task: table_regression\ntask_options: {{path: '{file}', target: [size]}}\n"
        "networks: {Tree-RNN: {network: TreeRNN, options: {hidden_size: 4}}}\ntraining: {epochs: 1, threads: 1}\n"
    )
    for command in (["train", str(recipe), "-o", str(run)], ["evaluate", str(run / "Tree-RNN")]):
        assert main(command) == 0
        printed = capsys.readouterr().out.splitlines()
        rows_of_cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed]
        head = rows_of_cells.index(["network", "seeds (n)", "rmse", "mae", "r2"])
        rmse, mae, r2 = map(float, rows_of_cells[head + 2][2:])
        assert rmse > mae > 0 > r2 > -1


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("rare", "2 with the answer 1"),
        (["rare", "also"], "2 with the label 'rare'"),
        ("common", "1 with the answer 0"),
    ],
)
def test_a_threshold_chosen_on_few_examples_of_an_answer_is_warned_of(
    target: Any, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = rows(80)
    for place, row in enumerate(table):
        if row["split"] == "validation":
            row["rare"] = int(place < 8)
        row["common"] = int(place % 4 == 2 or place % 3 == 0)
    table[2]["common"] = 0
    task, data = data_of(target, table)
    options = dataclasses.replace(OPTIONS, threshold="f1", epochs=1)
    fit(task, NETWORK, data, options, output=tmp_path / "run")
    (warning,) = (text for text in caplog.messages if "the threshold is chosen" in text)
    assert f"the threshold is chosen on 20 validation examples, {said}: " in warning
    caplog.clear()
    fit(task, NETWORK, data, dataclasses.replace(options, threshold=0.3), output=tmp_path / "run", overwrite=True)
    assert "the threshold is chosen" not in caplog.text


def test_a_chosen_threshold_travels_with_the_model_and_decides_answers_and_scores(trained: FitResult) -> None:
    model, (task, data) = trained.model, data_of("rare")
    threshold = model.threshold
    assert threshold is not None
    at_chosen, at_half = (evaluate(model, data, split="validation", threshold=given) for given in (None, 0.5))
    assert at_chosen.report is not None
    assert at_half.report is not None
    assert at_chosen.report.threshold == threshold
    assert at_chosen.report.f1[1] >= at_half.report.f1[1]
    labels = task.examples(data.forest).targets["label"][at_chosen.chosen]
    assert threshold == best_threshold(at_half.predicted[:, 1:], labels[:, None] == 1, "f1")
    predicted = at_chosen.predicted[:, 1] > threshold
    assert at_chosen.overall.accuracy == (predicted == labels).mean()
    assert at_chosen.report.confusion is not None
    assert at_chosen.report.confusion[:, 1].sum() == predicted.sum()
    loaded = treemem.load(trained.folder)
    assert loaded.threshold == threshold
    texts = [row["tree"] for row in rows() if row["split"] == "validation"]
    answers = [answer["prediction"] for answer in TreePredictor(loaded).predict([{"tree": text} for text in texts])]
    assert answers == predicted.astype(int).tolist()
    most = evaluate(model, data, split="validation", threshold=0.999)
    assert most.report is not None
    assert most.report.recall[1] == 0
    assert most.overall.metrics["auc"] == at_half.overall.metrics["auc"], "a threshold does not change the order"


def test_a_threshold_is_chosen_for_balanced_accuracy_or_given(tmp_path: Path) -> None:
    task, data = data_of(["rare", "also"])
    options = dataclasses.replace(OPTIONS, threshold="balanced accuracy")
    model = fit(task, NETWORK, data, options, output=tmp_path / "chosen").model
    kept = evaluate(model, data, split="validation").predicted
    labels = task.examples(data.forest).targets["label"][task.examples(data.forest).part("validation")] > 0

    def balanced(threshold: float) -> float:
        answers = kept > threshold
        ones, zeros = ((answers & labels).sum(0) / labels.sum(0), (~answers & ~labels).sum(0) / (~labels).sum(0))
        return float((ones + zeros).mean()) / 2

    assert model.threshold is not None
    assert balanced(model.threshold) == pytest.approx(max(map(balanced, np.linspace(0.001, 0.999, 999))))
    given = fit(task, NETWORK, data, dataclasses.replace(OPTIONS, threshold=0.25), output=tmp_path / "given").model
    assert treemem.load(tmp_path / "given").threshold == given.threshold == 0.25
    report = evaluate(given, data, split="test").report
    assert report is not None
    assert (list(report.names), report.threshold) == (["rare", "also"], 0.25)


def test_the_best_threshold_is_the_nearest_to_a_half_of_the_best() -> None:
    chance = np.array([[0.1], [0.2], [0.3], [0.7], [0.9]])
    assert best_threshold(chance, chance > 0.15, "f1") == pytest.approx(0.15)
    assert best_threshold(chance, chance > 0.5, "balanced accuracy") == pytest.approx(0.5)
    many = np.random.default_rng(0).random((5000, 1))
    assert best_threshold(many, many > 0.8, "f1") == pytest.approx(0.8, abs=1e-3)


def test_a_threshold_without_effect_is_refused(tmp_path: Path, trained: FitResult) -> None:
    for target in ("class", "size"):
        task, data = data_of(target)
        with pytest.raises(RecipeError, match="a threshold has no effect on table_"):
            fit(task, NETWORK, data, dataclasses.replace(OPTIONS, threshold=0.3), output=tmp_path / "run")
    task, data = data_of("rare", [{**row, "split": "train"} for row in rows()])
    with pytest.raises(RecipeError, match=r"training.threshold needs validation examples"):
        fit(task, NETWORK, data, dataclasses.replace(OPTIONS, threshold="f1"), output=tmp_path / "run")
    for wrong in ("accuracy", 0, 1.0, "0.5"):
        with pytest.raises(RecipeError, match='threshold must be "f1" or "balanced accuracy" or a number above 0'):
            TrainingOptions(threshold=wrong)  # type: ignore[arg-type]
    _, data = data_of("rare")
    with pytest.raises(RecipeError, match="a threshold must be above 0 and below 1, not 1"):
        evaluate(trained.model, data, threshold=1)
    with pytest.raises(RecipeError, match=r"has a threshold, .* which was chosen at its temperature"):
        calibrate(trained.folder, data)


def test_a_checkpoint_with_a_threshold_that_means_nothing_is_refused(tmp_path: Path, trained: FitResult) -> None:
    treemem.checkpoint.save(tmp_path / "model", trained.model)
    file = tmp_path / "model" / "config.yaml"
    config = load_yaml(file.read_text())
    file.write_text(dump_yaml({**config, "threshold": 1.5}))
    (tmp_path / "model" / "manifest.json").unlink()
    with pytest.raises(CheckpointError):
        treemem.load(tmp_path / "model")


def test_of_equally_good_epochs_without_a_loss_the_last_is_the_best() -> None:
    assert TableNodes.monitor.is_better(0.5, 0.5)
    monitor = task_from_table(rows(), tree="tree", target="class").monitor
    assert not monitor.is_better(0.5, 0.5, 1.0, 0.9)
    assert monitor.is_better(0.5, 0.5, 0.9, 1.0)
    assert monitor.is_better(0.1, float("nan")), "any number beats NaN"


def test_scores_and_report_of_labels_agree_on_a_label_without_examples_and_predictions() -> None:
    task = task_from_table(rows(), tree="tree", target=["rare", "also"])
    kept = torch.tensor([[1.0, -1.0], [1.0, -1.0], [-1.0, -1.0]])
    targets = {"label": np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])}
    metrics = task.scores(kept, targets, np.zeros(3, np.int64))[-1].metrics
    report = task.report(kept, targets)
    assert report is not None
    assert metrics["f1"] == metrics["f1 rare"] == report.f1[0] == pytest.approx(2 / 3)
    assert metrics["f1 also"] is None
    assert np.isnan(report.f1[1])
    assert metrics["accuracy"] == pytest.approx(2 / 3)


def test_outputs_at_a_threshold_have_the_answers_of_the_probabilities_above_it() -> None:
    task = task_from_table(rows(), tree="tree", target="rare")
    kept = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    for temperature, threshold in ((1.0, 0.2), (2.5, 0.7)):
        chance = task.predicted(kept, {}, temperature=temperature)[:, 1]
        moved = task.at_threshold(kept, threshold, temperature=temperature)
        assert moved.argmax(1).tolist() == (chance > threshold).astype(int).tolist()
