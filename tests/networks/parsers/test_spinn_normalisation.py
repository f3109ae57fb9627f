"""SPINN with the normalisation of the authors' code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from device_cases import VOCABULARY, network_case, outcome, placed
from engine_parity import assert_same
from fake_device import DEVICE, fake_device
from toy_task import MoreX, toy_data

import treemem
from treemem import checkpoint
from treemem.errors import RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.nn import SPINN
from treemem.runs import TrainingOptions, fit
from treemem.schedule.tree_batch import TreeBatch

CONFIG = NetworkConfig("SPINN", {"hidden_size": 6, "tracker_size": 3, "normalisation": "batch"})
SORTS: list[dict[str, Any]] = [
    {"transitions": "gold"},
    {"transitions": "gold", "tracker_size": 0},
    {"transitions": "predicted"},
    {"transitions": "reinforced", "baseline": "value"},
]


def spinn(**options: Any) -> SPINN:
    torch.manual_seed(0)
    network = CONFIG.replace(**options).build(MoreX().vocabulary)
    assert isinstance(network, SPINN)
    return network


@pytest.mark.parametrize("options", SORTS, ids=str)
def test_it_runs_in_training_and_evaluation_with_finite_gradients(options: dict[str, Any]) -> None:
    network = spinn(**options)
    batch = TreeBatch.from_trees(["x", "(f x y)", "(f (g x) (f y x))", "y"], MoreX().vocabulary)
    plain = spinn(**options, normalisation="none")
    for training in (True, False):
        states, expected = (each.train(training)(batch, trace=True) for each in (network, plain))
        assert states.root.dtype == torch.float32
        assert states.root.isfinite().all()
        assert not torch.allclose(states.root, expected.root)
        assert {name: each.shape for name, each in states.trace.items()} == {
            name: each.shape for name, each in expected.trace.items()
        }
        losses = [each.mean for each in states.auxiliary_losses.values()]
        traced = [states.trace["log_probability"].sum()] if network.has_policy else []
        network.zero_grad()
        torch.stack([states.root.sum(), *losses, *traced]).sum().backward()
        learned = {name for name, each in network.named_parameters() if each.grad is not None}
        read = {name for name in dict(network.named_parameters()) if not name.startswith("value.")}
        assert read <= learned
        assert all(each.grad is None or each.grad.isfinite().all() for each in network.parameters())


def test_sequences_of_one_token_or_none_keep_their_encoding() -> None:
    network, inputs = spinn().eval(), torch.randn(3, 4, 6)
    expected = network.leaves(inputs[:, :1], torch.tensor([1, 1, 1])).chunk(2, 2)[0][:, 0]
    found = network.read(inputs, torch.tensor([1, 0, 4])).encoding
    torch.testing.assert_close(found[0], expected[0])
    assert not found[1].any()
    assert not network.read(inputs[:, :0], torch.zeros(3, dtype=torch.int64)).encoding.any()


def test_other_sequences_change_a_result_in_evaluation_too() -> None:
    network, inputs = spinn().eval(), torch.randn(2, 4, 6)
    together = network.read(inputs, torch.tensor([4, 3])).encoding
    assert not torch.allclose(network.read(inputs[:1], torch.tensor([4])).encoding, together[:1])
    assert network.needs_whole_batch == "normalisation='batch'"
    assert spinn(normalisation="none").needs_whole_batch is None


def test_a_trained_network_is_saved_with_the_option(tmp_path: Path) -> None:
    """After training gains and biases differ from 1 and 0."""
    for transitions in ("reinforced",):
        options = TrainingOptions(epochs=1, accelerator="cpu", learning_rate=0.01)
        config, folder = CONFIG.replace(transitions=transitions), tmp_path / transitions
        model = fit(MoreX(), config, toy_data(40), options, output=folder, progress=False).model
        checkpoint.save(tmp_path / f"{transitions} again", model)
        again = treemem.load(tmp_path / f"{transitions} again")
        assert again.encoder.options["normalisation"] == "batch"
        assert again.encoder.normalisation == "batch"
        assert all((gain != 1).any() and bias.any() for gain, bias in again.encoder.norms.weights())
        assert (again.predict(toy_data(20)) == model.predict(toy_data(20))).all()


def test_weights_start_as_without_it_and_can_be_drawn_again() -> None:
    network, plain = spinn(), spinn(normalisation="none")
    of_network = network.state_dict()
    assert {name for name in of_network if name not in plain.state_dict()} == {
        f"norms.{kind}.{name}" for kind in ("gain", "bias") for name in ("composed", "tops", "tracked")
    }
    for name, value in plain.state_dict().items():
        assert torch.equal(of_network[name], value), name
    for gain, bias in network.norms.weights():
        gain.data += 1
        bias.data += 1
    network.reset_parameters()
    for gain, bias in network.norms.weights():
        assert (gain == 1).all()
        assert not bias.any()


def test_a_width_of_1_has_no_deviation() -> None:
    for options in ({"hidden_size": 1}, {"tracker_size": 1}):
        with pytest.raises(RecipeError, match="needs a hidden_size and a tracker_size other than 1"):
            spinn(**options)
    with pytest.raises(RecipeError, match="normalisation='layer' is none of none, batch"):
        spinn(normalisation="layer")


def test_the_engine_makes_no_difference() -> None:
    inputs, lengths = torch.randn(2, 4, 6), torch.tensor([4, 3])
    found = []
    for engine in ("fused", "naive"):
        torch.manual_seed(1)
        found.append(spinn(transitions="reinforced", engine=engine).read(inputs, lengths).encoding)
    assert torch.equal(*found)
    assert Model(MoreX(), CONFIG).needs_whole_batch == "normalisation='batch'"


@pytest.mark.parametrize("options", SORTS[2:3], ids=str)
def test_a_device_gives_the_same(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    case = network_case(lambda: CONFIG.replace(**options).build(VOCABULARY), 3)
    expected = outcome(placed(case, "cpu", torch.float64))
    with fake_device():
        found = {name: value.cpu() for name, value in outcome(placed(case, DEVICE, torch.float64)).items()}
    assert_same(found, expected, str(options))
