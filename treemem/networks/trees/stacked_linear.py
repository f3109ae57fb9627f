"""Affine maps of several kinds, stacked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

Kinds = Sequence[tuple[int, int]]
"""Numbers of nodes, and the kind of each of them."""


class StackedLinear(torch.nn.Module):
    """Weights and biases of one affine map for each of several kinds; the engines multiply with them.

    Args:
        sets: number of maps.
        input_sizes: widths of the blocks of inputs.
        output_size: width of the result.
        separate: each block has its own fan-in, and biases start at 0, as if the map were a sum of bias-free ones.

    Attributes:
        weight: ``[sets, output_size, sum(input_sizes)]``.
        bias: ``[sets, output_size]``.
    """

    def __init__(self, sets: int, input_sizes: Sequence[int], output_size: int, separate: bool = False) -> None:
        super().__init__()
        self.sets = sets
        self.input_sizes = tuple(size for size in input_sizes if size)
        self.output_size = output_size
        self.separate = separate
        self.weight = torch.nn.Parameter(torch.empty(sets, output_size, sum(self.input_sizes)))
        self.bias = torch.nn.Parameter(torch.empty(sets, output_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights and biases from U(-1/sqrt(fan in), 1/sqrt(fan in)), as ``nn.Linear`` does; 0 for no fan in."""
        blocks = self.input_sizes if self.separate else (sum(self.input_sizes),)
        with torch.no_grad():
            for block, size in zip(self.weight.split(blocks, dim=2), blocks, strict=True):
                block.uniform_(-_bound(size), _bound(size))
            if self.separate:
                self.bias.zero_()
            else:
                self.bias.uniform_(-_bound(blocks[0]), _bound(blocks[0]))

    def forward(self, inputs: torch.Tensor, used: int = 0) -> torch.Tensor:
        """``weight[used] @ inputs + bias[used]`` for each row of ``inputs``, ``[m, sum(input_sizes)]``."""
        return torch.nn.functional.linear(inputs, self.weight[used], self.bias[used])


def _bound(fan_in: int) -> float:
    return 1 / math.sqrt(fan_in) if fan_in else 0.0


class LinearByArity(torch.nn.ModuleDict):
    """A :class:`StackedLinear` for each arity."""

    def of(self, arity: int) -> StackedLinear:
        """The maps of nodes with so many children."""
        return self[str(arity)]  # type: ignore[return-value]

    def weights(self, name: str) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Weights and biases by key, as :meth:`key` makes it."""
        return {self.key(name, arity): (self.of(arity).weight, self.of(arity).bias) for arity in map(int, self)}

    @staticmethod
    def key(name: str, arity: int) -> str:
        """What a product called ``name`` of nodes with so many children names its weights by."""
        return f"{name} {arity}"


Maps = Mapping[str, Sequence[tuple[torch.Tensor, torch.Tensor]]]
"""Weight ``[outputs, inputs]`` and bias ``[outputs]`` of each set, by the name of the product's weights."""


def linear_by_kind(
    inputs: torch.Tensor,
    maps: Sequence[tuple[torch.Tensor, torch.Tensor]],
    set_of_kind: Mapping[int, int] | None,
    kinds: Kinds,
) -> torch.Tensor:
    """Return the affine maps of ``inputs``, each row by the map of its kind, ``[m * copies, outputs]``.

    Args:
        inputs: ``[m * copies, inputs]``, of nodes sorted by kind.
        maps: of each set.
        set_of_kind: see :class:`treemem.engines.cell.Product`.
        kinds: of the ``m`` nodes.
    """
    if set_of_kind is None or len(kinds) == 1:
        weight, bias = maps[0 if set_of_kind is None else set_of_kind[kinds[0][1]]]
        return torch.nn.functional.linear(inputs, weight, bias).to(bias.dtype)
    copies = len(inputs) // max(1, sum(rows for rows, _ in kinds))
    parts = inputs.split([rows * copies for rows, _ in kinds])
    chosen_maps = [maps[set_of_kind[kind]] for _, kind in kinds]
    return torch.cat(
        [torch.nn.functional.linear(part, *pair) for part, pair in zip(parts, chosen_maps, strict=True)]
    ).to(chosen_maps[0][1].dtype)
