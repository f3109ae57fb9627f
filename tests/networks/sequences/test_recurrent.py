"""LSTM layers: what they read and drop, and torch's LSTM in C++ against torch's kernel."""

from __future__ import annotations

import pytest
import torch
from sequence_networks import runs_in_cpp
from torch.nn.utils import prune
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence
from tree_strategies import VOCABULARY

from treemem.native import compile_mode
from treemem.networks.sequences.recurrent.lstm_stack import LSTMStack
from treemem.networks.sequences.recurrent.torch_lstm import run_lstm
from treemem.nn import LSTM
from treemem.ops import compile_steps

LENGTHS = torch.tensor([9, 9, 7, 3, 3, 1])

needs_compiler = pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")


def given(lstm: torch.nn.LSTM) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    count = lstm.num_layers * (1 + lstm.bidirectional)
    inputs = torch.randn(6, 9, 3, dtype=torch.float64).requires_grad_()
    return inputs, tuple(torch.randn(count, 6, 4, dtype=torch.float64).requires_grad_() for _ in range(2))


def packed(inputs: torch.Tensor) -> PackedSequence:
    return pack_padded_sequence(inputs, LENGTHS, batch_first=True)


@needs_compiler
@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("num_layers", "dropout", "training"), [(1, 0.0, True), (3, 1.0, True), (3, 1.0, False)])
def test_outputs_states_and_gradients_are_those_of_torch(
    num_layers: int, dropout: float, training: bool, bidirectional: bool, with_state: bool
) -> None:
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(3, 4, num_layers, bidirectional=bidirectional, dropout=dropout).double().train(training)
    inputs, state = given(lstm)
    own = state if with_state else None
    tensors = [inputs, *lstm.parameters(), *(own or ())]
    found = []
    for run in (run_lstm, lstm):
        outputs, last = run(*(lstm,) * (run is run_lstm), packed(inputs), own)
        loss = outputs.data.square().sum() + sum(each.sin().sum() for each in last)
        found.append([outputs.data, *last, *torch.autograd.grad(loss, tensors)])
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)
    assert runs_in_cpp(run_lstm(lstm, packed(inputs), own)[0].data)


def test_what_only_torch_can_do_is_left_to_torch() -> None:
    torch.manual_seed(0)
    inputs = torch.randn(6, 9, 3)
    unsorted = pack_padded_sequence(inputs, LENGTHS.flip(0), batch_first=True, enforce_sorted=False)
    for lstm, sequences in (
        (torch.nn.LSTM(3, 4, bias=False), packed(inputs)),
        (torch.nn.LSTM(3, 4, proj_size=2), packed(inputs)),
        (torch.nn.LSTM(3, 4), unsorted),
    ):
        outputs, last = run_lstm(lstm, sequences)
        expected, expected_last = lstm(sequences)
        torch.testing.assert_close([outputs.data, *last], [expected.data, *expected_last])
    lstm = torch.nn.LSTM(3, 4)
    prune.random_unstructured(lstm, "weight_hh_l0", 0.5)
    torch.testing.assert_close(run_lstm(lstm, packed(inputs))[0].data, lstm(packed(inputs))[0].data)
    with pytest.raises(RuntimeError, match="Expected more hidden states"):
        run_lstm(torch.nn.LSTM(3, 4, 2), packed(inputs), (torch.zeros(1, 6, 4), torch.zeros(1, 6, 4)))


@needs_compiler
@pytest.mark.parametrize("weight_dropout", [0.0, 1.0])
def test_a_stack_of_layers_gives_the_same_without_cpp(weight_dropout: float) -> None:
    torch.manual_seed(0)
    stack = LSTMStack(3, [5, 4], weight_dropout=weight_dropout).double()
    inputs = torch.randn(6, 9, 3, dtype=torch.float64).requires_grad_()
    state = [(torch.randn(6, size, dtype=torch.float64), torch.randn(6, size, dtype=torch.float64)) for size in (5, 4)]
    lengths = torch.tensor([3, 9, 0, 7, 9, 4])
    found = []
    for compiled in (False, True):
        with compile_steps(compiled):
            h, last = stack(inputs, lengths, state)
            assert runs_in_cpp(h) == compiled
            gradients = torch.autograd.grad(h.square().sum() + last[0][1].sum(), [inputs, *stack.parameters()])
        found.append([h, *(each for pair in last for each in pair), *gradients])
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


def test_of_both_directions_the_encoding_is_the_last_state_of_each() -> None:
    torch.manual_seed(0)
    encoder = LSTM(4, VOCABULARY, bidirectional=True)
    inputs = torch.randn(2, 5, 4)
    reading = encoder.read(inputs, torch.tensor([5, 3]))
    torch.testing.assert_close(
        reading.encoding[:, :4], torch.stack([reading.outputs[0, 4, :4], reading.outputs[1, 2, :4]])
    )
    torch.testing.assert_close(reading.encoding[:, 4:], reading.outputs[:, 0, 4:])


def test_update_dropout_drops_what_is_added_to_the_cell() -> None:
    torch.manual_seed(0)
    encoder = LSTM(300, VOCABULARY, update_dropout=0.25)
    inputs, one = torch.randn(1, 1, 300), torch.tensor([1])
    outputs = encoder.read(inputs, one).encoding
    kept = outputs != 0
    assert 0.65 < kept.float().mean() < 0.85
    encoder.eval()
    plain = encoder.read(inputs, one).encoding
    assert (outputs[kept].abs() > plain[kept].abs()).all()
    assert plain.all()
