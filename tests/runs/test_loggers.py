"""What loggers get, and that a run outlives them."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from toy_task import MoreX, toy_data
from training_runs import NETWORK, OPTIONS, assert_same, run, stopped_run

from treemem.errors import RecipeError
from treemem.runs import Logger, TensorBoardLogger, fit
from treemem.runs.training_loop import FitResult


def logged(output: Path, *loggers: Logger, resume: bool = False) -> FitResult:
    return fit(MoreX(), NETWORK, toy_data(), OPTIONS, output=output, resume=resume, loggers=loggers)


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The points of the event files of a folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def lines(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def test_a_logger_gets_a_copy_of_each_record_after_its_checkpoint_is_written(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    checkpoints: list[list[str]] = []

    def keep(record: Mapping[str, Any]) -> None:
        seen.append({**record})
        checkpoints.append(sorted(path.name for path in (tmp_path / "checkpoints").iterdir()))
        record["validation"].clear()

    result = logged(tmp_path, lambda record: record["validation"].pop(), keep)
    assert [record["epoch"] for record in seen] == [1, 2, 3]
    assert ["000001" in checkpoints[0], "000003" in checkpoints[2]] == [True, True]
    assert result.records == lines(tmp_path)
    assert all(record["validation"] for record in result.records)
    assert [record["loss"] for record in seen] == [record["loss"] for record in result.records]


def test_a_run_goes_on_after_an_exception_in_a_logger_and_warns_at_each_epoch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(record: Mapping[str, Any]) -> None:
        raise ConnectionError(f"no network at {record['epoch']}")

    after: list[int] = []
    logged(tmp_path / "logged", broken, lambda record: after.append(record["epoch"]))
    run(tmp_path / "plain")
    assert_same(tmp_path / "logged", tmp_path / "plain")
    assert after == [1, 2, 3]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 3
    assert warnings[1].startswith("epoch 2: the logger ")
    assert "broken raised ConnectionError: no network at 2; its checkpoint is written" in warnings[1]


def test_a_run_that_a_logger_interrupts_is_resumed_from_the_checkpoint_of_that_epoch(tmp_path: Path) -> None:
    seen: list[int] = []

    def stop(record: Mapping[str, Any]) -> None:
        seen.append(record["epoch"])
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        logged(tmp_path / "stopped", stop)
    logged(tmp_path / "stopped", stop, resume=True)
    run(tmp_path / "whole")
    assert seen == [1, 2, 3]
    assert_same(tmp_path / "stopped", tmp_path / "whole")


def test_what_is_no_logger_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"a logger is a function of a record, such as Tens.*, not 'tensorboard'"):
        logged(tmp_path / "run", "tensorboard")  # type: ignore[arg-type]
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_folder_of_curves_that_cannot_be_written_is_an_error_of_the_library(tmp_path: Path) -> None:
    (tmp_path / "curves").write_text("a file")
    with pytest.raises(RecipeError, match=r"cannot write .*curves"):
        TensorBoardLogger(tmp_path / "curves")


def test_curves_of_tensorboard_hold_every_number_of_the_records(tmp_path: Path) -> None:
    with closing(TensorBoardLogger(tmp_path / "curves")) as log:
        result = logged(tmp_path / "run", log)
    found = curves(tmp_path / "curves")
    numbers = {name for name, value in result.records[0].items() if isinstance(value, (int, float))} - {"epoch"}
    assert {*found} == numbers
    for name in numbers:
        assert found[name] == [(record["epoch"], pytest.approx(record[name])) for record in result.records]


def test_curves_of_a_resumed_run_have_each_epoch_once(tmp_path: Path) -> None:
    stopped_run(tmp_path, 2, tensorboard=True)  # between the checkpoint of epoch 2 and its point
    assert [step for step, _ in curves(tmp_path / "tensorboard")["loss"]] == [1]
    for epochs in (3, 4):
        result = run(tmp_path, tensorboard=True, resume=True, epochs=epochs)
        assert curves(tmp_path / "tensorboard")["loss"] == [
            (record["epoch"], pytest.approx(record["loss"])) for record in result.records
        ]


def test_a_logger_of_ones_own_leaves_the_points_that_are_there(tmp_path: Path) -> None:
    for epoch in (1, 2):
        with closing(TensorBoardLogger(tmp_path)) as log:
            log({"epoch": epoch, "loss": 0.5, "validation": [], "is_best": True})
    assert curves(tmp_path) == {"loss": [(1, 0.5), (2, 0.5)]}


def test_weights_and_biases_gets_options_numbers_and_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[dict[str, Any]] = []
    points: list[tuple[int, dict[str, float]]] = []
    ended: list[bool] = []

    def log(numbers: dict[str, float], step: int) -> None:
        points.append((step, numbers))
        if step == 2:
            raise ConnectionError("the service is away")

    def init(**options: Any) -> Any:
        begun.append(options)
        return SimpleNamespace(log=log, finish=lambda: ended.append(True))

    stub = ModuleType("wandb")
    stub.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", stub)
    result = run(tmp_path, wandb="trees")
    (options,) = begun
    assert (options["project"], options["name"], options["dir"]) == ("trees", str(tmp_path), str(tmp_path))
    assert options["config"]["learning_rate"] == OPTIONS.learning_rate
    assert options["config"]["network"] == "KindSum"
    assert [step for step, _ in points] == [1, 2, 3]
    assert points[2][1]["validation_accuracy"] == result.records[2]["validation_accuracy"]
    assert ended == [True]
    assert "epoch 2: the logger WandbLogger raised ConnectionError: the service is away" in caplog.text


def test_a_logger_that_is_not_installed_is_told_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(RecipeError, match=r"wandb is not installed; pip install 'treemem\[wandb\]'"):
        run(tmp_path / "run", wandb="trees")
    assert not (tmp_path / "run" / "checkpoints").exists()
