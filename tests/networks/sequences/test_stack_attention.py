"""Stack attention: the layers by name, sequences as if alone, causal layers, the trace, and wrong options."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional
from tree_strategies import VOCABULARY

from treemem.errors import RecipeError
from treemem.networks.memories.superposition.layer import SuperpositionStack
from treemem.networks.sequences.stack_attention.sublayers import (
    NondeterministicSublayer,
    StackLayer,
    StackSublayer,
    SuperpositionSublayer,
)
from treemem.nn import StackAttentionTransformer

LENGTHS = torch.tensor([4, 1, 0, 6])
BOTH = "1.superposition-5.1.nondeterministic-1-2-3"


def network_of(**options: Any) -> StackAttentionTransformer:
    torch.manual_seed(1)
    made = StackAttentionTransformer(
        6, VOCABULARY, **{"layers": BOTH, "num_heads": 2, "feedforward_size": 5, **options}
    )
    return made.double().eval()


def inputs() -> torch.Tensor:
    torch.manual_seed(5)
    return torch.randn(4, 6, 6, dtype=torch.float64)


def test_layers_come_in_the_order_of_their_names() -> None:
    network = network_of(layers="2.superposition-3.nondeterministic-2-3-4.1")
    kinds = [type(layer.stack) if isinstance(layer, StackLayer) else None for layer in network.layers]
    assert kinds == [None, None, SuperpositionSublayer, NondeterministicSublayer, None]
    assert network.layers[2].stack.value.weight.shape == (3, 6)
    assert network.layers[3].stack.output.weight.shape == (6, 2 * 3 * 4)
    assert network.layers[3].hidden_map.weight.shape == (5, 6)
    assert network.options["layers"] == "2.superposition-3.nondeterministic-2-3-4.1"
    assert len(network_of(layers=5).layers) == 5


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"read": "mean"}, {"joint": True}], ids=str)
def test_a_sequence_is_encoded_as_if_alone(options: dict[str, Any]) -> None:
    network, given = network_of(**options), inputs()
    together = network.read(given, LENGTHS).encoding
    size = 2 if network.joint else 1
    for row, encoding in enumerate(together):
        of_row = slice(size * row, size * (row + 1))
        lengths = LENGTHS[of_row]
        alone = network.read(given[of_row, : int(lengths.max())], lengths).encoding
        torch.testing.assert_close(encoding, alone[0], rtol=0, atol=1e-12)
    if size == 1:
        assert not together[2].any(), "the encoding of an empty sequence is 0"


def test_causal_outputs_do_not_depend_on_later_tokens() -> None:
    given = inputs()
    other = given.clone()
    other[:, 3:] = other[:, 3:].flip(2)  # adding a number would not change what is normalised
    lengths = torch.full((4,), 6)
    for causal in (True, False):
        network = network_of(causal=causal, read="last")
        before, after = (network.read(values, lengths).outputs[:, :3] for values in (given, other))
        assert torch.allclose(before, after, rtol=0, atol=1e-12) == causal


def test_items_that_cannot_come_up_again_are_not_kept() -> None:
    stack, given = SuperpositionSublayer(6, 3).double(), inputs()
    deep = SuperpositionStack(6, empty=0.0)
    for longest in range(7):
        values = given[:, :longest]
        expected = deep(stack.value(values), *stack.weights(values).unbind(2))
        torch.testing.assert_close(stack.readouts(values), expected)


@pytest.mark.parametrize("stack", [SuperpositionSublayer(6, 3), NondeterministicSublayer(6, 1, 2, 3)])
def test_dropout_of_a_stack_layer_is_that_of_its_formula(stack: StackSublayer) -> None:
    layer, given = StackLayer(stack, 6, 5, 0.5), inputs().float()
    torch.manual_seed(2)
    trained = layer(given)
    torch.manual_seed(2)
    after = given + functional.dropout(stack(layer.stack_norm(given)), 0.5)
    hidden = functional.dropout(torch.relu(layer.hidden_map(layer.feedforward_norm(after))), 0.5)
    torch.testing.assert_close(trained, after + functional.dropout(layer.output_map(hidden), 0.5))
    layer.eval()
    assert torch.equal(layer(given), layer(given))
    assert not torch.equal(layer(given), trained)


def test_the_trace_has_attention_and_the_actions_of_superposition_stacks() -> None:
    network = network_of(causal=True, read="mean")
    trace = network.read(inputs(), LENGTHS, trace=True).trace
    assert list(trace) == list(network.trace_axes) == ["attention", "push", "pop", "no_op"]
    assert trace["attention"].shape == (4, 2, 6, 6)
    assert not trace["attention"].triu(1).any()
    total = trace["push"] + trace["pop"] + trace["no_op"]
    inside = torch.arange(6) < LENGTHS[:, None]
    torch.testing.assert_close(total, inside[:, None].double())
    plain = network_of(layers="2")
    assert list(plain.read(inputs(), LENGTHS, trace=True).trace) == list(plain.trace_axes) == ["attention"]


def test_new_weights_are_drawn_as_the_first_ones() -> None:
    network = network_of()
    first = {name: value.clone() for name, value in network.state_dict().items()}
    network.reset_parameters()
    for name, value in network.state_dict().items():
        assert bool((value == value.flatten()[0]).all()) or not torch.equal(value, first[name]), name
        assert value.abs().max() < 10 * first[name].abs().max() + 1, name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": "2.stack-3.2"}, r"the part 'stack-3'; a part is a number of standard layers, superposition-WIDTH"),
        ({"layers": "superposition-0"}, "the part 'superposition-0'"),
        ({"layers": "nondeterministic-2-3"}, "the part 'nondeterministic-2-3'"),
        ({"layers": ""}, "the part ''"),
        ({"layers": "2..2"}, "the part ''"),
        ({"causal": "yes"}, "causal must be True or False"),
        ({"num_heads": 4}, "num_heads=4 does not divide hidden_size=6"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        network_of(**options)
