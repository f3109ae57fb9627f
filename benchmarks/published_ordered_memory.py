"""The loop of the authors of the Ordered Memory, which the benchmarks compare with."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from treemem.engines.affine import layer_norm, linear
from treemem.engines.sequence_lengths import entry_of_each
from treemem.networks.gated_cell.equations import GatedCellWeights
from treemem.networks.parsers.ordered_memory.equations import Dropouts, LayerNormScoreWeights, OrderedMemoryWeights


class Attention(NamedTuple):
    """``p``, and its sums from the first slot on and from the last one back, each ``[sequences, slots]``."""

    pointers: Tensor
    forward: Tensor
    backward: Tensor


def published_ordered_memory(
    inputs: Tensor, lengths: Tensor, weights: OrderedMemoryWeights, slots: int, rate: float
) -> Tensor:
    """The loop of Shen et al. 2019: all sequences to the end of the longest, slots that any of them reaches.

    Returns:
        The outputs at the last tokens, ``[sequences, hidden_size]``.
    """
    dropouts = Dropouts(rate, rate)
    projected = layer_norm(linear(inputs, weights.input), weights.input_norm)
    memory = candidates = projected.new_zeros(len(inputs), slots, projected.shape[2])
    pointers = projected.new_zeros(len(inputs), slots)
    attention = Attention(pointers, torch.zeros_like(pointers), torch.ones_like(pointers))
    outputs = []
    for step, new in enumerate(projected.unbind(1)):
        if step:
            attention = attend(new, candidates, pointers, weights.attention, dropouts)
        onward = attention.backward[:, :, None]
        memory = memory * (1 - onward) + candidates * onward
        state, composed = new, []
        for slot, reached in enumerate((attention.forward > 0).any(0).tolist()):
            if reached:
                share = attention.forward[:, slot, None]
                state = new * (1 - share) + cell(state, memory[:, slot], weights.cell, dropouts) * share
            composed.append(state)
        candidates, pointers = torch.stack(composed, 1), attention.pointers
        outputs.append(state)
    return entry_of_each(torch.stack(outputs, 1), lengths - 1)


def attend(
    new: Tensor, candidates: Tensor, pointers: Tensor, weights: LayerNormScoreWeights, dropouts: Dropouts
) -> Attention:
    """Return where ``new [sequences, hidden_size]`` goes, from what the step before left."""
    query = layer_norm(linear(dropped(new, dropouts.memory), weights.query), weights.query_norm)
    key = layer_norm(linear(dropped(candidates, dropouts.memory), weights.key), weights.key_norm)
    compared = dropped(torch.relu(query[:, None] + key), dropouts.memory)
    scores = linear(compared, weights.score).squeeze(2) / math.sqrt(new.shape[1])
    reach = pointers.cumsum(1)[:, 1:]
    reach = reach.masked_fill(reach < 1e-5, 0)
    mask = torch.cat([reach, torch.ones_like(pointers[:, :1])], 1)
    within = torch.exp(scores - scores.amax(1, keepdim=True)) * mask
    pointers = within / within.sum(1, keepdim=True).clamp(min=1e-12)
    return Attention(pointers, pointers.cumsum(1), pointers.flip(1).cumsum(1).flip(1))


def cell(vertical: Tensor, horizontal: Tensor, weights: GatedCellWeights, dropouts: Dropouts) -> Tensor:
    """Return what two elements, ``[sequences, hidden_size]``, compose to."""
    both = dropped(torch.cat([vertical, horizontal], 1), dropouts.cell)
    gates = linear(dropped(torch.relu(linear(both, weights.hidden)), dropouts.cell), weights.gates)
    of_vertical, of_horizontal, of_candidate, candidate = gates.chunk(4, 1)
    mixed = of_vertical.sigmoid() * vertical + of_horizontal.sigmoid() * horizontal + of_candidate.sigmoid() * candidate
    return layer_norm(mixed, weights.norm)


def dropped(values: Tensor, rate: float) -> Tensor:
    """Return the values, each dropped with the probability ``rate``."""
    return functional.dropout(values, rate) if rate else values
