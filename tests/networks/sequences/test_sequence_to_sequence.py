"""Networks from sequence to sequence: what they read, attend to and write."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from treemem.data.token_batch import TokenBatch
from treemem.errors import GraphError
from treemem.networks.memories.controllers.cells import GRUCell, LSTMCell, StackedCells, run_cell
from treemem.networks.sequences.sequence_to_sequence.beam_search import beam_search
from treemem.nn import SequenceToSequence
from treemem.trees.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["</s>", "|||", "a", "b", "c"], [])
VARIANTS: list[dict[str, Any]] = [
    {"memory": "stack"},
    {"memory": "deque", "cell": "RNN", "num_layers": 2},
    {"encoder": "separate", "memory": "queue"},
    {"memory": "register", "cell": "GRU"},
    {"memory": "register", "memory_options": {"rows": 5, "similarity": "cosine", "write": "erase-and-add"}},
    {"memory": "nondeterministic", "memory_options": {"states": 2, "symbols": 2}},
    {"encoder": "separate", "memory": "nondeterministic", "memory_options": {"symbols": 2, "vectors": True}},
    {"cell": "GRU", "num_layers": 2},
    {"encoder": "separate", "cell": "RNN"},
    {"encoder": "separate", "attention": "dot"},
    {"encoder": "separate", "attention": "bilinear", "fusion": "late", "cell": "GRU"},
    {"encoder": "separate", "attention": "additive", "memory": "superposition", "num_layers": 2},
    {"encoder": "bidirectional", "attention": "bilinear", "cell": "GRU"},
    {"encoder": "bidirectional", "attention": "additive", "memory": "stack"},
    {"encoder": "bidirectional", "attention": "additive", "output": "pointer"},
    {"encoder": "separate", "attention": "additive", "fusion": "late", "output": "pointer"},
]


def network_of(**options: Any) -> SequenceToSequence:
    torch.manual_seed(1)
    return SequenceToSequence(6, VOCABULARY, memory_size=3, embedding_size=4, **options).double()


def batch_of(*pairs: tuple[list[int], list[int]]) -> TokenBatch:
    sources = TokenBatch.from_sequences([source for source, _ in pairs])
    return TokenBatch(
        sources.token, sources.lengths, target=TokenBatch.from_sequences([[*each, 0] for _, each in pairs])
    )


@pytest.mark.parametrize("options", VARIANTS)
def test_an_example_gets_what_it_gets_alone(options: dict[str, Any]) -> None:
    network = network_of(**options)
    pairs = [([2, 3, 4, 2], [2, 4]), ([3], [3, 2, 4]), ([4, 4], [4])]
    together = network(batch_of(*pairs)).outputs
    for row, pair in enumerate(pairs):
        torch.testing.assert_close(together[row, : len(pair[1]) + 1], network(batch_of(pair)).outputs[0])
    network.eval()
    assert network(batch_of(*pairs)).decoded == [network(batch_of(pair)).decoded[0] for pair in pairs]
    assert torch.equal(network(batch_of(*pairs)).outputs, together), "given the target, as in training"
    assert not network(TokenBatch.from_sequences([[2, 3]])).outputs.numel(), "there is no target"


def test_a_bidirectional_encoder_is_torchs_own() -> None:
    network = network_of(encoder="bidirectional", attention="bilinear", cell="GRU")
    both = torch.nn.GRU(4, 6, batch_first=True, bidirectional=True).double()
    cells: dict[str, Any] = {"": network.encoder, "_reverse": network.backward_encoder}
    weights = {f"{n}_l0{end}": w for end, each in cells.items() for n, w in each.cell.state_dict().items()}
    both.load_state_dict(weights)
    embedded, lengths = torch.randn(3, 5, 4, dtype=torch.float64), torch.tensor([5, 2, 4])
    outputs, _ = run_cell(cells[""], embedded, lengths=lengths)
    found = network._annotations(embedded, outputs, lengths)
    packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
    expected, _ = pad_packed_sequence(both(packed)[0], batch_first=True)
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(found[row, :length], expected[row, :length])


@pytest.mark.parametrize("options", VARIANTS)
def test_all_weights_learn(options: dict[str, Any]) -> None:
    network = network_of(**options)
    network(batch_of(([2, 3, 4], [2, 4, 3]))).outputs.square().sum().backward()
    without = [name for name, weight in network.named_parameters() if weight.grad is None or not weight.grad.any()]
    # only the state of an encoder counts if nothing attends to its outputs, and only the weights of a pointer
    unused = "cell.output." if "output" in options else "encoder.output." if "attention" not in options else "nothing"
    assert all(name.startswith(unused) for name in without)


@pytest.mark.parametrize("options", VARIANTS)
def test_a_greedy_target_is_the_most_probable_symbol_each_time(options: dict[str, Any]) -> None:
    network = network_of(**options)
    network.eval()
    (written,) = network(batch_of(([2, 3, 3], []))).decoded
    said = network(batch_of(([2, 3, 3], written[:15]))).outputs[0].argmax(1).tolist()
    assert said[: len(written)] == written
    assert len(written) == 16 or said[len(written)] == 0


def test_a_target_is_as_long_as_its_limit_at_most() -> None:
    network = network_of(most_symbols=3)
    network.symbol.bias.data[0] = -1e9  # the end is never written
    network.eval()
    assert [len(symbols) for symbols in network(batch_of(([2, 3, 4, 3, 2], [2, 3]), ([2], []))).decoded] == [3, 3]
    for training in (True, False):
        with pytest.raises(
            GraphError, match=r"a target has 4 symbols, its end included, .* at most 3 for its source of 1"
        ):
            network.train(training)(batch_of(([2, 3], [2]), ([4], [2, 3, 4])))
    with pytest.raises(
        GraphError, match=r"a target has 13 symbols, its end included, .* at most 12 for its source of 1"
    ):
        network_of()(batch_of(([4], [2] * 12)))


@pytest.mark.parametrize("options", [{"num_layers": 2}, {"encoder": "separate", "memory": "stack"}])
def test_dropout_hides_symbols_in_training_alone(options: dict[str, Any]) -> None:
    dropping, whole = network_of(dropout=1.0, **options), network_of(**options)
    first, other = batch_of(([2, 3, 4], [4, 2])), batch_of(([4, 4, 2], [3, 3]))
    assert torch.equal(dropping(first).outputs, dropping(other).outputs)
    assert torch.equal(dropping.eval()(first).outputs, whole(first).outputs)


def test_dropout_is_between_layers_in_steps_and_in_whole_sequences() -> None:
    torch.manual_seed(1)
    below, above = LSTMCell(3, 4), GRUCell(4, 5)
    cell, inputs = StackedCells([below, above], dropout=1.0), torch.randn(2, 1, 3)
    hidden = above.initial(2)
    expected, _ = above(torch.zeros(2, 4), hidden)
    torch.testing.assert_close(cell(inputs[:, 0], cell.initial(2))[0], expected)
    torch.testing.assert_close(run_cell(cell, inputs)[0][:, 0], expected)
    expected, _ = above(below(inputs[:, 0], below.initial(2))[0], hidden)
    torch.testing.assert_close(run_cell(cell.eval(), inputs)[0][:, 0], expected)


def test_the_state_of_the_encoder_is_that_of_the_decoder_at_the_beginning() -> None:
    """Two networks with the same weights, of which the first reads the source and its end, are one network."""
    two = network_of(encoder="separate", memory="stack")
    two.encoder.load_state_dict(two.cell.state_dict())
    one = network_of(memory="stack")
    one.load_state_dict({name: weight for name, weight in two.state_dict().items() if not name.startswith("encoder.")})
    pair = ([2, 3, 4], [4, 2])
    torch.testing.assert_close(two(batch_of(pair)).outputs, one(batch_of(([2, 3, 4, 0], [4, 2]))).outputs)


def test_a_pointer_writes_symbols_of_the_source_alone() -> None:
    network = network_of(encoder="separate", attention="dot", output="pointer")
    probabilities = network(batch_of(([2, 4, 2], [2, 3]))).outputs.exp()[0]
    torch.testing.assert_close(probabilities[:, [0, 2, 4]].sum(1), torch.ones(3).double())
    assert (probabilities[:, [0, 2, 4]] > 0).all()
    assert (probabilities[:, [1, 3]] < 1e-300).all()


def test_a_beam_as_wide_as_all_sequences_finds_the_best() -> None:
    """Against all sequences of up to two symbols and an end, for probabilities that depend on the two last symbols."""
    torch.manual_seed(3)
    table = torch.randn(20, 4, 4)

    def step(last: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return table[state, last], state

    found = beam_search(step, torch.arange(20), 3, 0, torch.full((20,), 3), 16)
    for example, logits in enumerate(table.log_softmax(2)):

        def score(symbols: tuple[int, ...], logits: torch.Tensor = logits) -> float:
            return float(sum(logits[a, b] for a, b in itertools.pairwise([3, *symbols])))

        ended = [(*each, 0) for count in range(3) for each in itertools.product((1, 2, 3), repeat=count)]
        cut = list(itertools.product((1, 2, 3), repeat=3))
        best = max([*ended, *cut], key=score)
        assert found[example] == [each for each in best if each != 0]


@pytest.mark.parametrize("options", VARIANTS)
def test_a_trace_is_what_the_cells_did(options: dict[str, Any]) -> None:
    """Traces are from the source to what was written, and of each example what they are alone."""
    network = network_of(**options)
    network.eval()
    sources = TokenBatch.from_sequences([[2, 3, 3, 4], [4]])
    found = network(sources, trace=True)
    ends = [0] if "encoder" in options else []
    for row, source in enumerate([[2, 3, 3, 4], [4]]):
        count = int(found.tokens.lengths[row])
        assert found.tokens.token[row, :count].tolist() == [*source, *ends, 1, *found.decoded[row]]
        alone = network(TokenBatch.from_sequences([source]), trace=True)
        torch.testing.assert_close(found.outputs[row, :count], alone.outputs[0])
        for name, values in alone.trace.items():
            place = (row, *(slice(size) for size in values.shape[1:]))
            torch.testing.assert_close(found.trace[name][place], values[0], equal_nan=True)
    assert set(found.trace) <= set(network.trace_axes)
    assert all(found.trace[name].dim() == len(network.trace_axes[name]) for name in found.trace)
    assert network(TokenBatch.from_sequences([]), trace=True).decoded == []


def test_a_trace_holds_the_strengths_and_actions_of_a_stack() -> None:
    network = network_of(memory="stack", cell="RNN")
    network.eval()
    trace = network(TokenBatch.from_sequences([[2, 3, 4]]), trace=True).trace
    push, pop, strength = trace["push"][0, :, 0], trace["pop"][0, :, 0], trace["strength"][0]
    for step in range(1, 4):
        popped, left = pop[step], []
        for before in reversed(strength[step - 1, :step].tolist()):
            left.insert(0, max(0.0, before - max(0.0, popped)))
            popped = popped - before
        torch.testing.assert_close(strength[step, : step + 1], torch.tensor([*left, push[step]]).double())
    assert strength[0, 1:].isnan().all()
    read = trace["readout"][0, 0, 0]
    torch.testing.assert_close(read, push[0].clamp(max=1) * trace["value"][0, 0, 0])


def test_examples_without_source_or_target_are_refused() -> None:
    with pytest.raises(GraphError, match="empty source"):
        network_of()(batch_of(([], [2])))
    with pytest.raises(GraphError, match="target"):
        network_of()(TokenBatch.from_sequences([[2]]))
