"""The steps of the Ordered Memory between its products, for drivers in C++ and in Triton."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from treemem.engines.affine import Affine
from treemem.engines.printer.driven import DrivenStep
from treemem.networks.gated_cell.equations import GatedCellWeights, gated_recursive_step
from treemem.networks.parsers.ordered_memory.equations import (
    LayerNormScoreWeights,
    OrderedMemoryWeights,
    PlainCellWeights,
    TanhScoreWeights,
    compared,
)

State = dict[str, torch.Tensor]


def _gated_slot(products: State, children: State, gain: torch.Tensor, shift: torch.Tensor) -> State:
    """``C_i`` from what ``W_2`` gives, ``cp_i``, and ``C_(i-1)``, ``M_i`` and ``x``, which are the children."""
    composed = gated_recursive_step(products["map"], children["h"][:, :2], gain, shift)
    return _interpolated(composed, products, children)


def _plain_slot(products: State, children: State) -> State:
    return _interpolated(torch.tanh(products["map"]), products, children)


def _interpolated(composed: torch.Tensor, products: State, children: State) -> State:
    new = children["h"][:, 2]
    return {"h": new + products["cumulative"] * (composed - new)}


def _score(products: State, children: State, weight: torch.Tensor, *norm: torch.Tensor) -> State:
    read = compared(products["key"], products["query"], Affine(*norm) if norm else None)
    return {"score": (functional.dropout(read) * weight).sum(1, keepdim=True)}


def _hidden(products: State, children: State) -> State:
    return {"hidden": functional.dropout(torch.relu(products["inner"]))}


HIDDEN = DrivenStep("HIDDEN_STEP", _hidden, {"inner": 1}, ("hidden",), 0)
"""The hidden layer of the gated cell; its derivative also follows from ``hidden`` in the place of ``inner``."""
STEPS = {
    GatedCellWeights: DrivenStep("SLOT_STEP", _gated_slot, {"map": 4, "cumulative": 0}, "h", 3, learned=2),
    PlainCellWeights: DrivenStep("SLOT_STEP", _plain_slot, {"map": 1, "cumulative": 0}, "h", 3),
    LayerNormScoreWeights: DrivenStep("SCORE_STEP", _score, {"key": 1, "query": 1}, (), 0, 3, ("score",)),
    TanhScoreWeights: DrivenStep("SCORE_STEP", _score, {"key": 1, "query": 1}, (), 0, 1, ("score",)),
}
"""The steps of a composed slot, and of the score of a key."""


WEIGHTS = (
    "*score_weight, *score_bias",  # both divided by the root of hidden_size
    "*key_weight, *key_bias, *key_gain, *key_shift",  # the last three are null if the score has a tanh
    "*weight1, *bias1",
    "*weight2, *bias2, *gain, *shift",  # null if the cell is tanh(W_1 [v; h] + b_1)
)
"""What drivers read of :func:`driven_weights`, as C++ declares it."""


def driven_weights(weights: OrderedMemoryWeights) -> list[torch.Tensor | None]:
    """Return the tensors of :data:`WEIGHTS`."""
    attention, size = weights.attention, len(weights.input.bias)
    score = (values / math.sqrt(size) for values in attention.score)
    if isinstance(attention, TanhScoreWeights):
        key: tuple[torch.Tensor | None, ...] = attention.map.weight[:, :size], None, None, None
    else:
        key = *attention.key, *attention.key_norm
    cell = [tensor for affine in weights.cell for tensor in affine]
    return [*score, *key, *cell, *[None] * (6 - len(cell))]
