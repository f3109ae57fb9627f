"""Networks that attend between the two texts of a pair, against their equations, one pair at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from tree_strategies import VOCABULARY, random_forest

from treemem.errors import GraphError
from treemem.networks.pairs.pair_encoder import PairEncoder
from treemem.nn import AttentiveReader, DeepLSTMReader, ImpatientReader, WordByWordAttention
from treemem.schedule.tree_batch import TreeBatch

LENGTHS = [(5, 4), (1, 1), (5, 2), (3, 5), (2, 1)]
BilinearReader = partial(AttentiveReader, attention="bilinear")
READERS = [AttentiveReader, BilinearReader, ImpatientReader, DeepLSTMReader, WordByWordAttention]

close = partial(torch.testing.assert_close, rtol=0, atol=1e-10)


def encoder(kind: Callable[..., PairEncoder]) -> PairEncoder:
    torch.manual_seed(1)
    return kind(6, VOCABULARY, embedding_size=3).double()


def lstm(stack: torch.nn.Module, inputs: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs, the last one and the last cell."""
    (own,) = stack.layers  # type: ignore[union-attr, misc]
    outputs = []
    for x in inputs:
        gates = own.weight_ih_l0 @ x + own.bias_ih_l0 + own.weight_hh_l0 @ hidden + own.bias_hh_l0
        i, f, u, o = gates.split(len(hidden))
        cell = f.sigmoid() * cell + i.sigmoid() * u.tanh()
        hidden = o.sigmoid() * cell.tanh()
        outputs.append(hidden)
    return torch.stack(outputs) if outputs else inputs.new_zeros(0, len(hidden)), hidden, cell


def both_ways(own: torch.nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    zero = inputs.new_zeros(3)
    right, last, _ = lstm(own.rightward, inputs, zero, zero)  # type: ignore[arg-type]
    left, first, _ = lstm(own.leftward, inputs.flip(0), zero, zero)  # type: ignore[arg-type]
    return torch.cat([right, left.flip(0)], 1), torch.cat([last, first])


def attentive(own: AttentiveReader, document: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    y, _ = both_ways(own.document, document)
    _, u = both_ways(own.query, query)
    m = [torch.tanh(own.of_token.weight @ row + own.of_query.weight @ u) for row in y]
    return attended(own, y, u, torch.stack([own.score.weight[0] @ each for each in m]))


def bilinear(own: AttentiveReader, document: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    y, _ = both_ways(own.document, document)
    _, u = both_ways(own.query, query)
    return attended(own, y, u, torch.stack([row @ own.of_query.weight @ u for row in y]))


def attended(own: AttentiveReader, y: Tensor, u: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    s = scores.softmax(0)
    r = sum(weight * row for weight, row in zip(s, y, strict=True))
    return torch.tanh(own.last_readout.weight @ r + own.last_query.weight @ u), s[None]


def impatient(own: ImpatientReader, document: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    y, _ = both_ways(own.document, document)
    y_q, u = both_ways(own.query, query)
    r = y.new_zeros(6)
    attention = []
    for token in y_q:
        known = own.of_readout.weight @ r + own.of_query.weight @ token
        scores = [own.score.weight[0] @ torch.tanh(own.of_token.weight @ row + known) for row in y]
        attention.append(torch.stack(scores).softmax(0))
        r = sum(weight * row for weight, row in zip(attention[-1], y, strict=True)) + torch.tanh(own.carry.weight @ r)
    return torch.tanh(own.last_readout.weight @ r + own.last_query.weight @ u), torch.stack(attention)


def deep(own: DeepLSTMReader, document: Tensor, query: Tensor) -> tuple[Tensor, None]:
    tokens = torch.cat([query, own.delimiter.weight, document])
    inputs, last = tokens, []
    for layer in own.layers:
        outputs, hidden, _ = lstm(layer, inputs, tokens.new_zeros(3), tokens.new_zeros(3))
        inputs = torch.cat([tokens, outputs], 1)
        last.append(hidden)
    return torch.cat(last), None


def word_by_word(own: WordByWordAttention, premise: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    readout = zero = premise.new_zeros(6)
    memory, _, cell = lstm(own.premise, premise, zero, zero)
    outputs, last, _ = lstm(own.hypothesis, words, zero, cell)
    attention = premise.new_zeros(len(words), len(premise))
    for step, hidden in enumerate(outputs):
        query = own.of_word.weight @ hidden + own.of_readout.weight @ readout
        scores = [own.score.weight[0] @ torch.tanh(own.of_premise.weight @ row + query) for row in memory]
        readout = torch.tanh(own.carry.weight @ readout)
        if scores:
            attention[step] = torch.stack(scores).softmax(0).detach()
            readout = readout + torch.stack(scores).softmax(0) @ memory
    return torch.tanh(own.last_readout.weight @ readout + own.last_word.weight @ last), attention


BY_HAND = dict(zip(READERS, [attentive, bilinear, impatient, deep, word_by_word], strict=True))


@pytest.mark.parametrize("kind", READERS)
def test_encodings_attention_and_gradients_are_those_of_the_equations_whatever_the_padding(
    kind: Callable[..., PairEncoder],
) -> None:
    torch.manual_seed(0)
    pairs = [*LENGTHS, *([(0, 2), (2, 0)] if kind is WordByWordAttention else [])]
    inputs = torch.randn(2 * len(pairs), 6, 3, dtype=torch.float64)
    lengths = torch.tensor(pairs).flatten()
    ours, theirs = encoder(kind), encoder(kind)
    padded = inputs.clone()
    padded[torch.arange(6) >= lengths[:, None]] = 1e3
    padded.requires_grad_()
    inputs.requires_grad_()
    found = ours.read(padded, lengths, trace=True)
    expected = []
    for pair, (words, asked) in enumerate(pairs):
        encoding, attention = BY_HAND[kind](theirs, inputs[2 * pair, :words], inputs[2 * pair + 1, :asked])  # type: ignore[operator]
        expected.append(encoding)
        if attention is not None:
            weights = found.trace["attention"][pair, 0]
            row = words + 2 + (asked if kind in (AttentiveReader, BilinearReader) else 0)
            close(weights[row : row + len(attention), 1 : words + 1], attention.detach())
            assert weights.sum() == pytest.approx(len(attention) if words else 0)
        tokens = [*range(1, words + 1), *range(words + 2, words + 2 + asked)]
        assert found.outputs[pair].any(1).nonzero().flatten().tolist() == tokens
    close(found.encoding, torch.stack(expected))
    for encodings in (found.encoding, torch.stack(expected)):
        (encodings * torch.arange(6)).sin().sum().backward()
    close(padded.grad, inputs.grad)
    for (name, one), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        if name != "embedding.weight":
            assert one.grad is not None
            close(one.grad, other.grad)


@pytest.mark.parametrize("kind", READERS)
def test_empty_texts_have_finite_encodings_and_single_texts_are_refused(kind: Callable[..., PairEncoder]) -> None:
    inputs = torch.randn(6, 3, 3, dtype=torch.float64)
    found = encoder(kind).read(inputs, torch.tensor([0, 2, 3, 0, 0, 0]))
    assert found.encoding.isfinite().all()
    with pytest.raises(GraphError, match="reads pairs of trees"):
        encoder(kind)(TreeBatch.from_forest(random_forest(seed=3, num_trees=2, size=5), VOCABULARY))
