from __future__ import annotations

import copy
import dataclasses
import errno
import json
import logging
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_task import KindSum, MoreX, toy_data

import treemem
from treemem import checkpoint
from treemem.errors import CheckpointError, RecipeError, TreememError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.runs.fit import FitResult, fit
from treemem.runs.options import TrainingOptions
from treemem.runs.progress import RunLog, progress_bar
from treemem.schedule.loader import TreeLoader
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch

NETWORK = NetworkConfig("KindSum", {"hidden_size": 3, "dropout": 0.2})
OPTIONS = TrainingOptions(epochs=3, batch_size=8, learning_rate=0.05, seed=7, accelerator="cpu")
EVERYTHING: dict[str, Any] = {
    "optimizer": "adamw", "schedule": "cosine", "warmup": 0.3, "averaging": 0.9, "curriculum": 2, "clip": 0.5,
}  # fmt: skip
TIMES = {"seconds", "loader_seconds", "examples_per_second", "validation_seconds"}


def run(
    output: Path, *, resume: bool = False, overwrite: bool = False, count: int = 60, **options: object
) -> FitResult:
    changed = dataclasses.replace(OPTIONS, **options)  # type: ignore[arg-type]
    return fit(MoreX(), NETWORK, toy_data(count), changed, output=output, resume=resume, overwrite=overwrite)


