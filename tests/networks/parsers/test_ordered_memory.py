from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_task import MoreX, toy_data
from tree_strategies import VOCABULARY, random_forest

import treemem
from treemem.errors import RecipeError
from treemem.networks import NetworkConfig
from treemem.nn import OrderedMemory
from treemem.runs import TrainingOptions, fit
from treemem.schedule.tree_batch import TreeBatch

VARIANTS: list[dict[str, Any]] = [
    {},
    {"bidirectional": True, "score": "tanh"},
    {"cell": "rnn"},
    {"engine": "naive", "slots": 3},
]


def new_layer(seed: int = 0, **options: Any) -> OrderedMemory:
    torch.manual_seed(seed)
    return OrderedMemory(4, VOCABULARY, **{"slots": 6, **options}).double()


def new_inputs(sequences: int, longest: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(sequences, longest, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_with_the_published_left_padding_only_the_longest_are_read_as_if_alone() -> None:
    inputs, lengths = new_inputs(3, 6), torch.tensor([6, 4, 6])
    layer, alone = new_layer(padding="left"), new_layer()
    found, expected = layer.read(inputs, lengths).encoding, alone.read(inputs, lengths).encoding
    torch.testing.assert_close(found[[0, 2]], expected[[0, 2]])
    assert not torch.allclose(found[1], expected[1])
    torch.testing.assert_close(layer.read(inputs[1:2, :4], lengths[1:2]).encoding, expected[1:2])


def test_the_backward_half_is_a_memory_that_reads_the_reversed_sequence() -> None:
    layer, other = new_layer(bidirectional=True), new_layer(seed=1)
    assert layer.backward_memory is not None
    other.forward_memory.load_state_dict(layer.backward_memory.state_dict())
    inputs, lengths = new_inputs(2, 5), torch.tensor([5, 3])
    mirrored = torch.stack([inputs[0].flip(0), torch.cat([inputs[1, :3].flip(0), inputs[1, 3:]])])
    found = layer.read(inputs, lengths, trace=True)
    expected = other.read(mirrored, lengths, trace=True)
    torch.testing.assert_close(found.encoding[:, 4:], expected.encoding)
    for index, length in enumerate(lengths.tolist()):
        for ours, theirs in (
            (found.outputs[..., 4:], expected.outputs),
            (found.trace["backward_pointers"], expected.trace["pointers"]),
            (found.trace["backward_cumulative"], expected.trace["cumulative"]),
        ):
            torch.testing.assert_close(ours[index, :length], theirs[index, :length].flip(0))


@pytest.mark.parametrize(
    ("slots", "length", "least", "most"), [(6, 7, 0, 1e-12), (6, 8, 1e-6, 0.01), (12, 24, 1e-6, 0.01)]
)
def test_twice_the_slots_change_nothing_until_a_sequence_could_fill_them_and_little_then(
    slots: int, length: int, least: float, most: float
) -> None:
    layer, inputs, lengths = new_layer(slots=slots), new_inputs(4, length), torch.full((4,), length)
    few = layer.read(inputs, lengths)
    layer.slots *= 2
    assert layer.options["slots"] == layer.slots == 2 * slots
    difference = float((layer.read(inputs, lengths).encoding - few.encoding).abs().max().detach())
    assert least <= difference <= most


@pytest.mark.parametrize("options", VARIANTS)
def test_evaluation_may_have_slots_of_its_own(options: dict[str, Any]) -> None:
    inputs, lengths = new_inputs(3, 9), torch.tensor([9, 4, 8])
    few, many = new_layer(**options), new_layer(**{**options, "slots": 12})
    layer = new_layer(**options, evaluation_slots=12)
    for same_as, mode in ((few, True), (many, False)):
        layer.train(mode)
        ours, theirs = layer.read(inputs, lengths, trace=True), same_as.read(inputs, lengths, trace=True)
        assert torch.equal(ours.encoding, theirs.encoding)
        assert torch.equal(ours.trace["pointers"], theirs.trace["pointers"])
        batch = TreeBatch.from_forest(random_forest(seed=3, num_trees=4, size=12), VOCABULARY)
        for name, contents in layer.slot_contents(batch).items():
            assert torch.equal(contents, same_as.slot_contents(batch)[name])
    layer.evaluation_slots = None
    assert layer.options["evaluation_slots"] is None
    assert torch.equal(layer.read(inputs, lengths).encoding, few.read(inputs, lengths).encoding)
    assert not torch.equal(few.read(inputs, lengths).encoding, many.read(inputs, lengths).encoding)


@pytest.mark.parametrize(("length", "least", "most"), [(6, 0, 1e-12), (7, 1e-9, 0.1)])
def test_in_a_sequence_that_begins_empty_this_takes_a_slot(length: int, least: float, most: float) -> None:
    layer, inputs, lengths = new_layer(padding="left"), new_inputs(2, 8), torch.tensor([8, length])
    few = layer.read(inputs, lengths).encoding[1]
    layer.slots *= 2
    changed = (few - layer.read(inputs, lengths).encoding[1]).detach().abs().max()
    assert least <= float(changed) <= most


@pytest.mark.parametrize("slots", [1, 2])
def test_a_sequence_longer_than_the_slots_can_hold_has_an_encoding(slots: int) -> None:
    reading = new_layer(slots=slots).read(new_inputs(1, 60), torch.tensor([60]), trace=True)
    assert bool(reading.outputs.isfinite().all())
    torch.testing.assert_close(reading.trace["pointers"][0, 1:].sum(1), torch.ones(59, dtype=torch.float64))


def test_the_padding_can_be_changed_as_the_slots_can_and_nothing_else_is_taken_for_one() -> None:
    layer, inputs, lengths = new_layer(), new_inputs(2, 5), torch.tensor([5, 3])
    layer.padding = "left"
    assert layer.options["padding"] == "left"
    torch.testing.assert_close(
        layer.read(inputs, lengths).encoding, new_layer(padding="left").read(inputs, lengths).encoding
    )
    with pytest.raises(RecipeError, match=r"padding='lfet' is none of right, .*did you mean left"):
        layer.padding = "lfet"  # type: ignore[assignment]
    assert layer.padding == "left"


def test_pointers_are_probabilities_that_go_down_one_slot_a_step_at_most() -> None:
    layer = new_layer()
    states = layer(TreeBatch.from_forest(random_forest(seed=1, num_trees=5, size=15), VOCABULARY), trace=True)
    pointers, cumulative = states.trace["pointers"], states.trace["cumulative"]
    assert pointers.shape == (5, states.h.shape[1], 6)
    torch.testing.assert_close(cumulative, pointers.cumsum(2))
    for index, length in enumerate(states.lengths.tolist()):
        assert not pointers[index, 0].any()
        assert not pointers[index, length:].any()
        torch.testing.assert_close(pointers[index, 1:length].sum(1), torch.ones(length - 1, dtype=torch.float64))
        highest = [6, *((pointers[index, 1:length] > 0).int().argmax(1).tolist())]
        assert all(after >= before - 1 for before, after in pairwise(highest))
    assert not layer(TreeBatch.from_trees([], VOCABULARY)).trace


@pytest.mark.parametrize("padding", ["right", "right flipped", "left"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "dropout": 0.5}, {"cell": "rnn"}])
def test_the_last_slot_holds_the_output_at_every_token_and_slots_after_the_end_are_empty(
    options: dict[str, Any], padding: str
) -> None:
    layer = new_layer(padding=padding, **options)
    batch = TreeBatch.from_forest(random_forest(seed=4, num_trees=4, size=9), VOCABULARY)
    held = layer.slot_contents(batch)
    states = layer.eval()(batch, trace=True)
    assert set(held) == ({"slots", "backward_slots"} if "bidirectional" in options else {"slots"})
    torch.testing.assert_close(torch.cat([value[:, :, -1] for value in held.values()], 2), states.h)
    for value in held.values():
        assert value.shape == (4, states.h.shape[1], 6, 4)
        for sequence, length in enumerate(states.lengths.tolist()):
            assert not value[sequence, length:].any()


def test_the_encoder_for_logic_has_as_many_parameters_as_published() -> None:
    for size, published in ((200, 1_083_601), (128, 444_673)):
        maps = OrderedMemory(size, VOCABULARY).forward_memory
        assert sum(parameter.numel() for parameter in maps.parameters()) == published


def test_the_score_of_the_paper_is_recorded_and_loaded(tmp_path: Path) -> None:
    network = NetworkConfig("OrderedMemory", {"hidden_size": 6, "slots": 4, "score": "tanh"})
    options = TrainingOptions(epochs=1, accelerator="cpu", learning_rate=0.01)
    model = fit(MoreX(), network, toy_data(40), options, output=tmp_path / "run", progress=False).model
    again = treemem.load(tmp_path / "run")
    assert again.encoder.options["score"] == "tanh"
    maps = again.encoder.forward_memory
    assert maps.attention_map.weight.shape == (6, 12)
    assert "forward_memory.query_map.weight" not in again.encoder.state_dict()
    assert (again.predict(toy_data(20)) == model.predict(toy_data(20))).all()
    other = network.replace(score="layer_norm").build(MoreX().vocabulary)
    assert other.options["score"] == "layer_norm"
    assert "forward_memory.query_map.weight" in other.state_dict()


def test_an_engine_by_its_former_name_is_that_of_today() -> None:
    assert new_layer(engine="stepwise").options["engine"] == "naive"
    with pytest.raises(RecipeError, match="engine='steps' is none of auto, fused, naive"):
        new_layer(engine="steps")
