"""Weights and results of an inside and an outside pass."""

from __future__ import annotations

from typing import NamedTuple

import torch

from treemem.ops.affine import Affine


class MLPWeights(NamedTuple):
    """``relu(W_1 relu(W_0 [l; r] + b_0) + b_1)``.

    Attributes:
        hidden: ``W_0``, ``[hidden_size, 2 * hidden_size]``.
        output: ``W_1``, ``[hidden_size, hidden_size]``.
    """

    hidden: Affine
    output: Affine


class TreeLSTMWeights(NamedTuple):
    """A Tree-LSTM over two children.

    Attributes:
        hidden: of candidate, input gate, output gate and the two forget gates, ``[5 * hidden_size, 2 * hidden_size]``.
        forget_bias: is added to the bias of the forget gates.
    """

    hidden: Affine
    forget_bias: float


class PassWeights(NamedTuple):
    """Weights of one pass.

    Attributes:
        cell: composes two vectors.
        score: the matrix ``S`` of the score ``l . S r``, ``[hidden_size, hidden_size]``.
    """

    cell: MLPWeights | TreeLSTMWeights
    score: torch.Tensor


class DIORAWeights(NamedTuple):
    """All weights above the leaves.

    Attributes:
        inside: of the inside pass.
        outside: of the outside pass; None: there is none.
        root: outside ``h`` and ``c`` of the whole sequence before they are normalised, ``[2, hidden_size]``.
    """

    inside: PassWeights
    outside: PassWeights | None
    root: torch.Tensor


class Chart(NamedTuple):
    """All spans: ``[i, j]`` are the tokens from ``i`` to before ``j``. Where ``j <= i`` it is 0.

    Attributes:
        h, c: ``[longest, longest + 1, sequences, hidden_size]``.
        score: ``[longest, longest + 1, sequences]``.
    """

    h: torch.Tensor
    c: torch.Tensor
    score: torch.Tensor


class Charts(NamedTuple):
    """What the passes compute.

    Attributes:
        inside: spans beyond the end of a shorter sequence have any finite content.
        outside: 0 beyond the end of a shorter sequence; None without an outside pass.
        scores: of the split ``[i, i + k]``, ``[i + k, j]`` at ``[i, j, k]``, ``[longest, longest + 1, longest,
            sequences]``, without gradients; content as of ``inside``. Empty if it was not asked for.
    """

    inside: Chart
    outside: Chart | None
    scores: torch.Tensor


SHORTEST = 1e-8
"""A vector shorter than this is divided by this to normalise it."""


def unit(values: torch.Tensor) -> torch.Tensor:
    """Return vectors divided by their lengths, or by ``SHORTEST``."""
    return values / values.norm(dim=-1, keepdim=True).clamp(min=SHORTEST)


def empty_chart(like: torch.Tensor) -> Chart:
    """Return zeros for leaves ``[2, sequences, longest, hidden_size]``."""
    _, sequences, longest, size = like.shape
    h, c = (like.new_zeros(longest, longest + 1, sequences, size) for _ in range(2))
    return Chart(h, c, like.new_zeros(longest, longest + 1, sequences))