def numbers(output: Path) -> tuple[list[dict[str, object]], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Everything of a run but its times: the log, the last weights and the best ones."""
    lines = (output / "metrics.jsonl").read_text().splitlines()
    records = [{name: value for name, value in json.loads(line).items() if name not in TIMES} for line in lines]
    return records, checkpoint.load_training_state(output / "last")[1], treemem.load(output / "best").state_dict()


def assert_same(first: Path, second: Path) -> None:
    ours, theirs = numbers(first), numbers(second)
    assert ours[0] == theirs[0]
    for mine, other in zip(ours[1:], theirs[1:], strict=True):
        assert mine.keys() == other.keys()
        assert all(torch.equal(mine[name], other[name]) for name in mine)


class Stopped(Exception):
    pass


def stop_after(monkeypatch: pytest.MonkeyPatch, saves: int, name: str = "last") -> None:
    """Make the run fail right after so many checkpoints of that name, as if it had been killed there."""
    save, left = checkpoint.save, saves

    def saving(path: Path, *rest: object, **options: object) -> None:
        nonlocal left
        save(path, *rest, **options)  # type: ignore[arg-type]
        left -= Path(path).name == name
        if left == 0:
            raise Stopped

    monkeypatch.setattr(checkpoint, "save", saving)


def test_it_learns_and_keeps_the_best_epoch(tmp_path: Path) -> None:
    result = run(tmp_path, count=200, epochs=20)
    accuracies = [record["validation_accuracy"] for record in result.records]
    assert result.validation[-1].accuracy == max(accuracies) > 0.9
    assert result.best_epoch == accuracies.index(max(accuracies)) + 1
    assert result.records[-1]["loss"] < result.records[0]["loss"] / 2
    assert result.trees_per_second == result.examples_per_second > 0
    assert 0 < result.loader_share < 1
    assert not result.model.training
    np.testing.assert_array_equal(result.model.predict(["(f x y)"]), treemem.load(tmp_path).predict(["(f x y)"]))


def test_the_log_has_one_record_an_epoch_with_scores_by_group(tmp_path: Path) -> None:
    result = run(tmp_path)
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert records == result.records
    assert [record["epoch"] for record in records] == [1, 2, 3]
    assert records[0]["validation"][-1]["group"] == "all"
    assert sum(score["examples"] for score in records[0]["validation"][:-1]) == records[0]["validation"][-1]["examples"]
    assert {"loss", "seconds", "examples_per_second", "validation_loss", "validation_accuracy"} <= records[0].keys()


def test_the_same_seed_gives_the_same_numbers_and_another_does_not(tmp_path: Path) -> None:
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        run(tmp_path / name, seed=seed)
    assert_same(tmp_path / "a", tmp_path / "b")
    assert numbers(tmp_path / "a")[0] != numbers(tmp_path / "c")[0]


def test_the_callers_random_generator_is_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    run(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


PLATEAU: dict[str, Any] = {
    "epochs": 8, "schedule": "plateau", "plateau_factor": 0.25, "plateau_patience": 1, "learning_rate": 0.01,
}  # fmt: skip
BATCHES = [
    {},
    {"nodes_per_batch": 40},
    {"sort_by_height": True},
    {"nodes_per_batch": 30, "sort_by_height": True},
    {"sort_by_length": True},
]


@pytest.mark.parametrize(
    ("saves", "options"),
    [
        *((saves, BATCHES[0]) for saves in (1, 2, 3, 5, 8)),
        *((3, each) for each in BATCHES[1:]),
        *((saves, EVERYTHING) for saves in (1, 2, 3, 5, 6)),
        (4, {**EVERYTHING, "schedule": "linear", "nodes_per_batch": 40}),
    ],
)
def test_a_run_stopped_anywhere_resumes_to_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saves: int, options: dict[str, object]
) -> None:
    run(tmp_path / "whole", **options)
    with monkeypatch.context() as patch:
        stop_after(patch, saves)
        with pytest.raises(Stopped):
            run(tmp_path / "broken", checkpoint_steps=2, prefetch=2, **options)
    run(tmp_path / "broken", resume=True, **options)
    assert_same(tmp_path / "whole", tmp_path / "broken")


def plainly_trained(options: TrainingOptions) -> tuple[list[float], list[float], list[dict[str, torch.Tensor]]]:
    """Of each epoch its loss, its validation loss and the weights that are kept, by a loop that does one thing."""
    examples = MoreX().examples(toy_data())
    train, validation = examples.part("train"), examples.part("validation")
    heights = np.unique(examples.group[train])
    torch.manual_seed(options.seed)
    model = Model(MoreX(), NETWORK)
    adam = torch.optim.AdamW if options.optimizer == "adamw" else torch.optim.Adam
    betas = (options.beta1, options.beta2)
    optimizer = adam(
        model.parameters(), betas=betas, eps=options.epsilon, weight_decay=options.weight_decay, fused=True
    )
    index = SubtreeIndex(examples.forest, model.vocabulary)
    plans = []
    for epoch in range(options.epochs):
        highest = max(heights)
        if epoch < options.curriculum:
            highest = heights[math.ceil(len(heights) * (epoch + 1) / options.curriculum) - 1]
        loader = TreeLoader(
            index, train[examples.group[train] <= highest], options.batch_size, shuffle=True, seed=options.seed
        )
        loader.set_epoch(epoch)
        plans.append([batch.example_ids for batch in loader])
    steps = sum(map(len, plans))
    rising = math.floor(options.warmup * steps)
    kept = copy.deepcopy(model)
    torch.manual_seed(options.seed)
    losses, validation_losses, weights = [], [], []
    step, rate, best, evaluations_since = 0, options.learning_rate, -1.0, 0
    for plan in plans:
        total = 0.0
        for chosen in plan:
            factor = 1.0
            if step < rising:
                factor = (step + 1) / rising
            elif options.schedule == "cosine":
                factor = (1 + math.cos(math.pi * ((step - rising) / (steps - rising)))) / 2
            optimizer.param_groups[0]["lr"] = rate * factor
            optimizer.zero_grad()
            targets = {"label": torch.from_numpy(examples.targets["label"][chosen])}
            loss = MoreX().loss(model(TreeBatch.from_index(index, chosen)), targets)
            loss.backward()
            if options.clip is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip)
            optimizer.step()
            total += loss.item() * len(chosen)
            for name, weight in model.state_dict().items():
                decay = min(options.averaging, (1 + step) / (10 + step)) if options.averaging and step else 0.0
                kept.state_dict()[name].lerp_(weight, 1 - decay)
            step += 1
        losses.append(total / sum(map(len, plan)))
        labels = {"label": torch.from_numpy(examples.targets["label"][validation])}
        outputs = kept.outputs(examples, validation, index=index)
        validation_losses.append(float(MoreX().loss(outputs, labels)))
        accuracy = ((outputs > 0) == (labels["label"] == 1)).double().mean().item()
        evaluations_since = 0 if accuracy > best else evaluations_since + 1
        best = max(best, accuracy)
        if options.schedule == "plateau" and evaluations_since > options.plateau_patience:
            rate, evaluations_since = rate * options.plateau_factor, 0
        weights.append({name: weight.clone() for name, weight in kept.state_dict().items()})
    return losses, validation_losses, weights


@pytest.mark.parametrize(
    "options",
    [
        {},
        EVERYTHING,
        {"averaging": 0.5},
        {"curriculum": 3},
        {"warmup": 0.5},
        {"beta1": 0.0},
        {"beta2": 0.5},
        {"epsilon": 0.1},
        {"optimizer": "adamw", "beta1": 0.5, "beta2": 0.9, "epsilon": 0.01},
        {**PLATEAU, "plateau_patience": 0},
        {**PLATEAU, "plateau_patience": 1},
    ],
)
def test_training_is_that_of_a_plain_loop(tmp_path: Path, options: dict[str, object]) -> None:
    result = run(tmp_path, **options)
    with torch.random.fork_rng():
        losses, validation_losses, weights = plainly_trained(dataclasses.replace(OPTIONS, **options))  # type: ignore[arg-type]
    assert [record["loss"] for record in result.records] == pytest.approx(losses, rel=1e-6)
    assert [record["validation_loss"] for record in result.records] == pytest.approx(validation_losses, rel=1e-6)
    for name, weight in result.model.state_dict().items():
        torch.testing.assert_close(weight, weights[result.best_epoch - 1][name])


def rates_of_steps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The learning rate of each step from here on, as it is taken."""
    rates: list[float] = []
    step = torch.optim.Adam.step

    def telling(self: torch.optim.Adam, *rest: object) -> object:
        rates.append(self.param_groups[0]["lr"])
        return step(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.optim.Adam, "step", telling)
    return rates


@pytest.mark.parametrize("evaluate_every", [1, 3])
def test_on_a_plateau_the_rate_falls_after_evaluations_that_brought_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evaluate_every: int
) -> None:
    rates = rates_of_steps(monkeypatch)
    options = {**PLATEAU, "epochs": 12, "learning_rate": 1e-5, "evaluate_every": evaluate_every}
    records = run(tmp_path, **options).records
    accuracies = [record["validation_accuracy"] for record in records if "validation_accuracy" in record]
    assert len(set(accuracies)) == 1, "so slowly nothing is learned"
    steps = len(rates) // 12
    of_epochs = rates[::steps]
    assert [rate for rate in of_epochs for _ in range(steps)] == rates, "one rate an epoch"
    falls = {1: [3, 5, 7, 9, 11], 3: [9]}[evaluate_every]
    assert of_epochs == pytest.approx([1e-5 * 0.25 ** sum(fall <= epoch for fall in falls) for epoch in range(12)])


