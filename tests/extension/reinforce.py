"""A REINFORCE learner with a baseline: guesses a class, and learns from whether the guess was correct."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from treemem.data.examples import Examples, TaskData, split_numbers
from treemem.data.loader import Batch
from treemem.data.sum_count import SumCount
from treemem.nn import ClassifierHead
from treemem.runs import Learner
from treemem.task import ClassificationTask
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

LEAVES = ("x", "y", "z")


class Reinforce(Learner):
    """Samples a class for each example; the reward is 1 if it is correct, the baseline an average of the rewards."""

    baseline: float = 0.0

    def training_step(self, batch: Batch, targets: Mapping[str, Tensor]) -> Mapping[str, SumCount]:
        losses, reward = {}, SumCount.zero()
        if batch.num_examples:
            policy = torch.distributions.Categorical(logits=self.run(batch).outputs)
            action = policy.sample()
            won = (action == targets["label"]).float()
            reward = SumCount(won.sum(), float(len(won)))
            losses["loss"] = SumCount(-((won - self.baseline) * policy.log_prob(action)).sum(), float(len(won)))
        total = self.update(losses)
        total["reward"] = self.summed({"reward": reward})["reward"]
        self.baseline += 0.1 * (float(total["reward"].mean) - self.baseline)
        return total

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "baseline": self.baseline}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.baseline = state["baseline"]


@dataclass(frozen=True)
class TreeOptions:
    """How many trees."""

    trees: int = 160


@dataclass(frozen=True)
class FirstLeaf(ClassificationTask):
    """Which leaf stands first."""

    name: ClassVar[str] = "first_leaf"
    version: ClassVar[str] = "1"
    group: ClassVar[str] = "height"
    data_options: ClassVar[type] = TreeOptions
    learner: ClassVar[type[Learner]] = Reinforce

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(list(LEAVES), [("f", 2)])

    @property
    def class_names(self) -> tuple[str, ...]:
        return LEAVES

    def make_data(self, options: TreeOptions, *, progress: bool | None = None) -> TaskData:
        draw = np.random.default_rng(3)
        trees = [
            Tree("f", [Tree(LEAVES[first]), Tree(LEAVES[second])])
            for first, second in draw.integers(0, 3, (options.trees, 2)).tolist()
        ]
        names = ["test" if not n % 5 else "validation" if not n % 4 else "train" for n in range(options.trees)]
        return TaskData(Forest.from_trees(trees, tree_data={"split": np.array(names)}), "Trees.\n")

    def parse(self, text: str) -> Tree:
        return parse_brackets(text)

    def examples(self, data: Forest) -> Examples:
        split = split_numbers(data.tree_data.get("split"))
        label = np.array([LEAVES.index(next(tree.leaves()).label) for tree in data], np.int64)
        height = data.height()[data.begin[1:] - 1].astype(np.int64)
        return Examples(data, 1, {"label": label}, height, np.ones(len(data), bool), split)

    def head(self, hidden_size: int) -> nn.Module:
        return ClassifierHead(hidden_size, len(LEAVES))
