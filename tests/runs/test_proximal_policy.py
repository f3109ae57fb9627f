"""Proximal policy optimisation of a parser."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from pairs_of_formulas import LABELS, LENGTHS, StillLearner, all_ways
from toy_task import MoreX, toy_data

from treemem import Forest, TreeBatch, Vocabulary
from treemem.data.sum_count import SumCount
from treemem.engines.choices import Noise
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.networks.parsers.disjoint_tree_lstm import layer as network_module
from treemem.networks.parsers.disjoint_tree_lstm.plan import tree_plan
from treemem.networks.parsers.disjoint_tree_lstm.run import choose_trees
from treemem.networks.word_vectors import WordVectors
from treemem.nn import DisjointTreeLSTM
from treemem.runs import TrainingOptions, fit
from treemem.runs.proximal_policy import ProximalPolicy, policy_loss
from treemem.runs.training_step import Learner, learner_of

CONFIG = NetworkConfig("DisjointTreeLSTM", {"hidden_size": 6, "policy_updates": 3})


def trained(folder: Path, epochs: int = 1, options: Mapping[str, Any] | None = None, **training: Any) -> Any:
    return fit(
        MoreX(),
        CONFIG.replace(**(options or {})),
        toy_data(40),
        TrainingOptions(epochs=epochs, accelerator="cpu", learning_rate=0.01, **training),
        output=folder,
        resume=True,
        progress=False,
    )


def sampling(monkeypatch: pytest.MonkeyPatch, places: torch.Tensor) -> None:
    """From now on a parser samples the pairs at these places."""

    def choose(*leaves_and_others: Any, noise: Noise | None, **options: Any) -> torch.Tensor:
        return choose_trees(*leaves_and_others, noise=None, **options) if noise is None else places

    monkeypatch.setattr(network_module, "choose_trees", choose)


def ways(length: int) -> list[tuple[int, ...]]:
    """All choices that make a tree of so many words: which pair each step composes."""
    return list(product(*map(range, range(length - 1, 0, -1))))


def proximal(monkeypatch: pytest.MonkeyPatch, entropy_weight: float) -> StillLearner:
    found = StillLearner(monkeypatch, "DisjointTreeLSTM", policy_updates=2, entropy_weight=entropy_weight)
    parser: Any = found.model.encoder.parser
    with torch.no_grad():
        parser.query.mul_(100)
    return found


def cost(probabilities: torch.Tensor) -> torch.Tensor:
    """The negative log likelihood of each pair."""
    return -probabilities[torch.arange(2), LABELS].log()


def test_the_expected_gradient_of_each_update_is_that_of_the_expected_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as no update changes the weights."""
    still = proximal(monkeypatch, entropy_weight=0.0)
    estimates, expected_cost, total = [torch.zeros(()), torch.zeros(())], torch.zeros(()), 0.0
    for places in all_ways(map(ways, LENGTHS), 3):
        sampling(monkeypatch, places)
        still.learner.variance = 0.0  # costs are not scaled
        _, *updates = still.step()
        probabilities, trace = still.run()
        probability = trace["log_probability"].sum().exp()
        estimates = [
            each + probability.detach() * still.gradient(update["loss"].mean)
            for each, update in zip(estimates, updates, strict=True)
        ]
        expected_cost = expected_cost + probability * cost(probabilities).mean()
        total += float(probability.detach())
    assert total == pytest.approx(1)
    exact = still.gradient(expected_cost)
    assert exact.abs().max() > 1e-4
    for estimate in estimates:
        torch.testing.assert_close(estimate, exact, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("variance", [0.5, 25.0])
def test_the_cost_of_a_pair_is_compared_with_that_of_its_likeliest_trees_and_scaled(
    monkeypatch: pytest.MonkeyPatch, variance: float
) -> None:
    still = proximal(monkeypatch, entropy_weight=0.1)
    sampling(monkeypatch, next(all_ways(map(ways, LENGTHS), 3)))
    still.learner.variance = variance
    of_task, *updates = still.step()
    probabilities, trace = still.run()
    compared = cost(probabilities) - cost(still.likeliest())
    deviation = (0.9 * variance + 0.1 * compared.var()).sqrt().clamp(min=1)
    expected = (compared / deviation).mean() - 0.1 * trace["entropy"].mean()
    for update in updates:
        torch.testing.assert_close(update["loss"].mean, expected, check_dtype=False)
    torch.testing.assert_close(of_task["loss"].mean.detach(), cost(probabilities).mean())


def test_a_ratio_that_has_moved_far_enough_has_no_gradient() -> None:
    log_ratio = torch.tensor([1.5, 0.5, 1.5, 0.5, 1.1]).log().requires_grad_()
    cost = torch.tensor([1.0, 1.0, -1.0, -1.0, -1.0])
    loss = policy_loss(log_ratio, torch.zeros(5), cost, 0.2, 0.0)
    torch.testing.assert_close(loss.sum, torch.tensor(1.5 + 0.8 - 1.2 - 0.5 - 1.1))
    loss.sum.backward()
    torch.testing.assert_close(log_ratio.grad, torch.tensor([1.5, 0.0, 0.0, -0.5, -1.1]))


def test_entropy_is_rewarded() -> None:
    loss = policy_loss(torch.zeros(2), torch.tensor([0.5, 1.0]), torch.zeros(2), 0.2, 0.1)
    torch.testing.assert_close(loss.mean, torch.tensor(-0.075))


def test_parser_and_composition_have_an_optimiser_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert learner_of(Model(MoreX(), CONFIG)) is ProximalPolicy
    before: list[dict[str, torch.Tensor]] = []
    update = Learner.update

    def kept(self: Learner, losses: Mapping[str, SumCount], optimizer: int = 0) -> dict[str, SumCount]:
        total = update(self, losses, optimizer)
        after = {name: each.detach().clone() for name, each in self.model.named_parameters()}
        if before:
            changed = {
                name.startswith("encoder.parser") for name in after if not torch.equal(after[name], before[-1][name])
            }
            assert changed == {optimizer == 1}
        before.append(after)
        return total

    monkeypatch.setattr(Learner, "update", kept)
    result = trained(tmp_path, epochs=2, batch_size=16)
    assert len(before) % 4 == 0
    assert {"loss", "policy_loss"} <= set(result.records[-1])


@pytest.mark.parametrize("schedule", ["linear", "plateau"])
def test_the_parser_keeps_its_own_learning_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: str) -> None:
    rates: list[list[float]] = []
    update = Learner.update

    def kept(self: Learner, losses: Mapping[str, SumCount], optimizer: int = 0) -> dict[str, SumCount]:
        rates.append([each.param_groups[0]["lr"] for each in self.optimizers])
        return update(self, losses, optimizer)

    monkeypatch.setattr(Learner, "update", kept)
    trained(tmp_path, epochs=3, schedule=schedule, plateau_patience=0, options={"policy_rate": 0.5})
    assert rates[0] == [0.01, 0.005]
    assert all(of_parser == pytest.approx(rate / 2) for rate, of_parser in rates)