def test_a_run_stopped_anywhere_resumes_to_the_rates_of_an_unbroken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = rates_of_steps(monkeypatch)
    run(tmp_path / "whole", **PLATEAU)
    whole = rates.copy()
    assert len(set(whole)) > 2, "the rate falls more than once"
    for saves in (13, 15, 20):
        rates.clear()
        output = tmp_path / f"broken-{saves}"
        with monkeypatch.context() as patch:
            stop_after(patch, saves)
            with pytest.raises(Stopped):
                run(output, checkpoint_steps=2, **PLATEAU)
        run(output, resume=True, **PLATEAU)
        assert rates == whole
        assert_same(tmp_path / "whole", output)


def test_a_plateau_needs_validation_examples(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match='schedule "plateau" needs validation examples'):
        fit(MoreX(), NETWORK, toy_data(divided=False), TrainingOptions(schedule="plateau"), output=tmp_path)
    assert not (tmp_path / "metrics.jsonl").exists()


def test_the_average_is_in_the_last_checkpoint_beside_the_weights(tmp_path: Path) -> None:
    run(tmp_path, count=200, epochs=4, averaging=0.9)
    state, weights, _ = checkpoint.load_training_state(tmp_path / "last")
    assert state["average"]["n_averaged"] > 0
    for name, weight in weights.items():
        assert not torch.equal(weight, state["average"][f"module.{name}"])


def test_a_finished_run_of_averaged_weights_that_lost_its_best_checkpoints_gives_the_last_average(
    tmp_path: Path,
) -> None:
    first = run(tmp_path, averaging=0.9)
    for name in ("best", "best.before"):
        checkpoint.remove(tmp_path / name)
    result = run(tmp_path, averaging=0.9, resume=True)
    assert result.best_epoch == 3
    assert result.records[-1]["validation_loss"] == first.records[-1]["validation_loss"]
    average = checkpoint.load_training_state(tmp_path / "last")[0]["average"]
    assert all(torch.equal(weight, average[f"module.{name}"]) for name, weight in result.model.state_dict().items())


def test_a_curriculum_trains_on_the_lowest_groups_first_and_records_what_it_trained_on(tmp_path: Path) -> None:
    examples = MoreX().examples(toy_data())
    height = examples.group[examples.part("train")]
    assert np.unique(height).tolist() == [1, 2, 3, 4, 5]
    records = run(tmp_path, curriculum=2).records
    assert [record["examples"] for record in records] == [(height <= 3).sum(), len(height), len(height)]
    assert [record["trees"] for record in records] == [record["examples"] for record in records]


def test_the_stages_of_a_curriculum_go_by_difficulty_and_a_resumed_run_keeps_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = MoreX().examples(toy_data())
    height = examples.group[examples.part("train")]
    stages = [[1, 1], [3, 2]]
    records = run(tmp_path / "whole", epochs=4, curriculum=stages).records
    assert [record["examples"] for record in records] == [(height <= most).sum() for most in (1, 3, 3, 5)]
    with monkeypatch.context() as patch:
        stop_after(patch, 2, "last")
        with pytest.raises(Stopped):
            run(tmp_path / "broken", epochs=4, curriculum=stages)
    run(tmp_path / "broken", epochs=4, curriculum=stages, resume=True)
    assert_same(tmp_path / "broken", tmp_path / "whole")


def test_a_stage_without_examples_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"no training example is for the stage .* up to 0: the easiest has 1"):
        run(tmp_path, epochs=2, curriculum=[[0, 1]])


def test_steps_by_nodes_go_through_every_example(tmp_path: Path) -> None:
    by_trees, by_nodes = run(tmp_path / "trees"), run(tmp_path / "nodes", nodes_per_batch=20)
    assert [record["examples"] for record in by_nodes.records] == [record["examples"] for record in by_trees.records]
    assert numbers(tmp_path / "trees")[0] != numbers(tmp_path / "nodes")[0]


def test_a_run_stopped_between_its_best_and_its_last_checkpoint_resumes_to_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "whole")
    with monkeypatch.context() as patch:
        stop_after(patch, 2, "best")
        with pytest.raises(Stopped):
            run(tmp_path / "broken")
    shutil.copytree(tmp_path / "broken", tmp_path / "shorter")
    run(tmp_path / "broken", resume=True)
    assert_same(tmp_path / "whole", tmp_path / "broken")
    done = len(checkpoint.load_records(tmp_path / "shorter" / "last"))
    result = run(tmp_path / "shorter", resume=True, epochs=done)
    assert result.best_epoch == run(tmp_path / "of so many", epochs=done).best_epoch
    assert_same(tmp_path / "of so many", tmp_path / "shorter")


def test_a_torn_last_checkpoint_makes_it_resume_from_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path / "whole")
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        with pytest.raises(Stopped):
            run(tmp_path / "broken", checkpoint_steps=2)
    torn = tmp_path / "broken" / "last" / "training_state.pt"
    torn.write_bytes(torn.read_bytes()[:-10])
    with caplog.at_level(logging.WARNING):
        run(tmp_path / "broken", resume=True)
    assert "training_state.pt is cut off" in caplog.text
    assert_same(tmp_path / "whole", tmp_path / "broken")


