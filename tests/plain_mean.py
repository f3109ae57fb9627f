"""A cell as a user writes one, with a state of integers."""

from __future__ import annotations

import torch

from treemem.ops import State


class PlainMean(torch.nn.Module):
    """The mean of the children through weights, and how many nodes there are."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        return {"h": x, "size": torch.ones(len(x), dtype=torch.int64)}

    def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        return {"h": torch.tanh(children["h"].mean(1) * self.weight), "size": children["size"].sum(1) + 1}
