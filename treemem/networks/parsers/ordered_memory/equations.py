"""The Ordered Memory over packed sequences, step by step and slot by slot, as its equations say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch.nn import functional

from treemem.engines.affine import Affine, layer_norm, linear
from treemem.native.second_derivative import active_transforms
from treemem.networks.gated_cell.equations import GatedCellWeights

THRESHOLD = 1e-5
"""Slots with less cumulative probability than this are out of reach of the next attention."""


class PlainCellWeights(NamedTuple):
    """Of the recursive cell without gates.

    Attributes:
        map: ``W``, ``[hidden_size, 2 * hidden_size]``, of ``[vertical; horizontal]``.
    """

    map: Affine


class LayerNormScoreWeights(NamedTuple):
    """Of the published code's score, ``w . relu(LN_q(W_q x + b_q) + LN_k(W_k C_i + b_k)) + b``.

    Attributes:
        query, key: ``[hidden_size, hidden_size]``.
        query_norm, key_norm: ``[hidden_size]``.
        score: ``w`` and ``b``, ``[1, hidden_size]``.
    """

    query: Affine
    query_norm: Affine
    key: Affine
    key_norm: Affine
    score: Affine


class TanhScoreWeights(NamedTuple):
    """Of the paper's score, ``w . tanh(W [C_i; x] + b_1) + b_2`` (eq. 8).

    Attributes:
        map: ``W`` and ``b_1``, ``[hidden_size, 2 * hidden_size]``.
        score: ``w`` and ``b_2``, ``[1, hidden_size]``.
    """

    map: Affine
    score: Affine


class OrderedMemoryWeights(NamedTuple):
    """All weights of one direction.

    Attributes:
        input: ``[hidden_size, input_size]``.
        input_norm: ``[hidden_size]``; the gated cell has the same.
        attention: of either score.
        cell: of either cell; of the gated one, the first child is the vertical one.
    """

    input: Affine
    input_norm: Affine
    attention: LayerNormScoreWeights | TanhScoreWeights
    cell: GatedCellWeights | PlainCellWeights


class Dropouts(NamedTuple):
    """Probabilities that an entry is dropped; 0 outside training.

    Attributes:
        cell: of what each linear map of the cell reads.
        memory: of what the maps of the score read.
    """

    cell: float = 0.0
    memory: float = 0.0


NO_DROPOUT = Dropouts()


BELOW_THRESHOLD = math.nextafter(THRESHOLD, 0.0)  # `threshold` keeps what is above, the equations what is not below


class Attention(NamedTuple):
    """Where a new element goes, each ``[slots, sequences]``.

    Attributes:
        pointers: ``p``, the probability of each slot.
        cumulative: ``cp_i``, the sum of ``p_j`` over ``j <= i``.
    """

    pointers: torch.Tensor
    cumulative: torch.Tensor

    @classmethod
    def of(cls, pointers: torch.Tensor) -> Attention:
        """Sum the pointers up."""
        return cls(pointers, pointers.cumsum(0))

    @property
    def onward(self) -> torch.Tensor:
        """``rcp_i``, the sum of ``p_j`` over ``j >= i``."""
        return self.cumulative[-1] - self.cumulative + self.pointers


class Problem(NamedTuple):
    """What to run.

    Attributes:
        inputs: step after step, ``[tokens, input_size]``.
        sizes: how many sequences each step has; not ascending, none 0.
        begins_empty: bool ``[sequences]``, which sequences begin empty.
        weights: of all maps.
        slots: how many there are.
        dropouts: draws anew at each step and slot.
        skip: a slot with a smaller ``cp`` but the last counts as one with ``cp = 0`` and ``rcp = 1``.
    """

    inputs: torch.Tensor
    sizes: list[int]
    begins_empty: torch.Tensor
    weights: OrderedMemoryWeights
    slots: int
    dropouts: Dropouts = NO_DROPOUT
    skip: float = 0.0


class Step(NamedTuple):
    """What the memory holds after an element, of the sequences that have one.

    Attributes:
        attention: where the element went.
        memory, candidates: ``M`` and ``C``, ``[slots, sequences, hidden_size]``.
    """

    attention: Attention
    memory: torch.Tensor
    candidates: torch.Tensor


def naive_steps(problem: Problem) -> Iterator[Step]:
    """The Ordered Memory of Shen et al. 2019, as the authors' code runs it.

    The last slot is the one that ends up holding the whole sequence. At each step, with ``x = LN(W x_t + b)``::

        M_i = M_i (1 - rcp_i) + C_i rcp_i           what was composed before becomes memory, from the pointer on
        C_i = x (1 - cp_i) + cell(C_(i-1), M_i) cp_i     C_0 = x; composed from the pointer on

    where ``cp`` and ``rcp`` come from :func:`attend`, and ``C_i`` on the right of the first line are those of the step
    before. ``M`` starts at 0. At its first element a sequence has nothing to attend to: ``p = 0``. If it begins empty,
    it attends to the last slot, which is empty: it begins with ``cell(x, 0)`` and not with ``x``.
    """
    inputs, sizes, begins_empty, weights, slots, dropouts, skip = problem
    projected = project(inputs, weights)
    queries = [None, *queries_of(projected[sizes[0] :], weights.attention, dropouts.memory).split(sizes[1:])]
    nothing = projected.new_zeros(slots, sizes[0])
    nothing[-1] = begins_empty
    attention = Attention(nothing, nothing)
    memory = candidates = projected.new_zeros(slots, sizes[0], projected.shape[1])
    for step, (new, query) in enumerate(zip(projected.split(sizes), queries, strict=True)):
        if query is not None:
            memory, candidates, reach = (
                first_of(values, len(new)) for values in (memory, candidates, attention.cumulative)
            )
            attention = attend(query, candidates, reach, weights.attention, dropouts.memory)
        used = without_skipped(attention, skip)
        memory = torch.lerp(memory, candidates, used.onward[:, :, None])
        first = first_reached(used.cumulative, step)
        candidates = compose(new, memory, used.cumulative, weights.cell, first, dropouts.cell)
        yield Step(attention, memory, candidates)


class PackedSteps(NamedTuple):
    """What came of every element.

    Attributes:
        outputs: ``[tokens, hidden_size]``.
        pointers, cumulative: ``p`` and ``cp``, ``[tokens, slots]``; None unless they were asked for.
    """

    outputs: torch.Tensor
    pointers: torch.Tensor | None
    cumulative: torch.Tensor | None


def naive(problem: Problem, trace: bool) -> PackedSteps:
    """Return what :func:`naive_steps` gives for the elements, in their order, with pointers if ``trace``."""
    steps = [(step.candidates[-1], *(step.attention if trace else ())) for step in naive_steps(problem)]
    outputs, *attention = zip(*steps, strict=True)
    pointers, cumulative = (torch.cat(values, 1).t() for values in attention) if trace else (None, None)
    return PackedSteps(torch.cat(outputs), pointers, cumulative)


def first_of(values: torch.Tensor, size: int) -> torch.Tensor:
    """The first ``size`` sequences of ``values [slots, sequences, ...]``, which have not ended."""
    return values if values.shape[1] == size else values[:, :size]


def project(inputs: torch.Tensor, weights: OrderedMemoryWeights) -> torch.Tensor:
    """``x``, the elements as they enter the memory, ``[tokens, hidden_size]``."""
    return layer_norm(linear(inputs, weights.input), weights.input_norm)


def queries_of(
    projected: torch.Tensor, weights: LayerNormScoreWeights | TanhScoreWeights, rate: float = 0.0
) -> torch.Tensor:
    """What the scores read of elements, ``LN_q(W_q drop(x) + b_q)`` or ``W_x drop(x) + b_1``.

    ``W_x`` are the columns of ``W`` for ``x`` in the paper's ``W [C_i; x]``.

    Args:
        projected: ``x``, ``[..., hidden_size]``.
        weights: which also say which score it is.
        rate: of the dropout.

    Returns:
        As ``projected``.
    """
    read = dropped(projected, rate)
    if isinstance(weights, TanhScoreWeights):
        return linear(read, Affine(weights.map.weight[:, projected.shape[-1] :], weights.map.bias))
    return layer_norm(linear(read, weights.query), weights.query_norm)


def slot_scores(
    queries: torch.Tensor,
    candidates: torch.Tensor,
    weights: LayerNormScoreWeights | TanhScoreWeights,
    rate: float = 0.0,
) -> torch.Tensor:
    """``s``, from the queries ``q`` of :func:`queries_of`.

    The published code's is ``(w . drop(relu(q + LN_k(W_k drop(C_i) + b_k))) + b) / sqrt(hidden_size)``, the paper's
    ``(w . drop(tanh(q + W_C drop(C_i))) + b_2) / sqrt(hidden_size)``.

    Args:
        queries: ``[..., hidden_size]``.
        candidates: ``C``, ``[..., hidden_size]``.
        weights: which also say which score it is.
        rate: of the dropout.

    Returns:
        ``[...]``.
    """
    read, size = dropped(candidates, rate), candidates.shape[-1]
    if isinstance(weights, TanhScoreWeights):
        matched = compared(functional.linear(read, weights.map.weight[:, :size]).to(queries.dtype), queries)
    else:
        matched = compared(linear(read, weights.key), queries, weights.key_norm)
    return linear(dropped(matched, rate), weights.score).squeeze(-1) / math.sqrt(size)


def compared(keys: torch.Tensor, queries: torch.Tensor, norm: Affine | None = None) -> torch.Tensor:
    """``relu(q + LN_k(k))``; without a norm ``tanh(q + k)``."""
    return torch.tanh(keys + queries) if norm is None else torch.relu(layer_norm(keys, norm) + queries)


def attend(
    query: torch.Tensor,
    candidates: torch.Tensor,
    cumulative: torch.Tensor,
    weights: LayerNormScoreWeights | TanhScoreWeights,
    rate: float = 0.0,
) -> Attention:
    """The stick-breaking-like attention: one slot below the last pointer at the deepest.

    ``m_i`` is the last ``cp_(i+1)``, 0 where that is less than 1e-5, and 1 for the last slot;
    ``p_i = e_i m_i / max(sum_j e_j m_j, 1e-12)``, ``e_i = exp(s_i - max_j s_j)``, ``s`` from :func:`slot_scores`.

    Args:
        query: of the element, ``[sequences, hidden_size]``.
        candidates: ``C`` of the step before, ``[slots, sequences, hidden_size]``.
        cumulative: ``cp`` of the step before, ``[slots, sequences]``.
        weights: of the scores.
        rate: of the dropout.
    """
    scores = slot_scores(query, candidates, weights, rate)
    reach = torch.cat([cumulative[1:], scores.new_ones(1, len(query))])
    within = torch.exp(scores - scores.amax(0)) * functional.threshold(reach, BELOW_THRESHOLD, 0.0)
    return Attention.of(within / within.sum(0).clamp(min=1e-12))


def without_skipped(attention: Attention, skip: float) -> Attention:
    """Put 0 where a slot but the last has a smaller ``cp`` than ``skip``."""
    if not skip:
        return attention
    skipped = attention.cumulative < skip
    skipped[-1] = False
    return Attention(*(values.masked_fill(skipped, 0) for values in attention))


def first_reached(cumulative: torch.Tensor, step: int) -> int:
    """The first slot whose ``cp`` is not 0 in all sequences, or the last one.

    Other devices than the CPU would wait for the answer, and ``vmap`` has none: there it is the first slot that this
    many elements may have reached, one more with each.

    Args:
        cumulative: ``cp``, ``[slots, sequences]``.
        step: how many elements came before.
    """
    last = len(cumulative) - 1
    if cumulative.device.type != "cpu" or "Vmap" in active_transforms():
        return max(0, last - step)
    return next((slot for slot, any_of in enumerate(cumulative.any(1).tolist()) if any_of), last)


def compose(
    new: torch.Tensor,
    memory: torch.Tensor,
    cumulative: torch.Tensor,
    weights: GatedCellWeights | PlainCellWeights,
    first: int = 0,
    rate: float = 0.0,
) -> torch.Tensor:
    """The candidates ``C``, ``[slots, sequences, hidden_size]``.

    Args:
        new: ``x``, ``[sequences, hidden_size]``.
        memory: ``M``, ``[slots, sequences, hidden_size]``.
        cumulative: ``cp``, ``[slots, sequences]``, 0 below ``first``.
        weights: which also say which cell it is.
        first: the first slot that is composed.
        rate: of the dropout.
    """
    below, shares = memory[first:], cumulative[first:, :, None]
    hidden, size = weights[0], new.shape[1]
    of_held = functional.linear(dropped(below, rate), hidden.weight[:, size:], hidden.bias)  # for all slots
    of_vertical = hidden.weight[:, :size].t()
    state, composed = new, [new] * first
    for token_state, product, horizontal, share in zip(new.expand_as(below), of_held, below, shares, strict=True):
        both = torch.addmm(product, dropped(state, rate), of_vertical).to(new.dtype)
        state = torch.lerp(token_state, cell(both, state, horizontal, weights, rate), share)
        composed.append(state)
    return torch.stack(composed)


def cell(
    both: torch.Tensor,
    vertical: torch.Tensor,
    horizontal: torch.Tensor,
    weights: GatedCellWeights | PlainCellWeights,
    rate: float = 0.0,
) -> torch.Tensor:
    """What two elements compose to.

    Gated: ``a, b, c, u = W_2 drop(relu(W_1 drop([v; h]) + b_1)) + b_2``,
    ``LN(sigmoid(a) * v + sigmoid(b) * h + sigmoid(c) * u)``. Without gates: ``tanh(W drop([v; h]) + b)``.

    Args:
        both: ``W_1 drop([v; h]) + b_1``, ``[sequences, inner_size]``.
        vertical: ``v``, the new side, ``[sequences, hidden_size]``.
        horizontal: ``h``, the memory's side, ``[sequences, hidden_size]``.
        weights: which also say which cell it is.
        rate: of the dropout.
    """
    if isinstance(weights, PlainCellWeights):
        return torch.tanh(both)
    size = vertical.shape[1]
    second = linear(dropped(both.relu_(), rate), weights.gates)
    gates, candidate = second.split([3 * size, size], 1)
    of_vertical, of_horizontal, of_candidate = gates.sigmoid().chunk(3, 1)
    mixed = torch.addcmul(of_vertical * vertical, of_horizontal, horizontal)
    return layer_norm(torch.addcmul(mixed, of_candidate, candidate), weights.norm)


def dropped(values: torch.Tensor, rate: float) -> torch.Tensor:
    """The values, each dropped with the probability ``rate``."""
    return functional.dropout(values, rate) if rate else values
