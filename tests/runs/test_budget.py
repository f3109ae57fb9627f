"""Training for a budget of seconds, here of a clock that advances by one second a step."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor
from training_runs import assert_same, rates_of_steps, run, run_in_pieces

from treemem.data.loader import Batch
from treemem.data.sum_count import SumCount
from treemem.errors import RecipeError
from treemem.runs.training_step import Learner

BUDGET: dict[str, Any] = {"budget": 12.0, "epochs": 3, "schedule": "linear"}
STEPS_OF_A_PASS = 6


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 0
    training_step = Learner.training_step

    def step(self: Learner, batch: Batch, targets: Mapping[str, Tensor]) -> Mapping[str, SumCount]:
        nonlocal seconds
        seconds += 1
        return training_step(self, batch, targets)

    monkeypatch.setattr(Learner, "training_step", step)
    monkeypatch.setattr(time, "process_time", lambda: float(seconds))


def test_an_epoch_is_an_equal_part_of_the_budget_and_passes_follow_each_other(tmp_path: Path) -> None:
    records = run(tmp_path, **BUDGET).records
    assert [record["compute_seconds"] for record in records] == [4.0, 4.0, 4.0]
    train = 2 * STEPS_OF_A_PASS * 8  # two passes
    assert train - 16 < sum(record["examples"] for record in records) <= train
    assert all("validation_accuracy" in record for record in records)


def test_a_step_longer_than_an_epoch_ends_the_run_with_its_budget(tmp_path: Path) -> None:
    records = run(tmp_path, budget=4.0, epochs=30).records
    assert [record["compute_seconds"] for record in records] == [1.0] * 4


def test_the_epoch_that_spends_the_budget_is_evaluated(tmp_path: Path) -> None:
    options: dict[str, Any] = {"budget": 4.0, "epochs": 30, "evaluate_every": 3}
    result = run(tmp_path, **options)
    assert [record["epoch"] for record in result.records if "validation_accuracy" in record] == [3, 4]
    again = run(tmp_path, resume=True, **options)
    assert (again.best_epoch, again.records) == (result.best_epoch, result.records)


def test_the_rate_falls_with_the_budget_that_is_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = rates_of_steps(monkeypatch)
    run(tmp_path, **BUDGET)
    assert rates == pytest.approx([0.05 * (1 - step / 12) for step in range(12)], rel=1e-5)  # a millionth of the budget


def test_a_run_that_was_stopped_goes_on_within_its_pass(tmp_path: Path) -> None:
    options: dict[str, Any] = {**BUDGET, "checkpoint_steps": 3}
    run(tmp_path / "whole", **options)
    run_in_pieces(tmp_path / "stopped", **options)
    assert_same(tmp_path / "whole", tmp_path / "stopped")


def test_patience_ends_a_run_before_its_budget(tmp_path: Path) -> None:
    assert len(run(tmp_path, budget=100.0, epochs=50, learning_rate=1e-9, patience=2).records) == 3


def test_a_budget_with_other_epochs_or_a_curriculum_is_refused(tmp_path: Path) -> None:
    run(tmp_path, **BUDGET)
    with pytest.raises(RecipeError, match="budget=12"):
        run(tmp_path, resume=True, **{**BUDGET, "epochs": 4})
    with pytest.raises(RecipeError, match="curriculum"):
        run(tmp_path / "other", curriculum=2, **BUDGET)
