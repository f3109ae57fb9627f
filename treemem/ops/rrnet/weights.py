"""Weights of the Recurrent-Recursive Network, and its policy."""

from __future__ import annotations

from typing import NamedTuple

import torch

from treemem.ops.affine import Affine, layer_norm, linear


class PolicyWeights(NamedTuple):
    """Of what chooses transitions.

    Attributes:
        hidden: of the next token and the ``h`` of the two topmost nodes, ``[policy_size, 3 * hidden_size]``.
        norm: of the hidden layer.
        transition: the logits of shift and reduce, ``[2, policy_size]``.
    """

    hidden: Affine
    norm: Affine
    transition: Affine

    def logits(self, read: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[..., 2]`` of ``[..., 3 * hidden_size]``."""
        return linear(layer_norm(linear(read, self.hidden), self.norm).tanh(), self.transition)


class RRNetWeights(NamedTuple):
    """All weights.

    Attributes:
        inputs: of a token or of the ``h`` of a constituent, in blocks input, forget, update, output,
            ``[4 * hidden_size, hidden_size]``.
        hidden: of the last ``h``, ``[4 * hidden_size, hidden_size]``.
        policy: None: transitions are given.
    """

    inputs: Affine
    hidden: torch.Tensor
    policy: PolicyWeights | None
