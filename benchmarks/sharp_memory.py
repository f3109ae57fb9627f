"""An Ordered Memory with sharp attention: trained on list operations with the slots of the gold trees as targets.

``python -m benchmarks.sharp_memory`` trains it anew. The benchmark trains it at first use, in minutes. The weights are
kept in ``~/.cache/treemem`` (or ``$XDG_CACHE_HOME/treemem``).
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from treemem.networks.parsers.ordered_memory.layer import MemoryMaps
from treemem.networks.parsers.ordered_memory.run import ordered_memory

SIZE, SLOTS, STEPS, BATCH = 128, 21, 300, 48
SHORTEST, LONGEST = 10, 50
NUM_TOKENS = 15  # ten digits, four operators that open a list, and the end of a list
_END, _DEEPEST = 14, 12


class SharpMemory(nn.Module):
    """The maps of the memory, and a vector for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = MemoryMaps(SIZE, SIZE, "gated")
        self.embedding = nn.Embedding(NUM_TOKENS, SIZE)


class Lists(NamedTuple):
    """List operations with brackets.

    Attributes:
        tokens: int64 ``[sequences, longest]``, 0 at padding.
        lengths: int64 ``[sequences]``.
        slots: where the gold tree has each token, int64 ``[sequences, longest]``; -1 at first tokens and padding.
    """

    tokens: Tensor
    lengths: Tensor
    slots: Tensor


def random_lists(count: int, seed: int) -> Lists:
    """Random expressions of ``SHORTEST`` to ``LONGEST`` tokens, each list composed from left to right.

    A token whose path in the gold tree turns right ``r`` times follows ``r`` parts that wait in the last ``r`` slots.
    So it goes to slot ``SLOTS - r``. An operator inside ``d`` lists turns right ``d`` times, and so does
    an argument or an end, where ``d`` counts its own list too.
    """
    draw = random.Random(seed)
    chosen: list[list[tuple[int, int]]] = []
    while len(chosen) < count:
        found = _random_list(draw, 0)
        if SHORTEST <= len(found) <= LONGEST:
            chosen.append(found)
    lengths = torch.tensor([len(each) for each in chosen])
    tokens, slots = torch.zeros(count, LONGEST, dtype=torch.int64), torch.full((count, LONGEST), -1)
    for row, each in enumerate(chosen):
        symbols, turns = torch.tensor(each).unbind(1)
        tokens[row, : len(each)] = symbols
        slots[row, 1 : len(each)] = SLOTS - turns[1:]
    return Lists(tokens, lengths, slots)


def _random_list(draw: random.Random, depth: int) -> list[tuple[int, int]]:
    """The tokens of a list inside ``depth`` others, each with how often its path turns right."""
    found = [(10 + draw.randrange(4), depth)]
    for _ in range(draw.randint(2, 5)):
        nested = depth < _DEEPEST and draw.random() < 0.3
        found += _random_list(draw, depth + 1) if nested else [(draw.randrange(10), depth + 1)]
    return [*found, (_END, depth + 1)]


def trained(steps: int = STEPS) -> SharpMemory:
    """Train by the cross entropy of the pointers, and say how sharp they become."""
    torch.manual_seed(0)
    memory = SharpMemory()
    optimiser = torch.optim.Adam(memory.parameters(), lr=2e-3)
    for step in range(steps):
        lists = random_lists(BATCH, step)
        inputs = memory.embedding(lists.tokens)
        pointers = ordered_memory(inputs, lists.lengths, memory.maps.weights(), SLOTS, trace=True).pointers
        assert pointers is not None
        there = lists.slots >= 0
        gold = pointers[there].gather(1, lists.slots[there][:, None])
        loss = -gold.clamp(min=1e-9).log().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 20 == 19:
            correct = float((gold > 0.5).float().mean())
            print(f"step {step + 1}: loss {loss:.3f}, {correct:.1%} correct", file=sys.stderr, flush=True)
    return memory


def kept_weights() -> SharpMemory:
    """The memory that was trained here before, or else a new one."""
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "treemem" / "sharp_memory.pt"
    memory = SharpMemory()
    if not path.exists():
        print("training an Ordered Memory with sharp attention, once", file=sys.stderr, flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(trained().state_dict(), path)
    memory.load_state_dict(torch.load(path, weights_only=True))
    return memory


if __name__ == "__main__":
    trained()
