"""Recursion in Recursion as published, sequence by sequence and chunk by chunk, and how a sequence is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from treemem.device_copy import to_device
from treemem.engines.choices import Noise, highest
from treemem.networks.gated_cell.equations import GatedCellWeights, gated_cell
from treemem.networks.parsers.beam_tree.equations import Beam, BeamTreeWeights, naive_beams

_SMALLEST = 1e-20  # what is added to probabilities before a draw, as in the authors' code

Draw = Callable[[torch.Tensor, int, "NDArray[np.int64]"], torch.Tensor]
"""From the probabilities of slots ``[chunks, slots]``, the number of the level and the numbers of the chunks in their
sequences to the slots that take the places of all but the first, int64 ``[chunks, slots - 1]``."""


class Alignment(NamedTuple):
    """How the slots of chunks are drawn anew before they meet.

    Attributes:
        draw: draws them.
        temperature: of the softmax of the log probabilities that they are drawn by. None: all are equally likely, and
            so are slots that are not there, except in a chunk of one position.
    """

    draw: Draw
    temperature: float | None

    def slots(
        self, totals: torch.Tensor, level: int, chunks: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> torch.Tensor:
        """Return which slot takes the place of each, int64 ``[chunks, slots]``. The first stays.

        Args:
            totals: the log probabilities of the slots, ``[chunks, slots]``; minus infinity where there is no slot.
            level: the number of the level.
            chunks: the number of each chunk in its sequence.
            lengths: how many positions each chunk has.
        """
        totals = totals.detach()
        counts = totals != -torch.inf  # the slots that are there come first
        weight = (totals / (self.temperature or 1.0)).softmax(1)
        if self.temperature is None:
            counts = counts | to_device(torch.from_numpy(lengths > 1), totals.device)[:, None]
            weight = counts.to(totals.dtype)
        weight = weight + _SMALLEST
        drawn = self.draw(weight / weight.sum(1, keepdim=True), level, chunks)
        return functional.pad(torch.minimum(drawn, counts.sum(1, keepdim=True) - 1), (1, 0))


class Chunk(NamedTuple):
    """Adjacent positions that become one.

    Attributes:
        begin: the first position.
        length: the number of positions.
        size: the number of places, of which the last ones may be empty.
    """

    begin: int
    length: int
    size: int


def is_cut(places: int, chunk_size: int) -> bool:
    """Whether a level of so many places is cut into several chunks."""
    return places >= chunk_size + chunk_size // 2


def chunks_of(positions: int, places: int, chunk_size: int) -> list[Chunk]:
    """Return the chunks of a level that have positions.

    Args:
        positions: how many there are.
        places: how many places the level has for them, at least as many.
        chunk_size: places of a chunk. If there are fewer than one and a half times as many, all are one chunk.
    """
    if not is_cut(places, chunk_size):
        return [Chunk(0, positions, places)]
    begins = range(0, positions, chunk_size)
    return [Chunk(begin, min(chunk_size, positions - begin), chunk_size) for begin in begins]


def next_places(places: int, chunk_size: int) -> int:
    """Return how many places the next level has."""
    return -(-places // chunk_size) if is_cut(places, chunk_size) else 1


def levels_of(positions: int, places: int, chunk_size: int) -> Iterator[list[Chunk]]:
    """Return the chunks of each level, until one position is left.

    Args:
        positions, places: of the first level.
        chunk_size: see :func:`chunks_of`.
    """
    while places > 1:
        chunks = chunks_of(positions, places, chunk_size)
        yield chunks
        positions, places = len(chunks), next_places(places, chunk_size)


def naive_chains(
    leaves: torch.Tensor, weights: GatedCellWeights, chunk_size: int, *, from_zero: bool, dropout: float, places: int
) -> torch.Tensor:
    """Return the root of one sequence, ``[hidden_size]``, whose chunks the cell reads from left to right.

    Args:
        leaves: ``[tokens, hidden_size]``, at least one.
        weights: of the cell, for all levels.
        chunk_size: positions of a chunk.
        from_zero: whether a chunk begins with the zero vector: its first position passes through the cell, too.
        dropout: of the hidden layer of the cell.
        places: of the first level.
    """
    positions = list(leaves)
    for chunks in levels_of(len(leaves), places, chunk_size):
        roots = []
        for chunk in chunks:
            first, *others = positions[chunk.begin : chunk.begin + chunk.length]
            state, others = (torch.zeros_like(first), [first, *others]) if from_zero else (first, others)
            for position in others:
                keep = functional.dropout(state.new_ones(len(weights.hidden.bias)), dropout)
                state = gated_cell(state[None], position[None], weights, keep)[0]
            roots.append(state)
        positions = roots
    return positions[0]


class Slots(NamedTuple):
    """The slots of a chunk after its search.

    Attributes:
        most: how many there can be.
        ordered: whether those of a chunk with empty places come in the order of their log probabilities, with noise if
            there is any: the search ends in a choice, which the empty places take part in.
    """

    most: int
    ordered: bool


def slots_after(count: int, size: int, beam_size: int) -> Slots:
    """Return the slots of a chunk of ``size`` places whose positions have ``count`` slots."""
    ordered = False
    for pairs in range(size - 1, 1, -1):
        proposals = count * min(pairs, beam_size)
        ordered, count = proposals > beam_size, min(proposals, beam_size)
    return Slots(count, ordered)


class Slot(NamedTuple):
    """One way of composing the tokens of a position.

    Attributes:
        state: ``[hidden_size]``.
        total: the log probability of its choices.
        steps: for each token at which a right child begins, the step, from 1, that joins it.
        begin: the first token.
    """

    state: torch.Tensor
    total: torch.Tensor
    steps: dict[int, int]
    begin: int

    @property
    def is_there(self) -> bool:
        """Whether the slot has a hypothesis: its log probability is not minus infinity."""
        return float(self.total.detach()) != -torch.inf


def naive_recursion(
    leaves: torch.Tensor,
    weights: BeamTreeWeights,
    chunk_size: int,
    beam_size: int,
    *,
    alignment: Alignment | None,
    noise: Noise | None,
    dropout: float,
    places: int,
) -> list[Slot]:
    """Return the slots of the root of one sequence.

    Args:
        leaves: ``[tokens, hidden_size]``, at least one.
        weights: of cell and score, for all levels.
        chunk_size: positions of a chunk.
        beam_size: number of beams.
        alignment: of the slots of chunks. None: each slot meets the same slot of the next chunk; where this has one
            position, its slots repeat.
        noise: of both choices of the search, and of the order of slots.
        dropout: of the hidden layer of the cell.
        places: of the first level.
    """
    positions = [[Slot(leaf, leaf.new_zeros(()), {}, token)] for token, leaf in enumerate(leaves)]
    count, level, steps = 1, 0, 0
    while places > 1:
        cut = is_cut(places, chunk_size)
        next_positions = []
        chunks = chunks_of(len(positions), places, chunk_size)
        for number, chunk in enumerate(chunks):
            parts = positions[chunk.begin : chunk.begin + chunk.length]
            together = list(zip(*parts, strict=True))
            beams = [
                Beam(
                    torch.stack([part.state for part in slot]),
                    torch.stack([part.total for part in slot]).sum(),
                    [],
                    [part.begin for part in slot],
                    start,
                )
                for start, slot in enumerate(together)
                if all(part.is_there for part in slot)
            ]
            after = slots_after(count, chunk.size, beam_size)
            last = naive_beams(beams, weights, beam_size, soft=False, noise=noise, dropout=dropout)
            if after.ordered and chunk.length < chunk.size:
                total = torch.stack([beam.total for beam in last]).detach()
                if noise is not None:
                    total = total + noise((1, beam_size))[0, : len(last)]
                last = [last[place] for place in highest(total, len(last)).tolist()]
            slots = [
                Slot(
                    beam.nodes[0],
                    beam.total,
                    {
                        **{token: step for part in together[beam.start] for token, step in part.steps.items()},
                        **{token: steps + step for step, token in enumerate(beam.joins, 1)},
                    },
                    beam.begins[0],
                )
                for beam in last
            ]
            number_there = len(slots)
            empty = Slot(torch.zeros_like(leaves[0]), leaves.new_tensor(-torch.inf), {}, slots[0].begin)
            slots += [empty] * (after.most - number_there)
            if cut and alignment is not None and after.most > 1:
                totals = torch.stack([slot.total for slot in slots])[None]
                drawn = alignment.slots(totals, level, np.array([number]), np.array([chunk.length]))
                slots = [slots[place] for place in drawn[0].tolist()]
            elif cut and number and chunk.length == 1:
                slots = [slots[place % number_there] for place in range(after.most)]
            next_positions.append(slots)
        steps += max(chunk.length for chunk in chunks) - 1
        count = slots_after(count, chunks[0].size, beam_size).most
        positions, places, level = next_positions, next_places(places, chunk_size), level + 1
    return [slot for slot in positions[0] if slot.is_there]
