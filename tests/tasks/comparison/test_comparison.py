from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treemem.cli import main
from treemem.errors import RecipeError
from treemem.networks import NETWORKS, every_network
from treemem.nn import LSTM
from treemem.runs import read_study, run_study
from treemem.runs.results_page import rendered, write_block, write_page
from treemem.runs.study import StudyRun, check_same
from treemem.runs.trainer import DivergedError
from treemem.task import TASKS, Task
from treemem.tasks.comparison import comparison
from treemem.tasks.comparison.comparison import (
    BEYOND,
    FOLDER,
    Part,
    divided,
    parts_of,
    run_part,
)
from treemem.tasks.comparison.report import (
    at_majority,
    cost_panels,
    majority_of,
    of_unlike_seeds,
    summary_table,
    with_trivial_trees,
)

RESULTS = Path(__file__).parents[3] / "docs" / "results"
STUDIES = ("small", "published")
PARTS = [part for study in STUDIES for part in parts_of(study)]
DATA = {
    "logic": {"size": 300, "seed": 1},
    "listops": {
        "training_size": 80, "validation_size": 20, "test_size": 20, "test_sets": ["iid", "31-50"], "pool": 200,
    },
    "equations": {"size": 1000},
}  # fmt: skip


def smaller(part: Part, *networks: str) -> Part:
    """The part with few examples, one epoch and two seeds, for some networks."""
    without = [name for name in every_network(4) if name not in networks]
    training = {**part.training, "epochs": 1}
    return dataclasses.replace(
        part, data=DATA[part.name], training=training, without=without, seeds=(1, 2), weights=5000
    )


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Part]:
    """Smaller parts of the study ``small`` in place of it."""
    parts = {part.name: smaller(part, "Tree-RNN", "RNN") for part in parts_of("small")}
    monkeypatch.setattr(comparison, "parts_of", lambda study: list(parts.values()) if study == "small" else [])
    return parts


def test_the_page_is_what_reproduce_writes_from_the_committed_records(tmp_path: Path) -> None:
    write_page(FOLDER, RESULTS / FOLDER.page, tmp_path / "comparison.md")
    assert (tmp_path / "comparison.md").read_text() == (RESULTS / "comparison.md").read_text()
    for plot in tmp_path.glob("*.svg"):
        assert (RESULTS / plot.name).exists()


def test_the_readme_has_the_table_that_reproduce_writes(tmp_path: Path) -> None:
    readme = (RESULTS.parents[1] / "README.md").read_text()
    (tmp_path / "README.md").write_text(
        re.sub("(?<=<!-- comparison -->\n).*(?=<!-- end)", "older\n", readme, flags=re.S)
    )
    block = rendered(FOLDER, RESULTS / FOLDER.page, tmp_path / "page.md", "readme.md.j2")
    assert "| Tree-RNN " in block
    write_block(tmp_path / "README.md", "comparison", block)
    assert (tmp_path / "README.md").read_text() == readme


def test_networks_that_read_tokens_count_in_prefix_form() -> None:
    part = next(part for part in PARTS if part.title == "small-equations")
    rows = part.finished(read_study(RESULTS / FOLDER.page / f"{part.title}.jsonl"))
    beyond = [run["scores"][BEYOND]["accuracy"][-1] for run in rows["LSTM, preorder"]]
    table = summary_table({"equations": (part, rows)}).splitlines()
    (line,) = (line for line in table if line.startswith("| LSTM "))
    assert f" {100 * np.mean(beyond):.2f} ± " in line
    assert "tokens" in line
    assert any(line.startswith("| Tree-LSTM ") and "gold trees" in line for line in table)


def test_a_panel_for_each_form_has_all_seeds_by_what_the_networks_read() -> None:
    part = next(part for part in PARTS if part.title == "small-equations")
    rows = part.finished(read_study(RESULTS / FOLDER.page / f"{part.title}.jsonl"))
    speeds = {row: {"epoch": float(place)} for place, row in enumerate(rows)}
    panels = cost_panels("Equations", part, rows, speeds)
    assert list(panels) == ["Equations, function", "Equations, preorder"]
    for form in ("function", "preorder"):
        read = panels[f"Equations, {form}"]
        beyond = [100 * run["scores"][BEYOND]["accuracy"][-1] for run in rows[f"LSTM, {form}"]]
        assert read["tokens"]["LSTM"] == (speeds[f"LSTM, {form}"]["epoch"], beyond)
        assert {"Tree-LSTM", "TreeCell"} < read["gold trees"].keys()
        assert list(read["tokens and gold trees"]) == ["SPINN, gold transitions"]
    del speeds["LSTM, function"]
    assert "LSTM" not in cost_panels("Equations", part, rows, speeds)["Equations, function"]["tokens"]


