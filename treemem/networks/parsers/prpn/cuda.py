"""The reading network of a PRPN on CUDA: all steps of a layer in one launch of a Triton kernel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from treemem.engines.affine import Affine
from treemem.engines.cuda.choice import runs_kernels
from treemem.engines.cuda.launcher import launcher
from treemem.engines.cuda.row_steps import RowStep
from treemem.engines.printer.driven import DrivenStep
from treemem.engines.printer.triton_layout import block_of, power_of_2
from treemem.native.run import NativeRun, Tensors, own_gradient, run_native
from treemem.networks.parsers.prpn.equations import ReaderWeights, gated_softmax, reader_step

State = dict[str, torch.Tensor]

_LARGEST = 2 << 20
"""Bytes of weights that a program may read at each step, from caches."""
_NARROWEST = 5  # numbers of a vector in a trace
_NUMBERS = 8192  # of a block of slots, or of a part of a weight


def _softmax(products: State, children: State) -> State:
    return {"weight": gated_softmax(products["scores"], products["gate"])}


def _step(products: State, children: State, *learned: torch.Tensor) -> State:
    hidden_norm = Affine(torch.cat(learned[:4]), torch.cat(learned[4:8]))
    cell = children["c"].squeeze(1)
    states = reader_step(products["of_input"], products["recurrent"], cell, hidden_norm, Affine(*learned[8:]))
    return dict(zip("hc", states, strict=True))


_SOFTMAX = RowStep(DrivenStep("SOFTMAX_STEP", _softmax, {"scores": 1, "gate": 1}, ("weight",), 0))


@cache
def _reader(size: int) -> RowStep:
    """The step of the cell, whose norms have a root of the width."""
    return RowStep(DrivenStep("READER_STEP", _step, {"of_input": 4, "recurrent": 4}, "hc", 1, 10, width=size))


def cuda_layer(
    of_gates: torch.Tensor,
    of_keys: torch.Tensor,
    gates: torch.Tensor,
    memory: torch.Tensor,
    weights: ReaderWeights,
    recurrent_mask: torch.Tensor | None = None,
) -> torch.Tensor | None:
    """Return what ``read_layer`` does, or None if kernels cannot be used."""
    hidden_weight, bias = weights.hidden
    tensors = [of_gates, of_keys, gates, memory, weights.key, hidden_weight, bias, *weights.hidden_norm]
    tensors += weights.cell_norm
    size, slots = weights.key.shape[0], gates.shape[2]
    is_small = size < _NARROWEST or not gates.numel()
    large = 5 * weights.key.numel() * weights.key.element_size() > _LARGEST
    if large or block_of(size) * power_of_2(slots) > _NUMBERS or is_small or not runs_kernels(tensors):
        return None
    tensors[5] = hidden_weight if recurrent_mask is None else hidden_weight * recurrent_mask
    (history,) = run_native(_Reading(), *tensors)
    result: torch.Tensor = history
    return result


class _Reading(NativeRun):
    """One run of a layer."""

    refusal = None

    def forward(self, tensors: Any) -> tuple[tuple[torch.Tensor, ...], Tensors]:
        """The history of all sequences."""
        from treemem.networks.parsers.prpn.kernels import read

        of_gates, of_keys, gates, memory, *weights = tensors
        sequences, longest, size = of_keys.shape
        history = memory.new_empty(sequences, memory.shape[1] + longest, 2 * size)
        history[:, : memory.shape[1]] = memory
        keys, selected, recurrent = torch.empty_like(of_keys), torch.empty_like(of_keys), torch.empty_like(of_gates)
        scale = memory.new_full((1,), size**-0.5)
        arguments = of_gates, of_keys, gates, *weights, history, keys, selected, recurrent, longest, scale
        known = constants("read", size, memory.shape[1])
        launcher().launch(read, (sequences,), *arguments, **known)
        return (history,), [of_gates, gates, *weights, history, keys, selected, recurrent, scale]

    def backward(self, kept: Any, gradients: Tensors, wanted: Sequence[bool]) -> Tensors:
        """The gradients of all tensors."""
        from treemem.networks.parsers.prpn.kernels import read_backward

        of_gates, gates, key, hidden, _, *norms, history, keys, selected, recurrent, scale = kept
        sequences, longest, size = keys.shape
        slots = gates.shape[2]
        d_history = own_gradient(gradients[0], history)
        d_of_gates, d_keys, d_gates, d_recurrent = map(torch.empty_like, (of_gates, keys, gates, recurrent))
        d_learned = keys.new_zeros(sequences, 10, size)
        known = constants("read_backward", size, slots)
        read = of_gates, gates, key, hidden, *norms, history, keys, recurrent
        set_here = d_history, d_of_gates, d_keys, d_gates, d_recurrent, d_learned
        launcher().launch(read_backward, (sequences,), *read, *set_here, longest, scale, **known)
        before = history[:, slots - 1 : slots - 1 + longest, :size].flatten(0, 1)
        d_key = d_keys.flatten(0, 1).t() @ before
        of_hidden = d_recurrent.flatten(0, 1)
        d_norms = d_learned.sum(0)
        of_norms = d_norms[:4].flatten(), d_norms[4:8].flatten(), d_norms[8], d_norms[9]
        d_hidden = of_hidden.t() @ selected.flatten(0, 1), of_hidden.sum(0)
        return [d_of_gates, d_keys, d_gates, d_history[:, :slots], d_key, *d_hidden, *of_norms]


def constants(kernel: str, size: int, slots: int) -> dict[str, Any]:
    """Return what is known when a kernel of ``kernels.py`` is compiled."""
    block = block_of(size)
    sizes = {"H": size, "K": slots, "BLOCK": block, "SLOTS": power_of_2(slots), "TILE": _NUMBERS // block}
    steps = {"SOFTMAX": _SOFTMAX.step}
    if kernel == "read":
        return {**sizes, **steps, "STEP": _reader(size).step}
    backward = {"SOFTMAX_BACKWARD": _SOFTMAX.step_backward, "STEP_BACKWARD": _reader(size).step_backward}
    return {**sizes, **steps, **backward}
