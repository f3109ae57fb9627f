"""ON-LSTM: its states, traces and dropouts."""

from __future__ import annotations

import pytest
import torch
from tree_strategies import VOCABULARY, random_forest

from treemem.engines.sequence_engine import SequenceEngine
from treemem.errors import GraphError
from treemem.networks.parsers.on_lstm.layer import OnLSTMStack
from treemem.networks.sequences.locked_dropout import locked_dropout
from treemem.nn import ONLSTM
from treemem.schedule.tree_batch import TreeBatch


def stack_of(engine: SequenceEngine = "fused") -> OnLSTMStack:
    torch.manual_seed(0)
    return OnLSTMStack(5, [6, 4], chunk_size=2, engine=engine).double()


@pytest.mark.usefixtures("unset_memory_is_nan")
def test_a_run_goes_on_where_another_ended_with_and_without_gradients() -> None:
    stack, lengths = stack_of(), torch.tensor([7, 4, 6])
    inputs = torch.randn(3, 7, 5, dtype=torch.float64)
    whole, first = stack(inputs, lengths), stack(inputs[:, :4])
    second = stack(inputs[:, 4:], lengths - 4, first.state)
    torch.testing.assert_close(torch.cat([first.h, second.h], dim=1), whole.h)
    torch.testing.assert_close(second.state, whole.state)
    with torch.no_grad():
        found = stack(inputs[:, 4:], lengths - 4, first.state)
    for layer, wanted in zip(found.layers, second.layers, strict=True):
        for name, value in layer._asdict().items():
            assert torch.equal(value, getattr(wanted, name)), name


@pytest.mark.parametrize("engine", ["fused", "naive"])
def test_a_state_of_other_sequences_or_layers_is_refused(engine: SequenceEngine) -> None:
    stack, inputs = stack_of(engine), torch.zeros(4, 3, 5, dtype=torch.float64)
    (hidden, cell), second = stack.initial(4)
    for state, problem in (
        *((stack.initial(sequences), "hidden") for sequences in (5, 3, 1)),
        ([(hidden, cell[:, :5]), second], "cell"),
        *((state, "2 layers") for state in ([], [second])),
    ):
        with pytest.raises(GraphError, match=problem):
            stack(inputs, state=state)
    with pytest.raises(GraphError, match="inputs"):
        stack(torch.zeros(4, 3, 6))


def test_the_trace_tells_the_master_gates_of_all_layers() -> None:
    torch.manual_seed(0)
    encoder = ONLSTM(4, VOCABULARY, layer_sizes=[6, 4], chunk_size=2)
    trace = encoder.read(torch.randn(5, 7, 4), torch.full((5,), 7), trace=True).trace
    for name, ends_at in (("forget", 1.0), ("input", 0.0)):
        for layer, gates in enumerate(trace[f"master_{name}"].split([3, 2], dim=2)):
            steps = gates.diff(dim=2)
            assert bool((steps >= 0).all() if ends_at else (steps <= 0).all())
            torch.testing.assert_close(gates[..., -1], torch.full((5, 7), ends_at))
            mean = 1 - gates.mean(2) if name == "forget" else gates.mean(2)
            torch.testing.assert_close(trace[f"{name}_distance"][:, layer], mean)


def test_what_is_dropped_is_the_same_at_every_token_of_a_sequence() -> None:
    torch.manual_seed(0)
    value = torch.ones(40, 5, 30)
    dropped = locked_dropout(value, 0.25, training=True)
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert not torch.equal(dropped[0], dropped[1])
    assert sorted(dropped.unique().tolist()) == pytest.approx([0.0, 1 / 0.75])
    assert 0.7 < dropped.gt(0).float().mean() < 0.8
    assert torch.equal(locked_dropout(value, 0.25, training=False), value)


def test_dropped_outputs_and_the_encoding_have_one_mask() -> None:
    torch.manual_seed(0)
    encoder = ONLSTM(20, VOCABULARY, chunk_size=2, output_dropout=0.5)
    batch = TreeBatch.from_forest(random_forest(seed=3, num_trees=5, size=12), VOCABULARY)
    states, whole = encoder(batch), encoder.eval()(batch)
    for row in range(5):
        kept = states.h[row].any(0)  # of one token an entry may be 0 without dropout too
        assert 0 < kept.sum() < 20
        torch.testing.assert_close(states.h[row], 2 * kept * whole.h[row])
        torch.testing.assert_close(states.root[row, 0], 2 * kept * whole.root[row, 0])


def test_both_scalings_of_dropped_weights_are_what_they_say() -> None:
    kept_as_they_are, divided = (
        OnLSTMStack(3, [8], 2, weight_dropout=0.25, weight_dropout_scaling=scaling)
        for scaling in ("published", "inverted")
    )
    for stack, in_training, in_evaluation in ((kept_as_they_are, 1.0, 0.75), (divided, 1 / 0.75, 1.0)):
        weight = stack.layers[0].of_hidden.weight
        dropped = stack._weights(stack.layers[0]).hidden_weight
        kept = dropped != 0
        assert 0.6 < kept.float().mean() < 0.9
        torch.testing.assert_close(dropped[kept], weight[kept] * in_training)
        stack.eval()
        torch.testing.assert_close(stack._weights(stack.layers[0]).hidden_weight, weight * in_evaluation)
