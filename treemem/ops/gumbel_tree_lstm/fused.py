"""The Gumbel Tree-LSTM over all sequences at once, each pair composed once.

As a formula, each step composes all pairs again, and each choice has a gradient through all of them. Under autograd,
with all sequences of 5 to 50 tokens at once, this takes 2.4 times as long as the steps here, and 5 times as long as
C++. So the backward pass through choices is written by hand; that of the cell is autograd's.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch

from treemem.ops.affine import Affine
from treemem.ops.choices import Noise
from treemem.ops.gumbel_tree_lstm.weights import GumbelTreeWeights, compose
from treemem.ops.native_pairs import NativePairs, PairTensors, native_pairs
from treemem.ops.pair_by_pair import PairMemory, PairStep, choose_pairs, count_pairs
from treemem.ops.second_derivative import once_differentiable, save_for_backward

_PAIRS = 1 << 10
"""So many pairs are composed again at a time."""


class Problem(NamedTuple):
    """What to compose.

    Attributes:
        lengths: of the sequences, longest first, int64 ``[sequences]``, where the leaves are.
        sizes: how many sequences are longer than 0, 1, 2, ... tokens.
        scale: what scores are divided by.
        temperature: of the softmax through which choices have gradients; None: they have none.
        noise: of the choices.
    """

    lengths: torch.Tensor
    sizes: list[int]
    scale: float
    temperature: float | None
    noise: Noise | None


def fused_trees(
    leaves: torch.Tensor, weights: GumbelTreeWeights, problem: Problem
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what :func:`naive_tree` does, for all sequences.

    Args:
        leaves: ``[sequences, longest, 2 * hidden_size]``, finite at padding.
        weights: of cell and score.
        problem: what to compose.

    Returns:
        The roots ``[sequences, 2 * hidden_size]``, the compositions ``[sequences, longest - 1, 2 * hidden_size]``, 0
        after the last one of a sequence, and the pair of nodes that each of them replaced, int64
        ``[sequences, longest - 1]``.
    """
    return _GumbelTrees.apply(problem, leaves, *weights.cell, weights.query)


