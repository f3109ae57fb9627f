from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_task import MoreX, toy_data
from training_runs import (
    EVERYTHING,
    NETWORK,
    OPTIONS,
    PLATEAU,
    assert_same,
    last_state,
    rates_of_steps,
    run,
    run_in_pieces,
    stopped_run,
)

import treemem
from treemem.checkpoint.run_folder import RunFolder
from treemem.errors import RecipeError
from treemem.model_digest import weights_digest
from treemem.runs.fit import fit


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"nodes_per_batch": 30, "sort_by_height": True},
        {"sort_by_length": True, "precision": "bf16-mixed"},
        {**EVERYTHING, "precision": "64-true"},
        {**EVERYTHING, "schedule": "linear", "nodes_per_batch": 40},
    ],
)
def test_a_run_stopped_at_each_checkpoint_resumes_to_the_same_numbers(tmp_path: Path, options: dict[str, Any]) -> None:
    run(tmp_path / "whole", **options)
    result = run_in_pieces(tmp_path / "broken", checkpoint_steps=2, prefetch=2, **options)
    assert_same(tmp_path / "whole", tmp_path / "broken")
    expected = torch.float64 if options.get("precision") == "64-true" else torch.float32
    assert {parameter.dtype for parameter in result.model.parameters()} == {expected}


def test_a_run_stopped_anywhere_resumes_to_the_rates_of_an_unbroken_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = rates_of_steps(monkeypatch)
    run(tmp_path / "whole", **PLATEAU)
    whole = rates.copy()
    assert len(set(whole)) > 2, "the rate falls more than once"
    for saves in (13, 20):
        rates.clear()
        output = tmp_path / f"broken-{saves}"
        stopped_run(output, saves, checkpoint_steps=2, **PLATEAU)
        steps_of_whole_saves = rates.copy()
        run(output, resume=True, **PLATEAU)
        assert rates == whole
        assert steps_of_whole_saves == whole[: len(steps_of_whole_saves)]
        assert_same(tmp_path / "whole", output)


def test_the_stages_of_a_curriculum_go_by_difficulty_and_a_resumed_run_keeps_to_them(tmp_path: Path) -> None:
    examples = MoreX().examples(toy_data())
    height = examples.group[examples.part("train")]
    stages = [[1, 1], [3, 2]]
    records = run(tmp_path / "whole", epochs=4, curriculum=stages).records
    assert [record["examples"] for record in records] == [(height <= most).sum() for most in (1, 3, 3, 5)]
    stopped_run(tmp_path / "broken", 2, epochs=4, curriculum=stages)
    run(tmp_path / "broken", epochs=4, curriculum=stages, resume=True)
    assert_same(tmp_path / "broken", tmp_path / "whole")


def test_a_run_stopped_after_a_best_checkpoint_resumes_to_any_number_of_epochs(tmp_path: Path) -> None:
    for name, epochs in (("longer", 4), ("shorter", 3)):
        stopped_run(tmp_path / name, 2, only_best=True)
        assert len(last_state(tmp_path / name)[2]) == 3
        resumed = run(tmp_path / name, resume=True, epochs=epochs)
        assert resumed.best_epoch == run(tmp_path / f"{name} whole", epochs=epochs).best_epoch
        assert_same(tmp_path / f"{name} whole", tmp_path / name)


def test_a_resumed_run_that_was_never_evaluated_and_has_no_epoch_left_is_evaluated(tmp_path: Path) -> None:
    stopped_run(tmp_path, 2, epochs=9, evaluate_every=5)
    result = run(tmp_path, epochs=2, evaluate_every=5, resume=True)
    assert (result.best_epoch, len(result.records)) == (2, 2)
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])["validation"]


@pytest.mark.parametrize(("saves", "evaluate_every", "done"), [(4, 5, 1), (10, 2, 3)])
def test_a_run_within_an_epoch_that_is_not_asked_for_and_without_the_model_before_it_says_how_to_resume(
    tmp_path: Path, saves: int, evaluate_every: int, done: int
) -> None:
    stopped_run(tmp_path, saves, epochs=9, evaluate_every=evaluate_every, checkpoint_steps=2)
    with pytest.raises(RecipeError, match=f"no model of epoch {done} that .* with epochs of at least {done + 1}"):
        run(tmp_path, epochs=done, evaluate_every=evaluate_every, resume=True)


