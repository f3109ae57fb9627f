from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_task import MoreX, toy_data

from treemem.checkpoint import RunFolder, training_state_of
from treemem.cli import main
from treemem.runs.sweep import without_test

SWEEP = ["sweep", "toy.yaml", "-o", "trials", "training.epochs=1"]
VARIED = ["--vary", "training.learning_rate=0.001:0.1:log", "--vary", "networks.sum.options.hidden_size=2,3"]


def test_trials_are_recorded_and_the_best_is_told_with_a_command_that_trains_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SWEEP, "--trials", "3", *VARIED]) == 0
    said = capsys.readouterr()
    records = [json.loads(line) for line in (folder / "trials" / "trials.jsonl").read_text().splitlines()]
    assert [record["trial"] for record in records] == [1, 2, 3]
    best = max(record["validation_accuracy"] for record in records)
    first = next(record for record in records if record["validation_accuracy"] == best)
    assert f"best: trial {first['trial']}, {100 * best:.2f} %, training.learning_rate=" in said.out
    _, place, files = RunFolder(folder / "trials" / "trial-001").find("last", with_training_state=True)
    seen, _, _ = training_state_of(files, place)
    assert seen["fingerprint"]["data"] == MoreX().examples(without_test(toy_data())).digest()
    assert seen["fingerprint"]["data"] != MoreX().examples(toy_data()).digest()
    command = shlex.split(said.out.split("to train it: ")[1].splitlines()[0])
    assert main([*command[1:], "-o", "best"]) == 0
    assert f"validation accuracy {best:.4f}" in capsys.readouterr().err


def test_several_seeds_are_judged_by_their_mean(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SWEEP, "--trials", "1", "--network", "small sum", "--vary", "training.batch_size=4,8"]
    assert main([*words, "--seeds", "1", "2"]) == 0
    said = capsys.readouterr().out
    (record,) = [json.loads(line) for line in (folder / "trials" / "trials.jsonl").read_text().splitlines()]
    assert (record["network"], record["seeds"]) == ("small sum", [1, 2])
    assert record["validation_accuracy"] == sum(record["by_seed"]) / 2
    assert record["epochs"] == [1, 1]
    command = shlex.split(said.split("to train it: ")[1].splitlines()[0])
    assert command[-5:] == ["--networks", "small sum", "--seeds", "1", "2"]
    assert main([*command[1:], "-o", "best"]) == 0
    told = capsys.readouterr().err
    assert all(f"validation accuracy {accuracy:.4f}" in told for accuracy in record["by_seed"])


def test_what_is_no_trial_is_neither_deleted_nor_written_among(folder: Path, failing: Callable[..., str]) -> None:
    for name in ("trial-photos", "trial-007", "trial-1"):
        (folder / name).mkdir()
        (folder / name / "mine").write_text("mine")
    before = sorted(folder.rglob("*"))
    sweeping = ["sweep", "toy.yaml", "-o", ".", "training.epochs=1", "--trials", "1"]
    assert "error: . holds toy.yaml and nothing that was trained there" in failing(*sweeping, "--overwrite")
    assert sorted(folder.rglob("*")) == before
    assert main([*SWEEP, "--trials", "2", "--seeds", "1", "2"]) == 0
    for name in ("trial-photos", "trial-007", "trial-1"):
        (folder / name).rename(folder / "trials" / name)
    assert main([*SWEEP, "--trials", "1", "--overwrite"]) == 0
    assert sorted(path.name for path in (folder / "trials").glob("trial-*")) == [
        *("trial-001", "trial-007", "trial-1", "trial-photos"),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--trials 0", "trials must be at least 1, not 0"),
        ("--trials 2 --vary training.epochs", "write FIELD=A,B,C or FIELD=LOW:HIGH"),
        ("--trials 2 --vary training.clip=0:1:log", "LOW must be above 0 for :log"),
        ("--trials 2 --network sun", "no network 'sun'; did you mean sum"),
        ("--trials 2 --vary 'networks.small sum.options.hidden_size=2,3'", "choose another with --network"),
        ("--trials 2 --vary seeds=[1],[2]", "cannot vary seeds: each trial is trained from --seeds"),
        ("--trials 2 --vary training.seed=1,2 --seeds 3 4", "cannot vary training.seed"),
    ],
)
def test_a_wrong_sweep_is_told_before_anything_is_trained(
    words: str, said: str, folder: Path, failing: Callable[..., str]
) -> None:
    assert said in failing(*SWEEP, *shlex.split(words))
    assert [path.name for path in folder.iterdir()] == ["toy.yaml"]