class _GumbelTrees(torch.autograd.Function):
    """Nodes and pairs have numbers. Leaves are the first nodes, and pair ``p`` becomes the node ``num_leaves + p``."""

    @staticmethod
    def forward(
        ctx: Any, problem: Problem, leaves: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, query: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        sequences, longest, width = leaves.shape
        lengths, sizes = problem.lengths, problem.sizes
        num_leaves = sequences * longest
        cell, scaled = Affine(weight, bias), query / problem.scale
        compositions = leaves.new_zeros(sequences, longest - 1, width)
        native = native_pairs(leaves, lengths, sizes, cell, scaled, problem.temperature, problem.noise)
        if native is not None:
            ctx.native, kept = native[:2], [*native.tensors]
            states, chosen, places = native.tensors.states, native.tensors.chosen, native.tensors.places
            composed = chosen >= 0
            compositions[composed] = states[num_leaves + chosen[composed]]
            last = chosen.gather(1, (lengths[:, None] - 2).clamp(min=0)).squeeze(1)
            roots = torch.where(last < 0, torch.arange(sequences) * longest, num_leaves + last)
        else:
            composed_by = partial(compose, cell=cell)
            memory = PairMemory(leaves.reshape(num_leaves, width), count_pairs(sizes), composed_by, scaled)
            ctx.steps, roots, places = choose_pairs(memory, lengths, sizes, problem.temperature, problem.noise)
            states = memory.states
            ctx.native, kept = None, [states, memory.children, weight, bias]
            for number, step in enumerate(ctx.steps):
                compositions[: len(step.chosen), number] = states[num_leaves + step.chosen]
        ctx.problem, ctx.roots = problem, roots
        save_for_backward(ctx, compositions, query, *kept)
        ctx.mark_non_differentiable(places)
        ctx.set_materialize_grads(False)
        return states[roots], compositions, places

    @staticmethod
    @once_differentiable()
    def backward(
        ctx: Any,
        saved: tuple[Any, ...],
        d_roots: torch.Tensor | None,
        d_compositions: torch.Tensor | None,
        _: torch.Tensor,
    ) -> tuple[torch.Tensor | None, ...]:
        contiguous: list[Any] = [None if each is None else each.contiguous() for each in saved[1:]]
        query, *kept = contiguous
        native = None
        if ctx.native is not None:
            library, numbers = ctx.native
            native = NativePairs(library, numbers, PairTensors(*kept))
            kept = [native.tensors.states, native.tensors.children, native.tensors.weight, native.tensors.bias]
        states, children, *maps = kept
        problem, size = ctx.problem, len(query)
        num_pairs, num_leaves = len(children), len(states) - len(children)
        cell = _CellBackward(states, children, Affine(*maps))
        d_states = torch.zeros_like(states)
        if d_roots is not None:
            d_states[ctx.roots] = d_roots
        of_score = None
        if problem.temperature is not None:
            every = states.new_zeros(num_pairs, 2 * size)
            every[:, :size] = query / problem.scale
            of_score = cell.children_gradient(None, every)  # of each pair's score, by its children
        if native is not None:
            d_scores, d_chosen = native.backward(d_states, d_compositions, of_score)
            composed = native.tensors.chosen[native.tensors.chosen >= 0]
        else:
            d_scores, d_chosen = _through_steps(ctx.steps, problem, cell, d_states, d_compositions, of_score)
            composed = torch.cat([ctx.roots[:0], *(step.chosen for step in ctx.steps)])
        d_chosen[:, :size].addcmul_(d_scores[:, None], query / problem.scale)
        pairs = None if of_score is not None else composed
        d_weight, d_bias = cell.weight_gradients(pairs, d_chosen if pairs is None else d_chosen[pairs])
        d_query = d_scores @ states[num_leaves:, :size] / problem.scale
        d_leaves = d_states[:num_leaves].view(len(problem.lengths), -1, 2 * size)
        return None, d_leaves, d_weight, d_bias, d_query


def _through_steps(
    steps: list[PairStep],
    problem: Problem,
    cell: _CellBackward,
    d_states: torch.Tensor,
    d_compositions: torch.Tensor | None,
    of_score: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Go back through the steps; see :meth:`NativePairs.backward`."""
    states, children, num_leaves = cell.states, cell.children, cell.first
    d_scores = states.new_zeros(len(children))
    d_chosen = states.new_zeros(len(children), states.shape[1])
    for number in range(len(steps) - 1, -1, -1):
        step = steps[number]
        d_new = d_states[num_leaves + step.chosen]
        own = None if d_compositions is None else d_compositions[: len(step.chosen), number]
        if step.probability is not None:
            assert problem.temperature is not None
            after = steps[number + 1].nodes
            going, pairs, p = len(after), step.pairs[: len(after)], step.probability[: len(after)]
            composed = _rows(states, num_leaves + pairs)
            d_choice = _choice_gradient(_rows(d_states, after), composed, _rows(states, step.nodes[:going]))
            if own is not None:
                d_choice += torch.einsum("spd,sd->sp", composed, own[:going])
            d_noisy = p * (d_choice - (p * d_choice).sum(1, keepdim=True)) / problem.temperature
            d_scores.index_add_(0, pairs.flatten(), d_noisy.flatten())
        d_chosen[step.chosen] = d_new if own is None else d_new + own
        d_children = cell.children_gradient(step.chosen, d_chosen[step.chosen])
        d_states.index_add_(0, children[step.chosen].flatten(), d_children.flatten(0, 1))
        if step.probability is not None and of_score is not None:
            d_pairs = _rows(of_score, pairs) * d_noisy[:, :, None, None]
            d_states.index_add_(0, _rows(children, pairs).flatten(), d_pairs.flatten(0, 2))
    return d_scores, d_chosen


def _rows(values: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    return values.index_select(0, numbers.flatten()).view(*numbers.shape, *values.shape[1:])


def _choice_gradient(d_new: torch.Tensor, composed: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
    """Return the gradients of a choice ``s``, but for a constant of each sequence; see :func:`naive_tree`.

    Args:
        d_new: of the nodes after the step, ``[sequences, pairs, 2 * hidden_size]``.
        composed: the compositions, ``[sequences, pairs, 2 * hidden_size]``.
        nodes: before the step, ``[sequences, pairs + 1, 2 * hidden_size]``.
    """
    stays, moves = ((d_new * each).sum(2) for each in (nodes[:, :-1], nodes[:, 1:]))
    return (d_new * composed).sum(2) - stays + (stays - moves).cumsum(1)


class _CellBackward:
    """The cell's gradients at pairs, or at all pairs for None; it composes them again, some at a time."""

    def __init__(self, states: torch.Tensor, children: torch.Tensor, cell: Affine) -> None:
        self.states, self.children, self._cell = states, children, cell
        self.first = len(states) - len(children)

    def children_gradient(self, pairs: torch.Tensor | None, gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradients of the children's ``[h; c]``, ``[pairs, 2, 2 * hidden_size]``, by the pairs' own."""
        found = [gradient.new_zeros(0, 2, gradient.shape[1])]
        for children, of_part in self._parts(pairs, gradient):
            with torch.enable_grad():
                children.requires_grad_()
                new = compose(children[:, 0], children[:, 1], self._cell)
            found += torch.autograd.grad(new, children, of_part)
        return torch.cat(found)

    def weight_gradients(self, pairs: torch.Tensor | None, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the gradients of weight and bias."""
        cell = Affine(*(each.detach().requires_grad_() for each in self._cell))
        total = Affine(*map(torch.zeros_like, self._cell))
        for children, of_part in self._parts(pairs, gradient):
            with torch.enable_grad():
                new = compose(children[:, 0], children[:, 1], cell)
            for whole, part in zip(total, torch.autograd.grad(new, [*cell], of_part), strict=True):
                whole += part
        return total

    def _parts(self, pairs: torch.Tensor | None, gradient: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the states of children, ``[pairs, 2, 2 * hidden_size]``, and the gradients."""
        numbers = self.children if pairs is None else _rows(self.children, pairs)
        for children, of_part in zip(numbers.split(_PAIRS), gradient.split(_PAIRS), strict=True):
            yield _rows(self.states, children), of_part
