"""Commands that train seeds in one folder, one after the other or at once."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_task import KindSum  # and the task more_x
from training_runs import commands_at_once

from treemem.checkpoint import RunFolder
from treemem.cli import main
from treemem.runs import load_recipe, recipe_run

RECIPE = """
task: more_x
data: {count: 60}
networks:
  sum: {network: KindSum, options: {hidden_size: 3}}
  small: {network: KindSum, options: {hidden_size: 1}}
training: {epochs: 2, learning_rate: 0.05, batch_size: 8, accelerator: cpu}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a recipe."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.yaml").write_text(RECIPE)
    return tmp_path


def command(*words: str) -> list[str]:
    return ["train", "toy.yaml", "-o", "run", *words]


def results(folder: Path) -> dict[str, Any]:
    """What a run's folder says of its seeds; the times of training are nowhere in it."""
    files = ["results.jsonl", "table.md", "data.md", "sum/results.jsonl", "sum/answers.jsonl", "sum/recipe.yaml"]
    return {name: (folder / name).read_text() for name in files}


def recorded_seeds(folder: Path, network: str = "sum") -> list[int]:
    return [json.loads(line)["seed"] for line in (folder / network / "answers.jsonl").read_text().splitlines()]


def test_commands_at_once_record_the_seeds_of_all(folder: Path) -> None:
    seeds = [str(seed) for seed in range(4)]
    assert commands_at_once(folder, *(command("--networks", "sum", "--seeds", seed) for seed in seeds)) == [0] * 4
    together = folder / "whole"
    assert main(["train", "toy.yaml", "-o", "whole", "--networks", "sum", "--seeds", *seeds]) == 0
    assert results(folder / "run") == results(together)
    assert load_recipe(folder / "run" / "sum" / "recipe.yaml").seeds == tuple(range(4))
    assert recorded_seeds(folder / "run") == list(range(4))
    assert not list((folder / "run").rglob(".*.tmp"))


def test_of_two_commands_with_other_options_at_once_one_is_refused(folder: Path) -> None:
    small = ["--networks", "sum", "--seeds"]
    codes = commands_at_once(folder, command(*small, "1"), command(*small, "2", "training.batch_size=4"))
    assert sorted(codes) == [0, 2]
    kept = 1 if codes[0] == 0 else 2
    assert recorded_seeds(folder / "run") == [kept]
    assert load_recipe(folder / "run" / "sum" / "recipe.yaml").training.batch_size == (8 if kept == 1 else 4)


def test_networks_and_seeds_of_later_commands_join_those_that_are_there(folder: Path) -> None:
    for seeds in (["2"], ["1", "3"], ["2"]):
        assert main(command("--seeds", *seeds)) == 0
    assert main(["train", "toy.yaml", "-o", "whole", "--seeds", "1", "2", "3"]) == 0
    assert results(folder / "run") == results(folder / "whole")
    assert recorded_seeds(folder / "run", "small") == [1, 2, 3]


def test_a_seed_with_other_options_is_refused_and_changes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treemem.runs.recipe.Recipe.named_by_changes", lambda self, before: self)
    assert main(command("--networks", "sum", "--seeds", "1")) == 0
    before = results(folder / "run")
    for change, told in (
        ("training.batch_size=4", "batch_size was 8 and is 4 now"),
        ("task_options.strict=true", "task options was"),
        ("networks.sum.options.dropout=0.1", "network was"),
    ):
        assert main(command("--networks", "sum", "--seeds", "2", change)) == 2
        said = capsys.readouterr().err
        assert f"run/sum/seed-1 holds another run: {told}" in said
        assert "The seeds of a folder have the same options" in said
    assert results(folder / "run") == before
    assert not (folder / "run" / "sum" / "seed-2").exists()


def test_overwriting_one_seed_keeps_the_others_unless_their_options_differ(folder: Path) -> None:
    assert main(command("--networks", "sum", "--seeds", "1", "2", "3")) == 0
    before = results(folder / "run")
    assert main(command("--networks", "sum", "--seeds", "2", "--overwrite")) == 0
    assert results(folder / "run") == before
    assert main(command("--networks", "sum", "--seeds", "2", "--overwrite", "training.batch_size=4")) == 0
    assert recorded_seeds(folder / "run") == [2]


