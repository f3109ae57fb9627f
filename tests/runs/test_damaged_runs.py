from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_task import KindSum, MoreX, toy_data
from training_runs import NETWORK, OPTIONS, assert_same, epoch_of_best, last_state, run, stopped_run

import treemem
from treemem import checkpoint
from treemem.checkpoint import RunFolder
from treemem.errors import CheckpointError, RecipeError, TreememError
from treemem.runs.fit import fit
from treemem.runs.progress import RunLog


def folders(output: Path, kind: str) -> list[Path]:
    """The best or the last checkpoints, the newest first."""
    named = json.loads((output / "checkpoints.json").read_text())[kind]
    return [output / "checkpoints" / f"{number:06d}" for number in named]


@pytest.mark.parametrize(
    ("name", "damage"),
    [("training_state.pt", "torn"), ("model.safetensors", "missing"), ("manifest.json", "torn"), ("", "no folder")],
)
def test_a_damaged_last_checkpoint_makes_it_resume_from_the_one_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, damage: str
) -> None:
    run(tmp_path / "whole")
    stopped_run(tmp_path / "broken", 4, checkpoint_steps=2)
    damaged = folders(tmp_path / "broken", "last")[0]
    if damage == "no folder":
        shutil.rmtree(damaged)
    elif damage == "missing":
        (damaged / name).unlink()
    else:
        (damaged / name).write_bytes((damaged / name).read_bytes()[:-10])
    with caplog.at_level(logging.WARNING):
        run(tmp_path / "broken", resume=True)
    assert damage == "no folder" or f"{damaged / name} is " in caplog.text or f"{damaged / name} cannot" in caplog.text
    assert_same(tmp_path / "whole", tmp_path / "broken")


def test_a_damaged_last_checkpoint_does_not_take_the_place_of_the_whole_one_before_it(tmp_path: Path) -> None:
    stopped_run(tmp_path, 2)
    torn, whole = folders(tmp_path, "last")
    (torn / "training_state.pt").unlink()
    stopped_run(tmp_path, 1, resume=True)
    assert folders(tmp_path, "last")[1] == whole
    checkpoint.verified_files(whole)