def test_the_page_names_what_did_not_learn_and_what_only_some_seeds_learned() -> None:
    part = next(part for part in PARTS if part.title == "small-logic")
    rows = part.finished(read_study(RESULTS / FOLDER.page / f"{part.title}.jsonl"))
    beyond = {row: [100 * run["scores"][BEYOND]["accuracy"][-1] for run in runs] for row, runs in rows.items()}
    assert at_majority(rows) == [row for row, values in beyond.items() if np.mean(values) < majority_of(rows) + 1]
    assert "RNN" in at_majority(rows)
    assert "TreeCell" not in at_majority(rows)
    unlike = [row for row, values in beyond.items() if np.ptp(values) >= 10]
    assert [each.split(" (")[0] for each in of_unlike_seeds(rows)] == unlike


def test_the_page_names_networks_whose_trees_are_no_better_than_those_of_the_length() -> None:
    def record(name: str, f1: list[float]) -> dict[str, Any]:
        baselines = {"left": 0.1, "right": 0.5, "balanced": 0.3, "random": 0.2}
        groups = [
            {"group": "test", "corpus": {"f1": {"seed 1": 0.9}, **baselines}},
            {"group": BEYOND, "corpus": {"f1": {f"seed {n}": value for n, value in enumerate(f1)}, **baselines}},
        ]
        return {"network": name, "groups": groups}

    assert with_trivial_trees([record("A", [0.9, 0.0]), record("B", [0.9, 0.2]), record("C", [0.5])]) == ["A", "C"]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.title)
def test_every_record_is_of_a_run_with_its_options(part: Part) -> None:
    results = RESULTS / FOLDER.page / f"{part.title}.jsonl"
    for record in read_study(results):
        training = record["training"]
        run = part.run(record["row"], training["learning_rate"], training["seed"])
        assert run.name == record["run"]
        assert abs(record["parameters"] - part.weights) <= 0.1 * part.weights
        check_same(run, part.recipe.make_task(), record["data"]["hash"], record, results, results.parent)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.title)
def test_every_encoder_takes_part_but_the_named_ones(part: Part) -> None:
    networks = every_network(4)
    assert {*part.without} <= {*networks}
    in_forms = {f"{name}, {form}": name for name in networks for form in part.forms}
    assert {in_forms.get(row, row) for row in part.rows} == {*networks} - {*part.without}
    assert part.rows.keys() == part.recipe.networks.keys()
    if part.forms:
        assert {f"LSTM, {form}" for form in part.forms} == {row for row in part.rows if row.startswith("LSTM")}


@pytest.mark.parametrize("name", ["logic", "equations"])
def test_a_part_runs_once_and_its_page_shows_it(name: str, small_parts: dict[str, Part], tmp_path: Path) -> None:
    part = small_parts[name]
    runs, results, page = tmp_path / "runs", tmp_path / "records", tmp_path / "page.md"
    words = ["reproduce", "comparison", part.title, "--runs", str(runs), "--results", str(results), "--page", str(page)]
    assert main(words) == 0
    records = read_study(results / f"{part.title}.jsonl")
    finished = part.finished(records)
    assert len(records) == len(part.rows) * (len(part.rates) + len(part.seeds) - 1)
    assert finished.keys() == part.rows.keys()
    for own in finished.values():
        trials = [each for each in records if each["row"] == own[0]["row"] and each["training"]["seed"] == 1]
        best = max(each["scores"]["validation"]["accuracy"][-1] for each in trials)
        assert own[0]["scores"]["validation"]["accuracy"][-1] == best
        assert {*own[0]["scores"]} == {"validation", "test", BEYOND}
        unchosen = [{"validation"}] * (len(part.rates) - 1)
        assert [{*each["scores"]} for each in trials if each is not own[0]] == unchosen
    speeds = read_study(results / f"{part.title}-speed.jsonl")
    assert [each["row"] for each in speeds] == [*part.rows]
    text = page.read_text()
    assert all(f"| {row} " in text for row in part.rows)
    others = [each.title for each in small_parts.values() if each is not part]
    assert all(f"treemem reproduce comparison {title}" in text.split("## Not run yet")[1] for title in others)
    before = (results / f"{part.title}.jsonl").read_bytes()
    assert main(words) == 0
    assert (results / f"{part.title}.jsonl").read_bytes() == before
    assert page.read_text() == text


