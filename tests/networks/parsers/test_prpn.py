"""PRPN: gates of the memory, batch normalisation, and induced trees."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from treemem.data.token_batch import TokenBatch
from treemem.errors import GraphError
from treemem.networks.parsers.prpn.equations import slot_gates
from treemem.nn import PRPN
from treemem.trees.induced import tree_from_distances
from treemem.trees.vocabulary import Vocabulary

WORDS = Vocabulary(["<eos>", *"abcde"], [])


def model_of(**options: Any) -> PRPN:
    torch.manual_seed(1)
    options = {"slots": 3, "lookback": 2, "embedding_size": 5, "embedding_bound": 1.0, **options}
    return PRPN(8, WORDS, **options).double()


@pytest.mark.parametrize("hard", [True, False])
def test_a_slot_is_closed_behind_a_larger_distance(hard: bool) -> None:
    history = torch.tensor([[torch.inf, torch.inf, torch.inf, 0.2, 0.9, 0.4, 0.5]]).double()
    gates = slot_gates(history[:, 3:], history, 3, 0.1, hard=hard)
    closed = torch.tensor([[[1, 0, 0], [1, 1, 0], [1, 0, 0], [1, 1, 0]]]).double()
    torch.testing.assert_close(gates[0], closed[0], atol=1e-9 if hard else 0.01, rtol=0)


def test_a_difference_within_the_resolution_closes_a_slot_in_part() -> None:
    history = torch.tensor([[torch.inf, torch.inf, 0.50, 0.48]]).double()
    gates = slot_gates(history[:, 2:], history, 2, 0.1, hard=True)
    torch.testing.assert_close(gates[0, 1], torch.tensor([1.0, 0.8]).double())


def test_in_training_batch_normalisation_does_not_count_padding() -> None:
    padded, plain = model_of(residual_blocks=1), model_of(residual_blocks=1)
    inputs, lengths = torch.randn(2, 4, 5).double(), torch.tensor([4, 4])
    longer = torch.cat([inputs, torch.full((2, 3, 5), torch.nan).double()], 1)
    torch.testing.assert_close(padded.read(longer, lengths).outputs[:, :4], plain.read(inputs, lengths).outputs)
    for name, buffer in padded.named_buffers():
        torch.testing.assert_close(buffer, plain.get_buffer(name))
    one = model_of().read(inputs[:1, :1], torch.tensor([1]))
    torch.testing.assert_close(one.outputs, model_of().eval().read(inputs[:1, :1], torch.tensor([1])).outputs)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (2, 0), (2, 3)], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_batches_without_tokens_have_encodings_of_zero(shape: tuple[int, int], training: bool) -> None:
    empty = TokenBatch(torch.zeros(shape, dtype=torch.int64), torch.zeros(shape[0], dtype=torch.int64))
    found = model_of().train(training)(empty, trace=True)
    assert not found.root.any()
    assert found.outputs.shape == (*shape, 6)
    assert found.trace["distance"].shape == shape


def test_induced_trees_are_read_from_the_distances_after_an_end_of_sentence() -> None:
    model = model_of(input_dropout=0.5, dropout=0.5).train()
    sentences = [[1, 2, 3, 4, 5], [5], [2, 1]]
    trees = model.induced_trees(TokenBatch.from_sequences(sentences))
    assert model.training
    model.eval()
    for sentence, tree in zip(sentences, trees, strict=True):
        distances = model(TokenBatch.from_sequences([[0, *sentence, 0]]), trace=True).trace["distance"][0, 1:-1]
        assert tree == tree_from_distances(distances, [WORDS.leaves[word] for word in sentence])
    with torch.no_grad():
        model.embedding.weight[5] = torch.nan
    with pytest.raises(GraphError, match="sequence 0: the distance of token 4"):
        model.induced_trees(TokenBatch.from_sequences(sentences))
