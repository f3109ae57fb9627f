from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ordered_memory_runs import ByHand, new_inputs, new_maps, results

from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.parsers.ordered_memory import equations
from treemem.networks.parsers.ordered_memory.equations import Dropouts
from treemem.networks.parsers.ordered_memory.layer import OrderedMemoryCell, OrderedMemoryScore
from treemem.networks.parsers.ordered_memory.run import ordered_memory

ENGINES: tuple[SequenceEngine, ...] = ("naive", "fused")

MAPS = [("gated", "layer_norm"), ("gated", "tanh"), ("rnn", "layer_norm"), ("rnn", "tanh")]


@pytest.mark.parametrize(("cell", "score"), MAPS)
@pytest.mark.parametrize("sharpness", [1.0, 150.0])
def test_engines_compute_the_equations(cell: OrderedMemoryCell, score: OrderedMemoryScore, sharpness: float) -> None:
    """With sharp scores, slots out of reach have by far the highest ones, and slots fall below the threshold."""
    lengths = [12, 5]
    inputs = new_inputs(lengths)
    maps = new_maps(cell, sharpness, score=score)
    found = {engine: results(maps, inputs, lengths, 4, engine, [False, True]) for engine in ENGINES}
    for row, length in enumerate(lengths):
        expected = ByHand(maps).outputs(inputs[row, :length], 4, begins_empty=row == 1)
        for engine in ENGINES:
            for name, values in zip(("outputs", "pointers", "cumulative"), expected, strict=True):
                golden = torch.tensor(values, dtype=torch.float64)
                torch.testing.assert_close(found[engine][name][row, :length], golden, rtol=0, atol=1e-9)


@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(0, 12), max_size=5),
    slots=st.integers(1, 8),
    sharpness=st.sampled_from([1.0, 10.0, 100.0, 1000.0]),
    seed=st.integers(0, 1000),
    maps=st.sampled_from(MAPS),
    skip=st.sampled_from([0.0, 1e-3]),
)
def test_fused_is_naive_for_any_lengths_slots_and_sharpness(
    lengths: list[int],
    slots: int,
    sharpness: float,
    seed: int,
    maps: tuple[OrderedMemoryCell, OrderedMemoryScore],
    skip: float,
) -> None:
    own, inputs = new_maps(maps[0], sharpness, seed, maps[1]), new_inputs(lengths, seed)
    found = {engine: results(own, inputs, lengths, slots, engine, skip=skip) for engine in ENGINES}
    for name, value in found["naive"].items():
        scale = max(1.0, float(value.abs().max())) if value.numel() else 1.0
        torch.testing.assert_close(found["fused"][name], value, rtol=0, atol=1e-10 * scale * max(1.0, sharpness))


def test_the_first_slot_that_is_composed_is_the_first_that_something_reaches() -> None:
    cumulative = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.3, 0.0], [0.0, 0.4, 0.5], [0.0, 1.0, 1.0]])
    assert equations.first_reached(cumulative, 9) == 1
    used = equations.without_skipped(equations.Attention(cumulative, cumulative), 0.35)
    assert used.cumulative[1].tolist() == used.pointers[1].tolist() == [0.0, 0.0, 0.0]
    assert equations.first_reached(used.cumulative, 9) == 2
    assert equations.first_reached(torch.zeros(4, 3), 9) == 3
    assert equations.first_reached(torch.tensor([[0.0], [torch.nan], [torch.nan]]), 9) == 1


@pytest.mark.parametrize(("cell", "score"), MAPS[::3])
@pytest.mark.parametrize("dropouts", [Dropouts(0.3, 0.0), Dropouts(0.0, 0.4)])
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
