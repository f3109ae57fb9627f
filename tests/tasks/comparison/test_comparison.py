from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from treemem.cli import main
from treemem.errors import RecipeError
from treemem.networks import NETWORKS, every_network
from treemem.nn import LSTM
from treemem.records import write_records
from treemem.runs import read_study
from treemem.runs.data_sets import StudyPlaces, hashes_at_hand
from treemem.runs.results_page import rendered, write_block, write_page
from treemem.runs.run import StudyRun
from treemem.runs.study import run_study
from treemem.runs.training_loop import DivergedError
from treemem.task import TASKS
from treemem.tasks import queue
from treemem.tasks.comparison import comparison, report
from treemem.tasks.comparison.beyond import divided
from treemem.tasks.comparison.comparison import BEYOND, FOLDER, Part, Trial, best_trial, comparison_parts, run_row
from treemem.tasks.listops.data import ListOpsDataOptions

RESULTS = Path(__file__).parents[3] / "docs" / "results"
PARTS = comparison_parts()
RATES = {"adam": {"rates": [0.001, 0.01, 0.1]}, "muon": {"rates": [0.002, 0.02], "weight_decay": 0.1}}


def part_with(**fields: Any) -> Part:
    return dataclasses.replace(PARTS["listops"], optimizers=RATES, **fields)


def trials_until_done(part: Part, accuracy: dict[tuple[str, float], float | None]) -> list[Trial]:
    done: list[Trial] = []
    while (trial := part.next_trial(done)) is not None:
        done.append(dataclasses.replace(trial, accuracy=accuracy.get((trial.optimizer, trial.rate), 0.0)))
    return done


@pytest.mark.parametrize(
    ("best", "beyond"),
    [
        (("adam", 0.001), ("adam", 0.0001)),
        (("adam", 0.1), ("adam", 1.0)),
        (("muon", 0.02), ("muon", 0.2)),
        (("adam", 0.01), None),
    ],
)
def test_one_more_rate_is_tried_where_the_best_is_the_lowest_or_highest(
    best: tuple[str, float], beyond: tuple[str, float] | None
) -> None:
    done = trials_until_done(part_with(), {best: 0.9})
    assert [(each.optimizer, each.rate) for each in done[:5]] == [
        (name, rate)
        for name, own in RATES.items()
        for rate in own["rates"]  # type: ignore[attr-defined]
    ]
    assert [(each.optimizer, each.rate) for each in done[5:]] == ([] if beyond is None else [beyond])
    chosen = best_trial(done)
    assert chosen is not None
    assert (chosen.optimizer, chosen.rate) == best


def test_a_trial_whose_loss_is_not_finite_is_never_the_best() -> None:
    done = trials_until_done(part_with(), {("adam", 0.01): None, ("adam", 0.1): None, ("muon", 0.02): 0.1})
    chosen = best_trial(done)
    assert chosen is not None
    assert chosen.accuracy == 0.1
    assert best_trial([Trial("adam", 0.1, None)]) is None


@pytest.mark.parametrize("part", PARTS.values(), ids=lambda part: part.name)
def test_the_networks_of_a_part_have_about_the_same_number_of_weights(part: Part) -> None:
    assert {*part.first, *part.wide, *part.unscored} <= {*part.order}
    assert {*part.order} == {*part.recipe.networks}
    memories = [each for each in part.recipe.networks.values() if each.network == "OrderedMemory"]
    assert {*part.options} == {"OrderedMemory"}
    assert all(part.options["OrderedMemory"].items() <= each.options.items() for each in memories)
    files = [part.file_of(Path(), row) for row in part.order]
    assert len(set(files)) == len(files)
    for run in (part.trial_of("TreeCell", Trial("muon", 0.004)), part.run_with("TreeCell", Trial("adam", 0.002), 7)):
        assert run.training.budget is not None
        assert run.training.budget * (10 if "trial" in run.name else 1) == 900


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Part:
    """Two small networks on few expressions, with budgets of a fraction of a second."""
    options = ListOpsDataOptions(
        training_size=80, validation_size=20, test_size=20, test_sets=["iid", "31-50"], pool=200
    )
    task = TASKS.find("listops")(dropout=0.0)
    within, beyond = divided(task, task.make_data(options).forest)
    undivided = {name: array for name, array in beyond.tree_data.items() if name != "split"}  # as sets of a study are
    data = within, beyond.with_data(tree_data=undivided)
    monkeypatch.setattr(Part, "tests", lambda part, sets: data)
    training = {**PARTS["listops"].training, "budget": 0.2, "epochs": 2}
    trial = {"budget": 0.02, "epochs": 1}
    networks = {name: every_network(4)[name] for name in ("Tree-RNN", "ON-LSTM")}
    monkeypatch.setattr(comparison, "every_network", lambda size: networks)
    fields = {"seeds": (1, 2), "weights": 4500, "files": (), "wide": {}, "first": ()}
    return part_with(**fields, training=training, trial=trial)


def places_in(folder: Path) -> StudyPlaces:
    return StudyPlaces(folder / "runs", folder, folder / "page.md")


