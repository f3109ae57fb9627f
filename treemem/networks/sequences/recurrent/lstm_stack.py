"""Layers of LSTM with locked dropout between them and dropout of the recurrent weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from treemem.checked_options import checked_count, checked_probability
from treemem.data.token_batch import whole_numbers
from treemem.device_copy import to_device
from treemem.engines.sequence_lengths import Packing, within
from treemem.errors import GraphError, RecipeError
from treemem.networks.memories.controllers.run import ControllerState, ControllerWeights, run_controller, runs_in_cpp
from treemem.networks.resettable import Resettable
from treemem.networks.sequences.locked_dropout import locked_dropout

LSTMState = tuple[torch.Tensor, torch.Tensor]
"""``h`` and ``c`` of a layer, each ``[sequences, size of the layer]``."""


class LSTMStackOutputs(NamedTuple):
    """What came of a run of a stack of LSTM layers over sequences.

    Attributes:
        h: the outputs of the last layer, ``[sequences, longest, its size]``, 0 after the end of shorter sequences.
        state: of each layer after the last token of each sequence.
    """

    h: torch.Tensor
    state: list[LSTMState]


class LSTMStack(Resettable):
    """Layers of torch's LSTM, one on the other, as in AWD-LSTM (Merity et al. 2018).

    Args:
        input_size: width of the vectors.
        layer_sizes: width of each layer's ``h``.
        dropout: probability that an entry of what a layer hands to the next is dropped, one draw a sequence.
        weight_dropout: probability that an entry of the weights of ``h`` is dropped, one draw a run; those that stay
            are divided by ``1 - weight_dropout``.

    Raises:
        RecipeError: an option outside its range.
    """

    def __init__(
        self, input_size: int, layer_sizes: Sequence[int], *, dropout: float = 0.0, weight_dropout: float = 0.0
    ) -> None:
        super().__init__()
        if not layer_sizes:
            raise RecipeError("layer_sizes needs the size of at least one layer")
        self.layer_sizes = [checked_count("the size of a layer", size) for size in layer_sizes]
        self.dropout = checked_probability("dropout", dropout)
        self.weight_dropout = checked_probability("weight_dropout", weight_dropout)
        before = [checked_count("input_size", input_size), *self.layer_sizes]
        self.layers = torch.nn.ModuleList(
            torch.nn.LSTM(width, size) for width, size in zip(before, self.layer_sizes, strict=False)
        )

    def forward(
        self, inputs: torch.Tensor, lengths: torch.Tensor, state: Sequence[LSTMState] | None = None
    ) -> LSTMStackOutputs:
        """Run over sequences of vectors.

        Args:
            inputs: ``[sequences, longest, input_size]``, on the right of each sequence padding of any content.
            lengths: int64 ``[sequences]``, 0 to ``longest``.
            state: of each layer, where to begin; zero by default.

        Raises:
            GraphError: a state of another number of layers, or lengths that are not whole numbers.
        """
        if state is None:
            zeros = [inputs.new_zeros(len(inputs), size) for size in self.layer_sizes]
            state = [(zero, zero) for zero in zeros]
        if len(state) != len(self.layers):
            raise GraphError(f"a stack of {len(self.layers)} layers needs a pair (h, c) for each, not {len(state)}")
        longest, dtype, lengths = inputs.shape[1], inputs.dtype, whole_numbers("lengths", lengths.cpu())
        present = to_device(within(lengths, longest)[..., None], inputs.device)
        is_empty = to_device(lengths[:, None] == 0, inputs.device)
        is_packed = bool((lengths < longest).any())
        packing = Packing(lengths.clamp(min=1), longest, inputs.device) if is_packed and longest else None
        if packing is not None:
            inputs = inputs.masked_fill(~present, 0)  # of an empty sequence, which is read as one token
        final: list[LSTMState] = []
        for number, (layer, own) in enumerate(zip(self.layers, state, strict=True)):
            if number:
                inputs = locked_dropout(inputs, self.dropout, self.training)
            inputs, after = self._run(layer, inputs, packing, own)  # type: ignore[arg-type]
            inputs = inputs.to(dtype) * present  # autocast may have lowered them
            hidden, cell = (torch.where(is_empty, old, new.to(dtype)) for old, new in zip(own, after, strict=True))
            final.append((hidden, cell))
        return LSTMStackOutputs(inputs, final)

    def _run(
        self, layer: torch.nn.LSTM, inputs: torch.Tensor, packing: Packing | None, state: LSTMState
    ) -> tuple[torch.Tensor, LSTMState]:
        own: Any = layer
        of_hidden = functional.dropout(own.weight_hh_l0, self.weight_dropout, self.training)
        weights = [own.weight_ih_l0, of_hidden, own.bias_ih_l0, own.bias_hh_l0]
        differentiable = self.training or torch.is_grad_enabled()  # cuDNN keeps nothing for a backward pass otherwise
        if not inputs.shape[1]:
            return inputs.new_zeros(len(inputs), 0, layer.hidden_size), state
        if packing is None:
            first = [each[None] for each in state]
            h, hidden, cell = torch.lstm(inputs, first, weights, True, 1, 0.0, differentiable, False, True)
            return h, (hidden[0], cell[0])
        order = to_device(packing.order, inputs.device)
        back = order.argsort()
        hidden, cell = (each.index_select(0, order) for each in state)
        packed = packing.packed(inputs)
        if runs_in_cpp("LSTM", len(packed), [packed, hidden, cell, *weights]):
            begin = ControllerState.of(hidden, cell)
            found = run_controller("LSTM", packed, packing.sizes, begin, ControllerWeights.of(weights))
            h, hidden, cell = found.states, found.last.hidden, found.last.cell
        else:
            sizes = torch.tensor(packing.sizes)
            h, hidden, cell = torch.lstm(
                packed, sizes, [hidden[None], cell[None]], weights, True, 1, 0.0, differentiable, False
            )
            hidden, cell = hidden[0], cell[0]
        return packing.padded(h), (hidden.index_select(0, back), cell.index_select(0, back))
