"""torch's LSTM over packed sequences: in C++ where it can be, and differentiable in evaluation mode too."""

from __future__ import annotations

from itertools import accumulate

import torch
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from treemem.native.second_derivative import refuse_transforms
from treemem.networks.memories.controllers.run import ControllerState, ControllerWeights, run_controller, runs_in_cpp


def run_lstm(
    lstm: torch.nn.LSTM, sequences: PackedSequence, state: tuple[torch.Tensor, ...] | None = None
) -> tuple[PackedSequence, tuple[torch.Tensor, ...]]:
    """Return ``lstm(sequences, state)``. In C++ there is no second derivative.

    Args:
        lstm: the layers.
        sequences: longest first.
        state: ``h`` and ``c`` of all layers and directions where they begin, each ``[layers * directions, sequences,
            hidden_size]``; zeros by default.
    """
    refuse_transforms("an LSTM over the tokens", ", on any engine; use torch.autograd")
    data, batch_sizes = sequences.data, sequences.batch_sizes
    layers, count = lstm.num_layers * (1 + lstm.bidirectional), int(batch_sizes[0])
    plain = type(lstm) is torch.nn.LSTM and lstm.bias and not lstm.proj_size
    fits = state is None or all(tensor.shape == (layers, count, lstm.hidden_size) for tensor in state)
    if plain and fits and not (sequences.sorted_indices is not None or lstm._forward_hooks or lstm._forward_pre_hooks):
        state = (data.new_zeros(layers, count, lstm.hidden_size),) * 2 if state is None else state
        if runs_in_cpp("LSTM", len(data), [data, *lstm.parameters(), *state]):
            return _run_in_cpp(lstm, data, batch_sizes, state)
    if lstm.training or not torch.is_grad_enabled():
        return lstm(sequences, state)
    with torch.backends.cudnn.flags(enabled=False):  # in evaluation mode it keeps nothing for a backward pass
        return lstm(sequences, state)


def _run_in_cpp(
    lstm: torch.nn.LSTM, data: torch.Tensor, batch_sizes: torch.Tensor, state: tuple[torch.Tensor, ...]
) -> tuple[PackedSequence, tuple[torch.Tensor, ...]]:
    sizes = batch_sizes.tolist()
    directions: list[tuple[str, torch.Tensor | None]] = [("", None)]
    if lstm.bidirectional:
        directions.append(("_reverse", _reversal(sizes)))
    firsts, lasts = iter(zip(*state, strict=True)), []
    for layer in range(lstm.num_layers):
        if layer:
            data = functional.dropout(data, lstm.dropout, lstm.training)
        outputs = []
        for suffix, reversal in directions:
            names = (f"{name}_l{layer}{suffix}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
            weights = ControllerWeights.of([getattr(lstm, name) for name in names])
            hidden, cell = next(firsts)
            inputs = data if reversal is None else data.index_select(0, reversal)
            ran = run_controller("LSTM", inputs, sizes, ControllerState.of(hidden, cell), weights)
            outputs.append(ran.states if reversal is None else ran.states.index_select(0, reversal))
            lasts.append((ran.last.hidden, ran.last.cell))
        data = torch.cat(outputs, 1) if len(outputs) > 1 else outputs[0]
    hidden, cell = (torch.stack(states) for states in zip(*lasts, strict=True))
    return PackedSequence(data, batch_sizes), (hidden, cell)


def _reversal(sizes: list[int]) -> torch.Tensor:
    """Return the places of packed elements when each sequence is read from its end; it is its own inverse."""
    starts = torch.tensor([0, *accumulate(sizes)])
    steps = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    rows = torch.arange(int(starts[-1])) - starts[steps]
    lengths = (torch.tensor(sizes)[:, None] > torch.arange(sizes[0])).sum(0)
    return starts[lengths[rows] - 1 - steps] + rows
