"""Training of language models: rates by the words of a batch, averaged weights, and resuming within an epoch."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from training_runs import Stopped, assert_same

from treemem.checkpoint import RunFolder
from treemem.errors import RecipeError
from treemem.metrics.score import Monitor
from treemem.networks import NetworkConfig
from treemem.runs import TrainingOptions, fit
from treemem.runs.optimisation import average_is_due
from treemem.runs.training_loop import FitResult
from treemem.runs.training_step import Learner
from treemem.tasks.language_modeling import LanguageDataOptions, LanguageModeling

TASK = LanguageModeling(words=100, steps=8, evaluation_columns=4)
DATA = TASK.make_data(LanguageDataOptions(120, 30, 30, seed=1))
DROPOUTS = dict.fromkeys(("embedding_dropout", "input_dropout", "dropout", "output_dropout", "weight_dropout"), 0.2)
NETWORKS = {
    "ON-LSTM": NetworkConfig("LanguageModel", {"hidden_size": 8, "num_layers": 2, "chunk_size": 4, **DROPOUTS}),
    "LSTM": NetworkConfig("LanguageModel", {"hidden_size": 8, "num_layers": 2, "cell": "LSTM", **DROPOUTS}),
    "PRPN": NetworkConfig(
        "PRPN", {"hidden_size": 8, "slots": 3, "lookback": 2, "dropout": 0.2, "recurrent_dropout": 0.2}
    ),
    "Transformer": NetworkConfig(
        "TransformerLanguageModel",
        {"hidden_size": 8, "layers": "1.superposition-4.1", "num_heads": 2, "dropout": 0.2},
    ),
}
OPTIONS: dict[str, Any] = {
    "epochs": 4, "batch_size": 6, "optimizer": "sgd", "learning_rate": 20.0, "weight_decay": 1e-4, "clip": 0.25,
    "seed": 3,
    "auxiliary_losses": {"activation": 2.0, "temporal_activation": 1.0}, "average_after": 1, "accelerator": "cpu",
}  # fmt: skip


def train(output: Path, cell: str = "LSTM", *, resume: bool = False, **options: Any) -> FitResult:
    own = {"auxiliary_losses": {}, "learning_rate": 1.0} if cell in ("PRPN", "Transformer") else {}
    every = TrainingOptions(**{**OPTIONS, **own, **options})
    return fit(TASK, NETWORKS[cell], DATA, every, output=output, resume=resume)


@pytest.fixture
def falling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every evaluation is worse than the one before, so that averaging begins after the third."""
    scores, count = LanguageModeling.scores, [0]

    def worse(self: LanguageModeling, *arguments: Any) -> Any:
        count[0] += 1
        found = scores(self, *arguments)
        found[-1].metrics["perplexity"] += 100 * count[0]  # type: ignore[index, operator]
        return found

    monkeypatch.setattr(LanguageModeling, "scores", worse)


@pytest.fixture(scope="module", params=NETWORKS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A cell, and the folder of a run of it that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole") / request.param
    train(folder, request.param)
    return request.param, folder


@pytest.mark.parametrize("saves", [13])
def test_a_run_stopped_within_an_epoch_goes_on_to_the_same_numbers(
    whole: tuple[str, Path], saves: int, tmp_path: Path
) -> None:
    cell, unbroken = whole
    save, left = RunFolder.save, saves

    def saving(self: RunFolder, *rest: Any, best: bool) -> int:
        nonlocal left
        number = save(self, *rest, best=best)
        left -= 1
        if not left:
            raise Stopped
        return number

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "save", saving)
        with pytest.raises(Stopped):
            train(tmp_path / "broken", cell, checkpoint_steps=4)
    train(tmp_path / "broken", cell, resume=True)
    assert_same(unbroken, tmp_path / "broken")


@pytest.mark.usefixtures("falling")
def test_averaged_weights_are_the_mean_of_those_after_each_later_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights: list[dict[str, torch.Tensor]] = []
    step = Learner.training_step

    def remembering(self: Learner, *arguments: Any) -> Any:
        losses = step(self, *arguments)
        weights.append(copy.deepcopy(self.model.state_dict()))
        return losses

    monkeypatch.setattr(Learner, "training_step", remembering)
    for name, again, first in (("once", None, 3), ("twice", 4, 4)):
        weights.clear()
        result = train(tmp_path / name, epochs=5, average_again=again, evaluate_every=1)
        assert result.best_epoch == 1
        _, last, state = _last(tmp_path / name)
        steps = [record["examples"] // 6 for record in result.records]
        later = weights[sum(steps[:first]) :]
        for key, value in last.items():
            assert torch.allclose(value, torch.stack([each[key] for each in later]).mean(0), atol=1e-6)
        assert torch.equal(state["weights"]["encoder.bias"], weights[-1]["encoder.bias"])


@pytest.mark.usefixtures("falling")
def test_an_average_that_has_begun_goes_on_after_a_stop(tmp_path: Path) -> None:
    train(tmp_path / "whole", epochs=5)
    train(tmp_path / "broken", epochs=4)
    state, weights = _last(tmp_path / "broken")[2], _last(tmp_path / "broken")[1]
    assert not torch.equal(state["weights"]["encoder.bias"], weights["encoder.bias"])
    train(tmp_path / "broken", epochs=5, resume=True)
    ours, theirs = _last(tmp_path / "whole"), _last(tmp_path / "broken")
    assert all(torch.equal(ours[1][name], theirs[1][name]) for name in ours[1])
    assert all(torch.equal(ours[2]["weights"][name], theirs[2]["weights"][name]) for name in ours[1])


def _last(output: Path) -> tuple[list[Any], dict[str, torch.Tensor], dict[str, Any]]:
    from training_runs import last_state

    state, weights, records = last_state(output)
    return records, weights, state


def test_the_average_begins_after_an_evaluation_worse_than_the_best_of_the_earlier_ones() -> None:
    lower = Monitor("perplexity", "min")
    values = [9.0, 8.0, 7.0, 7.5, 7.2, 7.1, 8.5]
    due = [average_is_due(value, values[:place], 3, lower) for place, value in enumerate(values)]
    # the published rule: more than 3 values before it, and worse than the best but for the last 3
    assert due == [len(values[:p]) > 3 and values[p] > min(values[: p - 3]) for p in range(len(values))]
    assert due == [False, False, False, False, False, False, True]
    assert not average_is_due(9.0, values, None, lower)
    assert average_is_due(0.5, [0.6, 0.4, 0.4], 2, Monitor("accuracy"))
    assert not average_is_due(0.6, [0.6, 0.4, 0.4], 2, Monitor("accuracy"))
    assert not average_is_due(0.6, [0.6, 0.4, 0.4], 2, Monitor("accuracy", ties="last"))


def test_the_rate_of_a_step_is_in_proportion_to_the_words_of_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[int, float]] = []
    losses = Learner.losses

    def remembering(self: Learner, batch: Any, targets: Any) -> Any:
        found.append((batch.token.shape[1], self.optimizers[0].param_groups[0]["lr"]))
        return losses(self, batch, targets)

    monkeypatch.setattr(Learner, "losses", remembering)
    train(tmp_path / "run", epochs=2)
    assert len({steps for steps, _ in found}) > 3
    assert all(rate == pytest.approx(20.0 * steps / 8) for steps, rate in found)


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(RecipeError, match="two ways to average"):
        TrainingOptions(averaging=0.9, average_after=5)
    with pytest.raises(RecipeError, match="average_again is for average_after"):
        TrainingOptions(average_again=5)
