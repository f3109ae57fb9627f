"""Transformers as language models: sentences by themselves, across batches of a stream, and what they hand on."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from treemem.data.token_batch import TokenBatch
from treemem.errors import RecipeError
from treemem.networks.sequences.transformer_language_model.sentences import Carried, cut
from treemem.nn import TransformerLanguageModel
from treemem.trees.vocabulary import Vocabulary

WORDS = Vocabulary(["<eos>", *"abc"], [])
COLUMNS = [[0, 1, 2, 3, 0, 1, 1, 2, 2, 0, 3], [1, 2, 0, 0, 1, 2, 3, 1, 0, 1, 2]]


def model_of(layers: str = "1.superposition-4.1", vocabulary: Vocabulary = WORDS, **options: Any) -> Any:
    torch.manual_seed(1)
    model = TransformerLanguageModel(8, vocabulary, layers=layers, num_heads=2, embedding_bound=1.0, **options).double()
    torch.nn.init.normal_(model.bias)
    return model.eval()


def in_windows(model: Any, bounds: list[int], columns: list[list[int]]) -> torch.Tensor:
    state, outputs = None, []
    for first, last in itertools.pairwise(bounds):
        batch = TokenBatch.from_sequences([column[first:last] for column in columns])
        states = model(batch if state is None else batch.with_state(state))
        state = states.state
        outputs.append(states.outputs)
    return torch.cat(outputs, 1)


@pytest.mark.parametrize("layers", ["2", "1.superposition-4.1", "1.nondeterministic-2-2-2.1"])
def test_a_stream_in_windows_is_the_stream(layers: str) -> None:
    model = model_of(layers)
    whole = model(TokenBatch.from_sequences(COLUMNS)).outputs
    assert torch.allclose(in_windows(model, [0, 3, 4, 9, 11], COLUMNS), whole, atol=1e-12)


def test_a_sentence_of_a_stream_is_read_as_if_alone() -> None:
    model = model_of()
    whole = model(TokenBatch.from_sequences(COLUMNS)).outputs
    alone = model(TokenBatch.from_sequences([[0, 1, 1, 2, 2]])).outputs
    assert torch.allclose(whole[0, 4:9], alone[0], atol=1e-12)
    as_first = model(TokenBatch.from_sequences([[1, 2]])).outputs  # without <eos>: where a stream begins
    assert torch.allclose(whole[1, :2], as_first[0], atol=1e-12)


def test_logits_do_not_depend_on_later_tokens_and_every_earlier_one_of_the_sentence_counts() -> None:
    model = model_of()
    vectors = model.embed(torch.tensor([[0, 1, 2, 3, 1]])).detach().requires_grad_()
    logits = model.read(vectors, torch.tensor([5]), token=torch.tensor([[0, 1, 2, 3, 1]])).outputs
    (gradient,) = torch.autograd.grad(logits[0, 3, 1], vectors)
    assert (gradient[0, :4].abs().sum(1) > 0).all()
    assert not gradient[0, 4].any()


def test_of_a_longer_sentence_the_last_tokens_of_the_context_are_read_again() -> None:
    model = model_of(context=2)
    outputs = in_windows(model, [0, 4, 6], [[0, 1, 2, 3, 1, 2]])
    alone = model_of(vocabulary=Vocabulary(["other", *"abc"], []))(TokenBatch.from_sequences([[2, 3, 1, 2]]))
    assert torch.allclose(outputs[0, 4:], alone.outputs[0, 2:], atol=1e-12)


def test_without_an_end_in_the_vocabulary_a_sequence_is_one_sentence() -> None:
    model = model_of(vocabulary=Vocabulary([*"abcd"], []))
    whole = model(TokenBatch.from_sequences(COLUMNS)).outputs
    first = model(TokenBatch.from_sequences([COLUMNS[0]])).outputs
    assert torch.allclose(whole[:1], first, atol=1e-12)
    assert torch.allclose(in_windows(model, [0, 5, 11], COLUMNS), whole, atol=1e-12)


def test_shorter_and_empty_columns_give_what_they_give_alone() -> None:
    model = model_of()
    batch = TokenBatch.from_sequences([[0, 1, 2, 0, 3], [], [1, 2]])
    states = model(batch, trace=True)
    for row, column in enumerate([[0, 1, 2, 0, 3], [], [1, 2]]):
        alone = model(TokenBatch.from_sequences([column]), trace=True)
        assert torch.allclose(states.outputs[row, : len(column)], alone.outputs[0], atol=1e-12)
        assert not states.outputs[row, len(column) :].any()
        assert torch.allclose(states.root[row], alone.root[0], atol=1e-12)
        assert torch.allclose(states.trace["push"][row, :, : len(column)], alone.trace["push"][0], atol=1e-12)
    assert model(TokenBatch.from_sequences([])).outputs.shape == (0, 0, 4)


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=3), st.integers(1, 4))
def test_tokens_are_cut_before_each_end_and_the_last_sentence_is_carried(columns: list[list[int]], most: int) -> None:
    batch = TokenBatch.from_sequences(columns)
    carried = Carried(torch.tensor([[0, 2], [1, 0], [0, 0]])[: len(columns)], torch.tensor([2, 1, 0])[: len(columns)])
    found = cut(batch.token, batch.lengths, carried, 0, most)
    expected, last = [], []
    for column, before in zip(columns, [[0, 2], [1], []], strict=False):
        whole = before + column
        sentences: list[list[int]] = []
        for token in whole:
            if token == 0 or not sentences:
                sentences.append([])
            sentences[-1].append(token)
        expected += sentences
        last.append(sentences[-1][-most:] if sentences else [])
    flat = torch.cat([carried.token, batch.token], 1).flatten()
    rows = [pair for group in zip(found.source, found.lengths, strict=True) for pair in zip(*group, strict=True)]
    assert sorted(flat[row[:size]].tolist() for row, size in rows) == sorted(expected)
    assert all((row[size:] == -1).all() for row, size in rows)
    assert all(2 * sizes.min() > sizes.max() for sizes in found.lengths)
    there = found.place >= 0
    assert there.sum(1).tolist() == batch.lengths.tolist()
    sources = torch.cat([source.flatten() for source in found.source] or [torch.zeros(0, dtype=torch.int64)])
    assert torch.equal(flat[sources[found.place[there]]], batch.token[there])
    assert [row[:size].tolist() for row, size in zip(*found.carried, strict=True)] == last


def test_the_published_models_of_the_penn_treebank_have_the_published_number_of_weights() -> None:
    vocabulary = Vocabulary(["<eos>", *map(str, range(23_833))], [])
    for layers, published in (
        ("5", 10_051_072),
        ("2.superposition-511.2", 10_050_304),
        ("2.nondeterministic-3-3-10.2", 9_861_898),
    ):
        with torch.device("meta"):
            model = TransformerLanguageModel(256, vocabulary, layers=layers)
        weights = sum(weight.numel() for weight in model.parameters())
        assert weights - len(model.bias) + 256 == published  # theirs have no bias, and a vector of padding


def test_wrong_options_are_refused() -> None:
    with pytest.raises(RecipeError, match="no option 'causal'"):
        model_of(causal=False)
    with pytest.raises(RecipeError, match="context"):
        model_of(context=0)
    with pytest.raises(RecipeError, match="cannot read features"):
        model_of().read_features(4)
