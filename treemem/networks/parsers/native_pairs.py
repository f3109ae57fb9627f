"""Sequences that become trees pair by pair, in C++."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import NamedTuple

import torch

from treemem.engines.affine import Affine
from treemem.engines.choices import Noise
from treemem.native.structures import Filled, Structure, structured_library
from treemem.networks.trees.tree_lstm.equations import bounded_tree_lstm_of_two, tree_lstm_of_two

_SOURCE = Path(__file__).with_name("pair_by_pair.cpp")
_NODES_PER_THREAD = 64
_PROBLEM = Structure(
    "PROBLEM",
    "int64_t sequences, longest, hidden_size, num_threads",
    "const double *temperature",  # of the probabilities of the choices; null: they have none
    "const int64_t *lengths",  # longest first, [sequences]
    "const REAL *weight, *bias, *query",
    "const REAL *noise",  # of the choices of each step, of the sequences with a pair, or null
    # Of nodes, [leaves + pairs, 2 * hidden_size], where the leaves come in. Of pairs, [pairs, ...], which begin with 0.
    "REAL *states, *gates",
    "int64_t *children",
    "REAL *scores",
    "int64_t *chosen, *places",  # by sequence and step, [sequences, longest - 1]: the pair, and its place
    "int64_t *replaced",  # the pairs on its left and right, or -1, [sequences, longest - 1, 2]
    "REAL *probability",  # of all choices of a sequence, one after the other
)
_GRADIENTS = Structure(
    "GRADIENTS",
    "REAL *states",  # comes in as that of the roots
    "const REAL *compositions",  # [sequences, longest - 1, 2 * hidden_size], or null
    "const REAL *of_score",  # gradients of the children by the pair's score, [pairs, 2, 2 * hidden_size], or null
    "REAL *scores, *pairs",  # [pairs], begin with 0; of the pairs that were chosen, [pairs, 2 * hidden_size]
)


class PairTensors(NamedTuple):
    """What ``pair_by_pair.cpp`` reads and fills in.

    Attributes:
        temperature: float64 ``[1]``; None: choices have no gradients.
        lengths: longest first, int64 ``[sequences]``.
        weight, bias: of the cell.
        query: of the scores ``query . h``, ``[hidden_size]``.
        noise: of all choices.
        states: ``[h; c]`` of nodes, ``[leaves + pairs, 2 * hidden_size]``: leaves are the first, and pair ``p`` becomes
            the node ``leaves + p``. There are numbers for two pairs of each choice; those that are not needed are 0.
        children: the nodes of the pairs, int64 ``[pairs, 2]``.
        scores: of the pairs, ``[pairs]``.
        gates: of the pairs, ``[pairs, 5 * hidden_size]``.
        chosen: the pair of each step, int64 ``[sequences, longest - 1]``; -1 after the last one.
        places: the place of this pair; 0 after the last one.
        replaced: the pairs that took the place of its neighbours.
        probability: of the choices.
    """

    temperature: torch.Tensor | None
    lengths: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor
    query: torch.Tensor
    noise: torch.Tensor | None
    states: torch.Tensor
    gates: torch.Tensor
    children: torch.Tensor
    scores: torch.Tensor
    chosen: torch.Tensor
    places: torch.Tensor
    replaced: torch.Tensor
    probability: torch.Tensor | None


class NativePairs(NamedTuple):
    """Sequences that C++ has composed, each pair once.

    Attributes:
        library: the compiled functions.
        numbers: the first fields of its problem.
        tensors: the others.
    """

    library: ctypes.CDLL
    numbers: dict[str, int]
    tensors: PairTensors

    def forward(self) -> None:
        """Fill in the tensors from ``states`` on."""
        self.library.forward(self._problem())

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
        gates, states = self.tensors.gates, self.tensors.states
        d_scores, d_pairs = gates.new_zeros(len(gates)), torch.zeros_like(states[-len(gates) :])
        compositions, of_scores = (None if grad is None else grad.contiguous() for grad in (d_compositions, of_score))
        gradients = _GRADIENTS(
            states=d_states, compositions=compositions, of_score=of_scores, scores=d_scores, pairs=d_pairs
        )
        self.library.backward(self._problem(), gradients)
        return d_scores, d_pairs

    def _problem(self) -> Filled:
        return _PROBLEM(**self.numbers, **self.tensors._asdict())


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
    """Compose sequences, or return None if the C++ cannot be used; see :func:`treemem.native.native_library`.

    Args:
        leaves: ``[sequences, longest, 2 * hidden_size]``.
        lengths: longest first, int64 ``[sequences]``.
        sizes: how many sequences are longer than 0, 1, 2, ... tokens.
        cell: of the Tree-LSTM.
        query: of the scores ``query . h``, ``[hidden_size]``.
        temperature: of the probabilities of the steps; None: they have none.
        noise: is added to the scores; of a step and the sequences that still have a pair.
        bounded: whether a node hands ``tanh(c)`` to its parent instead of ``c``.
    """
    tensors = [leaves, cell.weight, cell.bias, query]
    library = structured_library(
        _SOURCE, tensors, _PROBLEM, _GRADIENTS, bounded_tree_lstm_of_two if bounded else tree_lstm_of_two
    )
    if library is None or leaves.shape[1] < 2:
        return None
    sequences, longest, width = leaves.shape
    num_pairs = int((3 * lengths - 5).clamp(min=0).sum())
    num_choices = int((lengths * (lengths - 1) // 2).sum())
    threads = max(1, min(torch.get_num_threads(), sum(sizes) // _NODES_PER_THREAD))
    shapes = [(active, longest - step) for step, active in enumerate(sizes[1:-1], start=1)]
    drawn = [noise(shape).flatten() for shape in shapes] if noise is not None else []
    chosen = lengths.new_full((sequences, longest - 1), -1)
    weight, bias, own_query = (tensor.contiguous() for tensor in (cell.weight, cell.bias, query))
    pairs = PairTensors(
        None if temperature is None else torch.tensor([temperature], dtype=torch.float64),
        lengths.contiguous(),
        weight,
        bias,
        own_query,
        torch.cat(drawn) if drawn else None,
        torch.cat([leaves.reshape(-1, width), leaves.new_zeros(num_pairs, width)]),
        leaves.new_zeros(num_pairs, len(cell.bias)),
        lengths.new_zeros(num_pairs, 2),
        leaves.new_zeros(num_pairs),
        chosen,
        torch.zeros_like(chosen),
        torch.empty(sequences, longest - 1, 2, dtype=torch.int64),
        None if temperature is None else leaves.new_empty(num_choices),
    )
    numbers = {
        "sequences": sequences,
        "longest": longest,
        "hidden_size": width // 2,
        "num_threads": threads,
    }
    native = NativePairs(library, numbers, pairs)
    native.forward()
    return native
