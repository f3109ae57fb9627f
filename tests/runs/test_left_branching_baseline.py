"""The reward of left-branching trees as the baseline of REINFORCE."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from toy_task import MoreX

from treemem.data.sum_count import SumCount
from treemem.data.token_batch import TokenBatch
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.nn import SPINN
from treemem.runs.reinforced_transitions import ReinforcedTransitions
from treemem.runs.training_step import Learner
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree

OPTIONS = {"hidden_size": 6, "transitions": "reinforced", "form": "leaves", "baseline": "left", "input_dropout": 0.3}
NETWORKS = [
    NetworkConfig("SPINN", {**OPTIONS, "tracker_size": 3}),
    NetworkConfig("SPINN", {**OPTIONS, "tracker_size": 3, "normalisation": "batch"}),
    NetworkConfig("RRNet", OPTIONS),
]
SENTENCES = [list(format(number, "b").translate({48: "x", 49: "y"})) for number in range(1, 60)]


def batch_of(right: bool) -> TreeBatch:
    """The sentences as right-branching or left-branching trees."""

    def tree(words: list[str]) -> Tree:
        if len(words) == 1:
            return Tree(words[0])
        parts = [words[:1], words[1:]] if right else [words[:-1], words[-1:]]
        return Tree("f", [tree(part) for part in parts])

    return TreeBatch.from_trees([tree(words) for words in SENTENCES], MoreX().vocabulary)


@pytest.mark.parametrize("config", NETWORKS, ids=str)
@pytest.mark.parametrize("reward", ["accuracy", "log"])
def test_the_policy_loss_has_the_reward_of_left_branching_trees(
    monkeypatch: pytest.MonkeyPatch, config: NetworkConfig, reward: str
) -> None:
    """By hand, the same weights read gold transitions of left-branching trees in evaluation mode."""
    label = torch.arange(len(SENTENCES)) % 2
    torch.manual_seed(0)
    model = Model(MoreX(), config.replace(reward=reward)).train()
    with torch.no_grad():
        model.head.read.bias -= model(batch_of(right=True)).mean()  # so that some answers are correct
    gold = Model(MoreX(), config.replace(transitions="gold")).eval()
    gold.load_state_dict(model.state_dict(), strict=False)  # RRNet has no policy there

    def rewards(outputs: torch.Tensor) -> torch.Tensor:
        correct = torch.where(label == 1, outputs.sigmoid(), 1 - outputs.sigmoid()).detach()
        return -(1 - correct).log() if reward == "log" else (correct > 0.5).float()

    losses: dict[str, SumCount] = {}

    def kept(self: Learner, found: Mapping[str, SumCount]) -> dict[str, SumCount]:
        losses.update(found)
        return dict(found)

    monkeypatch.setattr(Learner, "update", kept)
    learner: Any = ReinforcedTransitions.__new__(ReinforcedTransitions)
    learner.model, learner.processes = model, SimpleNamespace(count=1)
    learner.fabric = SimpleNamespace(autocast=nullcontext)
    torch.manual_seed(1)
    learner.training_step(batch_of(right=True), {"label": label})
    assert model.encoder.training
    torch.manual_seed(1)  # the same samples
    output = model.run(batch_of(right=True))
    advantage = rewards(output.outputs) - rewards(gold(batch_of(right=False)))
    assert advantage.count_nonzero() > 10
    trace = output.encoded.trace
    expected = -(trace["log_probability"] * trace["free"] * advantage[:, None]).sum()
    torch.testing.assert_close(losses["policy"].sum, expected)
    assert float(losses["policy"].count) == sum(2 * len(words) - 1 for words in SENTENCES)


def test_transitions_are_left_branching_within_and_chosen_outside() -> None:
    torch.manual_seed(0)
    network = SPINN(6, MoreX().vocabulary, transitions="reinforced", form="leaves", tracker_size=3).eval()
    torch.nn.init.constant_(network.tracker.transition_map.bias[:1], 50)  # which shifts
    tokens = TokenBatch.from_sequences([[0, 1, 1, 0], [], [1], [0, 1]])
    chosen = network(tokens, trace=True).trace["joined"]
    with network.left_branching():
        joined = network(tokens, trace=True).trace["joined"]
        assert network(TokenBatch.from_sequences([[], []])).root.shape == (2, 1, 6)
    assert joined.tolist() == [[0, 1, 2, 3], [0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]
    assert chosen.tolist() == [[0, 3, 2, 1], [0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]
    assert torch.equal(network(tokens, trace=True).trace["joined"], chosen)