def test_resuming_where_every_checkpoint_is_damaged_is_an_error(tmp_path: Path) -> None:
    run(tmp_path)
    for name in ("last", "last.before"):
        (tmp_path / name / "manifest.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"cannot resume .*manifest\.json is damaged"):
        run(tmp_path, resume=True)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda state: state.pop("fingerprint"), "it has no 'fingerprint'"),
        (lambda state: state.update(fingerprint=[1]), "of another form"),
        (lambda state: state.pop("progress"), "it has no 'progress'"),
        (lambda state: state["progress"].update(stage=1), "unexpected keyword argument 'stage'"),
        (lambda state: state["progress"].update(epoch="3"), "epoch is '3'"),
        (lambda state: state["progress"].update(epoch=2), "3 records of 2 epochs"),
        (lambda state: state["progress"].update(best_epoch=9), "of which 9 is best"),
        (lambda state: state.pop("optimizer"), "it has no 'optimizer'"),
        (lambda state: state["optimizer"].update(param_groups=[]), "of another form"),
        (lambda state: state.update(random={}), "it has no 'cpu'"),
        (lambda state: state["random"].update(cpu=torch.zeros(3)), "of another form"),
    ],
)
def test_a_training_state_of_another_form_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], problem: str
) -> None:
    run(tmp_path)
    state, _, records = checkpoint.load_training_state(tmp_path / "last")
    change(state)
    checkpoint.save(tmp_path / "last", treemem.load(tmp_path / "last"), training_state=state, metrics=records)
    with pytest.raises(CheckpointError, match=rf"cannot resume from .*{problem}.*--output.*--overwrite"):
        run(tmp_path, epochs=4, resume=True)


def test_a_torn_last_checkpoint_does_not_take_the_place_of_the_whole_one_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Stopped):
            run(tmp_path)
    (tmp_path / "last" / "training_state.pt").unlink()
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        with pytest.raises(Stopped):
            run(tmp_path, resume=True)
    checkpoint.verified_files(tmp_path / "last.before")


@pytest.mark.parametrize("averaging", [None, 0.9])
def test_a_torn_best_checkpoint_of_the_last_epoch_is_made_again_from_the_last_one(
    tmp_path: Path, averaging: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    given: dict[str, Any] = {"count": 200, "learning_rate": 0.02, "seed": 1, "averaging": averaging}
    first = run(tmp_path, **given)
    assert first.best_epoch == len(first.records)
    (tmp_path / "best" / "model.safetensors").write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        again = run(tmp_path, **given, resume=True)
    assert "it is made again from the last one" in caplog.text
    assert (again.best_epoch, again.records) == (first.best_epoch, first.records)
    assert again.model.temperature == first.model.temperature
    expected = first.model.state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in treemem.load(tmp_path).state_dict().items())


def test_a_finished_run_whose_best_checkpoint_is_torn_gives_the_one_before_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given: dict[str, Any] = {"count": 200, "learning_rate": 0.02, "seed": 7, "epochs": 4}
    first = run(tmp_path, **given)
    before = len(checkpoint.load_records(tmp_path / "best.before"))
    assert before < first.best_epoch < len(first.records)
    (tmp_path / "best" / "config.yaml").write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        result = run(tmp_path, **given, resume=True)
    assert f"keeping that of epoch {before}" in caplog.text
    assert result.best_epoch == before
    assert result.validation[-1].accuracy == first.records[before - 1]["validation_accuracy"]
    assert treemem.load(tmp_path)


def test_a_whole_best_checkpoint_that_was_put_in_the_place_of_a_torn_one_is_kept(tmp_path: Path) -> None:
    given: dict[str, Any] = {"count": 200, "learning_rate": 0.02, "seed": 7, "epochs": 4}
    run(tmp_path, **given)
    checkpoint.remove_newest(tmp_path / "best")
    (tmp_path / "best.before").rename(tmp_path / "best")
    before = len(checkpoint.load_records(tmp_path / "best"))
    for _ in range(2):
        assert run(tmp_path, **given, resume=True).best_epoch == before
        assert len(checkpoint.load_records(tmp_path / "best")) == before


def test_a_finished_run_that_lost_its_best_checkpoints_gives_the_last(tmp_path: Path) -> None:
    first = run(tmp_path)
    for name in ("best", "best.before"):
        checkpoint.remove(tmp_path / name)
    result = run(tmp_path, resume=True)
    assert result.best_epoch == 3
    assert result.validation[-1].accuracy == first.records[-1]["validation_accuracy"]


def test_a_resumed_run_that_was_never_evaluated_and_has_no_epoch_left_is_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Stopped):
            run(tmp_path, epochs=9, evaluate_every=5)
    result = run(tmp_path, epochs=2, evaluate_every=5, resume=True)
    assert (result.best_epoch, len(result.records)) == (2, 2)
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])["validation"]


def test_a_run_that_is_shortened_to_the_epochs_done_is_evaluated_after_the_last_as_an_unbroken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        with pytest.raises(Stopped):
            run(tmp_path / "shorter", epochs=5, evaluate_every=2)
    shorter = run(tmp_path / "shorter", epochs=3, evaluate_every=2, resume=True)
    whole = run(tmp_path / "whole", epochs=3, evaluate_every=2)
    assert_same(tmp_path / "whole", tmp_path / "shorter")
    assert shorter.best_epoch == whole.best_epoch
    again = run(tmp_path / "shorter", epochs=3, evaluate_every=2, resume=True)
    assert (again.best_epoch, again.records) == (shorter.best_epoch, shorter.records)


@pytest.mark.parametrize(("saves", "evaluate_every", "done"), [(4, 5, 1), (10, 2, 3)])
def test_a_run_within_an_epoch_that_is_not_asked_for_and_without_the_model_before_it_says_how_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saves: int, evaluate_every: int, done: int
) -> None:
    with monkeypatch.context() as patch:
        stop_after(patch, saves)
        with pytest.raises(Stopped):
            run(tmp_path, epochs=9, evaluate_every=evaluate_every, checkpoint_steps=2)
    with pytest.raises(RecipeError, match=f"no model of epoch {done} that .* with epochs of at least {done + 1}"):
        run(tmp_path, epochs=done, evaluate_every=evaluate_every, resume=True)


