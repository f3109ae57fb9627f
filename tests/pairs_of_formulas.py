"""Two pairs of formulas, and all ways to choose their trees, over which the tests of policy gradients take means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any

import pytest
import torch

from treemem.data.sum_count import SumCount
from treemem.data_parallel import Processes
from treemem.evaluation_mode import in_evaluation_mode
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.runs import TrainingOptions
from treemem.runs.accelerator import fabric_of_process
from treemem.runs.training_step import learner_of
from treemem.schedule.tree_batch import TreeBatch
from treemem.tasks.logical_inference import LogicalInference

LENGTHS = (4, 3, 3, 1)
"""How many words each formula has."""

LABELS = torch.tensor([4, 0])

_TEXTS = ("( ( not a ) ( and b ) )\t( a ( or c ) )", "( b ( and c ) )\td")


class StillLearner:
    """A learner of the network ``name`` in double precision that keeps the losses of its updates and takes no step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, **options: Any) -> None:
        torch.manual_seed(0)
        task = LogicalInference()
        self.model = Model(task, NetworkConfig(name, {"hidden_size": 6, "form": "leaves", **options}))
        with torch.no_grad():
            for weight in (self.model.encoder.embedding.weight, *self.model.head.parameters()):
                weight.mul_(3)  # so that trees differ in what they are worth
        processes = Processes()
        fabric = fabric_of_process(processes, "cpu", "64-true")
        self.learner: Any = learner_of(self.model)(self.model, TrainingOptions(), processes, fabric)
        forest = task.forest_of(_TEXTS)
        examples = task.examples(forest)
        self.batch = TreeBatch.from_forest(examples.forest, self.model.vocabulary, trees_per_example=2)
        self.targets = {"label": LABELS}
        self._updates: list[dict[str, SumCount]] = []
        monkeypatch.setattr(self.learner, "update", self._update)

    def _update(self, losses: dict[str, SumCount], optimizer: int = 0) -> dict[str, SumCount]:
        self._updates.append(dict(losses))
        return dict(losses)

    def step(self) -> list[dict[str, SumCount]]:
        """The losses of each update of a training step."""
        self._updates.clear()
        self.learner.training_step(self.batch, self.targets)
        return list(self._updates)

    def run(self) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The probabilities of the classes, ``[pairs, classes]``, and the trace, as training has them."""
        output = self.learner.run(self.batch)
        return output.outputs.detach().softmax(1), output.encoded.trace

    def likeliest(self) -> torch.Tensor:
        """The probabilities of the classes with the likeliest trees."""
        with in_evaluation_mode(self.model):
            return self.model(self.batch).softmax(1)

    def gradient(self, loss: torch.Tensor) -> torch.Tensor:
        """The gradient of the encoder's weights, one after the other."""
        weights = list(self.model.encoder.parameters())
        found = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True, materialize_grads=True)
        return torch.cat([each.flatten() for each in found])


def all_ways(of_trees: Iterable[Sequence[Sequence[int]]], width: int) -> Iterator[torch.Tensor]:
    """Every choice of one way for each tree, padded to ``[trees, width]``."""
    for chosen in product(*of_trees):
        yield torch.tensor([[*way, *[0] * (width - len(way))] for way in chosen])
