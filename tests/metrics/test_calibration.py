from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from toy_task import MoreX, toy_data

import treemem
from treemem import checkpoint
from treemem.checkpoint import RunFolder
from treemem.errors import CheckpointError, RecipeError
from treemem.metrics.calibration import LARGEST_TEMPERATURE, least_loss_temperature, reliability
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.runs import TrainingOptions, fit
from treemem.runs.calibrate import calibrate
from treemem.tasks.equation_verification import EquationVerification
from treemem.tasks.listops import ListOps
from treemem.trees.forest import Forest


def toy_model() -> Model:
    torch.manual_seed(0)
    return Model(MoreX(), NetworkConfig("KindSum", {"hidden_size": 3}))


def too_sure_model() -> Model:
    """One that is always sure of what is right where labels are not noisy."""
    model = toy_model()
    with torch.no_grad():
        model.encoder.leaves.weight.copy_(torch.tensor([[2.0] * 3, [-2.0] * 3]))
        model.head.read.weight.fill_(1.0)
    return model


def noisy_data() -> Forest:
    """Trees of which every seventh has the other label."""
    data = toy_data(200)
    label = np.where(np.arange(200) % 7 == 0, 1 - data.tree_data["label"], data.tree_data["label"])
    return data.with_data(tree_data={**data.tree_data, "label": label})


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_temperature_by_which_outputs_were_spoilt_is_found(temperature: float) -> None:
    draw = np.random.default_rng(0)
    score = torch.from_numpy(draw.normal(0, 2, 20_000))
    label = (draw.random(20_000) < score.sigmoid().numpy()).astype(np.int64)
    assert MoreX().fitted_temperature(score * temperature, {"label": label}) == pytest.approx(temperature, rel=0.05)
    logits = torch.from_numpy(draw.normal(0, 2, (20_000, 10)))
    place = (logits.softmax(1).cumsum(1).numpy() < draw.random((20_000, 1))).sum(1).clip(max=9)
    assert ListOps().fitted_temperature(logits * temperature, {"label": place}) == pytest.approx(temperature, rel=0.05)


def test_wrong_outputs_get_the_largest_temperature_and_examples_that_set_none_get_none() -> None:
    mostly_wrong = torch.tensor([8.0, -8.0, 8.0, 8.0])
    assert MoreX().fitted_temperature(mostly_wrong, {"label": np.array([0, 1, 0, 1])}) == LARGEST_TEMPERATURE
    right = {"label": np.array([1, 0, 1])}
    assert MoreX().fitted_temperature(torch.tensor([1.0, -1.0, 2.0]), right) is None
    assert MoreX().fitted_temperature(torch.empty(0), {"label": np.empty(0, np.int64)}) is None


def test_a_temperature_changes_no_answer_and_no_decoded_number() -> None:
    model, data = toy_model(), toy_data(40)
    before = model.predict(data)
    model.temperature = 2.0
    after = model.predict(data)
    assert ((after > 0.5) == (before > 0.5)).all()
    assert (np.abs(after - 0.5) < np.abs(before - 0.5)).all()
    numeric = EquationVerification(numeric=True).temperature_scaled(torch.tensor([[4.0, 0.3, 0.6]]), 2.0)
    torch.testing.assert_close(numeric, torch.tensor([[2.0, 0.3, 0.6]]))


def test_the_temperature_of_least_loss_lies_within_bounds() -> None:
    assert least_loss_temperature(lambda temperature: (temperature - 3) ** 2) == pytest.approx(3, rel=1e-3)
    assert least_loss_temperature(lambda temperature: -temperature) == LARGEST_TEMPERATURE
    for sets_none in (lambda temperature: temperature, lambda temperature: 0.0, lambda temperature: float("nan")):
        assert least_loss_temperature(sets_none) is None


def test_calibrating_writes_a_temperature_beside_the_checkpoint_and_changes_nothing_else(tmp_path: Path) -> None:
    model, data = too_sure_model(), noisy_data()
    checkpoint.save(tmp_path / "model", model)
    assert "temperature" not in yaml.safe_load((tmp_path / "model" / "config.yaml").read_text())
    assert treemem.load(tmp_path / "model").temperature == 1.0
    before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    found = calibrate(tmp_path / "model", data)
    assert found > 1.5
    loaded = treemem.load(tmp_path / "model")
    assert loaded.temperature == found
    model.temperature = found
    np.testing.assert_array_equal(loaded.predict(data), model.predict(data))
    after = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    assert json.loads(after.pop("temperature.json")) == found
    assert after == before
    checkpoint.save(tmp_path / "again", loaded)
    assert treemem.load(tmp_path / "again").temperature == found
    with pytest.raises(RecipeError, match="no split 'tset'"):
        calibrate(tmp_path / "model", data, split="tset")


