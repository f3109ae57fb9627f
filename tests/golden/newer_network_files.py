"""Checks of golden files of newer networks, one function for each sort of file: here Recursion in Recursion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from golden import stack_attention_files
from golden.learned_weights import VOCABULARY, check_gradients, load
from golden.stack_tree_files import same
from golden.stack_tree_networks import Arrays
from numpy.typing import NDArray

from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.parsers.recursion_in_recursion.chains import chain_encodings
from treemem.networks.parsers.recursion_in_recursion.equations import (
    Alignment,
    chunks_of,
    next_places,
    slots_after,
)
from treemem.networks.parsers.recursion_in_recursion.run import recursion_in_recursion
from treemem.networks.parsers.recursion_in_recursion.state_space import BidirectionalStateSpace
from treemem.nn import RecursionInRecursion, RecursionInRecursionGRC

ENGINES: tuple[SequenceEngine, ...] = ("naive", "fused")
_CHANNELS = {
    "layer.D": "skip",
    "layer.kernel.A_real": "log_decay",
    "layer.kernel.A_imag": "frequency",
    "layer.kernel.B": "read_in",
    "layer.kernel.C": "read_out",
    "layer.kernel.inv_dt": "log_step",
}
_CELL = {1: "hidden_map", 2: "gate_map"}
_NAMES = {
    "initial_transform": "leaves.map",
    "NT": "leaves.norm",
    "treecell_layer.wcell1": "cell.hidden_map",
    "treecell_layer.wcell2": "cell.gate_map",
    "treecell_layer.NT": "cell.norm",
    "decision_module.0": "score.hidden_map",
    "decision_module.2": "score.score_map",
    "RNN.GLU.0": "state_space.map",
    **{f"RNN.S4DBlock.{theirs}": f"state_space.{ours}" for theirs, ours in _CHANNELS.items()},
    "word_linear": "leaves.map",
    **{f"{cell}.wcell{part}": f"cell.{ours}" for cell in ("GRC.fcell", "tree_cell") for part, ours in _CELL.items()},
    **{f"{cell}.NT": "cell.norm" for cell in ("GRC.fcell", "tree_cell")},
}


def has_check(path: Path) -> bool:
    """Whether there is a test for a file."""
    return path.name in CHECKS


def check(path: Path) -> None:
    """Check one file."""
    CHECKS[path.name](dict(np.load(path)))


def check_recursion(arrays: Arrays, *, aligned: str = "none", alone: bool = False, whole: bool = False) -> None:
    """Encodings and gradients of all engines: row by row, cut as in the batch; without draws also each cut by itself.

    Args:
        arrays: the file.
        aligned: how slots are drawn.
        alone: whether the file has each row by itself.
        whole: whether the whole batch width is one chunk.
    """
    has_layer = "after_s4d" in arrays
    chunk_size = arrays["input"].shape[1] if whole else int(arrays["chunk"])
    for trained_backwards in (False, True) if "grad_input_both_directions" in arrays else (False,):
        layer = RecursionInRecursion(
            int(arrays["width"]), VOCABULARY, scored_size=int(arrays["slice"]), state_space=has_layer,
            trained_backwards=trained_backwards, chunk_size=chunk_size, beam_size=int(arrays["beam"]),
        ).double()  # fmt: skip
        ours = load(layer, arrays, _NAMES)
        for engine in ENGINES:
            inputs = torch.from_numpy(arrays["input"]).clone().requires_grad_()
            layer.zero_grad()
            leaves = _leaves(layer, inputs, arrays)
            encoding = torch.cat([_row(layer, leaves, arrays, row, aligned, engine) for row in range(len(leaves))])
            same(encoding, arrays["global_state"], f"global_state ({engine})")
            (encoding * torch.from_numpy(arrays["loss_weight"])).sum().backward()
            prefix = "grad_both_directions." if trained_backwards else "grad."
            expected = {
                **arrays,
                **{f"grad.{name.removeprefix(prefix)}": value for name, value in arrays.items() if prefix in name},
                "grad_input": arrays["grad_input_both_directions" if trained_backwards else "grad_input"],
            }
            check_gradients(expected, layer, ours, inputs, engine, 1e-10)
            if alone:
                lengths = torch.from_numpy(arrays["lengths"])
                found = recursion_in_recursion(
                    leaves, lengths, layer.weights(), layer.chunk_size, layer.beam_size, alignment=None, engine=engine
                )
                same(found.encoding, arrays["global_state_alone"], f"global_state_alone ({engine})")


def _leaves(
    layer: RecursionInRecursion | RecursionInRecursionGRC, inputs: torch.Tensor, arrays: Arrays
) -> torch.Tensor:
    present = torch.from_numpy(arrays["mask"]).bool()[:, :, None]
    values = inputs
    if layer.state_space is not None:
        values = layer.state_space(inputs, torch.from_numpy(arrays["lengths"]))
        same(values.masked_fill(~present, 0), np.where(present, arrays["after_s4d"], 0), "after_s4d")
    return layer.leaves(values).masked_fill(~present, 0)


def _row(
    layer: RecursionInRecursion, leaves: torch.Tensor, arrays: Arrays, row: int, aligned: str, engine: SequenceEngine
) -> torch.Tensor:
    """Encode a row, cut as in its batch, with the numbers that were drawn for it."""
    length, width = int(arrays["lengths"][row]), leaves.shape[1]
    places = [width]
    while places[-1] > 1:
        places.append(next_places(places[-1], layer.chunk_size))

    def draw(probability: torch.Tensor, level: int, chunks: NDArray[np.int64]) -> torch.Tensor:
        runs = row * places[level + 1] + chunks
        same(probability, arrays[f"align_probability{level}"][runs], f"probabilities of level {level}, {engine}")
        return torch.from_numpy(arrays[f"align{level}"][runs])

    temperature = float(arrays["align_temperature"]) if aligned == "score" else None
    noise = _StoredNoise(arrays, row, layer.chunk_size, layer.beam_size, engine) if int(arrays["training"]) else None
    return recursion_in_recursion(
        leaves[row : row + 1, :length],
        torch.tensor([length]),
        layer.weights(),
        layer.chunk_size,
        layer.beam_size,
        alignment=None if aligned == "none" else Alignment(draw, temperature),
        noise=noise,
        engine=engine,
        places=torch.tensor([width]),
    ).encoding


class _StoredNoise:
    """The noise of one row of a batch, from the uniform numbers of a file, in the order in which an engine draws.

    The file has numbers for all places of all chunks of a batch: first of pairs, ``[chunks * slots, pairs]``, then of
    proposals, ``[chunks, slots * proposals]``, if there are more than beams.
    """

    def __init__(self, arrays: Arrays, row: int, chunk_size: int, beam_size: int, engine: SequenceEngine) -> None:
        self._numbers = (torch.from_numpy(arrays[f"uniform{number}"]) for number in range(1000))
        self._row, self._batch = row, len(arrays["lengths"])
        self._chunk_size, self._beam_size = chunk_size, beam_size
        self._together = engine != "naive"
        self._drawn = self._of_levels(int(arrays["lengths"][row]), arrays["input"].shape[1])

    def __call__(self, shape: tuple[int, ...]) -> torch.Tensor:
        own = next(self._drawn)
        assert own.shape == shape
        return -torch.log(-torch.log(own + 1e-20) + 1e-20)

    def _of_levels(self, positions: int, places: int) -> Iterator[torch.Tensor]:
        count = live = 1
        while places > 1:
            chunks = chunks_of(positions, places, self._chunk_size)
            size, after = chunks[0].size, slots_after(count, chunks[0].size, self._beam_size)
            stored = self._of_level(count, size)
            parts = [chunks] if self._together else [[chunk] for chunk in chunks]
            for part in parts:
                longest = max(chunk.length for chunk in part)
                first = chunks.index(part[0])
                beams = live
                for step, (of_pairs, of_proposals) in enumerate(stored[: max(longest - 2, 0)]):
                    active = [first + at for at, chunk in enumerate(part) if chunk.length > step + 1]
                    pairs = longest - 1 - step
                    top = min(pairs, self._beam_size)
                    yield of_pairs[active, :beams, :pairs]
                    if beams * top > self._beam_size:
                        yield of_proposals[active, :beams, :top].flatten(1)
                    beams = min(beams * top, self._beam_size)
                if any(after.ordered and chunk.length < chunk.size for chunk in part):
                    last = stored[-1][1][[first + at for at in range(len(part))], :, 0]
                    yield torch.nn.functional.pad(last, (0, self._beam_size - last.shape[1]), value=0.5)
            live = count = after.most
            positions, places = len(chunks), next_places(places, self._chunk_size)

    def _of_level(self, count: int, size: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the numbers of this row for each step: ``[chunks, slots, pairs]``, ``[chunks, slots, proposals]``."""
        steps = []
        for pairs in range(size - 1, 1, -1):
            of_pairs = next(self._numbers).unflatten(0, (self._batch, -1, count))[self._row]
            top = min(pairs, self._beam_size)
            of_proposals = torch.full((len(of_pairs), count, top), 0.5, dtype=torch.float64)
            if count * top > self._beam_size:
                of_proposals = next(self._numbers).unflatten(0, (self._batch, -1))[self._row].unflatten(1, (count, top))
            steps.append((of_pairs, of_proposals))
            count = min(count * top, self._beam_size)
        return steps


