from __future__ import annotations

from typing import Any

import pytest
import torch
from attention_reference import fixed_weights, gradients, normalized, reference_layer, sine_and_cosine
from engine_parity import assert_same
from toy_task import MoreX, toy_data
from tree_strategies import VOCABULARY, random_forest

from treemem.errors import GraphError, RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.networks.sequences.attention_encoder import attention_weights, sinusoids
from treemem.nn import Transformer
from treemem.schedule.tree_batch import TreeBatch

SMALL: dict[str, Any] = {"num_layers": 2, "num_heads": 2, "feedforward_size": 5}
LENGTHS = torch.tensor([4, 1, 0, 6])


def random_inputs(num_sequences: int = 4, longest: int = 6) -> torch.Tensor:
    torch.manual_seed(5)
    return torch.randn(num_sequences, longest, 6, dtype=torch.float64)


def reference(encoder: Transformer, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The outputs of the last layer for one sequence with its marks, and the weights of every layer."""
    learned = encoder.positions
    positions = (
        torch.stack([sine_and_cosine(place, 6) for place in range(len(vectors))])
        if learned is None
        else learned.weight[: len(vectors)]
    )
    values, all_weights = vectors + positions, []
    for layer in encoder.layers:
        values, weights = reference_layer(values, layer)  # type: ignore[arg-type]
        all_weights.append(weights)
    if encoder.norm_first:
        values = normalized(values, encoder.last_norm)  # type: ignore[arg-type]
    return values, torch.stack(all_weights)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm_first": True},
        {"read": "mean"},
        {"read": "first", "norm_first": True},
        {"read": "last", "positions": "learned", "max_length": 7},
    ],
    ids=str,
)
def test_the_encoder_equals_the_equations_on_every_output_and_gradient(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    encoder = Transformer(6, VOCABULARY, **SMALL, **options).double()
    inputs = random_inputs()
    expected = torch.zeros(4, 6, dtype=torch.float64)
    for row, length in enumerate(LENGTHS.tolist()):
        if not length:
            continue
        marks = [] if encoder.marks is None else [encoder.marks.weight]
        outputs, _ = reference(encoder, torch.cat([inputs[row, :length], *marks]))
        read = {"extract": outputs[-1], "mean": outputs.mean(0), "first": outputs[0], "last": outputs[-1]}
        expected = expected.index_put((torch.tensor([row]),), read[encoder.readout_place][None])
    wanted = {"encoding": expected.detach(), **gradients(encoder, fixed_weights(expected))}
    encoding = encoder.read(inputs, LENGTHS).encoding
    assert_same({"encoding": encoding.detach(), **gradients(encoder, fixed_weights(encoding))}, wanted, "trained")
    encoder.eval()
    with torch.no_grad():  # where torch has another way of its own
        assert_same({"encoding": encoder.read(inputs, LENGTHS).encoding}, {"encoding": wanted["encoding"]}, "evaluated")


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_pair_is_read_as_one_sequence_with_its_marks(norm_first: bool) -> None:
    torch.manual_seed(0)
    encoder = Transformer(6, VOCABULARY, **SMALL, joint=True, norm_first=norm_first).double()
    inputs = random_inputs()
    assert encoder.marks is not None
    extract, start, delimiter = encoder.marks.weight[:, None]
    expected, sequences = [], []
    for left, right in ((0, 1), (2, 3)):
        parts = [inputs[side, : LENGTHS[side]] for side in (left, right)]
        sequences.append(torch.cat([start, parts[0], delimiter, parts[1], extract]))
        expected.append(reference(encoder, sequences[-1])[0])
    wanted = torch.stack([outputs[-1] for outputs in expected])
    reading = encoder.read(inputs, LENGTHS)
    assert reading.outputs.shape == (2, 9, 6)
    for row, outputs in enumerate(expected):
        torch.testing.assert_close(reading.outputs[row, : len(outputs)], outputs)
        assert not reading.outputs[row, len(outputs) :].any()
    found = {"encoding": reading.encoding.detach(), **gradients(encoder, fixed_weights(reading.encoding))}
    assert_same(found, {"encoding": wanted.detach(), **gradients(encoder, fixed_weights(wanted))}, "joint")


@pytest.mark.parametrize("joint", [False, True])
def test_the_trace_tells_what_each_position_attends_to(joint: bool) -> None:
    torch.manual_seed(0)
    encoder = Transformer(6, VOCABULARY, **SMALL, joint=joint).double()
    inputs = random_inputs()
    attention = encoder.read(inputs, LENGTHS, trace=True).trace["attention"]
    assert attention.shape == ((2, 2, 9, 9) if joint else (4, 2, 7, 7))
    assert encoder.marks is not None
    parts = [inputs[row, :length] for row, length in enumerate(LENGTHS.tolist())]
    if joint:
        extract, start, delimiter = encoder.marks.weight[:, None]
        sequences = [torch.cat([start, parts[row], delimiter, parts[row + 1], extract]) for row in (0, 2)]
    else:
        sequences = [torch.cat([part, encoder.marks.weight]) if len(part) else part for part in parts]
    for found, sequence in zip(attention, sequences, strict=True):
        length = len(sequence)
        assert found.count_nonzero() == 2 * length**2
        if length:
            torch.testing.assert_close(found[:, :length, :length], reference(encoder, sequence)[1])


def test_a_joint_encoder_refuses_examples_that_are_no_pairs() -> None:
    encoder = Transformer(6, VOCABULARY, **SMALL, joint=True)
    forest = random_forest(seed=3, num_trees=6, size=12)
    for count in (1, 3):
        with pytest.raises(GraphError, match=rf"these examples have {count}; make the batch with trees_per_example=2"):
            encoder(TreeBatch.from_forest(forest, VOCABULARY, trees_per_example=count))
    with pytest.raises(GraphError, match="reads pairs of sequences, one after the other, and these are 3"):
        encoder.read(torch.zeros(3, 2, 6), torch.tensor([1, 2, 2]))


class JointMoreX(MoreX):
    """The toy task with a head for pairs that were read as one sequence."""

    def joint_head(self, hidden_size: int) -> torch.nn.Module:
        return self.head(hidden_size)


def test_a_joint_encoder_is_under_the_joint_head_of_the_task() -> None:
    torch.manual_seed(0)
    config = NetworkConfig("Transformer", {"hidden_size": 6, **SMALL, "joint": True})
    task = JointMoreX()
    batch = TreeBatch.from_forest(toy_data(6), task.vocabulary, trees_per_example=2)
    assert Model(task, config)(batch).shape == (3,)
    with pytest.raises(RecipeError, match="more_x has no head for networks that read the trees of an example as one"):
        Model(MoreX(), config)


def test_sinusoids_are_those_of_the_paper() -> None:
    for size in (1, 6, 7):
        expected = torch.stack([sine_and_cosine(number, size) for number in range(50)])
        torch.testing.assert_close(sinusoids(torch.arange(50), size), expected, rtol=0, atol=1e-12)


def test_marks_start_as_the_vectors_of_tokens_do_at_first_and_after_a_reset() -> None:
    torch.manual_seed(0)
    for bound, least, most in ((0.01, 0.005, 0.01), (None, 1.0, 10.0)):
        encoder = Transformer(6, VOCABULARY, **SMALL, joint=True, embedding_bound=bound)
        for reset in (lambda: None, encoder.reset_parameters, encoder.reset_embedding):
            reset()
            for vectors in (encoder.embedding, encoder.marks):
                assert vectors is not None
                assert least < float(vectors.weight.detach().abs().max()) <= most


def test_a_sequence_longer_than_the_learned_positions_is_refused() -> None:
    encoder = Transformer(6, VOCABULARY, **SMALL, positions="learned", max_length=4)
    encoder.read(torch.zeros(1, 3, 6), torch.tensor([3]))
    with pytest.raises(GraphError, match="a sequence of 5, marks counted, is longer than max_length=4"):
        encoder.read(torch.zeros(1, 4, 6), torch.tensor([4]))


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_weights_of_attention_are_those_that_torch_tells(norm_first: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(6, 3, 5, 0.0, batch_first=True, norm_first=norm_first).double()
    torch.nn.init.normal_(layer.self_attn.in_proj_weight)
    torch.nn.init.normal_(layer.self_attn.in_proj_bias)
    inputs = random_inputs()
    read = layer.norm1(inputs) if norm_first else inputs
    absent = torch.arange(6) >= torch.tensor([4, 1, 6, 6])[:, None]
    for mask in (absent, None):
        _, expected = layer.self_attn(read, read, read, key_padding_mask=mask, need_weights=True)
        torch.testing.assert_close(attention_weights(layer, inputs, mask), expected.detach())
