"""The Parsing-Reading-Predict Network: gates from distances, and an LSTM that attends to its own past."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

from treemem.engines.affine import Affine


def slot_gates(
    distance: torch.Tensor, history: torch.Tensor, slots: int, resolution: float, *, hard: bool
) -> torch.Tensor:
    """Return the gate of each slot at each token, the latest slot first, ``[sequences, longest, slots]``.

    With ``x = distance_t - history_(t-k)``, slot ``k`` lets through ``(clip(2 x / resolution + 1, -1, 1) + 1) / 2``,
    or, softly, ``sigmoid(10 x / resolution + 5)``. Its gate is the product of this for the slots up to it: a slot
    behind a token of a larger distance is closed.

    Args:
        distance: ``[sequences, longest]``.
        history: the distances before the first token and at all tokens, infinity where there is none,
            ``[sequences, slots + longest]``.
        slots: how many.
        resolution: see above.
        hard: whether gates become exactly 0 and 1.
    """
    earlier = history.unfold(1, slots, 1)[:, 1:].flip(2)
    difference = (distance[:, :, None] - earlier) / resolution
    through = (functional.hardtanh(2 * difference + 1) + 1) / 2 if hard else torch.sigmoid(10 * difference + 5)
    return through.cumprod(2)


_NORM_EPSILON = 1e-6
_GATE_EPSILON = 1e-8


class ReaderWeights(NamedTuple):
    """What a layer applies to its own states; what it applies to its inputs is computed for all tokens at once.

    Attributes:
        key: ``[hidden_size, hidden_size]``, of the last ``h``.
        hidden: of the ``h`` that was read, in blocks input, forget, update, output, ``[4 * hidden_size, hidden_size]``.
        hidden_norm: its norm.
        cell_norm: of ``c``, ``[hidden_size]``.
    """

    key: torch.Tensor
    hidden: Affine
    hidden_norm: Affine
    cell_norm: Affine


def scaled_norm(values: torch.Tensor, weights: Affine) -> torch.Tensor:
    """Return ``gain * (x - mean(x)) / (deviation(x) + 1e-6) + bias`` with the unbiased deviation of a row."""
    centered = values - values.mean(-1, keepdim=True)
    deviation = torch.linalg.vector_norm(centered, dim=-1, keepdim=True) / (values.shape[-1] - 1) ** 0.5
    return weights.weight * centered / (deviation + _NORM_EPSILON) + weights.bias


def gated_softmax(scores: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """Return ``exp(scores - max(scores))`` times the gate, divided by its sum plus 1e-8, all ``[..., slots]``."""
    gated = (scores - scores.amax(-1, keepdim=True)).exp() * gate
    return gated / (gated.sum(-1, keepdim=True) + _GATE_EPSILON)


def reader_step(
    of_input: torch.Tensor, recurrent: torch.Tensor, selected_cell: torch.Tensor, hidden_norm: Affine, cell_norm: Affine
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``h`` and ``c`` of a token; see :func:`read_layer`.

    Args:
        of_input: what the gates read of the input, ``[sequences, 4 * hidden_size]``.
        recurrent: ``W h' + b``, of the same shape.
        selected_cell: ``c'``, ``[sequences, hidden_size]``.
        hidden_norm, cell_norm: see :class:`ReaderWeights`.
    """
    preactivation = of_input + scaled_norm(recurrent, hidden_norm)
    input_gate, forget_gate, update, output_gate = preactivation.chunk(4, 1)
    cell = forget_gate.sigmoid() * selected_cell + input_gate.sigmoid() * update.tanh()
    return output_gate.sigmoid() * scaled_norm(cell, cell_norm).tanh(), cell


def read_layer(
    of_gates: torch.Tensor,
    of_keys: torch.Tensor,
    gates: torch.Tensor,
    memory: torch.Tensor,
    weights: ReaderWeights,
    recurrent_mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Run a layer over sequences.

    At each token, with a memory of ``h_k, c_k`` of the tokens before::

        key = of_key + U h_(t-1)
        s = gated_softmax(key . h_k / sqrt(hidden_size), gate),  h' = sum_k s_k h_k,  c' = sum_k s_k c_k
        i, f, g, o = of_gates + norm(W h' + b)
        c = sigmoid(f) c' + sigmoid(i) tanh(g),  h = sigmoid(o) tanh(norm(c))

    Args:
        of_gates: what the gates read of the input, ``[sequences, longest, 4 * hidden_size]``.
        of_keys: what the key reads of it, ``[sequences, longest, hidden_size]``.
        gates: of the slots, the latest first, ``[sequences, longest, slots]``.
        memory: ``[h; c]`` of the tokens before the first one, the latest last, ``[sequences, slots, 2 * hidden_size]``.
        weights: of the layer.
        recurrent_mask: by what ``h'`` is multiplied, ``[hidden_size]``.

    Returns:
        ``memory`` and ``[h; c]`` at all tokens, ``[sequences, slots + longest, 2 * hidden_size]``.
    """
    size = memory.shape[2] // 2
    hidden_weight = weights.hidden.weight
    if recurrent_mask is not None:
        hidden_weight = hidden_weight * recurrent_mask
    latest_last = gates.flip(2)
    states = [memory]
    for of_gate, of_key, gate in zip(of_gates.unbind(1), of_keys.unbind(1), latest_last.unbind(1), strict=True):
        key = of_key + memory[:, -1, :size] @ weights.key.t()
        scores = (memory[:, :, :size] @ key[:, :, None]).squeeze(2) / size**0.5
        selected_hidden, selected_cell = (gated_softmax(scores, gate)[:, None] @ memory).squeeze(1).split(size, 1)
        recurrent = torch.addmm(weights.hidden.bias, selected_hidden, hidden_weight.t())
        hidden, cell = reader_step(of_gate, recurrent, selected_cell, weights.hidden_norm, weights.cell_norm)
        states.append(torch.cat([hidden, cell], 1)[:, None])
        memory = torch.cat([memory[:, 1:], states[-1]], 1)
    return torch.cat(states, 1)


def read_back(keys: torch.Tensor, history: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    """Return what each token reads of the tokens before it, ``[sequences, longest, hidden_size]``.

    Args:
        keys: ``[sequences, longest, hidden_size]``.
        history: ``h`` of the tokens before the first one and at all tokens, ``[sequences, slots + longest,
            hidden_size]``.
        gates: of the slots, the latest first, ``[sequences, longest, slots]``.
    """
    longest, slots = gates.shape[1:]
    place = torch.arange(longest, device=keys.device)[:, None] + torch.arange(slots, device=keys.device).flip(0)
    place = place.expand(len(keys), -1, -1)
    scores = (keys @ history.transpose(1, 2)).gather(2, place) / keys.shape[2] ** 0.5
    weight = gated_softmax(scores, gates)
    return scores.new_zeros(len(keys), longest, slots + longest).scatter(2, place, weight) @ history