def test_a_resumed_run_continues_with_its_variance(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", epochs=3)
    trained(tmp_path / "parts", epochs=2)
    parts = trained(tmp_path / "parts", epochs=3)
    for name in ("loss", "policy_loss"):
        assert parts.records[-1][name] == whole.records[-1][name]


class Outer:
    """Two processes, of which the other one has costs too."""

    count = 2

    def __init__(self, other: dict[str, tuple[float, float]]) -> None:
        self.other = other

    def gathered(self, own: Any) -> list[Any]:
        return [own, self.other]


def test_costs_are_divided_by_their_deviation_over_all_processes() -> None:
    cost = torch.tensor([4.0, -9.0, 30.0, 7.0])
    learners = [ProximalPolicy.__new__(ProximalPolicy) for _ in range(2)]
    learners[0].processes = type("Alone", (), {"count": 1})()
    rest = cost[2:]
    learners[1].processes = Outer({"cost": (float(rest.sum()), 2.0), "square": (float(rest.square().sum()), 2.0)})  # type: ignore[assignment]
    expected = cost / (0.9 + 0.1 * cost.var()).sqrt()
    torch.testing.assert_close(learners[0].scaled(cost), expected)
    torch.testing.assert_close(learners[1].scaled(cost[:2]), expected[:2])
    few = ProximalPolicy.__new__(ProximalPolicy)
    few.processes = learners[0].processes
    torch.testing.assert_close(few.scaled(cost[:1]), cost[:1])
    assert few.variance == 1


@pytest.mark.parametrize("reads", ["tokens", "word vectors", "features"])
def test_unchanged_weights_give_a_tree_its_old_probability(reads: str) -> None:
    """The parser reads what it has read when the tree was sampled, also with dropout of the composition's vectors."""
    torch.manual_seed(0)
    forest = Forest.from_trees(["(f x (f y x))", "(f y y)"])
    vocabulary = Vocabulary.from_forest(forest)
    network = DisjointTreeLSTM(6, vocabulary, form="leaves", input_dropout=0.5)
    batch = TreeBatch.from_forest(forest, vocabulary, share_subtrees=False)
    if reads == "word vectors":
        network.embedding = WordVectors(torch.randn(network.embedding.num_embeddings, 4), 6)  # type: ignore[assignment]
    elif reads == "features":
        network.read_features(3)
        batch.feat = torch.randn(batch.num_nodes, 3)
    states = network(batch)
    plan = tree_plan(states.trace["places"].long(), states.lengths)
    log_probability, entropy = network.policy(batch, plan)
    torch.testing.assert_close(log_probability, states.trace["log_probability"])
    torch.testing.assert_close(entropy, states.trace["entropy"])


def test_a_policy_learns_what_it_costs_least() -> None:
    """The cost is 0 if the first two tokens are composed first, and 1 if not."""
    torch.manual_seed(0)
    network = DisjointTreeLSTM(6, MoreX().vocabulary, form="leaves")
    optimizer = torch.optim.Adam(network.policy_parameters(), lr=0.02)
    inputs, lengths = torch.randn(20, 4, 6), torch.full((20,), 4)
    for _ in range(60):
        trace = network.read(inputs, lengths, trace=True).trace
        cost = (trace["joined"][:, 1] != 1).float()
        new = trace["log_probability"]
        loss = policy_loss(new - new.detach(), trace["entropy"], cost - cost.mean(), 0.2, 0.0).mean
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    joined = network.eval().read(inputs, lengths, trace=True).trace["joined"]
    assert (joined[:, 1] == 1).float().mean() > 0.9
