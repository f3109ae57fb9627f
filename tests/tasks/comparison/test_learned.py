from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from treemem.networks import every_network
from treemem.runs import read_study
from treemem.runs.results_page import write_page
from treemem.runs.study import StudyRun, check_same, run_study
from treemem.runs.trainer import DivergedError
from treemem.task import TASKS
from treemem.tasks.comparison import learned, learned_report
from treemem.tasks.comparison.comparison import BEYOND, FOLDER, divided
from treemem.tasks.comparison.learned import LearnedPart, Trial, best_trial, learned_parts, run_row
from treemem.tasks.listops.data import ListOpsDataOptions
from treemem.tasks.recorded_data import DataHashes

PARTS = learned_parts()
RATES = {"adam": {"rates": [0.001, 0.01, 0.1]}, "muon": {"rates": [0.002, 0.02], "weight_decay": 0.1}}


def part_with(**fields: Any) -> LearnedPart:
    return dataclasses.replace(PARTS["listops"], optimizers=RATES, **fields)


def trials_until_done(part: LearnedPart, accuracy: dict[tuple[str, float], float | None]) -> list[Trial]:
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
def test_the_networks_of_a_part_have_about_the_same_number_of_weights(part: LearnedPart) -> None:
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
def tiny(monkeypatch: pytest.MonkeyPatch) -> LearnedPart:
    """Two small networks on few expressions, with budgets of a fraction of a second."""
    options = ListOpsDataOptions(
        training_size=80, validation_size=20, test_size=20, test_sets=["iid", "31-50"], pool=200
    )
    task = TASKS.find("listops")(dropout=0.0)
    data = divided(task, task.make_data(options).forest)
    monkeypatch.setattr(learned, "_tests", lambda part, sets: data)
    training = {**PARTS["listops"].training, "budget": 0.2, "epochs": 2}
    trial = {"budget": 0.02, "epochs": 1}
    without = [name for name in every_network(4) if name not in ("Tree-RNN", "ON-LSTM")]
    fields = {"seeds": (1, 2), "weights": 4500, "files": (), "wide": {}, "first": (), "without": without}
    return part_with(**fields, training=training, trial=trial)


def run(part: LearnedPart, row: str, folder: Path) -> None:
    run_row(part, row, runs=folder / "runs", results=folder)


def test_a_row_runs_its_trials_and_its_seeds_once_and_stands_on_the_page(
    tiny: LearnedPart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="treemem")
    for row in ("Tree-RNN", "ON-LSTM"):
        assert not tiny.is_done(tmp_path, row)
        run(tiny, row, tmp_path)
        assert "nothing is trained" not in caplog.text
        assert tiny.is_done(tmp_path, row)
        trials, records = tiny.recorded_trials(tmp_path, row), tiny.records(tmp_path, row)
        best = best_trial(trials)
        assert best is not None
        assert len(trials) in (5, 6)
        for record, seed in zip(records, (1, 2), strict=True):
            planned = tiny.run_with(row, best, seed)
            assert record["run"] == planned.name
            check_same(planned, tiny.recipe.make_task(), record["data"]["hash"], record, tmp_path, tmp_path)
            assert {*record["scores"]} == {"validation", "test", BEYOND}
            assert record["environment"].keys() == {"treemem", "torch", "processor"}
            assert len(record["curve"]) == record["epochs"]
            assert record["compute_seconds"] >= 0.2
    within, beyond = learned._tests(tiny, cast(Any, None))
    others = [DataHashes(tiny.recipe.make_task(), {"data": within, BEYOND: data}.get) for data in (beyond, within)]
    assert [tiny.is_done(tmp_path, "ON-LSTM", hashes) for hashes in others] == [True, False]
    assert {len(each["data"]["hash"]) for each in read_study(tmp_path / "learned-listops" / "trials.jsonl")} == {64}
    (trees,) = read_study(tmp_path / "learned-listops" / "on-lstm-trees.jsonl")
    assert trees["network"] == "ON-LSTM"
    tiny.trees_file_of(tmp_path, "ON-LSTM").unlink()  # as if killed after the last run
    assert not tiny.is_done(tmp_path, "ON-LSTM")
    run(tiny, "ON-LSTM", tmp_path)
    assert tiny.is_done(tmp_path, "ON-LSTM")
    monkeypatch.setattr(learned_report, "learned_parts", lambda: {"listops": tiny})
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
    tiny.file_of(tmp_path, "ON-LSTM").rename(tmp_path / "kept")  # as if it were not recorded yet
    page: Any = SimpleNamespace(records=lambda name: read_study(tmp_path / f"{name}.jsonl"))
    assert not learned_report.is_complete(page)
    (tmp_path / "kept").rename(tiny.file_of(tmp_path, "ON-LSTM"))
    assert learned_report.is_complete(page)
    before = {path: path.read_bytes() for path in tmp_path.glob("learned-listops/*")}
    caplog.clear()
    run(tiny, "ON-LSTM", tmp_path)
    assert "on-lstm.jsonl: 2 of 2 runs are recorded, so nothing is trained" in caplog.text
    assert {path: path.read_bytes() for path in tmp_path.glob("learned-listops/*")} == before


def test_a_row_goes_on_after_its_recorded_trials(
    tiny: LearnedPart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def stopped_at_third(task: Any, runs: list[StudyRun], *rest: Any, **options: Any) -> Any:
        asked.append(runs[0].name)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return run_study(task, runs, *rest, **options)

    monkeypatch.setattr(learned, "run_study", stopped_at_third)
    with pytest.raises(KeyboardInterrupt):
        run(tiny, "Tree-RNN", tmp_path)
    assert len(tiny.recorded_trials(tmp_path, "Tree-RNN")) == 2
    run(tiny, "Tree-RNN", tmp_path)
    assert asked[3] == asked[2]
    assert tiny.is_done(tmp_path, "Tree-RNN")


def test_a_row_without_a_finite_loss_ends_with_its_trials(
    tiny: LearnedPart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverging(*arguments: Any, **options: Any) -> Any:
        raise DivergedError("the loss is not finite")

    monkeypatch.setattr(learned, "run_study", diverging)
    run(tiny, "Tree-RNN", tmp_path)
    assert [each.accuracy for each in tiny.recorded_trials(tmp_path, "Tree-RNN")] == [None] * 5
    assert tiny.is_done(tmp_path, "Tree-RNN")
    assert not tiny.records(tmp_path, "Tree-RNN")