def test_resuming_an_empty_folder_begins_and_a_finished_run_ends_at_once(tmp_path: Path) -> None:
    first = run(tmp_path, resume=True)
    content = (tmp_path / "metrics.jsonl").read_text()
    again = run(tmp_path, resume=True)
    assert again.records == first.records
    assert (tmp_path / "metrics.jsonl").read_text() == content


def test_a_finished_run_says_so_and_one_with_steps_left_says_where_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Stopped):
            run(tmp_path, checkpoint_steps=2)
    with caplog.at_level(logging.INFO, "treemem.runs"):
        run(tmp_path, resume=True)
        assert f"resuming {tmp_path} in epoch 1 after step 4" in caplog.text
        caplog.clear()
        run(tmp_path, resume=True)
        assert caplog.messages == [f"{tmp_path} is finished: epoch 3 was its last"]
        caplog.clear()
        run(tmp_path, epochs=4, resume=True)
        assert f"resuming {tmp_path} in epoch 4" in caplog.messages


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer": "adamw", "averaging": 0.9, "curriculum": 1},
        {"schedule": "plateau", "plateau_patience": 0, "learning_rate": 0.01},
    ],
)
def test_a_finished_run_can_be_given_more_epochs(tmp_path: Path, options: dict[str, object]) -> None:
    run(tmp_path / "whole", epochs=4, **options)
    run(tmp_path / "longer", epochs=2, **options)
    run(tmp_path / "longer", epochs=4, resume=True, **options)
    assert_same(tmp_path / "whole", tmp_path / "longer")


def test_a_run_cannot_be_given_fewer_epochs_than_are_done(tmp_path: Path) -> None:
    first = run(tmp_path)
    with pytest.raises(RecipeError, match="holds a run of 3 epochs, and epochs=2 asks for fewer"):
        run(tmp_path, epochs=2, resume=True)
    assert run(tmp_path, resume=True).records == first.records


def test_a_run_whose_last_epoch_was_evaluated_out_of_turn_cannot_be_given_more(tmp_path: Path) -> None:
    for epochs in (3, 4):
        run(tmp_path / str(epochs), epochs=epochs, evaluate_every=2)
    with pytest.raises(RecipeError, match="evaluated after epoch 3, its last one then; with evaluate_every=2 a"):
        run(tmp_path / "3", epochs=5, evaluate_every=2, resume=True)
    assert len(run(tmp_path / "3", epochs=3, evaluate_every=2, resume=True).records) == 3
    run(tmp_path / "whole", epochs=6, evaluate_every=2)
    run(tmp_path / "4", epochs=6, evaluate_every=2, resume=True)
    assert_same(tmp_path / "whole", tmp_path / "4")


@pytest.mark.parametrize("options", [{"schedule": "cosine"}, {"schedule": "linear"}, {"warmup": 0.1}])
def test_a_run_whose_rate_depends_on_its_epochs_cannot_be_given_others(
    tmp_path: Path, options: dict[str, object]
) -> None:
    first = run(tmp_path, **options)
    (chosen,) = (f"{name}={value!r}" for name, value in options.items())
    for epochs in (2, 4):
        said = rf"holds another run: epochs was 3 and is {epochs} now \(by {chosen} the learning rate of each step"
        with pytest.raises(RecipeError, match=said):
            run(tmp_path, epochs=epochs, resume=True, **options)
    assert run(tmp_path, resume=True, **options).records == first.records


def test_of_two_schedules_one_of_which_leaves_the_epochs_free_the_schedule_is_told(tmp_path: Path) -> None:
    for name, before, now in (("a", "constant", "cosine"), ("b", "cosine", "constant")):
        run(tmp_path / name, schedule=before)
        with pytest.raises(RecipeError, match=rf"another run: schedule was '{before}' and is '{now}' now\. Go on"):
            run(tmp_path / name, schedule=now, epochs=4, resume=True)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"learning_rate": 0.01}, "learning_rate was 0.05 and is 0.01 now"),
        ({"nodes_per_batch": 9}, "nodes_per_batch was None and is 9 now"),
        ({"sort_by_height": True}, "sort_by_height was False and is True now"),
        ({"averaging": 0.9, "curriculum": 2}, "averaging was None and is 0.9 now; curriculum was 0 and is 2 now"),
        ({"optimizer": "adamw"}, "optimizer was 'adam' and is 'adamw' now"),
        ({"beta1": 0.5, "beta2": 0.9}, "beta1 was 0.9 and is 0.5 now; beta2 was 0.999 and is 0.9 now"),
        ({"epsilon": 1e-9}, "epsilon was 1e-08 and is 1e-09 now"),
        ({"schedule": "plateau"}, "schedule was 'constant' and is 'plateau' now"),
        ({"plateau_patience": 3}, "plateau_patience was 2 and is 3 now"),
        ({"count": 61}, "the data are others now"),
        ({"seed": 8, "batch_size": 4}, "batch_size was 8 and is 4 now; seed was 7 and is 8 now"),
    ],
)
def test_resuming_under_other_terms_is_refused(tmp_path: Path, change: dict[str, object], problem: str) -> None:
    run(tmp_path)
    with pytest.raises(RecipeError, match=problem):
        run(tmp_path, resume=True, **change)  # type: ignore[arg-type]


