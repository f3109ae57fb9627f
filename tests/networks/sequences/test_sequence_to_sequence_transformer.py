"""A Transformer from sequence to sequence: against torch's own, in steps and in whole targets."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from treemem.data.token_batch import TokenBatch
from treemem.errors import GraphError, RecipeError
from treemem.networks.sequences.attention_encoder import sinusoids
from treemem.networks.sequences.sequence_to_sequence_transformer.layer import _Decoding
from treemem.nn import SequenceToSequenceTransformer
from treemem.trees.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["</s>", "|||", "a", "b", "c"], [])
PAIRS = [([2, 3, 4, 2], [2, 4]), ([3], [3, 2, 4]), ([4, 4], [4])]
STACKED = {"norm_first": True, "layers": "superposition-3.nondeterministic-1-2-3"}
FORMS = pytest.mark.parametrize("options", [{}, {"norm_first": True}, STACKED], ids=str)


def network_of(**options: Any) -> SequenceToSequenceTransformer:
    torch.manual_seed(1)
    return SequenceToSequenceTransformer(8, VOCABULARY, num_heads=2, feedforward_size=12, **options).double()


def batch_of(*pairs: tuple[list[int], list[int]]) -> TokenBatch:
    sources = TokenBatch.from_sequences([source for source, _ in pairs])
    targets = TokenBatch.from_sequences([[*target, 0] for _, target in pairs])
    return TokenBatch(sources.token, sources.lengths, target=targets)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")  # of torch's, where layers normalise first
@pytest.mark.parametrize("norm_first", [False, True])
def test_logits_are_those_of_torchs_transformer(norm_first: bool) -> None:
    network = network_of(norm_first=norm_first)
    own = nn.Transformer(8, 2, 2, 2, 12, 0.0, batch_first=True, norm_first=norm_first).double()
    for part, layers in ((own.encoder, network.encoder_layers), (own.decoder, network.decoder_layers)):
        part.layers.load_state_dict(layers.state_dict())
    if not norm_first:
        own.encoder.norm, own.decoder.norm = None, None  # torch normalises twice
    for source, target in PAIRS:
        inputs = [
            network.embedding(torch.tensor([symbols])) + sinusoids(torch.arange(len(symbols)), 8)
            for symbols in ([*source, 0], [1, *target])
        ]
        mask = nn.Transformer.generate_square_subsequent_mask(len(target) + 1, dtype=torch.float64)
        expected = network.symbol(own(*inputs, tgt_mask=mask))
        torch.testing.assert_close(network(batch_of((source, target))).outputs, expected)


@FORMS
def test_an_example_gets_what_it_gets_alone(options: dict[str, Any]) -> None:
    network = network_of(**options)
    together = network(batch_of(*PAIRS))
    for row, pair in enumerate(PAIRS):
        alone = network(batch_of(pair))
        torch.testing.assert_close(together.outputs[row, : len(pair[1]) + 1], alone.outputs[0])
        torch.testing.assert_close(together.root[row], alone.root[0])
    network.eval()
    assert network(batch_of(*PAIRS)).decoded == [network(batch_of(pair)).decoded[0] for pair in PAIRS]
    assert not network(TokenBatch.from_sequences([[2, 3]])).outputs.numel(), "there is no target"


@FORMS
def test_what_is_written_step_by_step_is_the_most_probable_in_whole_targets(options: dict[str, Any]) -> None:
    network = network_of(**options, most_symbols=9).eval()
    (written,) = network(batch_of(([2, 3, 3], []))).decoded
    assert written
    said = network(batch_of(([2, 3, 3], written[:8]))).outputs[0].argmax(1).tolist()
    assert said[: len(written)] == written
    assert len(written) == 9 or said[len(written)] == 0
    wide = network_of(**options, most_symbols=9, beam_size=2).eval()
    assert len(wide(batch_of(*PAIRS)).decoded) == 3


@FORMS
def test_a_step_has_the_logits_of_whole_targets_at_its_place(options: dict[str, Any]) -> None:
    network, batch = network_of(**options).eval(), batch_of(*PAIRS)
    assert batch.target is not None
    expected, source = network(batch).outputs, network._read(batch)
    state = _Decoding((source.outputs.new_empty(3, 0, 8),) * 2, source)
    for place, symbol in enumerate([torch.ones(3, dtype=torch.long), *batch.target.token[:, :-1].unbind(1)]):
        logits, state = network._say(symbol, state)
        torch.testing.assert_close(logits, expected[:, place])


@FORMS
def test_all_weights_learn_and_dropout_is_of_training_alone(options: dict[str, Any]) -> None:
    network = network_of(dropout=0.5, **options)
    assert not torch.equal(network(batch_of(*PAIRS)).outputs, network(batch_of(*PAIRS)).outputs)
    network(batch_of(*PAIRS)).outputs.square().sum().backward()
    assert [name for name, weight in network.named_parameters() if weight.grad is None] == []
    torch.testing.assert_close(
        network.eval()(batch_of(*PAIRS)).outputs, network_of(**options).eval()(batch_of(*PAIRS)).outputs
    )


def test_a_trace_has_what_each_written_symbol_attends_to_in_the_source() -> None:
    network = network_of(most_symbols=4).eval()
    output = network(batch_of(*PAIRS), trace=True)
    assert output.tokens is not None
    for row, (source, _) in enumerate(PAIRS):
        size, first = int(output.tokens.lengths[row]), len(source) + 1
        assert output.tokens.token[row, :size].tolist() == [*source, 0, 1, *output.decoded[row]]
        weights = output.trace["attention"][row]
        torch.testing.assert_close(weights[:, first:size, :first].sum(2), torch.ones(2, size - first).double())
        assert not weights[:, :first].any()
        assert not weights[:, :, first:].any()
        assert not weights[:, size:].any()


def test_wrong_options_and_batches_are_refused() -> None:
    with pytest.raises(RecipeError, match="num_heads=3 does not divide hidden_size=8"):
        SequenceToSequenceTransformer(8, VOCABULARY, num_heads=3)
    with pytest.raises(RecipeError, match="has the symbols </s> and"):
        SequenceToSequenceTransformer(8, Vocabulary(["a"], []))
    with pytest.raises(RecipeError, match="feedforward_size"):
        SequenceToSequenceTransformer(8, VOCABULARY, feedforward_size=0)
    with pytest.raises(RecipeError, match="normalise first; add norm_first: true"):
        network_of(layers="2.superposition-3")
    with pytest.raises(RecipeError, match="says how many layers there are; leave out num_layers"):
        network_of(**STACKED, num_layers=3)
    with pytest.raises(RecipeError, match="the part '0'"):
        network_of(norm_first=True, layers="superposition-3.0")
    for batch, problem in (
        (TokenBatch.from_sequences([[2]]), "training needs a target"),
        (batch_of(([], [2])), "an example has an empty source"),
        (batch_of(([2], [2] * 12)), "a target has 13 symbols, its end included"),
        (torch.ones(1, 1), "takes a TokenBatch"),
    ):
        with pytest.raises(GraphError, match=problem):
            network_of()(batch)
