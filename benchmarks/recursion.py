"""The baseline: a stack-augmented Tree-LSTM as published code of this field writes it.

One ``Linear`` a gate and function, one tree at a time by recursion over its nodes, loss and backward per tree.
The equations are those of :class:`treemem.nn.StackTreeLSTM` with ``normalize`` and ``no_op``.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from treemem.trees.tree import Tree


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
    """Scores equations one at a time.

    Args:
        functions: (name, arity) of every function.
        leaves: leaf labels, in the order of the embedding's rows.
        hidden_size, stack_size: width of a state; rows of a stack.
    """

    def __init__(
        self, functions: Iterable[tuple[str, int]], leaves: Iterable[str], hidden_size: int, stack_size: int
    ) -> None:
        super().__init__()
        self.hidden_size, self.stack_size = hidden_size, stack_size
        # Prefixed because a function may be called like a method of ModuleDict (`pop`, say).
        self.functions = nn.ModuleDict(
            {f"function_{name}": FunctionModule(arity, hidden_size) for name, arity in functions}
        )
        self.leaf_row = {label: row for row, label in enumerate(leaves)}
        self.embedding = nn.Embedding(len(self.leaf_row), hidden_size)
        self.bias = nn.Parameter(torch.zeros(()))

    def state(self, tree: Tree) -> tuple[Tensor, Tensor]:
        """``h`` ``[hidden_size]`` and the stack ``[stack_size, hidden_size]`` of a tree's root."""
        if not tree.children:
            h = self.embedding(torch.tensor(self.leaf_row[tree.label]))
            return h, torch.zeros(self.stack_size, self.hidden_size, dtype=h.dtype)
        return self.functions[f"function_{tree.label}"]([self.state(child) for child in tree.children])

    def forward(self, equation: Tree) -> Tensor:
        left, right = equation.children
        return torch.dot(self.state(left)[0], self.state(right)[0]) + self.bias

    def train_on(self, equations: list[Tree], labels: list[float]) -> None:
        """Accumulate the gradient of the mean loss, one equation after the other."""
        for equation, label in zip(equations, labels, strict=True):
            score = self(equation)
            loss = functional.binary_cross_entropy_with_logits(score, score.new_tensor(label))
            (loss / len(equations)).backward()

    @torch.no_grad()
    def scores(self, equations: list[Tree]) -> Tensor:
        """Scores of all equations, one after the other, ``[equations]``."""
        return torch.stack([self(equation) for equation in equations])
