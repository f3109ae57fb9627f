"""The steps of an ON-LSTM on CUDA: of each step one product of torch's BLAS and one kernel, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from treemem.engines.cuda.choice import runs_kernels
from treemem.engines.cuda.launcher import launcher
from treemem.engines.cuda.row_steps import RowStep
from treemem.engines.printer.triton_layout import power_of_2
from treemem.engines.sequence_lengths import of_step_before
from treemem.native.run import NativeRun, Tensors, own_gradient
from treemem.networks.parsers.on_lstm.equations import PRINTED

_LARGEST = 4096  # numbers of a row's units in a program, as a block
_MASTERS, _UNITS = map(RowStep, PRINTED)


class CudaSteps(NativeRun):
    """The same as ``naive_steps``.

    Args:
        sizes: how many sequences each step has.
        chunk_size: adjacent units that share a master unit.
        differentiable: whether there will be a backward pass.
    """

    refusal = None

    def __init__(self, sizes: list[int], chunk_size: int, differentiable: bool) -> None:
        self._sizes, self._chunk_size, self._differentiable = sizes, chunk_size, differentiable

    @classmethod
    def runs(cls, tensors: Sequence[torch.Tensor], chunk_size: int) -> bool:
        """Return whether kernels take the steps; ``tensors`` are all that they read, the last one by ``h``."""
        masters = tensors[-1].shape[1] // chunk_size
        return power_of_2(masters) * power_of_2(chunk_size) <= _LARGEST and runs_kernels(tensors)

    def forward(self, tensors: Any) -> tuple[Sequence[torch.Tensor], Tensors]:
        """``h`` and the master gates of all tokens, step after step, and the last ``h`` and ``c`` of each row."""
        from treemem.networks.parsers.on_lstm.kernels import step

        inputs, hidden, cell, input_weight, bias, hidden_weight = tensors
        known, recurrent = constants(hidden.shape[1], self._chunk_size, "step"), hidden_weight.t()
        last = [state.clone() for state in (hidden, cell)]
        blocks = functional.linear(inputs, input_weight, bias)
        states, cells = (inputs.new_empty(len(inputs), hidden.shape[1]) for _ in range(2))
        masters = inputs.new_empty(len(inputs), 2, hidden.shape[1] // self._chunk_size)
        steps = zip(*(of_tokens.split(self._sizes) for of_tokens in (blocks, masters, states, cells)), strict=True)
        going_on = [*self._sizes, 0][1:]
        h, c = hidden, cell
        for size, then, (block, gates, *of_step) in zip(self._sizes, going_on, steps, strict=True):
            block.addmm_(h[:size], recurrent)
            launcher().launch(step, (size,), block, c, gates, *of_step, *last, then, **known)
            h, c = of_step
        kept = [inputs, hidden, cell, input_weight, hidden_weight, blocks, masters, states, cells]
        return [states, masters, *last], kept if self._differentiable else []

    def backward(self, kept: Any, gradients: Tensors, wanted: Sequence[bool]) -> Tensors:
        """The gradients of the inputs, the initial states and the weights."""
        from treemem.networks.parsers.on_lstm.kernels import step_backward

        inputs, hidden, cell, input_weight, hidden_weight, blocks, masters, states, cells = kept
        known = constants(hidden.shape[1], self._chunk_size, "step_backward")
        d_states, _, *d_last = gradients
        d_hidden, d_cell = (own_gradient(gradient, hidden) for gradient in d_last)
        d_blocks = torch.empty_like(blocks)
        from_outside = [None] * len(self._sizes) if d_states is None else d_states.contiguous().split(self._sizes)
        steps = zip(*(of_tokens.split(self._sizes) for of_tokens in (blocks, masters, cells, d_blocks)), strict=True)
        before = [cell, *cells.split(self._sizes)]
        for t, (block, gates, c, d_block) in reversed([*enumerate(steps)]):
            size = len(block)
            tensors = block, before[t], gates, c, from_outside[t], d_hidden, d_cell, d_block
            launcher().launch(step_backward, (size,), *tensors, **known)
            torch.mm(d_block, hidden_weight, out=d_hidden[:size])
        by_column = d_blocks.t()
        previous = of_step_before(hidden, states, self._sizes)
        of_maps = by_column @ inputs, d_blocks.sum(0), by_column @ previous
        return [d_blocks @ input_weight, d_hidden, d_cell, *of_maps]


def constants(hidden_size: int, chunk_size: int, kernel: str) -> dict[str, Any]:
    """Return what is known when a kernel, ``step`` or ``step_backward``, is compiled."""
    masters = hidden_size // chunk_size
    of_blocks = {"MASTERS": power_of_2(masters), "UNITS": power_of_2(chunk_size)}
    steps = {"OF_MASTERS": _MASTERS.kernels[kernel], "OF_UNITS": _UNITS.kernels[kernel]}
    return {"M": masters, "CHUNK": chunk_size, **of_blocks, **steps}