def test_seeds_of_another_number_of_epochs_are_left_out_until_they_have_it_too(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert main(command("--networks", "sum", "--seeds", "1", "2")) == 0
    assert main(command("--networks", "sum", "--seeds", "2", "--epochs", "3")) == 0
    assert recorded_seeds(folder / "run") == [2]
    assert "the results are of the seeds 2. Not of 1, which are in training, have other options or" in caplog.text
    assert main(command("--networks", "sum", "--seeds", "1", "--epochs", "3")) == 0
    assert recorded_seeds(folder / "run") == [1, 2]


def test_a_seed_whose_folder_is_gone_is_no_longer_in_the_results(folder: Path) -> None:
    assert main(command("--networks", "sum", "--seeds", "1", "2")) == 0
    RunFolder(folder / "run" / "sum" / "seed-1").clear(overwrite=True)
    assert main(command("--networks", "sum", "--seeds", "2")) == 0
    assert recorded_seeds(folder / "run") == [2]


def test_while_a_seed_is_in_training_another_with_other_options_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command("--networks", "sum", "--seeds", "1")) == 0
    run = RunFolder(folder / "run" / "sum" / "seed-1")
    run.clear(overwrite=True)
    with run.locked():
        assert main(command("--networks", "sum", "--seeds", "2", "training.batch_size=4", "--overwrite")) == 2
    assert "run/sum/seed-1 holds another run: batch_size was 8 and is 4 now" in capsys.readouterr().err
    assert recorded_seeds(folder / "run") == [1]
    assert main(command("--networks", "sum", "--seeds", "2", "training.batch_size=4", "--overwrite")) == 0


def test_a_damaged_recipe_is_named_and_may_be_deleted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command("--networks", "sum", "--seeds", "1")) == 0
    recipe = folder / "run" / "sum" / "recipe.yaml"
    whole = "task: more_x\ntask_options: {}\nnetworks: {}\ntraining: {}\nseeds: 3\n"
    for content in ("task: [", "[1, 2]", "", "task: more_x", whole):
        recipe.write_text(content)
        assert main(command("--networks", "sum", "--seeds", "2")) == 2
        assert "run/sum/recipe.yaml is damaged" in capsys.readouterr().err
    recipe.unlink()
    assert main(command("--networks", "sum", "--seeds", "2")) == 0
    assert recorded_seeds(folder / "run") == [1, 2]


def test_damaged_records_are_told_before_anything_is_trained(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(command("--networks", "sum", "--seeds", "1")) == 0
    monkeypatch.setattr(KindSum, "forward", lambda self, batch: pytest.fail("it trains"))
    for content in ('{"seed": 1\n', '{"seed": 1}\n'):
        (folder / "run" / "sum" / "answers.jsonl").write_text(content)
        for words in (["2"], ["1"], ["2", "--overwrite"]):
            assert main(command("--networks", "sum", "--seeds", *words)) == 2
            assert "run/sum/answers.jsonl, line 1" in capsys.readouterr().err


def test_a_training_whose_folder_was_given_to_other_options_meanwhile_is_not_recorded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fit_seeds: Callable[..., Any] = recipe_run.fit_seeds

    def replacing(*given: Any, **options: Any) -> Any:
        result = fit_seeds(*given, **options)
        recipe = folder / "run" / "sum" / "recipe.yaml"
        recipe.write_text(recipe.read_text().replace("batch_size: 8", "batch_size: 4"))
        return result

    monkeypatch.setattr(recipe_run, "fit_seeds", replacing)
    assert main(command("--networks", "sum", "--seeds", "1")) == 2
    said = capsys.readouterr().err
    assert "recipe.yaml during this training: batch_size was 4 and is 8 now. The seeds 1 are trained and not" in said
    assert not (folder / "run" / "sum" / "results.jsonl").exists()
