"""The Recurrent-Recursive Network: what it is without constituents, and how it reads one."""

from __future__ import annotations

import pytest
import torch
from sequence_networks import SIZE, made, padded_inputs

from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.parsers.rrnet.run import run_rrnet

NETWORK = made("RRNet", transitions="gold")


@pytest.mark.parametrize("engine", ["naive", "fused"])
def test_without_constituents_it_is_an_lstm(engine: SequenceEngine) -> None:
    lstm = torch.nn.LSTM(SIZE, SIZE, batch_first=True).double()
    lstm.load_state_dict({f"{name}_l0": value for name, value in NETWORK.lstm.state_dict().items()})
    inputs = padded_inputs((5, 5), SIZE, longer=0)
    given = torch.tensor([[0, 0, 1, 0, 1, 0, 1, 0, 1]]).expand(2, -1)
    found = run_rrnet(inputs, torch.tensor([5, 5]), NETWORK.weights(), given=given, engine=engine)
    _, (hidden, cell) = lstm(inputs)
    torch.testing.assert_close(found.roots, torch.cat([hidden[0], cell[0]], 1))


def test_a_constituent_is_read_like_a_token_from_the_state_before_it() -> None:
    inputs = padded_inputs((3,), SIZE, longer=0)

    def roots(inputs: torch.Tensor, *actions: int) -> torch.Tensor:
        lengths = torch.tensor([inputs.shape[1]])
        return run_rrnet(inputs, lengths, NETWORK.weights(), given=torch.tensor([actions])).roots

    inner = roots(inputs[:, 1:], 0, 0, 1)
    again = torch.cat([inputs[:, :1], inner[:, None, :SIZE]], 1)
    torch.testing.assert_close(roots(inputs, 0, 0, 0, 1, 1), roots(again, 0, 0, 1))