def test_resuming_where_every_checkpoint_is_damaged_is_an_error(tmp_path: Path) -> None:
    run(tmp_path)
    for folder in (tmp_path / "checkpoints").iterdir():
        (folder / "manifest.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"cannot resume .*manifest\.json is missing or damaged.*overwrite"):
        run(tmp_path, resume=True)
    with pytest.raises(CheckpointError, match=r"manifest\.json is missing or damaged"):
        treemem.load(tmp_path)


@pytest.mark.parametrize("content", [None, b"{", b'{"best": ["x"], "last": []}'])
def test_without_the_file_of_pointers_the_newest_checkpoint_counts(tmp_path: Path, content: bytes | None) -> None:
    stopped_run(tmp_path / "broken", 5, checkpoint_steps=2)
    pointers = tmp_path / "broken" / "checkpoints.json"
    if content is None:
        pointers.unlink()
    else:
        pointers.write_bytes(content)
    assert treemem.load(tmp_path / "broken")
    result = run(tmp_path / "broken", resume=True)
    whole = run(tmp_path / "whole")
    losses = [[record["loss"] for record in each.records] for each in (result, whole)]
    assert losses[0] == losses[1]


def test_a_model_of_an_interrupted_training_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stopped_run(tmp_path, 2)
    treemem.load(tmp_path)
    (said,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    best = epoch_of_best(tmp_path)
    assert said == (
        f"the training of {tmp_path} was interrupted: 2 of 3 epochs are done. The best weights until now are used, "
        f"those of epoch {best}; the same training command completes it, or fit with resume=True"
    )
    with RunFolder(tmp_path).locked():
        treemem.load(tmp_path)
    assert f"the training of {tmp_path} is not complete yet: 2 of 3 epochs" in caplog.text
    (folder,) = (place for place in (tmp_path / "checkpoints").iterdir() if place.name == f"{best:06d}")
    caplog.clear()
    treemem.load(folder)  # a checkpoint by its name
    run(tmp_path, resume=True)
    treemem.load(tmp_path)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_a_run_in_a_folder_of_somebody_else_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stopped_run(tmp_path, 2)

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("treemem.checkpoint.run_folder.FileLock", refused)
    assert treemem.load(tmp_path)
    assert f"the training of {tmp_path} is not complete yet: 2 of 3 epochs" in caplog.text


@pytest.mark.parametrize("options", [{"epochs": 2}, {"epochs": 30, "patience": 1}])
def test_a_training_that_other_options_end_has_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    stopped_run(tmp_path, 2, **{**options, "epochs": 30, "patience": None})
    caplog.clear()
    assert len(run(tmp_path, resume=True, **options).records) == 2
    treemem.load(tmp_path)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_a_model_from_within_the_first_epoch_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stopped_run(tmp_path, 1, checkpoint_steps=2)
    assert treemem.load(tmp_path)
    assert "0 of 3 epochs are done. The best weights until now are used, which are from within the first" in caplog.text


def test_a_training_without_a_checkpoint_has_no_weights(tmp_path: Path) -> None:
    run_folder = RunFolder(tmp_path / "network" / "seed-1")
    with run_folder.locked():
        pass
    for place in (run_folder.path, run_folder.path.parent, tmp_path):
        with pytest.raises(CheckpointError, match=r"seed-1 has no weights: .* start the same training again"):
            treemem.load(place)


STATES: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda state: state.pop("fingerprint"), "it has no 'fingerprint'"),
    (lambda state: state["progress"].update(stage=1), "unexpected keyword argument 'stage'"),
    (lambda state: state["learner"].update(optimizers=[]), "of another form"),
    (lambda state: state["processes"][0].pop("random"), "it has no 'random'"),
]


def test_a_training_state_of_another_form_is_refused(tmp_path: Path) -> None:
    for change, problem in STATES:
        run(tmp_path, epochs=1, overwrite=True)
        state, _, records = last_state(tmp_path)
        change(state)
        files = {**checkpoint.files_of(treemem.load(tmp_path), records), **checkpoint.training_files_of(state)}
        RunFolder(tmp_path).save(files, best=False)
        with pytest.raises(CheckpointError, match=rf"cannot resume from .*{problem}.*output folder.*overwrite=True"):
            run(tmp_path, epochs=4, resume=True)


def test_a_finished_run_whose_best_checkpoint_is_damaged_gives_the_one_before_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given: dict[str, Any] = {"count": 200, "learning_rate": 0.02, "seed": 7, "epochs": 4, "averaging": 0.9}
    first = run(tmp_path, **given)
    best = folders(tmp_path, "best")
    before = len(checkpoint.records_of(checkpoint.verified_files(best[1]), best[1]))
    (best[0] / "config.yaml").write_bytes(b"")
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            result = run(tmp_path, **given, resume=True)
            assert result.best_epoch == before == epoch_of_best(tmp_path)
    assert f"the best checkpoint, of epoch {first.best_epoch}, is lost; that of epoch {before} is" in caplog.text
    assert result.validation[-1].accuracy == first.records[before - 1]["validation_accuracy"]
    assert treemem.load(tmp_path)


def test_a_finished_run_that_lost_its_best_checkpoints_gives_the_last(tmp_path: Path) -> None:
    given: dict[str, Any] = {"epochs": 5, "learning_rate": 1e-6, "averaging": 0.9}
    first = run(tmp_path, **given)
    assert first.best_epoch == 1
    for folder in folders(tmp_path, "best"):
        shutil.rmtree(folder)
    result = run(tmp_path, **given, resume=True)
    assert result.best_epoch == 5
    assert result.records[-1]["validation_loss"] == first.records[-1]["validation_loss"]
    kept = last_state(tmp_path)[1]
    assert all(torch.equal(weight, kept[name]) for name, weight in result.model.state_dict().items())


