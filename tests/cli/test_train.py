from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_task import MoreX, toy_data

from treemem.cli import main
from treemem.data.examples import TaskData
from treemem.errors import RecipeError
from treemem.metrics.score import PublishedFigure
from treemem.networks import NetworkConfig
from treemem.runs import load_recipe, recipe_run


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_leaves_scores_table_plot_log_and_what_it_was_made_of(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = folder / "run"
    assert main(["train", "toy.yaml", "--seeds", "1", "2", "-o", "run", "training.epochs=1"]) == 0
    assert sorted(path.name for path in trained.iterdir()) == [
        *("accuracy_by_height.png", "data.md", "log.txt", "results.jsonl"),
        *("small sum", "sum", "table.md"),
    ]
    printed = capsys.readouterr().out
    assert (trained / "table.md").read_text() in printed
    results = rows(trained / "results.jsonl")
    assert {row["network"] for row in results} == {"sum", "small sum"}
    assert all(row["deviation"] is not None for row in results)
    assert "seed 2, epoch 1/1: loss" in (trained / "log.txt").read_text()
    recipe = load_recipe(trained / "sum" / "recipe.yaml")
    assert recipe.seeds == (1, 2)
    assert recipe.data.count == 60
    assert [row["seed"] for row in rows(trained / "sum" / "answers.jsonl")] == [1, 2]


def test_the_same_command_trains_nothing_anew(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (trained / "results.jsonl").read_text(), (trained / "table.md").read_text()
    capsys.readouterr()
    assert main(["train", "toy.yaml", "--seeds", "1", "2", "-o", "run"]) == 0
    said = capsys.readouterr().err
    assert "run/sum/seed-1 is finished: epoch 2 was its last" in said
    assert "epoch 1/2" not in said
    assert ((trained / "results.jsonl").read_text(), (trained / "table.md").read_text()) == before


@pytest.mark.parametrize(
    ("split", "heading"),
    [
        ("test", "by height; mean ± standard deviation over seeds; published figures are of the published data\n"),
        ("test, others", "by height; mean ± standard deviation over seeds\n"),
    ],
)
def test_published_figures_are_said_to_be_of_the_published_data_where_they_stand_in_the_table(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], split: str, heading: str
) -> None:
    figure = PublishedFigure("sum", split, "accuracy", 0.9, None, "a table of others")
    monkeypatch.setattr(MoreX, "published", (figure,))
    assert main(["train", "toy.yaml", "--seeds", "1", "2", "-o", "run"]) == 0
    printed = capsys.readouterr().out
    assert f"Test: accuracy in %, {heading}" in printed
    assert ("published figures in parentheses" in printed) == (split == "test")
    assert ("published, all" in (trained / "table.md").read_text()) == ("published" in heading)


def test_the_printed_tables_can_be_latex_and_are_written_beside_the_others(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (trained / "table.md").read_text()
    assert main(["train", "toy.yaml", "--seeds", "1", "2", "-o", "run", "--format", "latex"]) == 0
    printed = capsys.readouterr().out
    assert r"network & seeds (n) & height " in printed
    assert r"95 \% interval (Student's t over seeds)" in printed
    assert (trained / "table.md").read_text() == before
    assert (trained / "table.tex").read_text().strip() in printed


def test_other_data_in_the_same_folder_are_refused(
    trained: Path, monkeypatch: pytest.MonkeyPatch, failing: Callable[..., str]
) -> None:
    before = [(trained / name).read_bytes() for name in ("results.jsonl", "table.md", "sum/results.jsonl")]
    again = ["train", "toy.yaml", "--networks", "small sum", "-o", "run"]
    for words, name in ((["data.count=50"], "small sum"), (["data.count=50", "--overwrite"], "sum")):
        said = failing(*again, *words)
        assert f"run/{name} was trained on other data: data.count was 60 and is 50 now. A folder holds networks" in said
    data = TaskData(toy_data(60, 7), "60 toys of own.csv")
    monkeypatch.setattr(MoreX, "make_data", lambda *_, **__: data)
    assert "so a file or the generator has changed" in failing(*again)
    assert before == [(trained / name).read_bytes() for name in ("results.jsonl", "table.md", "sum/results.jsonl")]


def test_published_figures_stand_beside_networks_of_the_published_options_only(
    trained: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = [PublishedFigure(name, "test", "accuracy", 0.5, None, "a table") for name in ("sum", "small sum")]
    monkeypatch.setattr(MoreX, "published", tuple(figures))
    monkeypatch.setattr(
        MoreX, "networks", {name: NetworkConfig("KindSum", {"hidden_size": 3}) for name in ("sum", "small sum")}
    )
    assert main(["train", "toy.yaml", "--seeds", "1", "2", "-o", "run"]) == 0
    first_table = (trained / "table.md").read_text().partition("Test, all:")[0]
    rows = {line.split("|")[1].strip(): line for line in first_table.splitlines() if "|" in line}
    assert rows["sum"].split("|")[-2].strip() == "50.00"
    assert rows["small sum"].split("|")[-2].strip() == ""


def test_options_of_a_network_of_the_task_can_be_set_without_listing_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "short.yaml").write_text((folder / "toy.yaml").read_text().replace("  sum:", "  other:"))
    words = ["networks.sum.options.hidden_size=2", "--networks", "sum", "--epochs", "1"]
    assert main(["train", "short.yaml", *words]) == 0
    assert "| sum, hidden_size 2 " in capsys.readouterr().out


def test_other_options_in_the_same_folder_are_refused_until_overwritten(
    trained: Path, failing: Callable[..., str]
) -> None:
    changed = ["train", "toy.yaml", "--seeds", "1", "-o", "run", "--networks", "sum", "training.batch_size=4"]
    (trained / "sum" / "evaluation.jsonl").write_text("")
    assert "run/sum/seed-1 holds another run: batch_size was 8 and is 4 now" in failing(*changed)
    assert load_recipe(trained / "sum" / "recipe.yaml").training.batch_size == 8
    assert main([*changed, "--overwrite"]) == 0
    assert not (trained / "sum" / "evaluation.jsonl").exists()
    assert load_recipe(trained / "sum" / "recipe.yaml").training.batch_size == 4
    assert [row["seed"] for row in rows(trained / "sum" / "answers.jsonl")] == [1]


def test_what_cannot_be_trained_or_scored_costs_no_earlier_run(
    trained: Path, monkeypatch: pytest.MonkeyPatch, failing: Callable[..., str]
) -> None:
    said = failing("train", "toy.yaml", "-o", "run", "--overwrite", "--seeds", "1", "2", "training.curriculum=[[0, 1]]")
    assert "no training example is for the stage of the curriculum up to 0" in said
    monkeypatch.setattr(MoreX, "make_data", lambda *_, **__: TaskData(toy_data(20, divided=False), "toys"))
    said = failing("train", "toy.yaml", "--seeds", "1", "2", "-o", "run", "--overwrite")
    assert "these data are not divided" in said
    assert len(list(trained.glob("*/seed-*/checkpoints.json"))) == 4
    assert len(list(trained.glob("*/results.jsonl"))) == 2


def test_without_matplotlib_there_is_no_plot(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["train", "toy.yaml", "--networks", "sum", "-o", "run", "training.epochs=1"]) == 0
    assert "matplotlib is not installed, so no plot is drawn" in capsys.readouterr().err
    assert not list((folder / "run").glob("*.png"))


def test_a_folder_of_other_things_is_no_place_for_a_run(
    trained: Path, folder: Path, failing: Callable[..., str]
) -> None:
    (folder / "data.md").write_text("mine")
    before = sorted(folder.iterdir())
    assert "error: . holds data.md and nothing that was trained there" in failing("train", "toy.yaml", "-o", ".")
    assert sorted(folder.iterdir()) == before
    assert (folder / "data.md").read_text() == "mine"
    (trained / "notes.txt").write_text("mine")
    for path in trained.glob("*/*.*"):
        path.unlink()
    recipe_run.check_folder(trained)
    assert main(["train", "toy.yaml", "--seeds", "1", "2", "-o", "run"]) == 0
    for run in trained.glob("*/seed-*"):
        shutil.rmtree(run)
    recipe_run.check_folder(trained)
    for name in ("sum", "small sum"):
        shutil.rmtree(trained / name)
    with pytest.raises(RecipeError, match=r"run holds accuracy_by_height\.png and nothing that was"):
        recipe_run.check_folder(trained)
