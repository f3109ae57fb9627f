"""The baseline: a stack-augmented Tree-LSTM as published code of this field writes it.

One ``Linear`` a gate and function, one tree at a time by recursion over its nodes, loss and backward per tree.
The equations are those of :class:`treemem.nn.StackTreeLSTM` with ``normalize`` and ``no_op``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.problem import Problem
from benchmarks.ways import Outcome, Tie, Ties
from treemem.nn import TreeLayer
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary


class FunctionModule(nn.Module):
    """The cell of one function: ``arity`` children, each with ``h`` ``[hidden_size]`` and a stack."""

    def __init__(self, arity: int, hidden_size: int) -> None:
        super().__init__()
        inputs = arity * hidden_size
        self.push = nn.Linear(inputs, hidden_size)
        self.pop = nn.Linear(inputs, hidden_size)
        self.no_op = nn.Linear(inputs, hidden_size)
        self.output = nn.Linear(inputs, hidden_size)
        self.update = nn.Linear(inputs, hidden_size)
        self.forget = nn.ModuleList(nn.Linear(inputs, hidden_size) for _ in range(arity))

    def forward(self, children: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        x = torch.cat([h for h, _ in children])
        gates = torch.stack([torch.sigmoid(gate(x)) for gate in (self.push, self.pop, self.no_op)])
        push, pop, no_op = torch.softmax(gates, dim=0)
        update = torch.tanh(self.update(x))
        output = torch.sigmoid(self.output(x))
        merged = torch.zeros_like(children[0][1])
        for forget, (_, stack) in zip(self.forget, children, strict=True):
            merged = merged + torch.sigmoid(forget(x)) * stack
        pushed = torch.cat([update.unsqueeze(0), merged[:-1]])
        popped = torch.cat([merged[1:], torch.zeros_like(merged[:1])])
        stack = push * pushed + pop * popped + no_op * merged
        return output * torch.tanh(stack[0]), stack


class RecursiveVerifier(nn.Module):
    """Scores pairs of trees one at a time.

    Args:
        vocabulary: the functions, and leaf labels in the order of the embedding's rows.
        hidden_size, stack_size: width of a state; rows of a stack.
    """

    def __init__(self, vocabulary: Vocabulary, hidden_size: int, stack_size: int) -> None:
        super().__init__()
        self.hidden_size, self.stack_size = hidden_size, stack_size
        # Prefixed because a function may be called like a method of ModuleDict (`pop`, say).
        self.functions = nn.ModuleDict(
            {f"function_{name}": FunctionModule(arity, hidden_size) for name, arity in vocabulary.functions}
        )
        self.leaf_row = {label: row for row, label in enumerate(vocabulary.leaves)}
        self.embedding = nn.Embedding(len(self.leaf_row), hidden_size)
        self.bias = nn.Parameter(torch.zeros(1))

    def state(self, tree: Tree) -> tuple[Tensor, Tensor]:
        """``h`` ``[hidden_size]`` and the stack ``[stack_size, hidden_size]`` of a tree's root."""
        if not tree.children:
            h = self.embedding(torch.tensor(self.leaf_row[tree.label]))
            return h, torch.zeros(self.stack_size, self.hidden_size, dtype=h.dtype)
        return self.functions[f"function_{tree.label}"]([self.state(child) for child in tree.children])

    def forward(self, left: Tree, right: Tree) -> Tensor:
        """The score of a pair, ``[1]``."""
        return torch.dot(self.state(left)[0], self.state(right)[0]) + self.bias


class ByRecursion:
    """A way of running a problem (:class:`benchmarks.ways.Way`): pair after pair, some of them for a unit of work.

    Args:
        problem: pairs of trees for a ``StackTreeLSTM`` with ``normalize`` and ``no_op``, and an ``EqualityHead``.
        pairs: how many make a unit of work; they are drawn from all of the problem's.
    """

    def __init__(self, problem: Problem, pairs: int = 32) -> None:
        layer, examples = problem.layer, problem.examples
        pairs = min(pairs, len(examples))
        chosen = np.linspace(0, len(examples) - 1, pairs).round().astype(int)
        self._pairs = [(examples.forest[2 * number], examples.forest[2 * number + 1]) for number in chosen]
        self._labels = examples.label[torch.from_numpy(chosen)].to(next(layer.parameters()).dtype)[:, None]
        self._twin = RecursiveVerifier(examples.vocabulary, layer.hidden_size, layer.options["stack_size"])
        self._twin.to(self._labels.dtype)
        self._ties = Ties(problem, _ties(self._twin, layer))

    def train(self) -> int:
        """Loss and backward, one pair after the other."""
        self._ties.zero_grad()
        for (left, right), label in zip(self._pairs, self._labels, strict=True):
            loss = functional.binary_cross_entropy_with_logits(self._twin(left, right), label)
            (loss / len(self._pairs)).backward()
        return len(self._pairs)

    @torch.no_grad()
    def score(self) -> int:
        """Scores, one pair after the other."""
        for left, right in self._pairs:
            self._twin(left, right)
        return len(self._pairs)

    def outcome(self) -> Outcome:
        """Scores and gradients of all pairs of a small problem."""
        with torch.no_grad():
            scores = torch.cat([self._twin(left, right) for left, right in self._pairs])
        self.train()
        return Outcome(scores, self._ties.gradients())


def _ties(twin: RecursiveVerifier, layer: TreeLayer) -> Iterator[Tie]:
    """Every map of the twin is a block of rows of ours."""
    assert layer.vocabulary is not None
    size: int = layer.hidden_size
    cell: Any = layer.cell
    yield Tie(twin.embedding.weight, "layer.leaves.embedding.weight")
    yield Tie(twin.bias, "head.bias")
    for kind, (name, arity) in enumerate(layer.vocabulary.kinds):
        if arity == 0:
            continue
        function: Any = twin.functions[f"function_{name}"]
        blocks, used = cell.stack_options.blocks(arity, size), cell.sets.set_of_kind(arity)[kind]
        maps = [(function.output, blocks["output"].start), (function.update, blocks["update"].start)]
        for place, action in enumerate(cell.stack_options.action_names):
            maps.append((getattr(function, action), blocks["actions"].start + place * size))
        for place, forget in enumerate(function.forget):
            maps.append((forget, blocks["forget"].start + place * size))
        for linear, begin in maps:
            rows = slice(begin, begin + size)
            yield Tie(linear.weight, f"layer.cell.maps.{arity}.weight", (used, rows))
            yield Tie(linear.bias, f"layer.cell.maps.{arity}.bias", (used, rows))
