from __future__ import annotations

import dataclasses
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from toy_task import KindSum, MoreX, toy_data
from training_runs import OPTIONS, assert_same, last_state, run, stopped_run

from treemem.data.sum_count import SumCount
from treemem.errors import RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.networks.encoder_output import EncoderOutput
from treemem.runs.fit import fit
from treemem.runs.training_loop import FitResult
from treemem.runs.training_step import Learner, detached
from treemem.schedule.tree_batch import TreeBatch

NETWORK = NetworkConfig("Penalized", {"hidden_size": 3})
ALL = dataclasses.replace(OPTIONS, batch_size=60, epochs=1)


class Penalized(KindSum):
    """Sums leaves; its auxiliary losses are of the size and of the sum of its encodings."""

    def forward(self, batch: TreeBatch) -> Any:
        root = super().forward(batch)
        count = float(len(root))
        losses = {"size": SumCount(root.square().sum(), 2 * count), "sum": SumCount(root.sum(), count)}
        return EncoderOutput(root, root.flatten(0, 1), auxiliary_losses=losses)


def trained(output: Path, losses: dict[str, float], **changed: Any) -> FitResult:
    options = dataclasses.replace(ALL, auxiliary_losses=losses, **changed)
    return fit(MoreX(), NETWORK, toy_data(divided=False), options, output=output, networks={"Penalized": Penalized})


def first_gradients(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The gradients of the first step from here on."""
    gradients: list[Tensor] = []
    step = torch.optim.Adam.step

    def telling(self: torch.optim.Adam, *rest: object) -> object:
        if not gradients:
            gradients.extend(each.grad.clone() for each in self.param_groups[0]["params"])
        return step(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.optim.Adam, "step", telling)
    return gradients


@pytest.mark.parametrize("weights", [{}, {"size": 0.5}, {"size": 0.5, "sum": 2.0}])
def test_the_gradient_is_that_of_the_weighted_sum_of_mean_losses_and_all_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: dict[str, float]
) -> None:
    found = first_gradients(monkeypatch)
    (record,) = trained(tmp_path, weights, precision="64-true").records
    torch.manual_seed(ALL.seed)
    model = Model(MoreX(), NETWORK, networks={"Penalized": Penalized}).double()
    examples = MoreX().examples(toy_data(divided=False))
    (batch,) = examples.loader(model.vocabulary).batches()
    output = model.run(batch)
    means = {name: loss.mean for name, loss in output.auxiliary_losses.items()}
    main = MoreX().loss(output.outputs, examples.batch_targets(batch)).mean
    torch.stack([main, *(weight * means[name] for name, weight in weights.items())]).sum().backward()
    for parameter, gradient in zip(model.parameters(), found, strict=True):
        torch.testing.assert_close(gradient, parameter.grad)
    assert record["loss"] == pytest.approx(main.item())
    for name, mean in means.items():
        assert record[f"{name}_loss"] == pytest.approx(mean.item())


@pytest.mark.parametrize(
    ("weights", "together"), [({}, {"size": 0.5}), ({"size": 0.0}, {}), ({"sum": 2.0}, {"size": 0.5, "sum": 2.0})]
)
def test_the_network_has_weights_of_its_own_unless_the_options_have_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: dict[str, float], together: dict[str, float]
) -> None:
    expected = first_gradients(monkeypatch)
    trained(tmp_path / "options", together)
    monkeypatch.undo()
    monkeypatch.setattr(Penalized, "auxiliary_loss_weights", {"size": 0.5}, raising=False)
    found = first_gradients(monkeypatch)
    trained(tmp_path / "network", weights)
    for each, other in zip(found, expected, strict=True):
        torch.testing.assert_close(each, other)


def test_a_loss_that_the_network_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="auxiliary_losses names 'ponder'; the network's auxiliary losses: size, sum"):
        trained(tmp_path, {"size": 1.0, "ponder": 0.1})


class TwoOptimizers(Learner):
    """Trains encoder and head by an optimiser each, and counts its steps."""

    steps = 0

    def make_optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.model.encoder, self.model.head)]

    def training_step(self, batch: Any, targets: Any) -> Any:
        self.steps += 1
        self.update(self.losses(batch, targets), 0)
        return self.update(self.losses(batch, targets), 1)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "steps": self.steps}

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self.steps = state["steps"]


@pytest.mark.parametrize("named", [TwoOptimizers, "learner_of_test:TwoOptimizers"])
def test_a_learner_of_ones_own_trains_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: Any) -> None:
    if isinstance(named, str):
        module = types.ModuleType("learner_of_test")
        module.TwoOptimizers = TwoOptimizers  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "learner_of_test", module)
    monkeypatch.setattr(MoreX, "learner", named)
    run(tmp_path / "whole", schedule="cosine")
    stopped_run(tmp_path / "broken", 3, checkpoint_steps=2, schedule="cosine")
    run(tmp_path / "broken", resume=True, schedule="cosine")
    assert_same(tmp_path / "whole", tmp_path / "broken")
    learner = last_state(tmp_path / "broken")[0]["learner"]
    assert learner["steps"] == 3 * 5
    assert len(learner["optimizers"]) == 2


def test_a_state_is_carried_on_without_its_history() -> None:
    tensor = torch.ones(2, requires_grad=True) * 2
    found = detached({"a": (tensor, [tensor]), "b": None})
    assert not found["a"][0].requires_grad
    assert not found["a"][1][0].requires_grad
    assert found["b"] is None
