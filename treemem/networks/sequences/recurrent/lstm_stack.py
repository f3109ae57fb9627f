"""Layers of LSTM with locked dropout between them and dropout of the recurrent weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, starmap
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from treemem.checked_options import checked_count, checked_probability
from treemem.data.token_batch import whole_numbers
from treemem.engines.sequence_lengths import run_packed
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


def checked_sizes(layer_sizes: object) -> list[int]:
    """Return the sizes of layers as a list.

    Raises:
        RecipeError: they are no whole numbers, or no list.
    """
    if not isinstance(layer_sizes, Sequence) or isinstance(layer_sizes, str):
        raise RecipeError(f"layer_sizes must be a list of whole numbers, not {layer_sizes!r}")
    return [checked_count("the size of a layer", size) for size in layer_sizes]


class LayerStack(Resettable):
    """Layers, one on the other, with dropout between them and of the weights of ``h``.

    Args:
        input_size: width of the vectors.
        layer_sizes: width of each layer's ``h``.
        dropout, weight_dropout: probabilities.
        new_layer: makes a layer of what it reads and its width.

    Raises:
        RecipeError: an option outside its range.
    """

    def __init__(
        self,
        input_size: int,
        layer_sizes: Sequence[int],
        dropout: float,
        weight_dropout: float,
        new_layer: Callable[[int, int], torch.nn.Module],
    ) -> None:
        super().__init__()
        self.layer_sizes = checked_sizes(layer_sizes)
        if not self.layer_sizes:
            raise RecipeError("layer_sizes needs the size of at least one layer")
        self.dropout = checked_probability("dropout", dropout)
        self.weight_dropout = checked_probability("weight_dropout", weight_dropout)
        widths = [checked_count("input_size", input_size), *self.layer_sizes]
        self.layers = torch.nn.ModuleList(starmap(new_layer, pairwise(widths)))

    def initial(self, num_sequences: int, like: torch.Tensor | None = None) -> list[LSTMState]:
        """The zero state of each layer, with the type and device of ``like``, or of the weights."""
        like = next(self.parameters()) if like is None else like
        zeros = [like.new_zeros(num_sequences, size) for size in self.layer_sizes]
        return [(zero, zero) for zero in zeros]

    def check_state(self, state: Sequence[LSTMState]) -> None:
        """Make sure that there is a state for each layer.

        Raises:
            GraphError: there is not.
        """
        if len(state) != len(self.layers):
            raise GraphError(f"a stack of {len(self.layers)} layers needs a pair (h, c) for each, not {len(state)}")


class LSTMStack(LayerStack):
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
        super().__init__(input_size, layer_sizes, dropout, weight_dropout, torch.nn.LSTM)

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
        state = self.initial(len(inputs), inputs) if state is None else state
        self.check_state(state)
        dtype, lengths = inputs.dtype, whole_numbers("lengths", lengths.cpu())
        is_packed = bool((lengths < inputs.shape[1]).any()) or not inputs.shape[1]
        final: list[LSTMState] = []
        for number, (layer, layer_state) in enumerate(zip(self.layers, state, strict=True)):
            if number:
                inputs = locked_dropout(inputs, self.dropout, self.training)
            ran = self._run(layer, inputs, lengths if is_packed else None, layer_state)  # type: ignore[arg-type]
            inputs, hidden, cell = (tensor.to(dtype) for tensor in ran)  # autocast may have lowered them
            final.append((hidden, cell))
        return LSTMStackOutputs(inputs, final)

    def _run(
        self, layer: torch.nn.LSTM, inputs: torch.Tensor, lengths: torch.Tensor | None, state: LSTMState
    ) -> tuple[torch.Tensor, ...]:
        lstm: Any = layer
        of_hidden = functional.dropout(lstm.weight_hh_l0, self.weight_dropout, self.training)
        weights = [lstm.weight_ih_l0, of_hidden, lstm.bias_ih_l0, lstm.bias_hh_l0]
        differentiable = self.training or torch.is_grad_enabled()  # cuDNN keeps nothing for a backward pass otherwise
        options = weights, True, 1, 0.0, differentiable, False
        if lengths is None:
            h, hidden, cell = torch.lstm(inputs, [tensor[None] for tensor in state], *options, True)
            return h, hidden[0], cell[0]

        def run(packed: torch.Tensor, sizes: list[int], first: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
            if runs_in_cpp("LSTM", len(packed), [packed, *first, *weights]):
                ran = run_controller("LSTM", packed, sizes, ControllerState.of(*first), ControllerWeights.of(weights))
                return ran.states, ran.last.hidden, ran.last.cell
            h, hidden, cell = torch.lstm(packed, torch.tensor(sizes), [tensor[None] for tensor in first], *options)
            return h, hidden[0], cell[0]

        h, (hidden, cell) = run_packed(run, inputs, lengths, state)
        return h, hidden, cell
