"""A step pair made of one plain function, its backward pass left to autograd."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from treemem.ops.cell import State


class AutogradStep:
    """A step pair that keeps a small autograd graph for each group of rows.

    Args:
        step: ``step(products, children) -> states``, in plain torch.
        reads: names of the children's states that ``step`` reads.
    """

    def __init__(self, step: Callable[[State, State], State], reads: tuple[str, ...]) -> None:
        self.step = step
        self.reads = reads
        self.kept: Mapping[str, tuple[int, ...]] = {}

    def forward(self, products: State, children: State, out: State, kept: State | None) -> Any:
        """Write the states into ``out`` and return the graph; see :class:`treemem.ops.cell.StepPair`."""
        if kept is None:
            for name, value in self.step(products, children).items():
                out[name].copy_(value)
            return None
        with torch.enable_grad():
            product_leaves = {name: value.detach().requires_grad_() for name, value in products.items()}
            child_leaves = {name: value.detach().requires_grad_() for name, value in children.items()}
            states = self.step(product_leaves, child_leaves)
        for name, value in states.items():
            out[name].copy_(value.detach())
        return states, product_leaves, child_leaves

    def backward(
        self, products: State, children: State, kept: State, memo: Any, gradient: State, product_gradient: State
    ) -> State:
        """Run autograd backwards through the graph; see :class:`treemem.ops.cell.StepPair`."""
        states, product_leaves, child_leaves = memo
        reached = [name for name, value in states.items() if value.requires_grad]
        inputs = [*product_leaves.values(), *child_leaves.values()]
        found = torch.autograd.grad(
            [states[name] for name in reached], inputs, [gradient[name] for name in reached], allow_unused=True
        )
        for name, value in zip(product_leaves, found[: len(product_leaves)], strict=True):
            if value is None:
                product_gradient[name].zero_()
            else:
                product_gradient[name].copy_(value)
        return {
            name: value
            for name, value in zip(child_leaves, found[len(product_leaves) :], strict=True)
            if value is not None
        }
