"""Ordered Memory in float64, and everything that an engine computes of it."""

from __future__ import annotations

import torch

from treemem.nn.ordered_memory import MemoryMaps, OrderedMemoryCell
from treemem.ops.ordered_memory import NO_DROPOUT, Dropouts, OrderedMemoryEngine, ordered_memory

INPUT_SIZE, SIZE = 3, 4


def new_maps(cell: OrderedMemoryCell = "gated", sharpness: float = 1.0, seed: int = 0) -> MemoryMaps:
    """Maps in float64; the greater ``sharpness``, the more of the attention is on one slot."""
    torch.manual_seed(seed)
    maps = MemoryMaps(INPUT_SIZE, SIZE, cell).double()
    with torch.no_grad():
        for norm in (maps.norm, maps.query_norm, maps.key_norm):
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.uniform_(-0.5, 0.5)
        maps.score_map.weight.mul_(sharpness)
    return maps


def new_inputs(lengths: list[int], seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(lengths), max(lengths, default=0), INPUT_SIZE, generator=generator, dtype=torch.float64)


def results(
    maps: MemoryMaps,
    inputs: torch.Tensor,
    lengths: list[int],
    slots: int,
    engine: OrderedMemoryEngine,
    begins_empty: list[bool] | None = None,
    dropouts: Dropouts = NO_DROPOUT,
) -> dict[str, torch.Tensor]:
    """Every output, and every gradient of a loss that reads them all."""
    maps.zero_grad()
    inputs = inputs.clone().requires_grad_()
    steps = ordered_memory(
        inputs,
        torch.tensor(lengths, dtype=torch.int64),
        maps.weights(),
        slots,
        engine=engine,
        begins_empty=None if begins_empty is None else torch.tensor(begins_empty),
        dropouts=dropouts,
        trace=True,
    )
    assert steps.pointers is not None
    assert steps.cumulative is not None
    found = {"outputs": steps.outputs, "pointers": steps.pointers, "cumulative": steps.cumulative}
    losses = [(value * torch.cos(torch.arange(value.numel()).view(value.shape))).sum() for value in found.values()]
    if losses[0].requires_grad:
        torch.stack(losses).sum().backward()
    for name, parameter in [("inputs", inputs), *maps.named_parameters()]:
        found[f"gradient of {name}"] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
    return {name: value.detach() for name, value in found.items()}
