"""The step of a gated recursive cell in C++, and in torch with its backward pass written by hand."""

from __future__ import annotations

from pathlib import Path

import torch

from treemem.ops.activation import sigmoid_backward
from treemem.ops.affine import EPSILON
from treemem.ops.cell import State
from treemem.ops.native_levels import NativeStep

_LAYER_NORM_BACKWARD = torch.ops.aten.native_layer_norm_backward

_SOURCE = Path(__file__).with_name("fused.cpp")


def native_gated_recursive(hidden_size: int) -> NativeStep:
    """:func:`treemem.ops.gated_recursive.gated_recursive_step`; its second product is called ``gates``."""
    return NativeStep(_SOURCE, kept_width=hidden_size + 1, learned="norm")


class GatedRecursiveStepPair:
    """:func:`treemem.ops.gated_recursive.gated_recursive_step` as a forward and a backward pass.

    The forward pass turns the preactivations into the gates, in place. The product is called ``gates``.

    Args:
        arity: number of children.
        hidden_size: width of a block.
        gain, bias: of the layer norm, ``[hidden_size]``.
    """

    def __init__(self, arity: int, hidden_size: int, gain: torch.Tensor, bias: torch.Tensor) -> None:
        self._gain, self._bias = gain, bias
        self._children = (arity, hidden_size)
        self._sizes = [arity * hidden_size, hidden_size, hidden_size]
        self._num_gates = (arity + 1) * hidden_size

    def forward(self, products: State, children: State, out: State, kept: State | None) -> None:
        """Write ``h``."""
        blocks, hidden = products["gates"], children["h"]
        blocks[:, : self._num_gates].sigmoid_()
        gates, candidate_gate, candidate = blocks.split_with_sizes(self._sizes, 1)
        mixed = torch.mul(candidate_gate, candidate, out=None if kept is None else kept["mixed"])
        for position, gate in enumerate(gates.unflatten(1, self._children).unbind(1)):
            mixed.addcmul_(gate, hidden[:, position])
        found, mean, rstd = torch.native_layer_norm(mixed, self._gain.shape, self._gain, self._bias, EPSILON)
        out["h"].copy_(found)
        if kept is not None:
            kept["mean"].copy_(mean)
            kept["rstd"].copy_(rstd)

    def backward(
        self, products: State, children: State, states: State, kept: State, memo: None, gradient: State
    ) -> State:
        """Overwrite the gates with the gradients of their preactivations and return those of the children's ``h``."""
        gates, candidate_gate, candidate = products["gates"].split_with_sizes(self._sizes, 1)
        d_mixed = self._layer_norm_backward(kept, gradient, [True, False, False])[0]
        by_child = gates.unflatten(1, self._children)
        d_children = d_mixed[:, None] * by_child
        sigmoid_backward(d_mixed[:, None] * children["h"], by_child, by_child)
        d_candidate_gate = d_mixed * candidate
        torch.mul(d_mixed, candidate_gate, out=candidate)
        sigmoid_backward(d_candidate_gate, candidate_gate, candidate_gate)
        return {"h": d_children}

    def learned_gradients(self, kept: State, gradient: State) -> tuple[torch.Tensor, torch.Tensor]:
        """The gradients of gain and bias."""
        _, d_gain, d_bias = self._layer_norm_backward(kept, gradient, [False, True, True])
        return d_gain, d_bias

    def _layer_norm_backward(self, kept: State, gradient: State, wanted: list[bool]) -> tuple[torch.Tensor, ...]:
        return _LAYER_NORM_BACKWARD(
            gradient["h"],
            kept["mixed"],
            self._gain.shape,
            kept["mean"],
            kept["rstd"],
            self._gain,
            self._bias,
            wanted,
        )
