"""The Transformers of Vaswani et al. 2017 and Dehghani et al. 2018, against their equations."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from engine_parity import assert_same
from sequence_networks import with_gradients
from torch import Tensor
from toy_task import MoreX, toy_data
from tree_strategies import VOCABULARY, random_forest

from treemem.errors import GraphError, RecipeError
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.networks.sequences.attention_encoder import attention_weights, sinusoids
from treemem.nn import Transformer, UniversalTransformer
from treemem.schedule.tree_batch import TreeBatch

SIZE = 6
SMALL: dict[str, dict[str, Any]] = {
    "Transformer": {"num_layers": 2, "num_heads": 2, "feedforward_size": 5},
    "UniversalTransformer": {"num_steps": 5, "num_heads": 2, "feedforward_size": 5},
}
LENGTHS = torch.tensor([4, 1, 0, 6])


def encoder_of(name: str, **options: Any) -> Any:
    torch.manual_seed(1)
    encoder: Any = NetworkConfig(name, {"hidden_size": SIZE, **SMALL[name], **options}).build(VOCABULARY).double()
    if options.get("act"):  # so that some positions halt early, some late and some never
        torch.nn.init.zeros_(encoder.halting.bias)
    return encoder


def random_inputs() -> Tensor:
    torch.manual_seed(5)
    return torch.randn(4, 6, SIZE, dtype=torch.float64)


def normalized(values: Tensor, norm: torch.nn.LayerNorm) -> Tensor:
    """Layer norm of ``[tokens, size]``."""
    mean = values.mean(1, keepdim=True)
    variance = ((values - mean) ** 2).mean(1, keepdim=True)
    return (values - mean) / torch.sqrt(variance + 1e-5) * norm.weight + norm.bias


def attended(values: Tensor, attention: torch.nn.MultiheadAttention) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention of every head, ``[tokens, size]``, and the mean weights, ``[tokens, tokens]``."""
    width, weights, heads = SIZE // attention.num_heads, [], []
    query, key, value = (values @ attention.in_proj_weight.T + attention.in_proj_bias).split(SIZE, 1)
    for head in range(attention.num_heads):
        own = slice(head * width, (head + 1) * width)
        powers = torch.exp(query[:, own] @ key[:, own].T / math.sqrt(width))
        weights.append(powers / powers.sum(1, keepdim=True))
        heads.append(weights[-1] @ value[:, own])
    return torch.cat(heads, 1) @ attention.out_proj.weight.T + attention.out_proj.bias, torch.stack(weights).mean(0)


def layer_of(values: Tensor, layer: Any) -> tuple[Tensor, Tensor]:
    """The outputs of a layer for ``[tokens, size]``, and the mean weights of its heads."""

    def mapped(values: Tensor) -> Tensor:
        hidden = values @ layer.linear1.weight.T + layer.linear1.bias
        return hidden * (hidden > 0) @ layer.linear2.weight.T + layer.linear2.bias

    if layer.norm_first:
        of_attention, weights = attended(normalized(values, layer.norm1), layer.self_attn)
        values = values + of_attention
        return values + mapped(normalized(values, layer.norm2)), weights
    of_attention, weights = attended(values, layer.self_attn)
    values = normalized(values + of_attention, layer.norm1)
    return normalized(values + mapped(values), layer.norm2), weights


def sine_and_cosine(number: int, size: int = SIZE) -> Tensor:
    """The vector of a number, ``[size]``."""
    entries = []
    for index in range(size):
        angle = number / 10000 ** ((index - index % 2) / size)
        entries.append(math.cos(angle) if index % 2 else math.sin(angle))
    return torch.tensor(entries, dtype=torch.float64)


