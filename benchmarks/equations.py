"""Equations scored and trained on by a stack-augmented Tree-LSTM, against every other way of running it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.level_autograd import LevelVerifier
from benchmarks.recursion import RecursiveVerifier
from benchmarks.timing import Arm, Row, compare
from treemem.nn import EqualityHead, StackTreeLSTM
from treemem.ops.stack_tree_lstm import StackTreeLSTMOptions
from treemem.schedule.loader import TreeLoader
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch
from treemem.tasks.equation_verification import equation_vocabulary, read_equations
from treemem.tasks.equation_verification.generator import generate_equations
from treemem.trees.forest import Forest

PUBLISHED_SAMPLE = Path(__file__).parents[2] / "shared" / "data" / "equations" / "published_sample.jsonl"
BASELINES = ("recursion", "naive", "level-autograd")


@dataclass(frozen=True)
class Workload:
    """Equations and how they are batched."""

    name: str
    depths: range
    batch_size: int
    share_subtrees: bool


WORKLOADS = tuple(
    Workload(f"equations {depths.start}-{depths.stop - 1} batch {size} {shared}", depths, size, shared == "shared")
    for depths in (range(1, 8), range(8, 14))
    for size in (256, 1024)
    for shared in ("shared", "unshared")
)


@dataclass(frozen=True)
class Budget:
    """How long to measure."""

    rounds: int = 5
    seconds: float = 2.0
    equations: int = 4096
    recursed: int = 64


@dataclass(frozen=True, eq=False)
class Verifier:
    """Our model and its labelled equations."""

    layer: StackTreeLSTM
    head: EqualityHead
    forest: Forest
    index: SubtreeIndex = field(init=False)
    label: Tensor = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", SubtreeIndex(self.forest.split_roots(), self.layer.vocabulary))
        object.__setattr__(self, "label", torch.from_numpy(self.forest.tree_data["label"].astype(np.float32)))

    def batches(self, workload: Workload) -> Iterator[TreeBatch]:
        """The equations in batches, each made anew as in training."""
        return iter(
            TreeLoader(
                self.index, None, workload.batch_size, trees_per_example=2, share_subtrees=workload.share_subtrees
            )
        )

    def train(self, workload: Workload, scores: Callable[[TreeBatch], Tensor]) -> None:
        """Loss and backward for every batch, without the step of an optimiser."""
        for batch in self.batches(workload):
            label = self.label[torch.from_numpy(batch.example_ids)]
            self.head.loss(scores(batch), label).backward()

    @torch.no_grad()
    def score(self, workload: Workload, scores: Callable[[TreeBatch], Tensor]) -> None:
        """Scores of every batch."""
        for batch in self.batches(workload):
            scores(batch)

    def fused(self, batch: TreeBatch) -> Tensor:
        """Scores by the fused engine."""
        self.layer.engine = "fused"
        return self.head(self.layer(batch))

    def naive(self, batch: TreeBatch) -> Tensor:
        """Scores by DGL's message passing."""
        self.layer.engine = "naive"
        return self.head(self.layer(batch))


def load_equations(depths: range, count: int) -> Forest:
    """Labelled equations of some depths: generated, or the published sample for depth 8 and more where it is there."""
    if depths.start >= 8 and PUBLISHED_SAMPLE.exists():
        forest = read_equations(PUBLISHED_SAMPLE).forest
        depth = forest.height()[forest.begin[1:] - 1]
    else:
        forest = generate_equations(max(4 * count, 2000), seed=1).forest
        depth = forest.tree_data["depth"]
    chosen = np.flatnonzero((depth >= depths.start) & (depth < depths.stop))
    return forest[np.sort(np.random.default_rng(0).permutation(chosen)[:count])]