def test_a_resumed_run_says_where_it_goes_on_and_a_finished_one_ends_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stopped_run(tmp_path, 2, checkpoint_steps=2)
    with caplog.at_level(logging.INFO, "treemem.runs"):
        first = run(tmp_path, resume=True)
        assert f"resuming {tmp_path} in epoch 1 after step 4" in caplog.text
        caplog.clear()
        content = (tmp_path / "metrics.jsonl").read_text()
        assert run(tmp_path, resume=True).records == first.records
        assert (tmp_path / "metrics.jsonl").read_text() == content
        assert caplog.messages == [f"{tmp_path} is finished: epoch 3 was its last"]
        caplog.clear()
        run(tmp_path, epochs=4, resume=True)
        assert f"resuming {tmp_path} in epoch 4" in caplog.messages
    assert run(tmp_path / "empty", resume=True).best_epoch


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer": "adamw", "averaging": 0.9, "curriculum": 1},
        {"schedule": "plateau", "plateau_patience": 0, "learning_rate": 0.01},
    ],
)
def test_a_finished_run_can_be_given_more_epochs(tmp_path: Path, options: dict[str, Any]) -> None:
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
def test_a_run_whose_rate_depends_on_its_epochs_cannot_be_given_others(tmp_path: Path, options: dict[str, Any]) -> None:
    first = run(tmp_path, **options)
    chosen = " and ".join(f"{name}={value!r}" for name, value in {"schedule": "constant", **options}.items())
    for epochs in (2, 4):
        said = rf"holds another run: epochs was 3 and is {epochs} now \(by {chosen} the learning rate of each step"
        with pytest.raises(RecipeError, match=said):
            run(tmp_path, epochs=epochs, resume=True, **options)
    assert run(tmp_path, resume=True, **options).records == first.records


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    run(folder, epochs=1)
    return folder


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"learning_rate": 0.01}, "learning_rate was 0.05 and is 0.01 now"),
        ({"nodes_per_batch": 9, "sort_by_height": True}, "sort_by_height was False and is True now"),
        ({"averaging": 0.9, "optimizer": "adamw"}, "optimizer was 'adam' and is 'adamw' now; averaging was None and"),
        ({"beta1": 0.5, "beta2": 0.9}, "beta1 was 0.9 and is 0.5 now; beta2 was 0.999 and is 0.9 now"),
        ({"schedule": "cosine", "epochs": 4}, r"another run: schedule was 'constant' and is 'cosine' now\. Go on"),
        ({"plateau_patience": 3}, "plateau_patience was 2 and is 3 now"),
        ({"auxiliary_losses": {"ponder": 0.1}}, r"auxiliary_losses was .* and is \{'ponder': 0\.1\} now"),
        ({"count": 61}, "it was trained on other data"),
        ({"seed": 8, "batch_size": 4}, "batch_size was 8 and is 4 now; seed was 7 and is 8 now"),
    ],
)
def test_resuming_under_other_terms_is_refused(finished: Path, change: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        run(finished, resume=True, **{"epochs": 1, **change})


def test_another_network_or_task_is_refused(finished: Path) -> None:
    with pytest.raises(RecipeError, match=r"task options was \{'strict': False\} and is \{'strict': True\} now"):
        fit(MoreX(strict=True), NETWORK, toy_data(), OPTIONS, output=finished, resume=True)
    with pytest.raises(RecipeError, match=r"network options was \{'dropout': 0\.2\} and is \{'dropout': 0\.5\} now"):
        fit(MoreX(), NETWORK.replace(dropout=0.5), toy_data(), OPTIONS, output=finished, resume=True)


def test_a_run_keeps_the_model_of_each_epoch(tmp_path: Path) -> None:
    stopped_run(tmp_path / "kept", 3, epochs=3, keep_epochs=True)
    result = run(tmp_path / "kept", resume=True, epochs=3, keep_epochs=True)
    kept = {number: treemem.load(place) for number, place in RunFolder(tmp_path / "kept").epochs().items()}
    assert list(kept) == [1, 2, 3]
    best = kept[result.best_epoch].state_dict()
    assert all(torch.equal(value, best[name]) for name, value in result.model.state_dict().items())
    assert weights_digest(kept[1]) != weights_digest(kept[3])
    run(tmp_path / "kept", overwrite=True, epochs=1)
    assert RunFolder(tmp_path / "kept").epochs() == {}