def run(part: Part, row: str, folder: Path) -> None:
    run_row(part, row, places_in(folder))


def is_done(part: Part, row: str, folder: Path, hash_of: Callable[[str], str | None] = lambda name: None) -> bool:
    return part.is_done(row, places_in(folder), hash_of)


def test_a_row_runs_its_trials_and_its_seeds_once_and_stands_on_the_page(
    tiny: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="treemem")
    for row in ("Tree-RNN", "ON-LSTM"):
        assert not is_done(tiny, row, tmp_path)
        run(tiny, row, tmp_path)
        assert "--again" not in caplog.text
        assert is_done(tiny, row, tmp_path)
        trials, records = tiny.recorded_trials(tmp_path, row), tiny.records(tmp_path, row)
        best = best_trial(trials)
        assert best is not None
        assert len(trials) in (5, 6)
        for record, seed in zip(records, (1, 2), strict=True):
            planned = tiny.run_with(row, best, seed)
            assert record["run"] == planned.name
            assert planned.differences(record, tiny.recipe.make_task(), record["data"]["hash"]) == {}
            assert {*record["scores"]} == {"validation", "test", BEYOND}
            assert record["environment"].keys() == {"treemem", "torch", "processor"}
            assert len(record["curve"]) == record["epochs"]
            assert record["compute_seconds"] >= 0.2
    within, beyond = tiny.tests(cast(Any, None))
    others = [hashes_at_hand(tiny.recipe.make_task(), {"data": within, BEYOND: data}.get) for data in (beyond, within)]
    assert [is_done(tiny, "ON-LSTM", tmp_path, hash_of) for hash_of in others] == [True, False]
    assert {len(each["data"]["hash"]) for each in read_study(tmp_path / "learned-listops" / "trials.jsonl")} == {64}
    (trees,) = read_study(tmp_path / "learned-listops" / "on-lstm-trees.jsonl")
    assert trees["network"] == "ON-LSTM"
    assert trees["weights"] == {f"seed {each['training']['seed']}": each["weights"] for each in records}
    for group in trees["groups"]:
        assert group["corpus"]["f1"].keys() == {"seed 1", "seed 2"}
        assert 0 <= group["sentence"]["agreement"] <= 1
    monkeypatch.setattr(report, "comparison_parts", lambda: {"listops": tiny})
    write_page(FOLDER, tmp_path, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    shown = ["summary", "sizes and accuracies", "budget", "trials"]
    assert text.count("| Tree-RNN ") - len(shown) in (0, 1)  # the worse network stands in the comparison with the best
    assert (tmp_path / "page_learned-listops.svg").exists()
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "README.md").write_text("Above\n<!-- comparison -->\nolder\n<!-- end of comparison -->\nbelow\n")
    write_page(FOLDER, tmp_path, tmp_path / "docs" / "results" / "comparison.md")
    readme = (tmp_path / "README.md").read_text()
    assert "**Every network for the same computing time.**" in readme
    assert readme.count("| Tree-RNN ") == 1
    assert (readme[:6], readme[-6:], "older" in readme) == ("Above\n", "below\n", False)
    before = {path: path.read_bytes() for path in tmp_path.glob("learned-listops/*")}
    caplog.clear()
    run(tiny, "ON-LSTM", tmp_path)
    assert caplog.text.count("on-lstm.jsonl: 1 of 1 runs are recorded; --again FOLDER trains them anew") == 2
    assert {path: path.read_bytes() for path in tmp_path.glob("learned-listops/*")} == before


def test_trees_are_scored_of_the_runs_that_are_there(tiny: Part, tmp_path: Path) -> None:
    run(tiny, "ON-LSTM", tmp_path)
    file, runs = tiny.trees_file_of(tmp_path, "ON-LSTM"), tmp_path / "runs"
    (whole,) = read_study(file)
    file.unlink()  # as if killed after the last run
    assert not is_done(tiny, "ON-LSTM", tmp_path)
    first, second = tiny.records(tmp_path, "ON-LSTM")
    gone = tiny.folder(runs) / second["run"]
    gone.rename(tmp_path / "kept")  # as if another machine had made this run
    run(tiny, "ON-LSTM", tmp_path)
    (scored,) = read_study(file)
    assert scored["weights"] == {"seed 1": first["weights"]}
    assert is_done(tiny, "ON-LSTM", tmp_path)
    (tmp_path / "kept").rename(gone)
    (tiny.folder(runs) / first["run"]).rename(tmp_path / "kept")
    run(tiny, "ON-LSTM", tmp_path)
    (merged,) = read_study(file)
    assert merged["weights"] == whole["weights"]
    for group, expected in zip(merged["groups"], whole["groups"], strict=True):
        assert group["corpus"]["f1"] == expected["corpus"]["f1"]