def test_the_average_is_in_the_last_checkpoint_beside_the_weights(tmp_path: Path) -> None:
    run(tmp_path, count=200, epochs=4, averaging=0.9)
    state, average, _ = last_state(tmp_path)
    assert state["average"]["n_averaged"] > 0
    for name, weight in state["weights"].items():
        assert torch.equal(average[name], state["average"][f"module.{name}"])
        assert not torch.equal(average[name], weight)


def test_a_new_run_replaces_the_old_one_only_where_asked_to(tmp_path: Path) -> None:
    run(tmp_path / "run", epochs=2, seed=1)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(RecipeError, match="holds a run"):
        run(tmp_path / "run")
    with pytest.raises(RecipeError, match="contradict"):
        run(tmp_path / "run", resume=True, overwrite=True)
    assert {path: path.read_bytes() for path in before} == before
    run(tmp_path / "run", overwrite=True)
    run(tmp_path / "fresh")
    assert_same(tmp_path / "run", tmp_path / "fresh")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "closed" / ".lock").mkdir(parents=True)
    for place in ("file", "file/below", "closed"):
        with pytest.raises(RecipeError, match=rf"cannot train in .*{place}: .*must be a folder that can be written"):
            run(tmp_path / place)


def test_an_option_that_no_checkpoint_can_hold_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KindSum, "forward", lambda self, batch: pytest.fail("it trains"))
    with pytest.raises(RecipeError, match="the option hidden_size of KindSum"):
        fit(MoreX(), NETWORK.replace(hidden_size=np.int64(3)), toy_data(), OPTIONS, output=tmp_path)


def test_a_run_that_cannot_begin_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, epochs=1)
    with pytest.raises(RecipeError, match="no training example is for the stage"):
        run(tmp_path, overwrite=True, epochs=2, curriculum=[[0, 1]])
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(RecipeError, match="tensorboard is not installed"):
        run(tmp_path, overwrite=True, tensorboard=True)
    with pytest.raises(RecipeError, match="no option"):
        fit(MoreX(), NETWORK.replace(hidden_sise=3), toy_data(), OPTIONS, output=tmp_path, overwrite=True)
    assert treemem.load(tmp_path)


def test_a_log_on_a_full_disk_keeps_its_whole_lines(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "metrics.jsonl"
    log = RunLog(path, [{"epoch": 1}])
    log.add({"epoch": 2})
    request.getfixturevalue("full_disk")
    with pytest.raises(RecipeError, match=r"cannot write .*metrics\.jsonl: No space left on device; free some space"):
        log.add({"epoch": 3})
    with pytest.raises(RecipeError, match=r"cannot write .*metrics\.jsonl: No space left on device"):
        RunLog(path, [])
    assert path.read_text() == '{"epoch": 1}\n{"epoch": 2}\n'


@pytest.mark.parametrize("flushes", [9, 15])
def test_a_run_that_finds_the_disk_full_goes_on_to_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushes: int
) -> None:
    run(tmp_path / "whole")
    fsync, left = os.fsync, flushes

    def filling(descriptor: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", filling)
        with pytest.raises(TreememError, match=r"No space left on device; free some space there and do the same again"):
            run(tmp_path / "full")
    assert 1 <= len(last_state(tmp_path / "full")[2]) < 3
    run(tmp_path / "full", resume=True)
    assert_same(tmp_path / "whole", tmp_path / "full")


def test_two_of_the_best_and_two_of_the_last_checkpoints_are_kept_and_none_is_written_again(tmp_path: Path) -> None:
    stopped_run(tmp_path, 5, checkpoint_steps=2)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoints").rglob("*")}
    run(tmp_path, resume=True)
    kept = [*folders(tmp_path, "best"), *folders(tmp_path, "last")]
    assert sorted((tmp_path / "checkpoints").iterdir()) == sorted(set(kept))
    assert len(folders(tmp_path, "last")) == 2
    assert all(path.stat().st_mtime_ns == time for path, time in before.items() if path.exists())
