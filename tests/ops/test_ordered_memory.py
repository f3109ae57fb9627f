from __future__ import annotations

import pytest
import torch
from engine_parity import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st
from ordered_memory_runs import SIZE, ByHand, new_inputs, new_maps, results

from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.parsers.ordered_memory import equations
from treemem.networks.parsers.ordered_memory.equations import Dropouts
from treemem.networks.parsers.ordered_memory.layer import OrderedMemoryCell, OrderedMemoryScore
from treemem.networks.parsers.ordered_memory.run import ordered_memory

ENGINES: tuple[SequenceEngine, ...] = ("naive", "fused")

MAPS = [("gated", "layer_norm"), ("gated", "tanh"), ("rnn", "layer_norm"), ("rnn", "tanh")]
LENGTHS = {
    "ragged": [5, 9, 1, 3, 9, 2],
    "equal": [6, 6, 6],
    "one": [7],
    "single tokens": [1, 1],
    "with empty ones": [0, 4, 0, 2],
    "only empty ones": [0, 0],
    "none": [],
}


@pytest.mark.usefixtures("unset_memory_is_nan")
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize(("cell", "score"), MAPS)
def test_fused_is_naive_in_every_output_and_gradient(
    lengths: list[int], slots: int, cell: OrderedMemoryCell, score: OrderedMemoryScore
) -> None:
    for sharpness, skip in ((1.0, 0.0), (40.0, 0.0), (40.0, 1e-3)):
        maps, inputs = new_maps(cell, sharpness, score=score), new_inputs(lengths)
        for begins_empty in (None, [bool(index % 2) for index in range(len(lengths))]):
            found = {
                engine: results(maps, inputs, lengths, slots, engine, begins_empty, skip=skip) for engine in ENGINES
            }
            what = f"sharpness {sharpness}, skip {skip}, begins_empty {begins_empty}"
            assert_same(found["fused"], found["naive"], what)


@pytest.mark.parametrize(("cell", "score"), MAPS)
@pytest.mark.parametrize("sharpness", [1.0, 150.0])
@pytest.mark.parametrize("begins_empty", [False, True])
def test_engines_compute_the_equations(
    cell: OrderedMemoryCell, score: OrderedMemoryScore, sharpness: float, begins_empty: bool
) -> None:
    """With sharp scores, slots out of reach have by far the highest ones, and slots fall below the threshold."""
    lengths = [12, 5]
    inputs = new_inputs(lengths)
    for seed in range(3):
        maps = new_maps(cell, sharpness, seed, score)
        found = {engine: results(maps, inputs, lengths, 4, engine, [False, begins_empty]) for engine in ENGINES}
        for row, length in enumerate(lengths):
            expected = ByHand(maps).outputs(inputs[row, :length], 4, begins_empty=begins_empty and row == 1)
            for engine in ENGINES:
                for name, values in zip(("outputs", "pointers", "cumulative"), expected, strict=True):
                    golden = torch.tensor(values, dtype=torch.float64)
                    torch.testing.assert_close(found[engine][name][row, :length], golden, rtol=0, atol=1e-9)


@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(0, 12), max_size=5),
    slots=st.integers(1, 8),
    sharpness=st.sampled_from([1.0, 10.0, 100.0, 1000.0]),
    seed=st.integers(0, 1000),
    score=st.sampled_from(["layer_norm", "tanh"]),
)
def test_fused_is_naive_for_any_lengths_slots_and_sharpness(
    lengths: list[int], slots: int, sharpness: float, seed: int, score: OrderedMemoryScore
) -> None:
    maps, inputs = new_maps("gated", sharpness, seed, score), new_inputs(lengths, seed)
    found = {engine: results(maps, inputs, lengths, slots, engine) for engine in ENGINES}
    for name, value in found["naive"].items():
        scale = max(1.0, float(value.abs().max())) if value.numel() else 1.0
        torch.testing.assert_close(found["fused"][name], value, rtol=0, atol=1e-10 * scale * max(1.0, sharpness))


@pytest.mark.parametrize(("cell", "score"), MAPS)
@pytest.mark.parametrize("engine", ENGINES)
def test_gradients_pass_gradcheck(cell: OrderedMemoryCell, score: OrderedMemoryScore, engine: SequenceEngine) -> None:
    maps, lengths = new_maps(cell, score=score), torch.tensor([4, 2])
    inputs = new_inputs([4, 2]).requires_grad_()

    def run(values: torch.Tensor, *_: torch.Tensor) -> tuple[torch.Tensor, ...]:
        steps = ordered_memory(values, lengths, maps.weights(), 3, trace=True, engine=engine)
        assert steps.pointers is not None
        return steps.outputs, steps.pointers

    assert torch.autograd.gradcheck(run, (inputs, *maps.parameters()))