def test_examples_that_set_no_temperature_leave_a_checkpoint_as_it_is(tmp_path: Path) -> None:
    model, data = too_sure_model(), toy_data(200)
    model.temperature = 3.0
    checkpoint.save(tmp_path / "model", model)
    right = (model.predict(data) > 0.5) == data.tree_data["label"]
    before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    assert calibrate(tmp_path / "model", data[np.flatnonzero(right)], split=None) == 3.0
    assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before


def test_of_a_run_the_best_checkpoint_is_calibrated(tmp_path: Path) -> None:
    for best in (True, False):
        RunFolder(tmp_path).save(checkpoint.files_of(too_sure_model()), best=best)
    found = calibrate(tmp_path, noisy_data())
    assert found > 1.5
    assert treemem.load(tmp_path).temperature == found
    temperatures = [treemem.load(tmp_path / "checkpoints" / name).temperature for name in ("000001", "000002")]
    assert temperatures == [found, 1.0]


def test_a_model_that_comes_along_is_not_calibrated_in_its_place() -> None:
    with pytest.raises(CheckpointError, match="equation_verification comes along with treemem and stays as it is"):
        calibrate("equation_verification", noisy_data())


def test_weights_in_half_precision_are_calibrated_in_single(tmp_path: Path) -> None:
    model, data = toy_model(), noisy_data()
    checkpoint.save(tmp_path / "half", model.half())
    checkpoint.save(tmp_path / "single", model.float())
    assert calibrate(tmp_path / "half", data) == calibrate(tmp_path / "single", data)


@pytest.mark.parametrize("temperature", [0, -1.0, float("inf"), float("nan"), "hot"])
def test_a_temperature_that_is_no_positive_number_is_refused(tmp_path: Path, temperature: Any) -> None:
    checkpoint.save(tmp_path / "model", toy_model())
    model = toy_model()
    model.temperature = temperature
    checkpoint.save(tmp_path / "other", model)
    for act in (
        lambda: checkpoint.set_temperature(tmp_path / "model", temperature),
        lambda: treemem.load(tmp_path / "other"),
    ):
        with pytest.raises(CheckpointError, match="a temperature must be a positive number"):
            act()


def test_training_gives_the_best_model_the_temperature_of_the_validation_split(tmp_path: Path) -> None:
    data = toy_data(200)
    options = TrainingOptions(epochs=2, batch_size=32)
    model = fit(MoreX(), NetworkConfig("KindSum", {"hidden_size": 3}), data, options, output=tmp_path).model
    examples = MoreX().examples(data)
    chosen = examples.part("validation")
    expected = MoreX().fitted_temperature(model.outputs(examples, chosen), examples.targets_of(chosen))
    assert model.temperature == pytest.approx(expected, rel=1e-3)
    assert treemem.load(tmp_path).temperature == model.temperature
    assert json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[0])["epoch"] == 1


def test_reliability_sets_confidence_beside_accuracy() -> None:
    found = reliability(np.array([0.9, 0.8, 0.1, 0.9, 1.0, 0.5]), np.array([1, 1, 0, 0, 1, 0]))
    filled = {
        round(each.high, 1): (each.examples, each.confidence, each.accuracy) for each in found.bins if each.examples
    }
    assert filled == {
        0.5: (1, 0.5, 1.0),
        0.8: (1, 0.8, 1.0),
        0.9: (3, pytest.approx(0.9), pytest.approx(2 / 3)),
        1.0: (1, 1.0, 1.0),
    }
    assert found.expected_calibration_error == pytest.approx((0.5 + 0.2 + 3 * (0.9 - 2 / 3)) / 6)
    assert found.as_markdown().splitlines()[2] == "| 0.40-0.50 | 1 | 0.500 | 1.000 |"
    classes = reliability(np.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]]), np.array([0, 1]), num_bins=5)
    assert [(each.examples, each.accuracy) for each in classes.bins if each.examples] == [(1, 0.0), (1, 1.0)]
    with pytest.raises(RecipeError, match="0 probabilities and 0 labels"):
        reliability(np.empty(0), np.empty(0))