def without_options(output: Path, *names: str) -> None:
    """Make a run look as if it was begun before those training options, and the task's and network's, were there."""
    state, _, records = checkpoint.load_training_state(output / "last")
    for name in names:
        del state["fingerprint"][name]
    state["fingerprint"]["task options"] = {}
    state["fingerprint"]["network options"] = {"hidden_size": 3}
    checkpoint.save(output / "last", treemem.load(output / "last"), training_state=state, metrics=records)


def test_a_run_begun_before_an_option_was_there_resumes_at_its_default(tmp_path: Path) -> None:
    network = NetworkConfig("KindSum", {"hidden_size": 3})
    fit(MoreX(), network, toy_data(), OPTIONS, output=tmp_path)
    new = ("optimizer", "schedule", "warmup", "averaging", "curriculum", "beta1", "epsilon", "plateau_factor")
    without_options(tmp_path, "sort_by_height", "nodes_per_batch", *new)
    for same in (network, network.replace(dropout=0.0)):
        fit(MoreX(), same, toy_data(), OPTIONS, output=tmp_path, resume=True)
    sorting = dataclasses.replace(OPTIONS, sort_by_height=True)
    with pytest.raises(RecipeError, match=r"sort_by_height was False and is True now\. .*--output.*--overwrite"):
        fit(MoreX(), network, toy_data(), sorting, output=tmp_path, resume=True)
    with pytest.raises(RecipeError, match=r"task options was \{'strict': False\} and is \{'strict': True\} now"):
        fit(MoreX(strict=True), network, toy_data(), OPTIONS, output=tmp_path, resume=True)
    with pytest.raises(RecipeError, match=r"network options was .*'dropout': 0\.0.* and is .*'dropout': 0\.2"):
        fit(MoreX(), NETWORK, toy_data(), OPTIONS, output=tmp_path, resume=True)


def test_a_new_run_replaces_the_old_one_only_where_asked_to(tmp_path: Path) -> None:
    run(tmp_path / "run", epochs=2, seed=1)
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(RecipeError, match="holds a run"):
        run(tmp_path / "run")
    with pytest.raises(RecipeError, match="contradict"):
        run(tmp_path / "run", resume=True, overwrite=True)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before
    run(tmp_path / "run", overwrite=True)
    run(tmp_path / "fresh")
    assert_same(tmp_path / "run", tmp_path / "fresh")
    assert not (tmp_path / "run" / ".last.tmp").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "closed" / ".lock").mkdir(parents=True)
    for place in ("file", "file/below", "closed"):
        with pytest.raises(RecipeError, match=rf"cannot train in .*{place}: .*must be a folder that can be written"):
            run(tmp_path / place)


def test_an_earlier_run_that_cannot_be_deleted_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(checkpoint, "remove", denied)
    with pytest.raises(RecipeError, match=rf"cannot write {tmp_path}: Permission denied; make it writable"):
        run(tmp_path, overwrite=True)


def test_a_second_process_is_kept_out_until_the_first_one_is_gone(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from treemem.runs.run_folder import held\n"
        "with held(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        for resume in (False, True):
            with pytest.raises(RecipeError, match="another process is training in"):
                run(tmp_path, resume=resume)
        other.kill()
    run(tmp_path)


def test_what_a_killed_process_left_unfinished_is_cleared(tmp_path: Path) -> None:
    (tmp_path / ".last.tmp").mkdir()
    (tmp_path / ".best.tmp").mkdir()
    (tmp_path / ".metrics.jsonl.1.tmp").write_text("{")
    run(tmp_path)
    assert not list(tmp_path.glob("*.tmp"))


def test_an_option_that_no_checkpoint_can_hold_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KindSum, "forward", lambda self, batch: pytest.fail("it trains"))
    with pytest.raises(RecipeError, match="the option hidden_size of KindSum"):
        fit(MoreX(), NETWORK.replace(hidden_size=np.int64(3)), toy_data(), OPTIONS, output=tmp_path)


def test_a_run_that_cannot_begin_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path)
    with pytest.raises(RecipeError, match="no training example is for the stage"):
        run(tmp_path, overwrite=True, epochs=2, curriculum=[[0, 1]])
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(RecipeError, match="tensorboard is not installed"):
        run(tmp_path, overwrite=True, tensorboard=True)
    with pytest.raises(RecipeError, match="no option"):
        fit(MoreX(), NETWORK.replace(hidden_sise=3), toy_data(), OPTIONS, output=tmp_path, overwrite=True)
    assert treemem.load(tmp_path)


def test_early_stopping_ends_the_run_when_patience_is_out(tmp_path: Path) -> None:
    result = run(tmp_path, epochs=50, patience=2, learning_rate=1e-6)
    assert len(result.records) < 50
    accuracies = [record["validation_accuracy"] for record in result.records]
    assert len(result.records) == result.best_epoch + 2
    assert max(accuracies) == accuracies[result.best_epoch - 1]


def test_evaluation_can_be_rarer_and_comes_after_the_last_epoch(tmp_path: Path) -> None:
    result = run(tmp_path, epochs=5, evaluate_every=2)
    assert [record["epoch"] for record in result.records if "validation" in record] == [2, 4, 5]


def test_data_without_splits_are_all_trained_on_and_the_last_epoch_is_kept(tmp_path: Path) -> None:
    result = fit(MoreX(), NETWORK, toy_data(divided=False), OPTIONS, output=tmp_path)
    assert result.records[0]["examples"] == 60
    assert result.best_epoch == 3
    assert result.validation == []


