"""torch's LSTM in C++, against torch's kernel."""

from __future__ import annotations

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from treemem.nn.lstm_stack import LSTMStack
from treemem.nn.torch_lstm import run_lstm
from treemem.ops import compile_mode, compile_steps

LENGTHS = torch.tensor([9, 9, 7, 3, 3, 1])

pytestmark = pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")


def packed_and_state(lstm: torch.nn.LSTM) -> tuple[PackedSequence, tuple[torch.Tensor, ...]]:
    count = lstm.num_layers * (1 + lstm.bidirectional)
    inputs = torch.randn(6, 9, 3, dtype=torch.float64).requires_grad_()
    state = tuple(torch.randn(count, 6, 4, dtype=torch.float64).requires_grad_() for _ in range(2))
    return pack_padded_sequence(inputs, LENGTHS, batch_first=True), state


@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("num_layers", "dropout"), [(1, 0.0), (3, 0.0), (3, 1.0)])
def test_outputs_states_and_gradients_are_those_of_torch(
    num_layers: int, dropout: float, bidirectional: bool, with_state: bool
) -> None:
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(3, 4, num_layers, bidirectional=bidirectional, dropout=dropout).double()
    sequences, state = packed_and_state(lstm)
    given = state if with_state else None
    tensors = [*lstm.parameters(), *(given or ())]
    found = []
    for outputs, last in (run_lstm(lstm, sequences, given), lstm(sequences, given)):
        loss = outputs.data.square().sum() + sum(each.sin().sum() for each in last)
        found.append([outputs.data, *last, *torch.autograd.grad(loss, tensors)])
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


def test_a_stack_of_layers_gives_the_same_without_cpp() -> None:
    torch.manual_seed(0)
    stack = LSTMStack(3, [5, 4], weight_dropout=1.0).double()
    inputs = torch.randn(6, 9, 3, dtype=torch.float64).requires_grad_()
    lengths = torch.tensor([3, 9, 0, 7, 9, 1])
    found = []
    for compiled in (False, True):
        with compile_steps(compiled):
            h, last = stack(inputs, lengths)
            gradients = torch.autograd.grad(h.square().sum() + last[0][1].sum(), [inputs, *stack.parameters()])
        found.append([h, *(each for pair in last for each in pair), *gradients])
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)
