from __future__ import annotations

import copy
import dataclasses
import json
import logging
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toy_task import KindSum, MoreX, scored_batches, toy_data
from training_runs import EVERYTHING, NETWORK, OPTIONS, PLATEAU, assert_same, numbers, rates_of_steps, run

import treemem
from treemem.errors import RecipeError
from treemem.model import Model
from treemem.progress_bar import progress_bar
from treemem.runs import training_loop
from treemem.runs.fit import fit
from treemem.runs.options import TrainingOptions
from treemem.schedule.loader import TreeLoader
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch


def test_it_learns_and_keeps_the_best_epoch(tmp_path: Path) -> None:
    result = run(tmp_path, count=200, epochs=20)
    accuracies = [record["validation_accuracy"] for record in result.records]
    assert result.validation[-1].accuracy == max(accuracies) > 0.9
    assert result.best_epoch == accuracies.index(max(accuracies)) + 1
    assert result.records[-1]["loss"] < result.records[0]["loss"] / 2
    assert result.trees_per_second > 0
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


def plainly_trained(options: TrainingOptions) -> tuple[list[float], list[float], list[dict[str, torch.Tensor]]]:
    """Of each epoch its loss, its validation loss and the weights that are kept, by a loop that does one thing."""
    examples = MoreX().examples(toy_data())
    train, validation = examples.part("train"), examples.part("validation")
    heights = np.unique(examples.group[train])
    torch.manual_seed(options.seed)
    model = Model(MoreX(), NETWORK)
    shared = {"eps": options.epsilon, "weight_decay": options.weight_decay}
    if options.optimizer == "rmsprop":
        optimizer: torch.optim.Optimizer = torch.optim.RMSprop(model.parameters(), alpha=options.beta2, **shared)
    else:
        adam = torch.optim.AdamW if options.optimizer == "adamw" else torch.optim.Adam
        optimizer = adam(model.parameters(), betas=(options.beta1, options.beta2), fused=True, **shared)
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
            loss.mean.backward()
            if options.clip is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip)
            optimizer.step()
            total += loss.sum.item()
            for name, weight in model.state_dict().items():
                decay = min(options.averaging, (1 + step) / (10 + step)) if options.averaging and step else 0.0
                kept.state_dict()[name].lerp_(weight, 1 - decay)
            step += 1
        losses.append(total / sum(map(len, plan)))
        labels = {"label": torch.from_numpy(examples.targets["label"][validation])}
        outputs = kept.outputs(examples, validation)
        validation_losses.append(float(MoreX().loss(outputs, labels).mean))
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
        {"curriculum": 3},
        {"optimizer": "adamw", "beta1": 0.5, "beta2": 0.9, "epsilon": 0.01, "weight_decay": 5.0},
        {"optimizer": "rmsprop", "beta2": 0.9},
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


def test_a_curriculum_trains_on_the_lowest_groups_first_and_records_what_it_trained_on(tmp_path: Path) -> None:
    examples = MoreX().examples(toy_data())
    height = examples.group[examples.part("train")]
    assert np.unique(height).tolist() == [1, 2, 3, 4, 5]
    records = run(tmp_path, curriculum=2).records
    assert [record["examples"] for record in records] == [(height <= 3).sum(), len(height), len(height)]
    assert [record["trees"] for record in records] == [record["examples"] for record in records]


def test_early_stopping_ends_the_run_when_patience_is_out(tmp_path: Path) -> None:
    result = run(tmp_path, epochs=50, patience=2, learning_rate=1e-6)
    assert len(result.records) < 50
    accuracies = [record["validation_accuracy"] for record in result.records]
    assert len(result.records) == result.best_epoch + 2
    assert max(accuracies) == accuracies[result.best_epoch - 1]


def test_patience_begins_anew_with_each_better_epoch(tmp_path: Path) -> None:
    result = run(tmp_path, epochs=50, patience=3, learning_rate=0.01, seed=1)
    until_best = [record["validation_accuracy"] for record in result.records[: result.best_epoch]]
    assert sum(now <= max(until_best[:place]) for place, now in enumerate(until_best) if place) == 2
    assert len(result.records) == result.best_epoch + 3


def test_evaluation_can_be_rarer_and_comes_after_the_last_epoch(tmp_path: Path) -> None:
    result = run(tmp_path, epochs=5, evaluate_every=2)
    assert [record["epoch"] for record in result.records if "validation" in record] == [2, 4, 5]


