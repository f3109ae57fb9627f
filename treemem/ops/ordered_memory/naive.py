"""The Ordered Memory step by step and slot by slot, as its equations say."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch.nn import functional

from treemem.ops.affine import layer_norm, linear
from treemem.ops.gated_recursive import GatedCellWeights
from treemem.ops.ordered_memory.weights import NO_DROPOUT, THRESHOLD, Dropouts, OrderedMemoryWeights, PlainCellWeights


class Attention(NamedTuple):
    """Where a new element goes, each ``[sequences, slots]``.

    Attributes:
        pointers: ``p``, the probability of each slot.
        forward: ``cp_i``, the sum of ``p_j`` over ``j <= i``.
        backward: ``rcp_i``, the sum of ``p_j`` over ``j >= i``.
    """

    pointers: torch.Tensor
    forward: torch.Tensor
    backward: torch.Tensor


class NaiveSteps(NamedTuple):
    """Everything that happened, step after step, each ``[sequences, longest, ...]``.

    Attributes:
        projected: the inputs as they enter the memory, ``[..., hidden_size]``.
        forward, backward, raw_pointers: of the attention, at padding too, ``[..., slots]``.
        pointers: 0 at padding, ``[..., slots]``.
        memory, candidates: after the step, 0 at padding, ``[..., slots, hidden_size]``.
        outputs: the candidate of the last slot, ``[..., hidden_size]``.
    """

    projected: torch.Tensor
    forward: torch.Tensor
    backward: torch.Tensor
    raw_pointers: torch.Tensor
    pointers: torch.Tensor
    memory: torch.Tensor
    candidates: torch.Tensor
    outputs: torch.Tensor


def naive_steps(
    inputs: torch.Tensor,
    present: torch.Tensor,
    weights: OrderedMemoryWeights,
    slots: int,
    dropouts: Dropouts = NO_DROPOUT,
) -> NaiveSteps:
    """The Ordered Memory of Shen et al. 2019, as the authors' code runs it, over padded sequences.

    The last slot is the one that ends up holding the whole sequence. At each step, with ``x = LN(W x_t + b)``::

        M_i = M_i (1 - rcp_i) + C_i rcp_i           what was composed before becomes memory, from the pointer on
        C_i = x (1 - cp_i) + cell(C_(i-1), M_i) cp_i     C_0 = x; composed from the pointer on

    where ``cp`` and ``rcp`` come from :func:`attend`, and ``C_i`` on the right of the first line are those of the step
    before. ``M`` and ``C`` start at 0. In the very first step of the batch there is nothing to attend to: ``cp = 0``,
    ``rcp = 1``, ``p = 0``.

    After a step that is padding for a sequence its ``M``, ``C``, ``p`` and output are 0. A sequence that begins after
    padding therefore attends, with its first element, to the last slot, which is empty: it begins with
    ``cell(x, 0)`` and not with ``x``.

    Args:
        inputs: ``[sequences, longest, input_size]``.
        present: bool ``[sequences, longest]``, False at padding, on either side.
        weights: of all maps.
        slots: how many there are.
        dropouts: draws anew at each step and slot.
    """
    num_sequences, longest = present.shape
    projected = layer_norm(linear(inputs, weights.input), weights.input_norm)
    memory = candidates = projected.new_zeros(num_sequences, slots, projected.shape[2])
    attention: Attention | None = None
    pointers = projected.new_zeros(num_sequences, slots)
    steps = []
    for step in range(longest):
        new = projected[:, step]
        if attention is None:
            attention = Attention(pointers, torch.zeros_like(pointers), torch.ones_like(pointers))
        else:
            attention = attend(new, candidates, pointers, weights, dropouts)
        onward = attention.backward[:, :, None]
        memory = memory * (1 - onward) + candidates * onward
        state, composed = new, []
        for slot in range(slots):
            share = attention.forward[:, slot, None]
            state = new * (1 - share) + cell(state, memory[:, slot], weights.cell, dropouts) * share
            composed.append(state)
        padding = ~present[:, step, None]
        pointers = attention.pointers.masked_fill(padding, 0)
        memory = memory.masked_fill(padding[:, :, None], 0)
        candidates = torch.stack(composed, 1).masked_fill(padding[:, :, None], 0)
        raw, forward, backward = attention
        steps.append((new, forward, backward, raw, pointers, memory, candidates, candidates[:, -1]))
    if not steps:
        none, none_held = pointers[:, None][:, :0], memory[:, None][:, :0]
        return NaiveSteps(projected, none, none, none, none, none_held, none_held, projected)
    return NaiveSteps(*(torch.stack(values, 1) for values in zip(*steps, strict=True)))


def attend(
    new: torch.Tensor,
    candidates: torch.Tensor,
    pointers: torch.Tensor,
    weights: OrderedMemoryWeights,
    dropouts: Dropouts = NO_DROPOUT,
) -> Attention:
    """The stick-breaking-like attention: one slot below the last pointer at the deepest.

    ``m_i`` is the sum of the last ``p_j`` over ``j <= i + 1``, 0 where that is less than 1e-5, and 1 for the last slot;
    ``p_i = e_i m_i / max(sum_j e_j m_j, 1e-12)``, ``e_i = exp(b_i - max_j b_j)``, ``b`` from :func:`slot_scores`.

    Args:
        new: ``x``, ``[sequences, hidden_size]``.
        candidates: ``C`` of the step before, ``[sequences, slots, hidden_size]``.
        pointers: ``p`` of the step before, ``[sequences, slots]``.
        weights: of all maps.
        dropouts: of the memory.
    """
    scores = slot_scores(new, candidates, weights, dropouts)
    reach = pointers.cumsum(1)[:, 1:]
    reach = reach.masked_fill(reach < THRESHOLD, 0)
    mask = torch.cat([reach, torch.ones_like(pointers[:, :1])], 1)
    within = torch.exp(scores - scores.amax(1, keepdim=True)) * mask
    pointers = within / within.sum(1, keepdim=True).clamp(min=1e-12)
    return Attention(pointers, pointers.cumsum(1), pointers.flip(1).cumsum(1).flip(1))


def slot_scores(
    new: torch.Tensor,
    candidates: torch.Tensor,
    weights: OrderedMemoryWeights,
    dropouts: Dropouts = NO_DROPOUT,
) -> torch.Tensor:
    """``(w . drop(relu(LN_q(W_q drop(x) + b_q) + LN_k(W_k drop(C_i) + b_k))) + b) / sqrt(hidden_size)``.

    Returns:
        ``[sequences, slots]``.
    """
    query = layer_norm(linear(dropped(new, dropouts.memory), weights.query), weights.query_norm)
    key = layer_norm(linear(dropped(candidates, dropouts.memory), weights.key), weights.key_norm)
    compared = dropped(torch.relu(query[:, None] + key), dropouts.memory)
    return linear(compared, weights.score).squeeze(2) / math.sqrt(new.shape[1])


def cell(
    vertical: torch.Tensor,
    horizontal: torch.Tensor,
    weights: GatedCellWeights | PlainCellWeights,
    dropouts: Dropouts = NO_DROPOUT,
) -> torch.Tensor:
    """What two elements compose to.

    Gated: ``a, b, c, u = W_2 drop(relu(W_1 drop([v; h]) + b_1)) + b_2``,
    ``LN(sigmoid(a) * v + sigmoid(b) * h + sigmoid(c) * u)``. Without gates: ``tanh(W drop([v; h]) + b)``.

    Args:
        vertical: ``v``, the new side, ``[sequences, hidden_size]``.
        horizontal: ``h``, the memory's side, ``[sequences, hidden_size]``.
        weights: which also say which cell it is.
        dropouts: of the cell.
    """
    both = dropped(torch.cat([vertical, horizontal], 1), dropouts.cell)
    if isinstance(weights, PlainCellWeights):
        return torch.tanh(linear(both, weights.map))
    gates = linear(dropped(torch.relu(linear(both, weights.hidden)), dropouts.cell), weights.gates)
    of_vertical, of_horizontal, of_candidate, candidate = gates.chunk(4, 1)
    mixed = of_vertical.sigmoid() * vertical + of_horizontal.sigmoid() * horizontal + of_candidate.sigmoid() * candidate
    return layer_norm(mixed, weights.norm)


def dropped(values: torch.Tensor, rate: float) -> torch.Tensor:
    """The values, each dropped with the probability ``rate``."""
    return functional.dropout(values, rate) if rate else values
