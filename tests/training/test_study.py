from __future__ import annotations

import base64
import dataclasses
from pathlib import Path

import numpy as np
import pytest
from toy_task import MoreX, toy_data

from treemem import RecipeError
from treemem.task import NetworkConfig
from treemem.training import StudyRun, TrainingOptions, evaluate, read_study, right_answers, run_study
from treemem.training.fit import fit

SUM = NetworkConfig("KindSum", {"hidden_size": 3})
TRAINING = TrainingOptions(epochs=2, batch_size=16, learning_rate=0.1)


def runs(*seeds: int, epochs: int = 2) -> list[StudyRun]:
    return [
        StudyRun(f"sum/seed-{seed}", "sum", SUM, dataclasses.replace(TRAINING, seed=seed, epochs=epochs))
        for seed in seeds
    ]


def test_records_hold_what_training_and_scoring_each_run_alone_gives(tmp_path: Path) -> None:
    data, other = toy_data(), toy_data(20, seed=1, divided=False)
    found = run_study(
        MoreX(), runs(1, 2), {"data": data}, folder=tmp_path / "runs", results=tmp_path / "new" / "study.jsonl",
        files={"other": other}, processes=2,
    )  # fmt: skip
    assert [record["run"] for record in found] == ["sum/seed-1", "sum/seed-2"]
    alone = fit(MoreX(), SUM, data, dataclasses.replace(TRAINING, seed=2), output=tmp_path / "alone")
    for part, (forest, split) in {"test": (data, "test"), "other": (other, None)}.items():
        expected = evaluate(alone.model, forest, split=split)
        score = found[1]["scores"][part][-1]
        assert score["accuracy"] == expected.overall.accuracy
        assert score["network"] == "sum"
        assert right_answers(found[1], part).tolist() == expected.right.tolist()
    assert found[1]["best_epoch"] == alone.best_epoch
    assert set(found[1]["scores"]) == {"train", "validation", "test", "other"}
    assert read_study(tmp_path / "new" / "study.jsonl") == found


def test_what_is_recorded_is_not_run_again_and_what_is_missing_is(tmp_path: Path) -> None:
    data, results = {"data": toy_data()}, tmp_path / "study.jsonl"
    first = run_study(MoreX(), runs(1), data, folder=tmp_path / "runs", results=results, splits=("validation",))
    assert set(first[0]["scores"]) == {"validation"}
    both = run_study(MoreX(), runs(2, 1), data, folder=tmp_path / "runs", results=results)
    assert both[1] == first[0]
    assert set(both[0]["scores"]) == {"train", "validation", "test"}
    assert [record["run"] for record in read_study(results)] == ["sum/seed-2", "sum/seed-1"]


@pytest.mark.parametrize("changed", ["training", "data"])
def test_a_record_of_other_options_or_data_is_refused(tmp_path: Path, changed: str) -> None:
    results = tmp_path / "study.jsonl"
    run_study(MoreX(), runs(1), {"data": toy_data()}, folder=tmp_path / "runs", results=results)
    again = runs(1, epochs=3 if changed == "training" else 2)
    data = toy_data(seed=9 if changed == "data" else 0)
    with pytest.raises(RecipeError, match=f"'sum/seed-1' with other {changed}"):
        run_study(MoreX(), again, {"data": data}, folder=tmp_path / "runs", results=results)


def test_two_runs_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="one name"):
        run_study(MoreX(), runs(1, 1), {"data": toy_data()}, folder=tmp_path, results=tmp_path / "study.jsonl")


def test_right_answers_come_back_as_they_were_packed() -> None:
    bits = np.array([1, 0, 1, 0, 1, 1, 0, 1, 1, 0, 0], bool)
    packed = base64.b64encode(np.packbits(bits).tobytes()).decode()
    assert right_answers({"right": {"test": [11, packed]}}, "test").tolist() == bits.tolist()
