"""Word-by-word attention against its equations, one pair at a time."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tree_strategies import VOCABULARY, random_forest

from treemem.errors import GraphError
from treemem.nn import WordByWordAttention
from treemem.schedule.tree_batch import TreeBatch

LENGTHS = [(3, 4), (1, 2), (5, 1), (0, 2), (2, 0)]


close = partial(torch.testing.assert_close, rtol=0, atol=1e-10)


def encoder() -> WordByWordAttention:
    torch.manual_seed(1)
    return WordByWordAttention(4, VOCABULARY, embedding_size=3).double()


def by_hand(own: WordByWordAttention, premise: torch.Tensor, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The encoding and the attention of one pair."""

    def run(lstm: torch.nn.LSTM, inputs: torch.Tensor, cell: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, outputs = torch.zeros(4, dtype=torch.float64), []
        for x in inputs:
            gates = lstm.weight_ih_l0 @ x + lstm.bias_ih_l0 + lstm.weight_hh_l0 @ hidden + lstm.bias_hh_l0
            i, f, u, o = gates.split(4)
            cell = f.sigmoid() * cell + i.sigmoid() * u.tanh()
            hidden = o.sigmoid() * cell.tanh()
            outputs.append(hidden)
        return torch.stack(outputs) if outputs else torch.zeros(0, 4, dtype=torch.float64), cell

    zero = torch.zeros(4, dtype=torch.float64)
    memory, cell = run(own.premise.layers[0], premise, zero)  # type: ignore[arg-type]
    outputs, _ = run(own.hypothesis.layers[0], words, cell)  # type: ignore[arg-type]
    readout, attention = zero, torch.zeros(len(words), len(premise), dtype=torch.float64)
    for step, hidden in enumerate(outputs):
        of_rows = [own.of_premise.weight @ row for row in memory]
        query = own.of_word.weight @ hidden + own.of_readout.weight @ readout
        scores = [own.score.weight[0] @ torch.tanh(row + query) for row in of_rows]
        carried = torch.tanh(own.carry.weight @ readout)
        if scores:
            attention[step] = torch.stack(scores).softmax(0).detach()
            readout = torch.stack(scores).softmax(0) @ memory + carried
        else:
            readout = carried
    last = outputs[-1] if len(outputs) else zero
    return torch.tanh(own.last_readout.weight @ readout + own.last_word.weight @ last), attention


def test_encodings_attention_and_gradients_are_those_of_the_equations_whatever_the_padding() -> None:
    inputs = torch.randn(2 * len(LENGTHS), 5, 3, dtype=torch.float64)
    lengths = torch.tensor(LENGTHS).flatten()
    ours, theirs = encoder(), encoder()
    padded = inputs.clone()
    padded[torch.arange(5) >= lengths[:, None]] = 1e3
    found = ours.read(padded, lengths, trace=True)
    expected = []
    for pair, (premise, words) in enumerate(LENGTHS):
        encoding, attention = by_hand(theirs, inputs[2 * pair, :premise], inputs[2 * pair + 1, :words])
        expected.append(encoding)
        weights = found.trace["attention"][pair, 0]
        close(weights[premise + 2 : premise + 2 + words, 1 : premise + 1], attention)
        assert weights.sum() == pytest.approx(words if premise else 0)
        assert found.outputs[pair].any(1).nonzero().flatten().tolist() == [
            *range(1, premise + 1),
            *range(premise + 2, premise + 2 + words),
        ]
    close(found.encoding, torch.stack(expected))
    for encodings in (found.encoding, torch.stack(expected)):
        (encodings * torch.arange(4)).sum().backward()
    for (name, one), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        if name != "embedding.weight":
            close(one.grad, other.grad)


def test_it_reads_pairs_alone() -> None:
    batch = TreeBatch.from_forest(random_forest(seed=3, num_trees=4, size=5), VOCABULARY, trees_per_example=2)
    states = encoder()(batch)
    assert states.root.shape == (2, 1, 4)
    assert states.h.shape[:2] == (2, int(states.lengths.max()))
    single = TreeBatch.from_forest(batch.forest, VOCABULARY)
    with pytest.raises(GraphError, match="reads pairs of trees"):
        encoder()(single)