def test_threads_are_as_asked_for_during_the_run_and_as_before_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(KindSum, "forward", _telling(KindSum.forward, seen))
    before = torch.get_num_threads()
    run(tmp_path / "one", epochs=1)
    run(tmp_path / "as-before", epochs=1, threads=None)
    assert set(seen) == {1, before}
    assert torch.get_num_threads() == before


def _telling(forward: Callable[..., torch.Tensor], seen: list[int]) -> Callable[..., torch.Tensor]:
    def telling(self: KindSum, batch: TreeBatch) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return forward(self, batch)

    return telling


def test_clipping_limits_the_gradient_of_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    norms: list[float] = []
    step = torch.optim.Adam.step

    def telling(self: torch.optim.Adam, *rest: object) -> object:
        gradients = [each.grad for group in self.param_groups for each in group["params"] if each.grad is not None]
        norms.append(float(torch.stack([gradient.norm() for gradient in gradients]).norm()))
        return step(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.optim.Adam, "step", telling)
    run(tmp_path / "free", epochs=1)
    assert min(norms) > 1e-3
    norms.clear()
    run(tmp_path / "clipped", epochs=1, clip=1e-3)
    assert norms == pytest.approx([1e-3] * len(norms), rel=1e-2)


def test_weight_decay_shrinks_the_weights(tmp_path: Path) -> None:
    def size(name: str, weight_decay: float) -> float:
        run(tmp_path / name, epochs=10, weight_decay=weight_decay)
        return sum(float(weight.norm()) for weight in numbers(tmp_path / name)[1].values())

    assert size("decayed", 10.0) < size("free", 0.0) / 2


def test_the_loss_of_a_run_in_double_precision_is_double(tmp_path: Path) -> None:
    network, data = NETWORK.replace(dropout=0.0), toy_data(60, divided=False)
    options = dataclasses.replace(OPTIONS, epochs=1, batch_size=60, precision="64-true")
    found = fit(MoreX(), network, data, options, output=tmp_path).records[0]["loss"]
    torch.manual_seed(options.seed)
    model = Model(MoreX(), network).double()
    examples = MoreX().examples(data)
    targets = {name: torch.from_numpy(array) for name, array in examples.targets.items()}
    assert found == pytest.approx(model.task.loss(model.outputs(examples), targets).item(), rel=1e-13)


@pytest.mark.parametrize("precision", ["64-true", "bf16-mixed"])
def test_other_precisions_train_and_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    run(tmp_path / "whole", precision=precision)
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        with pytest.raises(Stopped):
            run(tmp_path / "broken", precision=precision)
    result = run(tmp_path / "broken", precision=precision, resume=True)
    assert_same(tmp_path / "whole", tmp_path / "broken")
    expected = torch.float64 if precision == "64-true" else torch.float32
    assert {parameter.dtype for parameter in result.model.parameters()} == {expected}


def test_sharing_subtrees_does_not_change_the_numbers_much(tmp_path: Path) -> None:
    shared, unshared = (
        fit(
            MoreX(),
            NetworkConfig("KindSum", {"hidden_size": 3}),
            toy_data(),
            dataclasses.replace(OPTIONS, share_subtrees=share),
            output=tmp_path / str(share),
        )
        for share in (True, False)
    )
    assert shared.records[-1]["loss"] == pytest.approx(unshared.records[-1]["loss"], rel=1e-4)


def test_own_network_classes_can_be_given(tmp_path: Path) -> None:
    class Mine(KindSum):
        pass

    network = NetworkConfig("Mine", {"hidden_size": 3})
    result = fit(MoreX(), network, toy_data(), OPTIONS, output=tmp_path, networks={"Mine": Mine})
    assert isinstance(result.model.encoder, Mine)


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


def test_a_run_that_finds_the_disk_full_goes_on_to_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "whole")
    fsync, left = os.fsync, 30  # within the second epoch

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
    assert 1 <= len(checkpoint.load_records(tmp_path / "full" / "last")) < 3
    run(tmp_path / "full", resume=True)
    assert_same(tmp_path / "whole", tmp_path / "full")


def test_tensorboard_files_are_written_when_asked_for(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = run(tmp_path, tensorboard=True)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    for name in ("loss", "validation_accuracy"):
        found = [(event.step, event.value) for event in events.Scalars(name)]
        assert found == [(record["epoch"], pytest.approx(record[name])) for record in result.records]


@pytest.mark.parametrize("failing", [False, True])
def test_the_log_is_closed_however_the_run_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: bool) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(RunLog, "close", lambda self: closed.append(True))
    if failing:
        with pytest.raises(RecipeError, match="not finite"):
            run(tmp_path, learning_rate=1e38)
    else:
        run(tmp_path)
    assert closed == [True]


@pytest.mark.parametrize("clip", [None, 0.5])
def test_a_loss_that_is_not_finite_ends_the_run(tmp_path: Path, clip: float | None) -> None:
    with pytest.raises(RecipeError, match="the loss of epoch 1 is not finite"):
        run(tmp_path, learning_rate=1e38, clip=clip)


def test_data_that_cannot_be_trained_on_are_refused(tmp_path: Path) -> None:
    data = toy_data(10)
    with pytest.raises(RecipeError, match="no example to train on"):
        fit(MoreX(), NETWORK, data[data.tree_data["split"] != "train"], OPTIONS, output=tmp_path)
    unlabelled = dataclasses.replace(MoreX().examples(data), labelled=np.zeros(10, bool))
    with pytest.raises(RecipeError, match="example 1 has no label"):
        unlabelled.targets_of(unlabelled.part("train"))


