"""The Gumbel Tree-LSTM as one operation with a backward pass of its own, in C++: each pair is composed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from treemem.engines.affine import Affine
from treemem.engines.choices import Noise
from treemem.engines.sequence_lengths import LongestFirst
from treemem.native.run import NativeRun, Tensors, run_native
from treemem.networks.parsers.gumbel_tree_lstm.equations import GumbelTreeWeights
from treemem.networks.parsers.native_pairs import NativePairs, PairTensors, native_pairs
from treemem.networks.parsers.pair_by_pair import compose

_PAIRS = 1 << 10
"""So many pairs are composed again at a time."""


def native_trees(
    leaves: torch.Tensor,
    order: LongestFirst,
    weights: GumbelTreeWeights,
    temperature: float | None,
    noise: Noise | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Return what ``naive_trees`` does, or None if the C++ cannot be used."""
    query = weights.query / weights.scale
    with torch.no_grad():
        native = native_pairs(leaves, order.lengths, order.sizes, weights.cell, query, temperature, noise)
    if native is None:
        return None
    roots, compositions, places = run_native(_Trees(native), leaves, *weights.cell, query)
    return roots, compositions, places


class _Trees(NativeRun):
    """Nodes and pairs have numbers. Leaves are the first nodes, and pair ``p`` becomes the node ``num_leaves + p``."""

    def __init__(self, native: NativePairs) -> None:
        self._native: NativePairs | None = native  # until its tensors are saved
        self._library, self._numbers = native.library, native.numbers

    def forward(self, tensors: Any) -> tuple[tuple[torch.Tensor, ...], Tensors]:
        assert self._native is not None
        pairs, self._native = self._native.tensors, None
        self._shape = sequences, longest, width = tensors[0].shape
        num_leaves = sequences * longest
        compositions, composed = pairs.states.new_zeros(sequences, longest - 1, width), pairs.chosen >= 0
        compositions[composed] = pairs.states[num_leaves + pairs.chosen[composed]]
        last = pairs.chosen.gather(1, (pairs.lengths[:, None] - 2).clamp(min=0)).squeeze(1)
        self._roots = torch.where(last < 0, torch.arange(sequences) * longest, num_leaves + last)
        return (pairs.states[self._roots], compositions, pairs.places), (compositions, *pairs)

    def backward(self, kept: Any, gradients: Tensors, wanted: Sequence[bool]) -> Tensors:
        d_roots, d_compositions, _ = gradients
        native = NativePairs(self._library, self._numbers, PairTensors(*kept[1:]))
        tensors, query = native.tensors, native.tensors.query
        new = tensors.states[-len(tensors.children) :]
        d_states = torch.zeros_like(tensors.states)
        if d_roots is not None:
            d_states[self._roots] = d_roots
        cell = Affine(*(tensor.detach().requires_grad_() for tensor in (tensors.weight, tensors.bias)))
        of_score = None  # the gradient of each pair's score by its children
        if tensors.temperature is not None:
            every = torch.zeros_like(new)
            every[:, : len(query)] = query
            parts = _parts(tensors, cell, every)
            of_score = torch.cat([torch.autograd.grad(output, children, of)[0] for output, children, of in parts])
        d_scores, d_chosen = native.backward(d_states, d_compositions, of_score)
        d_chosen[:, : len(query)].addcmul_(d_scores[:, None], query)
        d_cell = Affine(*map(torch.zeros_like, cell))
        for output, _, of in _parts(tensors, cell, d_chosen):
            for whole, part in zip(d_cell, torch.autograd.grad(output, [*cell], of), strict=True):
                whole += part
        d_leaves = d_states[: len(d_states) - len(new)].view(self._shape)
        return [d_leaves, *d_cell, d_scores @ new[:, : len(query)]]


def _parts(
    tensors: PairTensors, cell: Affine, gradient: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yield compositions under autograd, their children, ``[pairs, 2, 2 * hidden_size]``, and their gradients."""
    for numbers, of in zip(tensors.children.split(_PAIRS), gradient.split(_PAIRS), strict=True):
        children = tensors.states.index_select(0, numbers.flatten()).view(-1, 2, gradient.shape[1])
        with torch.enable_grad():
            children.requires_grad_()
            composed = compose(children[:, 0], children[:, 1], cell)
        yield composed, children, of