@pytest.mark.parametrize(("cell", "score"), MAPS)
def test_the_naive_engine_has_second_derivatives(cell: OrderedMemoryCell, score: OrderedMemoryScore) -> None:
    maps, lengths = new_maps(cell, score=score), torch.tensor([3, 2])
    inputs = new_inputs([3, 2]).requires_grad_()

    def run(values: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return ordered_memory(values, lengths, maps.weights(), 2, engine="naive").outputs

    assert torch.autograd.gradgradcheck(run, (inputs, maps.input_map.weight, maps.score_map.weight))


def test_the_first_tokens_are_as_the_equations_say() -> None:
    maps, inputs = new_maps(), new_inputs([2])
    first, second = (ByHand(maps).norm("norm", ByHand(maps).linear("input_map", each)) for each in inputs[0].tolist())
    composed, alone = ByHand(maps).cell(second, first), ByHand(maps).cell(first, [0.0] * SIZE)
    for engine in ENGINES:
        found = results(maps, inputs, [2], 3, engine)
        torch.testing.assert_close(found["outputs"][0], torch.tensor([first, composed], dtype=torch.float64))
        assert found["pointers"][0].tolist() == [[0, 0, 0], [0, 0, 1]]
        after_nothing = results(maps, inputs, [2], 3, engine, [True])
        torch.testing.assert_close(after_nothing["outputs"][0, 0], torch.tensor(alone, dtype=torch.float64))
        assert after_nothing["pointers"][0, 0].tolist() == [0, 0, 1]


def test_the_first_slot_that_is_composed_is_the_first_that_something_reaches() -> None:
    cumulative = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.3, 0.0], [0.0, 0.4, 0.5], [0.0, 1.0, 1.0]])
    assert equations.first_reached(cumulative, 9) == 1
    used = equations.without_skipped(equations.Attention(cumulative, cumulative), 0.35)
    assert used.cumulative[1].tolist() == used.pointers[1].tolist() == [0.0, 0.0, 0.0]
    assert equations.first_reached(used.cumulative, 9) == 2
    assert equations.first_reached(torch.zeros(4, 3), 9) == 3
    assert equations.first_reached(torch.tensor([[0.0], [torch.nan], [torch.nan]]), 9) == 1


@pytest.mark.parametrize(("cell", "score"), MAPS)
@pytest.mark.parametrize("dropouts", [Dropouts(0.3, 0.0), Dropouts(0.0, 0.4), Dropouts(0.3, 0.4)])
def test_dropout_acts_on_what_each_map_reads(
    cell: OrderedMemoryCell, score: OrderedMemoryScore, dropouts: Dropouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout that changes every entry alike shows where it acts."""
    monkeypatch.setattr(equations, "dropped", lambda values, rate: values * (1 + rate))
    maps, inputs = new_maps(cell, score=score), new_inputs([9])
    found = results(maps, inputs, [9], 4, "naive", dropouts=dropouts)["outputs"][0]
    expected = torch.tensor(ByHand(maps, dropouts).outputs(inputs[0], 4)[0], dtype=torch.float64)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    assert not torch.allclose(found, results(maps, inputs, [9], 4, "naive")["outputs"][0])


@pytest.mark.parametrize("engine", ENGINES)
def test_dropout_of_everything_leaves_the_biases(engine: SequenceEngine) -> None:
    found = results(new_maps(), new_inputs([4, 2]), [4, 2], 3, engine, dropouts=Dropouts(1.0, 1.0))
    pointers = found["pointers"][0, 2]  # equal scores: in proportion to what is in reach
    torch.testing.assert_close(pointers, torch.tensor([0, 0.5, 0.5], dtype=torch.float64))


@pytest.mark.parametrize("score", ["layer_norm", "tanh"])
@pytest.mark.parametrize("dropouts", [Dropouts(0.3, 0.0), Dropouts(0.0, 0.3)])
def test_outputs_under_dropout_have_the_same_mean_and_spread_in_both_engines(
    dropouts: Dropouts, score: OrderedMemoryScore
) -> None:
    copies, maps = 4000, new_maps(sharpness=4.0, score=score)
    inputs = new_inputs([5]).expand(copies, -1, -1)
    lengths = torch.full((copies,), 5)
    ends = {}
    for seed, engine in enumerate(ENGINES):
        torch.manual_seed(seed)
        with torch.no_grad():
            ends[engine] = ordered_memory(inputs, lengths, maps.weights(), 3, dropouts=dropouts, engine=engine)
    last = {engine: steps.outputs[:, -1] for engine, steps in ends.items()}
    spread = last["naive"].std(0)
    assert bool((spread > 1e-3).all())
    assert bool(((last["naive"].mean(0) - last["fused"].mean(0)).abs() < 5 * spread * (2 / copies) ** 0.5).all())
    torch.testing.assert_close(last["fused"].std(0), spread, rtol=0.1, atol=0)


def test_what_stands_in_padding_changes_nothing() -> None:
    lengths = [5, 2]
    maps, inputs = new_maps(), new_inputs(lengths)
    spoiled = inputs.clone()
    spoiled[1, 2:] = torch.nan
    for engine in ENGINES:
        expected, found = (results(maps, values, lengths, 3, engine) for values in (inputs, spoiled))
        assert_same(found, expected, engine)