def test_rows_without_all_seeds_tell_so_and_the_page_says_that_some_are_missing(
    tiny: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tiny, "Tree-RNN", tmp_path)
    file = tiny.file_of(tmp_path, "Tree-RNN")
    write_records(file, read_study(file)[:1])
    monkeypatch.setattr(report, "comparison_parts", lambda: {"listops": tiny})
    write_page(FOLDER, tmp_path, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert " (1 of 2 seeds) |" in text
    assert "Networks that are not trained yet have no row" in text


def test_a_network_of_ones_own_takes_part_when_it_is_registered(
    tiny: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(NETWORKS._registered, "Mine", LSTM)
    with_own = dataclasses.replace(tiny, own=["Mine"])
    monkeypatch.setattr(queue, "comparison_parts", lambda networks: {"listops": with_own if networks else tiny})
    monkeypatch.setattr(comparison, "comparison_parts", queue.comparison_parts)
    monkeypatch.setattr(report, "comparison_parts", lambda: {"listops": tiny})
    places = ["--runs", str(tmp_path / "runs"), "--results", str(tmp_path), "--page", str(tmp_path / "page.md")]
    assert main(["reproduce", "comparison", "learned-listops", "--networks", "Mine", *places]) == 0
    assert {each.name for each in (tmp_path / "learned-listops").glob("*.jsonl")} == {"mine.jsonl", "trials.jsonl"}
    assert all(abs(each["parameters"] - 4500) <= 450 for each in tiny.records(tmp_path, "Mine"))
    assert "| Mine " in (tmp_path / "page.md").read_text()


def test_a_row_goes_on_after_its_recorded_trials(tiny: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def stopped_at_third(task: Any, runs: list[StudyRun], *rest: Any, **options: Any) -> Any:
        asked.append(runs[0].name)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return run_study(task, runs, *rest, **options)

    monkeypatch.setattr(comparison, "run_study", stopped_at_third)
    with pytest.raises(KeyboardInterrupt):
        run(tiny, "Tree-RNN", tmp_path)
    assert len(tiny.recorded_trials(tmp_path, "Tree-RNN")) == 2
    run(tiny, "Tree-RNN", tmp_path)
    assert asked[3] == asked[2]
    assert is_done(tiny, "Tree-RNN", tmp_path)


def test_a_row_without_a_finite_loss_ends_with_its_trials(
    tiny: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverging(*arguments: Any, **options: Any) -> Any:
        raise DivergedError("the loss is not finite")

    monkeypatch.setattr(comparison, "run_study", diverging)
    run(tiny, "Tree-RNN", tmp_path)
    assert [each.accuracy for each in tiny.recorded_trials(tmp_path, "Tree-RNN")] == [None] * 5
    assert is_done(tiny, "Tree-RNN", tmp_path)
    assert not tiny.records(tmp_path, "Tree-RNN")


def test_the_page_and_the_readme_are_what_reproduce_writes_from_the_committed_records(tmp_path: Path) -> None:
    write_page(FOLDER, RESULTS / FOLDER.page, tmp_path / "comparison.md")
    assert (tmp_path / "comparison.md").read_text() == (RESULTS / "comparison.md").read_text()
    for plot in tmp_path.glob("*.svg"):
        assert (RESULTS / plot.name).exists()
    readme = (RESULTS.parents[1] / "README.md").read_text()
    older = re.sub("(?<=<!-- comparison -->\n).*(?=<!-- end)", "older\n", readme, flags=re.S)
    (tmp_path / "README.md").write_text(older)
    write_block(
        tmp_path / "README.md",
        "comparison",
        rendered(FOLDER, RESULTS / "comparison", tmp_path / "p.md", "readme.md.j2"),
    )
    assert (tmp_path / "README.md").read_text() == readme


@pytest.mark.parametrize("part", PARTS.values(), ids=lambda part: part.name)
def test_every_record_is_of_a_run_with_its_options(part: Part) -> None:
    results = RESULTS / FOLDER.page
    for row in part.order:
        for record in part.records(results, row):
            best = best_trial(part.recorded_trials(results, row))
            assert best is not None
            run = part.run_with(row, best, record["training"]["seed"])
            assert run.name == record["run"]
            assert run.differences(record, part.make_task(), record["data"]["hash"]) == {}


@pytest.mark.parametrize("name", ["listops", "logical_inference", "equation_verification"])
def test_only_the_test_beyond_training_has_higher_groups(name: str) -> None:
    task = TASKS.find(name)()
    sizes = {"size": 1000} if name != "listops" else {"training_size": 80, "validation_size": 20, "test_size": 20}
    more = {} if name != "listops" else {"test_sets": ["iid", "31-50"], "pool": 200}
    data = task.make_data(task.data_options(**sizes, **more)).forest
    within, beyond = (task.examples(forest) for forest in divided(task, data))
    most = within.group[within.part("train")].max()
    assert (within.group <= most).all()
    assert (beyond.group > most).all()
    assert len(within) + len(beyond) == len(task.examples(data))
    assert all(len(within.part(split)) for split in ("train", "validation", "test"))


def test_data_without_higher_groups_are_refused() -> None:
    task = TASKS.find("listops")()
    data = task.make_data(task.data_options(training_size=40, validation_size=10, test_size=10, pool=100)).forest
    split = np.where(data.tree_data["split"] == "test", "validation", data.tree_data["split"])
    with pytest.raises(RecipeError, match="beyond the length"):
        divided(task, data.with_data(tree_data={**data.tree_data, "split": split}))