def test_a_network_of_ones_own_runs_alone_and_stands_in_the_table_of_the_others(
    small_parts: dict[str, Part],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def failing(*words: str) -> str:
        assert main([*words]) == 2
        return capsys.readouterr().err

    class Mine(LSTM):
        pass

    monkeypatch.setitem(NETWORKS._targets, "Mine", Mine)
    part, results, page = small_parts["equations"], tmp_path / "records", tmp_path / "page.md"
    words = ["reproduce", "comparison", part.title, "--runs", str(tmp_path / "runs"), "--results", str(results)]
    words += ["--page", str(page)]
    assert main([*words, "--networks", "Mine"]) == 0
    rows = ["Mine, function", "Mine, preorder"]
    assert {each["row"] for each in read_study(results / f"{part.title}.jsonl")} == {*rows}
    assert all(abs(each["parameters"] - 5000) <= 500 for each in read_study(results / f"{part.title}.jsonl"))
    assert [each["row"] for each in read_study(results / f"{part.title}-speed.jsonl")] == rows
    before = (results / f"{part.title}.jsonl").read_text()
    assert main([*words, "--networks", "Tree-RNN", "LSTM"]) == 0
    assert before in (results / f"{part.title}.jsonl").read_text()
    found = {each["row"] for each in read_study(results / f"{part.title}-speed.jsonl")}
    assert found == {"Tree-RNN", "LSTM, function", "LSTM, preorder", *rows}
    summary = page.read_text().split("## All tasks")[1].split("##")[0]
    cells = [line.split("|")[1:3] for line in summary.splitlines() if line.startswith("| ")]
    assert [tuple(map(str.strip, each)) for each in cells][2:] == [
        ("Tree-RNN", "gold trees"), ("LSTM", "tokens"), ("Mine", "tokens"),
    ]  # fmt: skip
    assert "no network 'Mime'; did you mean Mine" in failing(*words, "--networks", "Mime")
    assert "only comparison takes networks" in failing("reproduce", "listops", "--networks", "Mine")
    assert "no study 'smal-equations'; did you mean small-equations" in failing(
        "reproduce", "comparison", "smal-equations"
    )


def test_a_row_that_diverges_stops_no_other_and_is_told_at_the_end(
    small_parts: dict[str, Part], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(task: Task, runs: Sequence[StudyRun], *arguments: Any, **options: Any) -> list[dict[str, Any]]:
        if runs[0].row == "Tree-RNN":
            raise DivergedError("the loss is not finite")
        return run_study(task, runs, *arguments, **options)

    monkeypatch.setattr(comparison, "run_study", run)
    part = small_parts["logic"]
    with pytest.raises(DivergedError):
        run_part(part, runs=tmp_path, results=tmp_path)
    assert {*part.finished(read_study(tmp_path / "small-logic.jsonl"))} == {"RNN"}


def test_induced_trees_are_scored_once(
    small_parts: dict[str, Part], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = dataclasses.replace(smaller(small_parts["listops"], "RNN", "ON-LSTM"), weights=4500)
    small_parts["listops"] = part
    run_part(part, runs=tmp_path, results=tmp_path)
    (record,) = read_study(tmp_path / "small-listops-trees.jsonl")
    assert record["network"] == "ON-LSTM"
    assert [each["group"] for each in record["groups"]] == [BEYOND, "test"]
    for each in record["groups"]:
        assert each["corpus"]["f1"].keys() == {"seed 1", "seed 2"}
        assert 0 <= each["sentence"]["agreement"] <= 1
    monkeypatch.delattr(comparison, "found_trees")
    run_part(part, runs=tmp_path, results=tmp_path)
    assert read_study(tmp_path / "small-listops-trees.jsonl") == [record]
    write_page(FOLDER, tmp_path, tmp_path / "page.md")
    assert "### Induced trees" in (tmp_path / "page.md").read_text()


def test_a_network_counts_when_all_its_seeds_are_scored(small_parts: dict[str, Part], tmp_path: Path) -> None:
    part = small_parts["logic"]
    run_part(part, runs=tmp_path, results=tmp_path)
    records = read_study(tmp_path / "small-logic.jsonl")
    last = [record for record in records if record["row"] == "RNN"][-1]
    assert {*part.finished([record for record in records if record is not last])} == {"Tree-RNN"}
    assert part.finished([]) == {}


@pytest.mark.parametrize("name", DATA)
def test_only_the_test_beyond_training_has_higher_groups(name: str) -> None:
    part = next(part for part in parts_of("small") if part.name == name)
    task = TASKS.find(part.task)(**part.task_options)
    data = task.make_data(smaller(part, "Tree-RNN").recipe.data).forest
    within, beyond = (task.examples(forest) for forest in divided(task, data))
    most = within.group[within.part("train")].max()
    assert (within.group <= most).all()
    assert (beyond.group > most).all()
    assert len(within) + len(beyond) == len(task.examples(data))
    assert all(len(within.part(split)) for split in ("train", "validation", "test"))


def test_data_without_higher_groups_are_refused() -> None:
    task = TASKS.find("listops")()
    options = task.data_options(training_size=40, validation_size=10, test_size=10, pool=100)
    data = task.make_data(options).forest
    split = np.where(data.tree_data["split"] == "test", "validation", data.tree_data["split"])
    with pytest.raises(RecipeError, match="needs test examples beyond the length"):
        divided(task, data.with_data(tree_data={**data.tree_data, "split": split}))