def test_data_without_splits_are_all_trained_on_and_the_last_epoch_is_kept(tmp_path: Path) -> None:
    result = fit(MoreX(), NETWORK, toy_data(divided=False), OPTIONS, output=tmp_path)
    assert result.records[0]["examples"] == 60
    assert result.best_epoch == 3
    assert result.validation == []


def test_a_model_knows_the_labels_that_only_other_splits_had(tmp_path: Path) -> None:
    data = toy_data(60)
    has_g = np.array(["g" in str(tree) for tree in data])
    assert 0 < has_g.sum() < len(data)
    data = data.with_data(tree_data={**data.tree_data, "split": np.where(has_g, "validation", "train")})
    fit(MoreX(), NETWORK, data, dataclasses.replace(OPTIONS, epochs=1), output=tmp_path)
    assert treemem.load(tmp_path).unseen == ("g",)
    assert run(tmp_path / "all").model.unseen == ()


def test_threads_are_as_asked_for_during_the_run_and_as_before_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, before = scored_batches(monkeypatch), torch.get_num_threads()
    for name, threads in (("two", 2), ("as before", None)):
        run(tmp_path / name, epochs=1, threads=threads)
    assert [threads for _, threads in seen] == [2, before]
    assert torch.get_num_threads() == before


def test_products_are_as_exact_as_asked_during_the_run_and_as_before_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, forward = set(), KindSum.forward

    def telling(self: KindSum, batch: TreeBatch) -> torch.Tensor:
        seen.add(torch.get_float32_matmul_precision())
        return forward(self, batch)

    monkeypatch.setattr(KindSum, "forward", telling)
    run(tmp_path, epochs=1, matmul_precision="medium")
    assert seen == {"medium"}
    assert torch.get_float32_matmul_precision() == "highest"


def test_the_loss_of_a_run_in_double_precision_is_double(tmp_path: Path) -> None:
    network, data = NETWORK.replace(dropout=0.0), toy_data(60, divided=False)
    options = dataclasses.replace(OPTIONS, epochs=1, batch_size=60, precision="64-true")
    found = fit(MoreX(), network, data, options, output=tmp_path).records[0]["loss"]
    torch.manual_seed(options.seed)
    model = Model(MoreX(), network).double()
    examples = MoreX().examples(data)
    targets = {name: torch.from_numpy(array) for name, array in examples.targets.items()}
    assert found == pytest.approx(model.task.loss(model.outputs(examples), targets).mean.item(), rel=1e-13)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_a_loss_that_is_not_finite_ends_the_run(tmp_path: Path, clip: float | None) -> None:
    with pytest.raises(RecipeError, match="the loss of epoch 1 is not finite"):
        run(tmp_path, learning_rate=1e38, clip=clip)


def test_data_that_cannot_be_trained_on_are_refused(tmp_path: Path) -> None:
    data = toy_data(10)
    with pytest.raises(RecipeError, match="no example to train on"):
        fit(MoreX(), NETWORK, data[data.tree_data["split"] != "train"], OPTIONS, output=tmp_path)
    unlabelled = dataclasses.replace(MoreX().examples(data), labelled=np.zeros(10, bool))
    with pytest.raises(RecipeError, match=r"example 2 of \d+ has no label"):
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

    monkeypatch.setattr(training_loop, "_POSTFIX_SECONDS", 0.0)
    monkeypatch.setattr(training_loop, "progress_bar", eager)
    fit(MoreX(), NETWORK, toy_data(), OPTIONS, output=tmp_path, progress=True)
    shown = capsys.readouterr().err
    assert "epoch 3/3" in shown
    assert re.search(r"loss \d\.\d{4}", shown)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no CUDA device"):
        run(tmp_path, accelerator="cuda")


def test_steps_by_nodes_go_through_every_example(tmp_path: Path) -> None:
    by_trees, by_nodes = run(tmp_path / "trees"), run(tmp_path / "nodes", nodes_per_batch=20)
    assert [record["examples"] for record in by_nodes.records] == [record["examples"] for record in by_trees.records]
    assert numbers(tmp_path / "trees")[0] != numbers(tmp_path / "nodes")[0]


def test_arguments_of_another_kind_are_refused(tmp_path: Path) -> None:
    task, data = MoreX(), toy_data()
    for arguments, problem in (
        (("listops", NETWORK, data), "fit takes a task and one of its networks"),
        ((task, "sum", data), "fit takes a task and one of its networks"),
        ((task, NETWORK, [{"tree": "x"}]), "data must be a forest or a data set of the task, not list"),
        ((task, NETWORK, data, {"epochs": 1}), "options must be TrainingOptions"),
    ):
        with pytest.raises(RecipeError, match=problem):
            fit(*arguments, output=tmp_path / "run")