def reference(encoder: Any, vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs for one sequence with its marks, the weights of every layer or step, and the ponder times."""
    run = transformer if isinstance(encoder, Transformer) else universal
    values, weights, ponder = run(encoder, vectors)
    return (normalized(values, encoder.last_norm) if encoder.norm_first else values), torch.stack(weights), ponder


def transformer(encoder: Any, vectors: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
    places = torch.stack([sine_and_cosine(place) for place in range(len(vectors))])
    values = vectors + (places if encoder.positions is None else encoder.positions.weight[: len(vectors)])
    all_weights = []
    for layer in encoder.layers:
        values, weights = layer_of(values, layer)
        all_weights.append(weights)
    return values, all_weights, torch.zeros(0)


def universal(encoder: Any, vectors: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
    places = torch.stack([sine_and_cosine(1 + place) for place in range(len(vectors))])
    state, outputs, all_weights = vectors, [torch.zeros(SIZE).double()] * len(vectors), []
    halting, ponder = ([torch.zeros(()).double()] * len(vectors) for _ in range(2))
    halted = [False] * len(vectors)
    for step in range(encoder.num_steps):
        inputs = state + places + sine_and_cosine(1 + step)
        state, weights = layer_of(inputs, encoder.layer)
        all_weights.append(weights)
        if encoder.halting is None:
            outputs = list(state)
            continue
        for place in (place for place in range(len(vectors)) if not halted[place]):
            probability = (inputs[place] @ encoder.halting.weight[0] + encoder.halting.bias[0]).sigmoid()
            ponder[place] = ponder[place] + 1
            if float((halting[place] + probability).detach()) > encoder.threshold:
                halted[place] = True
                probability = 1 - halting[place]
                ponder[place] = ponder[place] + probability
            halting[place] = halting[place] + probability
            outputs[place] = probability * state[place] + (1 - probability) * outputs[place]
    return torch.stack(outputs), all_weights, torch.stack(ponder)


def sequences_of(encoder: Any, inputs: Tensor) -> list[Tensor]:
    """What is read at once: a sequence and its mark, or both of a pair with the marks; nothing if there is no token."""
    parts = [inputs[row, :length] for row, length in enumerate(LENGTHS.tolist())]
    if encoder.joint:
        extract, start, delimiter = encoder.marks.weight[:, None]
        return [torch.cat([start, parts[row], delimiter, parts[row + 1], extract]) for row in (0, 2)]
    marks = [] if encoder.marks is None else [encoder.marks.weight]
    return [torch.cat([part, *marks]) if len(part) else part for part in parts]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Transformer", {}),
        ("Transformer", {"norm_first": True}),
        ("Transformer", {"read": "mean"}),
        ("Transformer", {"read": "first", "norm_first": True}),
        ("Transformer", {"read": "last", "positions": "learned", "max_length": 7}),
        ("Transformer", {"joint": True}),
        ("Transformer", {"joint": True, "norm_first": True}),
        ("UniversalTransformer", {}),
        ("UniversalTransformer", {"norm_first": True}),
        ("UniversalTransformer", {"act": True}),
        ("UniversalTransformer", {"act": True, "norm_first": True, "read": "mean"}),
        ("UniversalTransformer", {"joint": True}),
        ("UniversalTransformer", {"joint": True, "act": True}),
    ],
    ids=str,
)
def test_encodings_traces_and_gradients_are_those_of_the_equations(name: str, options: dict[str, Any]) -> None:
    encoder, inputs = encoder_of(name, **options), random_inputs()
    found = encoder.read(inputs, LENGTHS, trace=True)
    act, rows, of_nothing = options.get("act"), [], torch.zeros(SIZE).double()
    ponder = found.trace.get("ponder", torch.zeros(()))
    for row, sequence in enumerate(sequences_of(encoder, inputs)):
        length = len(sequence)
        attention = found.trace["attention"][row]
        assert attention[:, :length, :length].count_nonzero() == attention.count_nonzero()
        assert not found.outputs[row, length:].any()
        if not length:
            rows.append((of_nothing, torch.zeros(0)))
            continue
        outputs, weights, times = reference(encoder, sequence)
        read = {"mean": outputs.mean(0), "first": outputs[0]}.get(encoder.readout_place, outputs[-1])
        rows.append((read, times))
        if act:
            torch.testing.assert_close(ponder[row, :length], times)
        else:
            torch.testing.assert_close(attention[:, :length, :length], weights)
        if encoder.joint:
            torch.testing.assert_close(found.outputs[row, :length], outputs)
    if act:
        assert len(set(ponder.detach().floor().flatten().tolist())) > 2, "positions must halt at different steps"
        loss = found.auxiliary_losses["ponder"]
        torch.testing.assert_close(loss.sum, ponder.sum())
        assert loss.count == (ponder > 0).sum()
    else:
        assert not found.auxiliary_losses
    compared = []
    for encoding, times in ((found.encoding, ponder), map(list, zip(*rows, strict=True))):
        encoder.zero_grad()
        outputs = {"encoding": encoding if torch.is_tensor(encoding) else torch.stack(encoding)}
        outputs |= {"ponder": sum(each.sum() for each in times)} if act else {}
        compared.append(with_gradients(outputs, dict(encoder.named_parameters())))
    assert_same(compared[0], compared[1], str(options))
    with torch.no_grad():  # where torch has another way of its own
        evaluated = encoder.eval().read(inputs, LENGTHS).encoding
    torch.testing.assert_close(evaluated, compared[1]["encoding"], rtol=0, atol=1e-10)


@pytest.mark.parametrize(("name", "options"), [("Transformer", {}), ("UniversalTransformer", {"act": True})])
def test_of_a_pair_of_nothing_the_marks_are_read(name: str, options: dict[str, Any]) -> None:
    encoder, lengths = encoder_of(name, joint=True, **options), torch.tensor([0, 0, 3, 0])
    inputs = random_inputs()
    inputs[torch.arange(6) >= lengths[:, None]] = torch.nan
    together = encoder.read(inputs, lengths)
    assert together.encoding.any(dim=1).all()
    for pair, sides in enumerate((slice(0, 2), slice(2, 4))):
        torch.testing.assert_close(encoder.read(inputs[sides], lengths[sides]).encoding[0], together.encoding[pair])
    nothing = encoder.read(inputs[:2, :0], lengths[:2])
    assert nothing.outputs.shape == (1, 3, SIZE)
    torch.testing.assert_close(nothing.encoding, together.encoding[:1])
    together.encoding.sum().backward()
    assert all(each.grad is None or each.grad.isfinite().all() for each in encoder.parameters())


def test_a_joint_encoder_refuses_examples_that_are_no_pairs() -> None:
    encoder, forest = encoder_of("Transformer", joint=True), random_forest(seed=3, num_trees=6, size=12)
    for count in (1, 3):
        with pytest.raises(GraphError, match=f"{count}; make the batch with trees_per_example=2"):
            encoder(TreeBatch.from_forest(forest, VOCABULARY, trees_per_example=count))
    with pytest.raises(GraphError, match=r"pairs of sequences, .* these are 3"):
        encoder.read(torch.zeros(3, 2, SIZE), torch.tensor([1, 2, 2]))


class JointMoreX(MoreX):
    """The toy task with a head for pairs that were read as one sequence."""

    def joint_head(self, hidden_size: int) -> torch.nn.Module:
        return self.head(hidden_size)


def test_a_joint_encoder_is_under_the_joint_head_of_the_task() -> None:
    config, task = (
        NetworkConfig("Transformer", {"hidden_size": SIZE, **SMALL["Transformer"], "joint": True}),
        JointMoreX(),
    )
    batch = TreeBatch.from_forest(toy_data(6), task.vocabulary, trees_per_example=2)
    assert Model(task, config)(batch).shape == (3,)
    with pytest.raises(RecipeError, match="more_x has no head for networks that read the trees of an example as one"):
        Model(MoreX(), config)


def test_sinusoids_are_those_of_the_paper() -> None:
    for size in (1, 6, 7):
        expected = torch.stack([sine_and_cosine(number, size) for number in range(50)])
        torch.testing.assert_close(sinusoids(torch.arange(50), size), expected, rtol=0, atol=1e-12)


def test_marks_and_the_bias_to_halt_start_as_said_at_first_and_after_a_reset() -> None:
    for bound, least, most in ((0.01, 0.005, 0.01), (None, 1.0, 10.0)):
        encoder = encoder_of("Transformer", joint=True, embedding_bound=bound)
        for reset in (lambda: None, encoder.reset_parameters, encoder.reset_embedding):
            reset()
            for vectors in (encoder.embedding, encoder.marks):
                assert least < float(vectors.weight.detach().abs().max()) <= most
    universal_transformer = UniversalTransformer(SIZE, VOCABULARY, num_heads=2, act=True)
    for reset in (lambda: None, universal_transformer.reset_parameters):
        reset()
        assert universal_transformer.halting.bias.tolist() == [1.0]


def test_a_sequence_longer_than_the_learned_positions_is_refused() -> None:
    encoder = encoder_of("Transformer", positions="learned", max_length=4)
    encoder.read(torch.zeros(1, 3, SIZE).double(), torch.tensor([3]))
    with pytest.raises(GraphError, match="max_length=4"):
        encoder.read(torch.zeros(1, 4, SIZE).double(), torch.tensor([4]))


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


def test_all_stop_once_every_position_has_halted() -> None:
    encoder = encoder_of("UniversalTransformer", act=True)
    torch.nn.init.constant_(encoder.halting.bias, 50)
    calls: list[int] = []
    encoder.layer.register_forward_hook(lambda *_: calls.append(1))
    trace = encoder.read(random_inputs(), LENGTHS, trace=True).trace
    assert len(calls) == 1
    assert trace["attention"].shape == (4, 5, 7, 7)
    assert trace["attention"][:, 0].any()
    assert not trace["attention"][:, 1:].any()
    present = torch.arange(7) <= LENGTHS[:, None]
    present[2] = False
    assert torch.equal(trace["ponder"], 2 * present.double()), "one step, and a remainder of 1"


@pytest.mark.parametrize("joint", [False, True])
def test_a_training_does_not_begin_if_an_example_is_longer_than_the_learned_positions(joint: bool) -> None:
    batch = TreeBatch.from_forest(random_forest(1, 2, 7), VOCABULARY, trees_per_example=2)
    encoder = encoder_of("Transformer", joint=joint)
    encoder.check_batches([batch])
    longest = encoder(batch).outputs.shape[1] + (not joint)  # with the vector that is read
    encoder_of("Transformer", joint=joint, positions="learned", max_length=longest).check_batches([batch])
    short = encoder_of("Transformer", joint=joint, positions="learned", max_length=longest - 1)
    with pytest.raises(GraphError, match=f"max_length={longest - 1}"):
        short.check_batches([batch])
