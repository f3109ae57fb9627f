"""Steps of one checkout, which :mod:`benchmarks.pairs` asks for by lines of JSON.

They use the public names of the library only, so that these workloads run with the library of another checkout.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import torch

import treemem
from benchmarks.device import peak_of
from benchmarks.examples import Examples, equations, logic_pairs, sentences
from benchmarks.own_cells import AttentiveGRU, equal_trees_of_20_leaves, own_cell_network
from treemem import TreeBatch, Vocabulary
from treemem.nn import (
    ONLSTM,
    SPINN,
    EfficientBeamTreeGRC,
    MemoryRNN,
    OrderedMemory,
    StackTreeLSTM,
    TreeCell,
    TreeLSTM,
    TreeRNN,
)
from treemem.schedule import SubtreeIndex

_BATCHES = 4


class Case(NamedTuple):
    """A network on batches of examples.

    Attributes:
        network: makes it.
        examples: makes so many.
        batch_size: examples in a batch.
        share: whether equal subtrees of a batch are computed once.
        features: width of the vectors of nodes; None if there are none.
    """

    network: Callable[[Vocabulary], torch.nn.Module]
    examples: Callable[[int], Examples]
    batch_size: int
    share: bool = False
    features: int | None = None


_pairs = partial(Case, examples=logic_pairs, batch_size=64)
CASES = {
    **{
        f"equations 8-13 batch {size}": Case(
            lambda own: StackTreeLSTM(60, own, stack_size=5, normalize=True, no_op=True),
            partial(equations, 8, 13), size, share=True,
        ) for size in (32, 256, 1024)
    },
    "sst hidden 150": Case(
        lambda _: TreeLSTM(150, input_size=300, node_features=False, arities=(2,)), sentences, 256, features=300
    ),
    "logic tree-cell 200": Case(lambda own: TreeCell(200, own, shared_kinds=True), logic_pairs, 256, share=True),
    "logic tree-rnn 200": Case(lambda own: TreeRNN(200, own, activation="tanh"), logic_pairs, 256, share=True),
    "own cell gru 50": Case(lambda own: own_cell_network(AttentiveGRU, 50, own)[0], equal_trees_of_20_leaves, 25),
    "own cell gru 150": Case(lambda own: own_cell_network(AttentiveGRU, 150, own)[0], equal_trees_of_20_leaves, 256),
    "ordered memory 128": _pairs(lambda own: OrderedMemory(128, own)),
    "on-lstm 400": _pairs(lambda own: ONLSTM(400, own, chunk_size=10)),
    "neural stack, lstm 64": _pairs(lambda own: MemoryRNN(64, own, memory="stack")),
    "neural queue, lstm 64": _pairs(lambda own: MemoryRNN(64, own, memory="queue")),
    "spinn 64": _pairs(lambda own: SPINN(64, own)),
    "ebt-grc 64": _pairs(lambda own: EfficientBeamTreeGRC(64, own, beam_size=3)),
}  # fmt: skip


class Steps:
    """The steps of a case; batches are made anew, as in training."""

    def __init__(self, case: Case) -> None:
        torch.manual_seed(0)
        examples = case.examples(_BATCHES * case.batch_size)
        self._case, self._pairs = case, examples.trees_per_example
        self._network = case.network(examples.vocabulary)
        self._index = SubtreeIndex(examples.forest, examples.vocabulary)
        self._numbers = cycle(range(max(1, len(examples) // case.batch_size)))

    def train(self) -> float:
        """Forward and backward pass; return the loss."""
        self._network.train().zero_grad()
        loss = self._encoded().square().mean()
        loss.backward()
        return loss.item()

    @torch.no_grad()
    def score(self) -> None:
        """Forward pass."""
        self._network.eval()
        self._encoded()

    def peak(self) -> int:
        """The most bytes of tensors that training holds at once; the gradients are among them."""
        self._network.zero_grad()
        return peak_of(self.train)

    def _encoded(self) -> torch.Tensor:
        size, number = self._case.batch_size, next(self._numbers)
        batch = TreeBatch.from_index(
            self._index, slice(number * size, (number + 1) * size), trees_per_example=self._pairs,
            share_subtrees=self._case.share,
        )  # fmt: skip
        width = self._case.features
        root: torch.Tensor = self._network(batch, None if width is None else torch.ones(batch.num_nodes, width)).root
        return root


def answer(
    steps: dict[str, Steps], name: str, mode: str | None = None, seconds: float = 0.0, count: int = 1
) -> dict[str, Any]:
    """Answer a request.

    Without a mode: loss and peak memory of a new case. With one: CPU seconds of a step, and how many steps were taken,
    at least ``count``, and as many as take ``seconds``.
    """
    if mode is None:
        steps.clear()
        steps[name] = own = Steps(CASES[name])
        loss = own.train()
        own.score()
        return {"loss": loss, "peak": own.peak()}
    step = steps[name].train if mode == "training" else steps[name].score
    taken, begin = 0, time.process_time()
    while (used := time.process_time() - begin) < seconds or taken < count:
        step()
        taken += 1
    return {"seconds": used / taken, "count": taken}


def main(checkout: str, threads: int) -> None:
    """Answer the requests of standard input."""
    assert Path(treemem.__file__).is_relative_to(checkout), f"treemem is from {treemem.__file__}, not from {checkout}"
    torch.set_num_threads(threads)
    steps: dict[str, Steps] = {}
    for line in sys.stdin:
        try:
            found = answer(steps, **json.loads(line))
        except Exception as error:  # a checkout may not have it yet
            found = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(found), flush=True)
