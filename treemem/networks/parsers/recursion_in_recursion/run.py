"""Recursion in Recursion over a batch of sequences, on the engine of one's choice."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.device_copy import to_device
from treemem.engines.choices import Noise, highest
from treemem.engines.sequence_engine import SequenceEngine, checked_engine
from treemem.engines.sequence_lengths import LongestFirst, within
from treemem.native.second_derivative import refuse_transforms_unless_naive
from treemem.networks.parsers.beam_tree.equations import BeamTreeWeights
from treemem.networks.parsers.beam_tree.run import BeamTrees, last_beams, places_of
from treemem.networks.parsers.pair_by_pair import joining_steps
from treemem.networks.parsers.recursion_in_recursion.equations import (
    Alignment,
    chunks_of,
    is_cut,
    naive_recursion,
    next_places,
    slots_after,
)

Integers = NDArray[np.int64]


def recursion_in_recursion(
    leaves: torch.Tensor,
    lengths: torch.Tensor,
    weights: BeamTreeWeights,
    chunk_size: int,
    beam_size: int,
    *,
    alignment: Alignment | None,
    noise: Noise | None = None,
    dropout: float = 0.0,
    engine: SequenceEngine = "auto",
    trace: bool = False,
    places: torch.Tensor | None = None,
) -> BeamTrees:
    """Encode sequences, each as if it were alone.

    Args:
        leaves: ``[sequences, longest, hidden_size]``, of the type of the weights; on the right of each sequence padding
            of any finite content.
        lengths: int64 ``[sequences]``, 0 to ``longest``, on the CPU.
        weights: of cell and score, for all levels.
        chunk_size, beam_size, alignment, noise, dropout: see ``naive_recursion``.
        engine: ``"fused"`` (``"auto"``), all chunks of a level at once, or ``"naive"``. They give the same results, but
            other dropout, noise and draws.
        trace: whether to return ``joined``: the step of the likeliest tree that joins the constituent that begins at a
            token with the constituent on its left. Chunks of a level take their steps at the same time.
        places: by which each sequence is cut into chunks, int64 ``[sequences]`` on the CPU, at least its length. None:
            its length. The authors' code takes the longest length of the batch.

    Raises:
        RecipeError: an unknown engine.
    """
    checked_engine("engine", engine)
    refuse_transforms_unless_naive(engine)
    places = lengths if places is None else places
    if engine == "naive":
        return _naive(
            leaves,
            lengths,
            weights,
            chunk_size,
            beam_size,
            alignment=alignment,
            noise=noise,
            dropout=dropout,
            trace=trace,
            places=places,
        )
    present = within(lengths, leaves.shape[1]).flatten().nonzero().squeeze(1)  # on the CPU
    states = leaves.flatten(0, 1).index_select(0, to_device(present, leaves.device))[:, None]
    level = _Level(states, states.new_zeros(len(states), 1), lengths.numpy(), places.numpy(), 0, 1)
    steps = _Steps(lengths.numpy()) if trace else None
    while level.is_left:
        level = level.joined(
            weights, chunk_size, beam_size, alignment=alignment, noise=noise, dropout=dropout, steps=steps
        )
    rows = to_device((lengths > 0).nonzero().squeeze(1), leaves.device)
    encoding = leaves.new_zeros(len(lengths), leaves.shape[2])
    encoding = encoding.index_copy(0, rows, (level.totals.softmax(1)[:, :, None] * level.states).sum(1))
    if steps is None:
        return BeamTrees(encoding, None)
    joined = to_device(steps.of_best(level.totals, leaves.shape[1]), leaves.device).to(leaves.dtype)
    return BeamTrees(encoding, joined.masked_fill(~encoding.detach().isfinite().all(1, keepdim=True), torch.nan))


class _Runs(NamedTuple):
    """The chunks of a level, sequence by sequence.

    Attributes:
        slots: the most that one can have.
        sequence: which sequence each is of.
        number: which chunk of its sequence it is.
        first: its first position among those of all sequences.
        length: how many positions it has.
        ordered: whether its slots come in the order of their log probabilities; see ``Slots``.
        aligned: whether its slots are drawn anew, if any are.
        repeated: whether its slots repeat, if none are drawn anew.
    """

    slots: int
    sequence: Integers
    number: Integers
    first: Integers
    length: Integers
    ordered: NDArray[np.bool_]
    aligned: NDArray[np.bool_]
    repeated: NDArray[np.bool_]


class _Level(NamedTuple):
    """Positions with their slots.

    Attributes:
        states: ``[positions, slots, hidden_size]``.
        totals: the log probabilities of the slots, ``[positions, slots]``; minus infinity where there is no slot.
        lengths: how many positions each sequence has.
        places: how many places each sequence has.
        number: of the level.
        num_slots: how many slots positions of sequences that are still cut can have.
    """

    states: torch.Tensor
    totals: torch.Tensor
    lengths: Integers
    places: Integers
    number: int
    num_slots: int

    @property
    def is_left(self) -> bool:
        """Whether a sequence is not yet one position."""
        return bool((self.places > 1).any())

    def runs(self, chunk_size: int, beam_size: int) -> _Runs:
        """Cut the level into chunks."""
        rows, slots, first = [], self.totals.shape[1], 0
        for sequence, (length, places) in enumerate(zip(self.lengths.tolist(), self.places.tolist(), strict=True)):
            for number, chunk in enumerate(chunks_of(length, places, chunk_size) if length else []):
                after = slots_after(self.num_slots, chunk.size, beam_size)
                ordered = after.ordered and chunk.length < chunk.size
                aligned = after.most > 1 and is_cut(places, chunk_size)
                repeated = aligned and number > 0 and chunk.length == 1
                slots = max(slots, after.most)
                rows.append((sequence, number, first + chunk.begin, chunk.length, ordered, aligned, repeated))
            first += length
        columns = (np.array(column) for column in zip(*rows, strict=True))
        return _Runs(slots, *columns)

    def joined(
        self,
        weights: BeamTreeWeights,
        chunk_size: int,
        beam_size: int,
        *,
        alignment: Alignment | None,
        noise: Noise | None,
        dropout: float,
        steps: _Steps | None,
    ) -> _Level:
        """Return the next level, whose positions are the chunks of this one."""
        runs = self.runs(chunk_size, beam_size)
        device = self.states.device
        order = LongestFirst(torch.from_numpy(runs.length), device)
        first = to_device(torch.from_numpy(runs.first), device).index_select(0, order.rows)
        there = within(order.lengths_there, len(order.sizes))
        position = first[:, None] + torch.arange(len(order.sizes), device=device).where(there, 0)
        starts = self.totals[position].masked_fill(~there[:, :, None], 0).sum(1)
        slot = (starts == -torch.inf).int().argsort(stable=True)  # those that are there come first
        starts = starts.gather(1, slot)
        nodes = self.states[position[:, None], slot[:, :, None]]
        beams = last_beams(nodes, order, weights, beam_size, noise=noise, dropout=dropout, starts=starts)
        roots, totals = beams.roots, beams.totals
        chosen = torch.arange(beam_size, device=device).expand(len(roots), -1)
        if runs.ordered.any():
            ordered = to_device(torch.from_numpy(runs.ordered), device).index_select(0, order.rows)
            drawn = 0.0 if noise is None else noise((len(roots), beam_size))
            chosen = torch.where(ordered[:, None], highest(totals.detach() + drawn, beam_size), chosen)
        chosen = order.back(chosen[:, : runs.slots])
        roots, totals = order.back(roots), order.back(totals)
        if steps is not None:
            all_beams = torch.arange(beam_size, device=device).expand(len(roots), -1)
            pairs, origins = places_of(beams.steps, all_beams)
            origins = slot.gather(1, origins.clamp(max=slot.shape[1] - 1))  # any where there is no beam
            steps.add(runs, order.back(pairs), order.back(origins), chosen, totals)
        place = torch.arange(runs.slots, device=device).repeat(len(chosen), 1)
        if alignment is not None and runs.aligned.any():
            aligned = to_device(torch.from_numpy(runs.aligned.nonzero()[0]), device)
            most = slots_after(self.num_slots, chunk_size, beam_size).most
            drawn = alignment.slots(
                totals.gather(1, chosen).index_select(0, aligned)[:, :most],
                self.number,
                runs.number[runs.aligned],
                runs.length[runs.aligned],
            )
            place = place.index_copy(0, aligned, torch.cat([drawn, place[: len(drawn), most:]], 1))
        elif runs.repeated.any():
            repeated = to_device(torch.from_numpy(runs.repeated), device)[:, None]
            there = (totals > -torch.inf).sum(1, keepdim=True)
            place = torch.where(repeated, place % there, place)
        if steps is not None:
            steps.take(place)
        chosen = chosen.gather(1, place)
        return _Level(
            roots.gather(1, chosen[:, :, None].expand(-1, -1, roots.shape[2])),
            totals.gather(1, chosen),
            np.bincount(runs.sequence, minlength=len(self.lengths)),
            np.array([next_places(places, chunk_size) for places in self.places.tolist()]),
            self.number + 1,
            slots_after(self.num_slots, chunk_size, beam_size).most,
        )


class _Steps:
    """For each token, slot by slot, the step that joins what begins at it with what is on its left.

    Args:
        lengths: of the sequences.
    """

    def __init__(self, lengths: Integers) -> None:
        self._sequence = np.repeat(np.arange(len(lengths)), lengths)  # of each token
        self._place = np.arange(len(self._sequence)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        self._position = np.arange(len(self._sequence))  # of each token on this level
        self._begins = np.ones(len(self._sequence), bool)  # whether a position begins at it
        self._steps = np.zeros((len(self._sequence), 1), np.int64)
        self._done = np.zeros(len(lengths), np.int64)  # steps of each sequence

    def add(
        self, runs: _Runs, places: torch.Tensor, origins: torch.Tensor, chosen: torch.Tensor, totals: torch.Tensor
    ) -> None:
        """Add the steps of a level.

        Args:
            runs: its chunks.
            places, origins: of the beams of each chunk; see ``places_of``.
            chosen: the beam of each slot, int64 ``[chunks, slots]``.
            totals: of the beams.
        """
        slots = chosen.shape[1]
        absent = totals.gather(1, chosen) == -torch.inf
        places = places.gather(1, chosen[:, :, None].expand(-1, -1, places.shape[2])).masked_fill(absent[:, :, None], 0)
        lengths = torch.from_numpy(runs.length).repeat_interleave(slots)
        joining = joining_steps(places.flatten(0, 1).cpu(), lengths).unflatten(0, (-1, slots)).numpy()
        origin = origins.gather(1, chosen).cpu().numpy()
        run = np.repeat(np.arange(len(runs.length)), runs.length)[self._position]
        place = self._position - runs.first[run]
        self._steps = np.take_along_axis(self._steps, origin[run], 1)
        joins = self._begins & (place > 0)
        new = joining[run[joins], :, place[joins]]
        self._steps[joins] = self._done[self._sequence[joins], None] + new
        self._begins &= place == 0
        self._position = run
        np.maximum.at(most := np.ones_like(self._done), runs.sequence, runs.length)
        self._done += most - 1

    def take(self, slots: torch.Tensor) -> None:
        """Put other slots in the places of slots, int64 ``[chunks, slots]``."""
        self._steps = np.take_along_axis(self._steps, slots.cpu().numpy()[self._position], 1)

    def of_best(self, totals: torch.Tensor, longest: int) -> torch.Tensor:
        """Return the steps of the likeliest slot of each sequence, int64 ``[sequences, longest]``."""
        best = totals.argmax(1).cpu().numpy()[self._position]
        joined = np.zeros((len(self._done), longest), np.int64)
        joined[self._sequence, self._place] = np.take_along_axis(self._steps, best[:, None], 1)[:, 0]
        return torch.from_numpy(joined)


def _naive(
    leaves: torch.Tensor,
    lengths: torch.Tensor,
    weights: BeamTreeWeights,
    chunk_size: int,
    beam_size: int,
    *,
    alignment: Alignment | None,
    noise: Noise | None,
    dropout: float,
    trace: bool,
    places: torch.Tensor,
) -> BeamTrees:
    encodings = [leaves.new_zeros(0, leaves.shape[2])]
    joined = leaves.new_zeros(leaves.shape[:2])
    for sequence, length in enumerate(lengths.tolist()):
        if not length:
            encodings.append(leaves.new_zeros(1, leaves.shape[2]))
            continue
        slots = naive_recursion(
            leaves[sequence, :length],
            weights,
            chunk_size,
            beam_size,
            alignment=alignment,
            noise=noise,
            dropout=dropout,
            places=int(places[sequence]),
        )
        total = torch.stack([slot.total for slot in slots])
        encodings.append(total.softmax(0)[None] @ torch.stack([slot.state for slot in slots]))
        steps = slots[int(total.detach().argmax())].steps
        for token, step in steps.items() if trace else ():
            joined[sequence, token] = step
        joined[sequence, :length].masked_fill_(~encodings[-1].detach().isfinite().all(), torch.nan)
    return BeamTrees(torch.cat(encodings), joined if trace else None)
