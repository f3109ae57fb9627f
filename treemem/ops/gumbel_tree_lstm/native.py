"""The Gumbel Tree-LSTM as one operation with a backward pass of its own, in C++: each pair is composed once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from treemem.ops.affine import Affine
from treemem.ops.choices import Noise
from treemem.ops.gumbel_tree_lstm.naive import GumbelTreeWeights
from treemem.ops.native_pairs import NativePairs, PairTensors, native_pairs
from treemem.ops.pair_by_pair import compose
from treemem.ops.second_derivative import once_differentiable, save_for_backward
from treemem.ops.sequence_lengths import LongestFirst

_PAIRS = 1 << 10
"""So many pairs are composed again at a time."""


def native_trees(
    leaves: torch.Tensor,
    order: LongestFirst,
    weights: GumbelTreeWeights,
    temperature: float | None,
    noise: Noise | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    """Return what :func:`treemem.ops.gumbel_tree_lstm.naive.naive_trees` does, or None if the C++ cannot be used."""
    query = weights.query / weights.scale
    with torch.no_grad():
        native = native_pairs(leaves, order.lengths, order.sizes, weights.cell, query, temperature, noise)
    return None if native is None else _Trees.apply(native, leaves, *weights.cell, query)


class _Trees(torch.autograd.Function):
    """Nodes and pairs have numbers. Leaves are the first nodes, and pair ``p`` becomes the node ``num_leaves + p``."""

    @staticmethod
    def forward(
        ctx: Any, native: NativePairs, leaves: torch.Tensor, *_: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        sequences, longest, width = leaves.shape
        num_leaves, tensors = sequences * longest, native.tensors
        compositions, composed = leaves.new_zeros(sequences, longest - 1, width), tensors.chosen >= 0
        compositions[composed] = tensors.states[num_leaves + tensors.chosen[composed]]
        last = tensors.chosen.gather(1, (tensors.lengths[:, None] - 2).clamp(min=0)).squeeze(1)
        ctx.roots = torch.where(last < 0, torch.arange(sequences) * longest, num_leaves + last)
        ctx.shape, ctx.native = leaves.shape, native[:2]
        save_for_backward(ctx, compositions, *tensors)
        ctx.mark_non_differentiable(tensors.places)
        ctx.set_materialize_grads(False)
        return tensors.states[ctx.roots], compositions, tensors.places

    @staticmethod
    @once_differentiable()
    def backward(
        ctx: Any,
        saved: tuple[Any, ...],
        d_roots: torch.Tensor | None,
        d_compositions: torch.Tensor | None,
        _: torch.Tensor,
    ) -> tuple[torch.Tensor | None, ...]:
        kept: list[Any] = [None if each is None else each.contiguous() for each in saved[1:]]
        library, numbers = ctx.native
        native = NativePairs(library, numbers, PairTensors(*kept))
        tensors, query = native.tensors, native.tensors.query
        new = tensors.states[-len(tensors.children) :]
        d_states = torch.zeros_like(tensors.states)
        if d_roots is not None:
            d_states[ctx.roots] = d_roots
        cell = Affine(*(each.detach().requires_grad_() for each in (tensors.weight, tensors.bias)))
        of_score = None  # the gradient of each pair's score by its children
        if tensors.temperature is not None:
            every = torch.zeros_like(new)
            every[:, : len(query)] = query
            parts = _parts(tensors, cell, every)
            of_score = torch.cat([torch.autograd.grad(own, children, of)[0] for own, children, of in parts])
        d_scores, d_chosen = native.backward(d_states, d_compositions, of_score)
        d_chosen[:, : len(query)].addcmul_(d_scores[:, None], query)
        d_cell = Affine(*map(torch.zeros_like, cell))
        for own, _, of in _parts(tensors, cell, d_chosen):
            for whole, part in zip(d_cell, torch.autograd.grad(own, [*cell], of), strict=True):
                whole += part
        d_leaves = d_states[: len(d_states) - len(new)].view(ctx.shape)
        return None, d_leaves, *d_cell, d_scores @ new[:, : len(query)]


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
