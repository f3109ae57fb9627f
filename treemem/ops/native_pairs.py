"""Sequences that become trees pair by pair, in C++."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from treemem.ops.affine import Affine
from treemem.ops.choices import Noise
from treemem.ops.native import TYPE_NAMES, address, native_library, structure

_SOURCE = Path(__file__).parent / "native" / "pair_by_pair.cpp"
_NODES_PER_THREAD = 64


class NativePairs:
    """Sequences that C++ has composed as :func:`treemem.ops.pair_by_pair.choose_pairs` does.

    Args:
        library: the compiled functions.
        leaves: ``[sequences, longest, 2 * hidden_size]``.
        lengths: longest first, int64 ``[sequences]``.
        sizes: how many sequences are longer than 0, 1, 2, ... tokens.
        cell: of the Tree-LSTM.
        query: of the scores ``query . h``, ``[hidden_size]``.
        temperature, noise: see :func:`treemem.ops.pair_by_pair.choose_pairs`.
        bounded: see :class:`treemem.ops.pair_by_pair.PairMemory`.

    Attributes:
        states, gates, children: see :class:`treemem.ops.pair_by_pair.PairMemory`. There are numbers for two pairs of
            each choice; those that are not needed are 0.
        chosen: the pair of each step, int64 ``[sequences, longest - 1]``; -1 after the last one.
        places: the place of this pair; 0 after the last one.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        leaves: torch.Tensor,
        lengths: torch.Tensor,
        sizes: list[int],
        cell: Affine,
        query: torch.Tensor,
        temperature: float | None,
        noise: Noise | None,
        bounded: bool,
    ) -> None:
        sequences, longest, width = leaves.shape
        num_pairs = int((3 * lengths - 5).clamp(min=0).sum())
        num_choices = int((lengths * (lengths - 1) // 2).sum())
        threads = max(1, min(torch.get_num_threads(), sum(sizes) // _NODES_PER_THREAD))
        shapes = [(active, longest - step) for step, active in enumerate(sizes[1:-1], start=1)]
        drawn = [noise(shape).flatten() for shape in shapes] if noise is not None else []
        self.states = torch.cat([leaves.reshape(-1, width), leaves.new_zeros(num_pairs, width)])
        self.gates = leaves.new_zeros(num_pairs, len(cell.bias))
        self.children = lengths.new_zeros(num_pairs, 2)
        self.chosen = lengths.new_full((sequences, longest - 1), -1)
        self.places = torch.zeros_like(self.chosen)
        self._library = library
        self._kept = (
            None if temperature is None else torch.tensor([temperature], dtype=torch.float64),
            lengths.contiguous(),
            *(each.contiguous() for each in (cell.weight, cell.bias, query)),
            torch.cat(drawn) if drawn else None,
            leaves.new_zeros(num_pairs),
            torch.empty(sequences, longest - 1, 2, dtype=torch.int64),
            None if temperature is None else leaves.new_empty(num_choices),
        )
        *given, scores, replaced, probability = self._kept
        made = (self.states, self.gates, self.children, scores, self.chosen, self.places, replaced, probability)
        sizes_of_all = (sequences, longest, width // 2, threads, bounded)
        self._problem = structure(*sizes_of_all, *map(address, (*given, *made)))
        library.forward(self._problem)

    def backward(
        self, d_states: torch.Tensor, d_compositions: torch.Tensor | None, of_score: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add to the gradients of the states; return those of the pairs' scores and of the pairs that were chosen.

        Args:
            d_states: as the states; comes in as the gradient of the roots.
            d_compositions: of the chosen pairs, ``[sequences, longest - 1, 2 * hidden_size]``.
            of_score: gradients of the children by the pair's score, ``[pairs, 2, 2 * hidden_size]``.

        Returns:
            ``[pairs]`` and ``[pairs, 2 * hidden_size]``, 0 for other pairs.
        """
        d_scores, d_pairs = self.gates.new_zeros(len(self.gates)), torch.zeros_like(self.states[-len(self.gates) :])
        given = [None if each is None else each.contiguous() for each in (d_compositions, of_score)]
        self._library.backward(self._problem, structure(*map(address, (d_states, *given, d_scores, d_pairs))))
        return d_scores, d_pairs


def native_pairs(
    leaves: torch.Tensor,
    lengths: torch.Tensor,
    sizes: list[int],
    cell: Affine,
    query: torch.Tensor,
    temperature: float | None,
    noise: Noise | None,
    *,
    bounded: bool = False,
) -> NativePairs | None:
    """Compose sequences, or return None if the C++ cannot be used; see :func:`treemem.ops.native.native_library`."""
    tensors = [leaves, cell.weight, cell.bias, query]
    library = native_library(_SOURCE, tensors, f"REAL={TYPE_NAMES.get(leaves.dtype)}")
    if library is None or leaves.shape[1] < 2:
        return None
    return NativePairs(library, leaves, lengths, sizes, cell, query, temperature, noise, bounded)
