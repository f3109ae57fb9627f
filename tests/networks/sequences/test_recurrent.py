from __future__ import annotations

import torch
from tree_strategies import VOCABULARY

from treemem.nn import LSTM


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
