"""Loading the checkpoints of a run."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from checkpoint.saved_models import has_weights_of, new_model

import treemem
from treemem import checkpoint
from treemem.checkpoint import RunFolder
from treemem.errors import CheckpointError


def saved_in_run(run: Path, *seeds: int, best: bool = True) -> None:
    """Write a checkpoint of a run for each seed of a model."""
    for seed in seeds:
        RunFolder(run).save(checkpoint.files_of(new_model(seed)), best=best)


def test_a_run_means_its_best_checkpoint_and_a_damaged_one_the_one_before_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved_in_run(tmp_path, 1, 2)
    saved_in_run(tmp_path, 3, best=False)
    assert has_weights_of(tmp_path, 2)
    assert not caplog.text
    for name in ("model.safetensors", "manifest.json"):
        (tmp_path / "checkpoints" / "000002" / name).write_bytes(b"torn")
        with caplog.at_level(logging.WARNING):
            assert has_weights_of(tmp_path, 1)
        assert f"{name} is" in caplog.text
        assert f"{tmp_path / 'checkpoints' / '000001'} is used instead" in caplog.text
    with pytest.raises(CheckpointError, match=r"000002/manifest\.json is missing or damaged"):
        treemem.load(tmp_path / "checkpoints" / "000002")
    assert has_weights_of(tmp_path / "checkpoints" / "000003", 3)


def test_a_folder_with_one_run_in_it_is_loaded_and_of_several_all_are_named(tmp_path: Path) -> None:
    saved_in_run(tmp_path / "runs" / "a" / "seed-1", 1)
    assert has_weights_of(tmp_path / "runs", 1)
    saved_in_run(tmp_path / "runs" / "b", 2)
    with pytest.raises(CheckpointError, match=r"holds these runs, of which you may choose one: .*a/seed-1, .*runs/b$"):
        treemem.load(tmp_path / "runs")
    with pytest.raises(CheckpointError, match=r"no checkpoint .*runs/c; .*runs holds these runs: '.*a/seed-1', '.*b'$"):
        treemem.load(tmp_path / "runs" / "c")


def test_a_folder_of_runs_does_not_hide_the_model_that_comes_along_under_its_name_and_a_run_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        saved_in_run(tmp_path / "equation_verification" / name, 1)
    assert checkpoint.read("equation_verification")[0] == checkpoint.pretrained_folder("equation_verification")
    saved_in_run(tmp_path / "equation_verification", 1)
    assert treemem.load("equation_verification").task.name == "more_x"