def test_one_line_an_epoch_is_logged_and_no_bar_is_drawn_without_a_terminal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, "treemem.runs"):
        run(tmp_path)
    assert "seed 7, epoch 3/3: loss" in caplog.text
    assert "trees/s" in caplog.text
    assert "of the time for making batches" in caplog.text
    assert capsys.readouterr() == ("", "")


def test_the_bar_shows_loss_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def eager(total: int, what: str, shown: bool | None) -> Any:
        bar = progress_bar(total, what, shown)
        bar.mininterval = 0.0
        return bar

    monkeypatch.setattr(sys.modules["treemem.runs.fit"], "_POSTFIX_SECONDS", 0.0)
    monkeypatch.setattr(sys.modules["treemem.runs.fit"], "progress_bar", eager)
    fit(MoreX(), NETWORK, toy_data(), OPTIONS, output=tmp_path, progress=True)
    shown = capsys.readouterr().err
    assert "epoch 3/3" in shown
    assert re.search(r"loss \d\.\d{4}", shown)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"epochs": -1}, "epochs must be at least 1, not -1"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be above 0"),
        ({"weight_decay": -1.0}, "weight_decay must be 0 or more"),
        ({"seed": -1}, "seed must be"),
        ({"accelerator": "gpu"}, 'accelerator must be "auto"'),
        ({"precision": "16"}, 'precision must be "32-true"'),
        ({"optimizer": "sgd"}, 'optimizer must be "adam" or "adamw", not \'sgd\''),
        ({"schedule": "step"}, 'schedule must be "constant", "cosine", "linear" or "plateau", not \'step\''),
        ({"plateau_factor": 1.0}, r"plateau_factor must be above 0 and below 1, not 1\.0"),
        ({"plateau_factor": 0.0}, "plateau_factor must be above 0 and below 1"),
        ({"plateau_factor": float("nan")}, "plateau_factor must be above 0 and below 1"),
        ({"plateau_patience": -1}, "plateau_patience must be 0 or more, not -1"),
        ({"schedule": "plateau", "warmup": 0.1}, 'warmup is for the other schedules; with "plateau" leave it at 0'),
        ({"beta1": 1.0}, r"beta1 must be from 0 to below 1, not 1\.0"),
        ({"beta1": float("nan")}, "beta1 must be from 0 to below 1"),
        ({"beta2": -0.1}, r"beta2 must be from 0 to below 1, not -0\.1"),
        ({"beta2": "0.9"}, "beta2 must be a number, not '0.9'"),
        ({"epsilon": 0.0}, "epsilon must be above 0"),
        ({"epsilon": float("inf")}, "epsilon must be above 0, not inf"),
        ({"sort_by_height": True, "sort_by_length": True}, "contradict each other; choose one"),
        ({"warmup": 1.0}, r"warmup must be from 0 to below 1, not 1\.0"),
        ({"warmup": -0.1}, "warmup must be from 0 to below 1"),
        ({"warmup": float("nan")}, "warmup must be from 0 to below 1"),
        ({"averaging": 0.0}, "averaging must be above 0 and below 1"),
        ({"averaging": 1}, r"averaging must be above 0 and below 1, not 1\.0"),
        ({"averaging": "0.9"}, "averaging must be a number or None, not '0.9'"),
        ({"curriculum": -1}, "curriculum must be 0 or more, not -1"),
        (
            {"curriculum": True},
            r"curriculum must be a whole number or pairs such as \[\[5, 20\], \[10, 2\]\], not True",
        ),
        ({"curriculum": [[2, 1, 1]]}, r"must be pairs of a difficulty and a number of epochs.*not \[\[2, 1, 1\]\]"),
        ({"curriculum": [[2, 0]]}, r"a number of epochs, at least 1, such as .*, not \[\[2, 0\]\]"),
        ({"curriculum": [[3, 1], [2, 1]]}, r"become more difficult one by one, not \[\[3, 1\], \[2, 1\]\]"),
        ({"epochs": 3, "curriculum": [[2, 2], [3, 1]]}, r"leaves none of epochs=3 for all .*\(curriculum=0\)"),
        ({"epochs": 3, "curriculum": 4}, "curriculum must be at most epochs, which is 3, not 4"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"nodes_per_batch": 0}, "nodes_per_batch must be at least 1"),
        ({"prefetch": -1}, "prefetch must be 0 or more"),
        ({"epochs": "3"}, "epochs must be a whole number, not '3'"),
        ({"epochs": None}, "epochs must be a whole number, not None"),
        ({"batch_size": 2.5}, r"batch_size must be a whole number, not 2\.5"),
        ({"batch_size": True}, "batch_size must be a whole number, not True"),
        ({"patience": "2"}, "patience must be a whole number or None, not '2'"),
        ({"learning_rate": "1e-3"}, "learning_rate must be a number, not '1e-3'"),
        ({"tensorboard": 1}, "tensorboard must be True or False, not 1"),
        ({"accelerator": 1}, "accelerator must be a text, not 1"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, object], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        TrainingOptions(**options)  # type: ignore[arg-type]


def test_options_may_be_numbers_of_numpy() -> None:
    options = TrainingOptions(epochs=np.int64(3), learning_rate=np.float32(0.5), seed=np.uint8(7), clip=1)  # type: ignore[arg-type]
    assert [type(value) for value in (options.epochs, options.learning_rate, options.seed)] == [int, float, int]
    assert options == TrainingOptions(epochs=3, learning_rate=0.5, seed=7, clip=1.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no CUDA device"):
        run(tmp_path, accelerator="cuda")
