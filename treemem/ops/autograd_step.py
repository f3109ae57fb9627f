"""A step pair made of one plain function, its backward pass left to autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from treemem.ops.cell import State, StepPair
from treemem.ops.children import Children


class AutogradStep(StepPair):
    """A step pair whose backward pass computes the step once more, in a small autograd graph, and differentiates it.

    Steps are pointwise: computing one again costs less than keeping what lies in between for all levels at once.

    Args:
        step: ``step(products, children) -> states``, in plain torch; must not overwrite its arguments.
        reads: names of the children's states that ``step`` reads.
        random: whether ``step`` draws random numbers, such as for dropout; they are then drawn alike both times.
    """

    def __init__(self, step: Callable[[State, State], State], reads: tuple[str, ...], *, random: bool = False) -> None:
        self.step = step
        self.reads = reads
        self.random = random

    def forward(self, products: State, children: Children, out: State, kept: State | None) -> Any:
        """Write the states into ``out``; see :class:`treemem.ops.cell.StepPair`."""
        memo = random_state(next(iter(products.values())).device) if self.random and kept is not None else None
        with torch.no_grad():
            states = self.step(products, self._read(children))
        for name, value in states.items():
            out[name].copy_(value)
        return memo

    def backward(
        self, products: State, children: Children, states: State, kept: State, memo: Any, gradient: State
    ) -> State:
        """Differentiate the step; see :class:`treemem.ops.cell.StepPair`."""
        product_leaves = {name: value.detach().requires_grad_() for name, value in products.items()}
        child_leaves = {name: value.detach().requires_grad_() for name, value in self._read(children).items()}
        with torch.enable_grad(), drawn_again(memo):
            again = self.step(product_leaves, child_leaves)
        reached = [name for name, value in again.items() if value.requires_grad]
        found = torch.autograd.grad(
            [again[name] for name in reached],
            [*product_leaves.values(), *child_leaves.values()],
            [gradient[name] for name in reached],
            allow_unused=True,
        )
        for name, value in zip(product_leaves, found[: len(product_leaves)], strict=True):
            if value is None:
                products[name].zero_()
            else:
                products[name].copy_(value)
        return {
            name: value
            for name, value in zip(child_leaves, found[len(product_leaves) :], strict=True)
            if value is not None
        }

    def _read(self, children: Children) -> State:
        return {name: children[name] for name in self.reads}


def random_state(device: torch.device) -> tuple[torch.Tensor, torch.device, torch.Tensor | None]:
    of_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return torch.get_rng_state(), device, of_device


@contextmanager
def drawn_again(memo: tuple[torch.Tensor, torch.device, torch.Tensor | None] | None) -> Iterator[None]:
    """Draw the random numbers that followed the state ``memo`` again; restore the generator afterwards."""
    if memo is None:
        yield
        return
    state, device, of_device = memo
    with torch.random.fork_rng(devices=[] if of_device is None else [device]):
        torch.set_rng_state(state)
        if of_device is not None:
            torch.cuda.set_rng_state(of_device, device)
        yield
