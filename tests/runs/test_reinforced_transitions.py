"""REINFORCE for the transitions of SPINN."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from pairs_of_formulas import LABELS, LENGTHS, StillLearner, all_ways
from toy_task import MoreX, toy_data

from treemem.data.sum_count import SumCount
from treemem.errors import RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.networks.parsers.spinn import layer as spinn_module
from treemem.networks.parsers.spinn.equations import Policy
from treemem.networks.parsers.spinn.run import TransitionRun, run_transitions
from treemem.nn import SPINN
from treemem.runs import TrainingOptions, fit
from treemem.runs.reinforced_transitions import ReinforcedTransitions
from treemem.runs.training_step import Learner, learner_of
from treemem.task import TASKS
from treemem.tasks.listops import ListOps

CONFIG = NetworkConfig("SPINN", {"hidden_size": 6, "tracker_size": 3, "transitions": "reinforced"})


def trained(
    folder: Path, monkeypatch: pytest.MonkeyPatch, epochs: int = 1, **options: Any
) -> tuple[Any, list[dict[str, SumCount]]]:
    """The result of a training, and the losses of each step."""
    steps: list[dict[str, SumCount]] = []
    update = Learner.update

    def kept(self: Learner, losses: Mapping[str, SumCount], optimizer: int = 0) -> dict[str, SumCount]:
        steps.append(dict(losses))
        return update(self, losses, optimizer)

    monkeypatch.setattr(Learner, "update", kept)
    training = TrainingOptions(epochs=epochs, accelerator="cpu", learning_rate=0.01)
    return fit(
        MoreX(),
        CONFIG.replace(**options),
        toy_data(40),
        training,
        output=folder / str(len(list(folder.iterdir()))),
        progress=False,
    ), steps


def test_reinforced_transitions_alone_have_a_learner_of_their_own() -> None:
    assert learner_of(Model(MoreX(), CONFIG)) is ReinforcedTransitions
    assert learner_of(Model(MoreX(), CONFIG.replace(transitions="gold"))) is Learner


def test_the_loss_of_the_policy_is_a_mean_over_all_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    encoded: list[Any] = []
    run = ReinforcedTransitions.run

    def kept(self: Any, batch: Any) -> Any:
        output = run(self, batch)
        encoded.append((output, self.reward(output.outputs.detach(), self.model_targets, "accuracy")))
        return output

    step = ReinforcedTransitions.training_step

    def with_targets(self: Any, batch: Any, targets: Any) -> Any:
        self.model_targets = targets
        return step(self, batch, targets)

    monkeypatch.setattr(ReinforcedTransitions, "run", kept)
    monkeypatch.setattr(ReinforcedTransitions, "training_step", with_targets)
    for credited in ("free", "all"):
        encoded.clear()
        _, steps = trained(tmp_path, monkeypatch, baseline="none", credited_steps=credited)
        output, reward = encoded[0]
        trace = output.encoded.trace
        weight = trace["free"] if credited == "free" else torch.ones_like(trace["free"])
        expected = -(trace["log_probability"] * weight * reward[:, None]).sum()
        torch.testing.assert_close(steps[0]["policy"].sum, expected)
        assert float(steps[0]["policy"].count) == float((2 * output.encoded.lengths - 1).sum())
        assert set(reward.tolist()) == {0.0, 1.0}


def sampling(monkeypatch: pytest.MonkeyPatch, transitions: torch.Tensor) -> None:
    """From now on a policy samples these transitions."""

    def run(*leaves_and_others: Any, policy: Policy, **options: Any) -> TransitionRun:
        if policy.uniform is not None:
            options["given"] = transitions
        return run_transitions(*leaves_and_others, policy=policy, **options)

    monkeypatch.setattr(spinn_module, "run_transitions", run)


def ways(length: int) -> list[tuple[int, ...]]:
    """All transitions, 0 shift and 1 reduce, that make a tree of so many words."""
    every = product((0, 1), repeat=2 * length - 1)
    return [
        each
        for each in every
        if sum(each) == length - 1 and all(2 * sum(each[:step]) < step for step in range(1, 2 * length))
    ]


def reinforced(monkeypatch: pytest.MonkeyPatch, baseline: str, reward: str) -> StillLearner:
    return StillLearner(
        monkeypatch, "SPINN", tracker_size=3, transitions="reinforced", baseline=baseline, reward=reward
    )


def rewards(probabilities: torch.Tensor, reward: str) -> torch.Tensor:
    """The reward of each pair, by hand."""
    if reward == "accuracy":
        return (probabilities.argmax(1) == LABELS).double()
    return -(1 - probabilities[torch.arange(2), LABELS]).log()


@pytest.mark.parametrize("baseline", ["ema", "greedy", "value", "none"])
def test_the_expected_gradient_is_that_of_the_expected_reward(monkeypatch: pytest.MonkeyPatch, baseline: str) -> None:
    still = reinforced(monkeypatch, baseline, "log")
    estimate, expected_reward, total = torch.zeros(()), torch.zeros(()), 0.0
    for transitions in all_ways(map(ways, LENGTHS), 7):
        sampling(monkeypatch, transitions)
        still.learner.average = 0.3
        (losses,) = still.step()
        probabilities, trace = still.run()
        probability = (trace["log_probability"] * trace["free"]).sum().exp()
        estimate = estimate + probability.detach() * still.gradient(losses["policy"].mean)
        expected_reward = expected_reward + probability * rewards(probabilities, "log").sum()
        total += float(probability.detach())
    assert total == pytest.approx(1)
    exact = -still.gradient(expected_reward) / sum(2 * length - 1 for length in LENGTHS)
    assert exact.abs().max() > 1e-3
    torch.testing.assert_close(estimate, exact, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("reward", ["accuracy", "log"])
@pytest.mark.parametrize("baseline", ["ema", "greedy", "value", "none"])
def test_both_trees_of_a_pair_are_credited_with_its_reward_above_the_baseline(
    monkeypatch: pytest.MonkeyPatch, baseline: str, reward: str
) -> None:
    still = reinforced(monkeypatch, baseline, reward)
    sampling(monkeypatch, next(all_ways(map(ways, LENGTHS), 7)))
    still.learner.average = 0.3
    (losses,) = still.step()
    probabilities, trace = still.run()
    own = rewards(probabilities, reward)
    compared = {
        "ema": lambda: torch.full((2,), 0.3),
        "greedy": lambda: rewards(still.likeliest(), reward),
        "value": lambda: trace["value"].view(2, 2).mean(1),
        "none": lambda: torch.zeros(2),
    }[baseline]().detach()
    if baseline == "value" and reward == "accuracy":
        compared = compared.sigmoid()
    of_trees = (trace["log_probability"] * trace["free"]).sum(1).view(2, 2).sum(1)
    expected = -(of_trees * (own - compared)).sum() / sum(2 * length - 1 for length in LENGTHS)
    torch.testing.assert_close(losses["policy"].mean, expected)
    assert still.learner.average == pytest.approx(0.9 * 0.3 + 0.1 * float(own.mean()))


def test_certain_samples_are_no_better_than_greedy_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, steps = trained(tmp_path, monkeypatch, baseline="greedy", temperature=1e-9)
    assert all(float(each["policy"].sum.detach()) == 0 for each in steps)
    _, steps = trained(tmp_path, monkeypatch, baseline="greedy", temperature=5.0)
    assert any(float(each["policy"].sum.detach()) != 0 for each in steps)


@pytest.mark.parametrize("reward", ["accuracy", "log"])
def test_a_predicted_baseline_is_learned_apart_from_the_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reward: str
) -> None:
    result, steps = trained(tmp_path, monkeypatch, baseline="value", reward=reward, epochs=8)
    assert result.records[-1]["value_loss"] < result.records[0]["value_loss"]
    network = result.model.encoder.train()
    network.zero_grad()
    inputs, lengths = torch.randn(4, 3, 6, requires_grad=True), torch.tensor([3, 0, 2, 1])
    values = network.read(inputs, lengths).trace["value"]
    alone = network.read(inputs[2:3, :2], lengths[2:3]).trace["value"]
    torch.testing.assert_close(values[2:3], alone)
    values.sum().backward()
    assert inputs.grad is None or not inputs.grad.any()
    learned = {name.partition(".")[0] for name, each in network.named_parameters() if each.grad is not None}
    assert learned == {"value"}
    assert set(steps[0]) == {"loss", "policy", "value"}


def test_the_reward_is_logged_and_its_average_is_the_baseline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    states: list[dict[str, Any]] = []
    state_dict = ReinforcedTransitions.state_dict

    def kept(self: Any) -> dict[str, Any]:
        states.append(state_dict(self))
        return states[-1]

    monkeypatch.setattr(ReinforcedTransitions, "state_dict", kept)
    result, _ = trained(tmp_path, monkeypatch, epochs=2)
    for record in result.records:
        assert 0 <= record["reward_loss"] <= 1
        assert "policy_loss" in record
    assert not states or 0 < states[-1]["average"] < 1


def test_rewards_are_those_of_the_probability_of_the_correct_class() -> None:
    learner = ReinforcedTransitions.__new__(ReinforcedTransitions)
    outputs = torch.tensor([0.3, -2.0, 1.0])
    logits = torch.tensor([[0.1, 0.4, 2.0], [1.0, -1.0, 0.0], [0.0, 1.0, 0.5]])
    label = torch.tensor([1, 1, 0])
    for task, found, probability in (
        (MoreX(), outputs, torch.where(label == 1, outputs.sigmoid(), 1 - outputs.sigmoid())),
        (ListOps(), logits, logits.softmax(1)[torch.arange(3), label]),
    ):
        learner.model = Model(task, CONFIG)
        torch.testing.assert_close(learner.reward(found, {"label": label}, "log"), -(1 - probability).log())
        torch.testing.assert_close(learner.reward(found, {"label": label}, "likelihood"), probability.log())
        best = found.argmax(1) if found.dim() == 2 else (found > 0).long()
        torch.testing.assert_close(learner.reward(found, {"label": label}, "accuracy"), (best == label).float())


def test_a_task_without_classes_is_refused() -> None:
    learner = ReinforcedTransitions.__new__(ReinforcedTransitions)
    learner.model = Model(MoreX(), CONFIG)
    learner.model.task = TASKS.find("transduction")()
    with pytest.raises(RecipeError, match=r"SPINN learns .* needs a task of classification, and transduction is not"):
        learner.reward(torch.zeros(2), {}, "accuracy")


def test_a_policy_learns_what_it_is_rewarded_for() -> None:
    """The reward is 1 if the first two tokens are composed first."""
    torch.manual_seed(0)
    network = SPINN(6, MoreX().vocabulary, transitions="reinforced", tracker_size=4, form="leaves")
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    inputs, lengths = torch.randn(20, 4, 6), torch.full((20,), 4)
    for _ in range(60):
        trace = network.read(inputs, lengths, trace=True).trace
        reward = (trace["joined"][:, 1] == 1).float()
        loss = -(trace["log_probability"] * trace["free"] * (reward - reward.mean())[:, None]).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    joined = network.eval().read(inputs, lengths, trace=True).trace["joined"]
    assert (joined[:, 1] == 1).float().mean() > 0.9
