"""Ordered Memory in float64, and everything that an engine computes of it."""

from __future__ import annotations

import math

import torch

from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.parsers.ordered_memory.equations import NO_DROPOUT, Dropouts
from treemem.networks.parsers.ordered_memory.layer import MemoryMaps, OrderedMemoryCell, OrderedMemoryScore
from treemem.networks.parsers.ordered_memory.run import ordered_memory

INPUT_SIZE, SIZE = 3, 4
Vector = list[float]


def new_maps(
    cell: OrderedMemoryCell = "gated",
    sharpness: float = 1.0,
    seed: int = 0,
    score: OrderedMemoryScore = "layer_norm",
) -> MemoryMaps:
    """Maps in float64; the greater ``sharpness``, the more of the attention is on one slot."""
    torch.manual_seed(seed)
    maps = MemoryMaps(INPUT_SIZE, SIZE, cell, score).double()
    with torch.no_grad():
        for norm in (each for each in maps.children() if isinstance(each, torch.nn.LayerNorm)):
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
    engine: SequenceEngine,
    begins_empty: list[bool] | None = None,
    dropouts: Dropouts = NO_DROPOUT,
    skip: float = 0.0,
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
        skip=skip,
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


class ByHand:
    """The equations of the paper and of the authors' code, with numbers of Python.

    Args:
        maps: the weights.
        factors: by what each dropout multiplies.
    """

    def __init__(self, maps: MemoryMaps, factors: Dropouts = NO_DROPOUT) -> None:
        self.weights = {name: value.tolist() for name, value in maps.named_parameters()}
        self.score, self.factors = maps.score, Dropouts(*(1 + each for each in factors))

    def outputs(self, inputs: torch.Tensor, slots: int, *, begins_empty: bool = False) -> tuple[list[Vector], ...]:
        """Return the outputs, ``p`` and ``cp`` of each of ``inputs [longest, input_size]``."""
        memory = candidates = [[0.0] * SIZE] * slots
        pointers = [0.0] * slots
        found: tuple[list[Vector], ...] = [], [], []
        for step, new in enumerate(inputs.tolist()):
            x = self.norm("norm", self.linear("input_map", new))
            if step:
                pointers = self.attend(x, candidates, pointers)
                onward = [sum(pointers[slot:]) for slot in range(slots)]
                memory = [between(*each) for each in zip(memory, candidates, onward, strict=True)]
            else:
                pointers[-1] = float(begins_empty)
            cumulative = [sum(pointers[: slot + 1]) for slot in range(slots)]
            state, candidates = x, []
            for held, share in zip(memory, cumulative, strict=True):
                state = between(x, self.cell(state, held), share)
                candidates.append(state)
            for values, value in zip(found, (state, pointers, cumulative), strict=True):
                values.append(value)
        return found

    def attend(self, x: Vector, candidates: list[Vector], before: Vector) -> Vector:
        scores = [self.score_of(x, candidate) / math.sqrt(SIZE) for candidate in candidates]
        reach = [sum(before[: slot + 2]) for slot in range(len(before) - 1)]
        reach = [each if each >= 1e-5 else 0.0 for each in reach] + [1.0]
        within = [math.exp(score - max(scores)) * each for score, each in zip(scores, reach, strict=True)]
        return [each / max(sum(within), 1e-12) for each in within]

    def score_of(self, x: Vector, candidate: Vector) -> float:
        factor = self.factors.memory
        x, candidate = ([factor * each for each in values] for values in (x, candidate))
        if self.score == "tanh":
            compared = [math.tanh(each) for each in self.linear("attention_map", candidate + x)]
        else:
            query = self.norm("query_norm", self.linear("query_map", x))
            key = self.norm("key_norm", self.linear("key_map", candidate))
            compared = [max(0.0, a + b) for a, b in zip(query, key, strict=True)]
        return self.linear("score_map", [factor * each for each in compared])[0]

    def cell(self, vertical: Vector, horizontal: Vector) -> Vector:
        factor = self.factors.cell
        inner = self.linear("cell_map", [factor * each for each in vertical + horizontal])
        if "gate_map.weight" not in self.weights:
            return [math.tanh(each) for each in inner]
        gates = self.linear("gate_map", [factor * max(0.0, each) for each in inner])
        a, b, c = ([1 / (1 + math.exp(-each)) for each in gates[part * SIZE : (part + 1) * SIZE]] for part in range(3))
        candidate = gates[3 * SIZE :]
        mixed = [a[i] * vertical[i] + b[i] * horizontal[i] + c[i] * candidate[i] for i in range(SIZE)]
        return self.norm("norm", mixed)

    def linear(self, name: str, values: Vector) -> Vector:
        rows = zip(self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], strict=True)
        return [sum(w * value for w, value in zip(row, values, strict=True)) + bias for row, bias in rows]

    def norm(self, name: str, values: Vector) -> Vector:
        mean = sum(values) / SIZE
        deviation = math.sqrt(sum((each - mean) ** 2 for each in values) / SIZE + 1e-5)
        gains = zip(values, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], strict=True)
        return [(each - mean) / deviation * gain + bias for each, gain, bias in gains]


def between(first: Vector, second: Vector, share: float) -> Vector:
    return [a * (1 - share) + b * share for a, b in zip(first, second, strict=True)]