def check_state_space(arrays: Arrays) -> None:
    """The state-space layer by itself, with and without gradients of what is read from right to left."""
    names = {"GLU.0": "map", **{f"S4DBlock.{theirs}": ours for theirs, ours in _CHANNELS.items()}}
    lengths = torch.from_numpy(arrays["lengths"])
    present = torch.from_numpy(arrays["mask"]).bool()
    for trained_backwards in (False, True):
        layer = BidirectionalStateSpace(int(arrays["width"]), 0.0, trained_backwards).double()
        ours = load(layer, arrays, names)
        inputs = torch.from_numpy(arrays["input"]).clone().requires_grad_()
        found = layer(inputs, lengths)
        same(found[present], arrays["sequence"][present.numpy()], "sequence")
        (found * torch.from_numpy(arrays["loss_weight"])).sum().backward()
        if trained_backwards:
            arrays = {**arrays, "grad_input": arrays["grad_input_both_directions"]}
            arrays |= {f"grad.{name}": arrays[f"grad_both_directions.{name}"] for name in ours}
        check_gradients(arrays, layer, ours, inputs, "state space", 1e-10)


def check_chains(arrays: Arrays, **options: Any) -> None:
    """Encodings and gradients of all engines, cut as in the batch, of chunks that are read from left to right."""
    layer = RecursionInRecursionGRC(int(arrays["width"]), VOCABULARY, **options).double()
    ours = load(layer, arrays, _NAMES)
    lengths = torch.from_numpy(arrays["lengths"])
    for engine in ENGINES:
        inputs = torch.from_numpy(arrays["input"]).clone().requires_grad_()
        layer.zero_grad()
        leaves = _leaves(layer, inputs, arrays)
        found = [
            chain_encodings(
                leaves, lengths, layer.cell.weights(), layer.chunk_size,
                from_zero=layer.from_zero, engine=engine, places=places,
            )
            for places in (torch.full_like(lengths, leaves.shape[1]), None)
        ]  # fmt: skip
        same(found[0], arrays["global_state"], f"global_state ({engine})")
        if "global_state_alone" in arrays:
            same(found[1], arrays["global_state_alone"], f"global_state_alone ({engine})")
        (found[0] * torch.from_numpy(arrays["loss_weight"])).sum().backward()
        check_gradients(arrays, layer, ours, inputs, engine, 1e-10)


CHECKS: dict[str, Callable[[Arrays], Any]] = {
    "rir_whole.npz": partial(check_recursion, alone=True, whole=True),
    "rir_dividing.npz": partial(check_recursion, alone=True),
    "rir_not_dividing.npz": partial(check_recursion, alone=True),
    "rir_three_levels.npz": partial(check_recursion, alone=True),
    "rir_align.npz": partial(check_recursion, aligned="score"),
    "rir_align_random.npz": partial(check_recursion, aligned="random"),
    "rir_train.npz": partial(check_recursion, aligned="score"),
    "rir_s4d.npz": partial(check_recursion, aligned="score"),
    "rir_s4d_train.npz": partial(check_recursion, aligned="score"),
    "rir_grc.npz": partial(check_chains, chunk_size=4),
    "bbt_grc.npz": partial(check_chains, chunk_size=2, from_zero=False, state_space=False),
    "s4d_layer.npz": check_state_space,
    **stack_attention_files.CHECKS,
}