def recursive_twin(layer: StackTreeLSTM, head: EqualityHead) -> RecursiveVerifier:
    """The recursion baseline with the weights of our layer."""
    vocabulary, options = layer.vocabulary, layer.options
    hidden_size = options["hidden_size"]
    twin = RecursiveVerifier(vocabulary.functions, vocabulary.leaves, hidden_size, options["stack_size"])
    twin.to(head.bias.dtype)
    layout = StackTreeLSTMOptions(**{name: options[name] for name in StackTreeLSTMOptions.__dataclass_fields__})
    with torch.no_grad():
        twin.embedding.weight.copy_(layer.leaves.embedding.weight)
        twin.bias.copy_(head.bias.squeeze())
        for kind, (name, arity) in enumerate(layer.vocabulary.kinds):
            if arity == 0:
                continue
            blocks = layout.blocks(arity, hidden_size)
            function = twin.functions[f"function_{name}"]
            maps, used = layer.cell.maps.of(arity), layer.cell.sets.set_of_kind(arity)[kind]
            sources = {gate: blocks[gate] for gate in ("output", "update")}
            begin = blocks["actions"].start
            for place, gate in enumerate(layout.action_names):
                sources[gate] = slice(begin + place * hidden_size, begin + (place + 1) * hidden_size)
            for gate, rows in sources.items():
                _copy(getattr(function, gate), maps.weight[used, rows], maps.bias[used, rows])
            for place, linear in enumerate(function.forget):
                rows = slice(place * hidden_size, (place + 1) * hidden_size)
                _copy(linear, maps.weight[used, blocks["forget"]][rows], maps.bias[used, blocks["forget"]][rows])
    return twin


def check_parity(verifier: Verifier, workload: Workload) -> None:
    """Refuse to go on unless every arm gives the same scores and gradients in float64.

    Raises:
        SystemExit: an arm that differs.
    """
    layer, head = copy.deepcopy(verifier.layer).double(), copy.deepcopy(verifier.head).double()
    small = Verifier(layer, head, verifier.forest[:24])
    twin = recursive_twin(layer, head)
    label = small.label.double()
    parameters = [layer.leaves.embedding.weight, head.bias]

    def scores_and_gradients(scores: Callable[[TreeBatch], Tensor]) -> list[Tensor]:
        found = torch.cat([scores(batch) for batch in small.batches(workload)])
        return [found, *torch.autograd.grad(head.loss(found, label), parameters)]

    expected = scores_and_gradients(small.naive)
    arms = {
        "fused": scores_and_gradients(small.fused),
        "level-autograd": scores_and_gradients(LevelVerifier(layer, head).scores),
    }
    equations = list(small.forest)
    twin.train_on(equations, label.tolist())
    arms["recursion"] = [twin.scores(equations), twin.embedding.weight.grad, twin.bias.grad.reshape(1)]
    for name, found in arms.items():
        for wanted, value in zip(expected, found, strict=True):
            if not torch.allclose(wanted, value, rtol=0, atol=1e-10):
                raise SystemExit(f"{workload.name}: {name} differs from naive; no speed is worth printing")


def measure(workload: Workload, baselines: tuple[str, ...], hidden_size: int, budget: Budget) -> list[Row]:
    """The rows of one workload, after its arms were found to agree."""
    torch.manual_seed(0)
    layer = StackTreeLSTM(hidden_size, equation_vocabulary(), stack_size=5, normalize=True, no_op=True)
    head = EqualityHead()
    verifier = Verifier(layer, head, load_equations(workload.depths, budget.equations))
    check_parity(verifier, workload)
    twin = recursive_twin(layer, head)
    recursed = verifier.forest[:: max(1, len(verifier.forest) // budget.recursed)]
    equations, labels = list(recursed), recursed.tree_data["label"].tolist()
    levels = LevelVerifier(layer, head)
    count = len(verifier.forest)
    training = {
        "recursion": Arm(lambda: twin.train_on(equations, labels), len(equations)),
        "naive": Arm(lambda: verifier.train(workload, verifier.naive), count),
        "level-autograd": Arm(lambda: verifier.train(workload, levels.scores), count),
    }
    inference = {
        "recursion": Arm(lambda: twin.scores(equations), len(equations)),
        "naive": Arm(lambda: verifier.score(workload, verifier.naive), count),
        "level-autograd": Arm(lambda: verifier.score(workload, levels.scores), count),
    }
    ours = {
        "training": Arm(lambda: verifier.train(workload, verifier.fused), count),
        "inference": Arm(lambda: verifier.score(workload, verifier.fused), count),
    }
    return [
        compare(workload.name, mode, name, ours[mode], arms[name], rounds=budget.rounds, at_least=budget.seconds)
        for mode, arms in (("training", training), ("inference", inference))
        for name in baselines
    ]


def _copy(linear: nn.Module, weight: Tensor, bias: Tensor) -> None:
    assert isinstance(linear, nn.Linear)
    linear.weight.copy_(weight)
    linear.bias.copy_(bias)
