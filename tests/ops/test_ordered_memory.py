from __future__ import annotations

import pytest
import torch
from engine_parity import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st
from ordered_memory_runs import SIZE, new_inputs, new_maps, results

from treemem.nn.ordered_memory import OrderedMemoryCell
from treemem.ops.ordered_memory import NO_DROPOUT, Dropouts, OrderedMemoryEngine, naive, ordered_memory, stepwise
from treemem.ops.ordered_memory.dropout import dropped_by_bits

ENGINES: tuple[OrderedMemoryEngine, ...] = ("naive", "stepwise", "fused")

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
@pytest.mark.parametrize("cell", ["gated", "rnn"])
def test_engines_are_naive_in_every_output_and_gradient(
    lengths: list[int], slots: int, cell: OrderedMemoryCell
) -> None:
    for sharpness in (1.0, 40.0):
        maps, inputs = new_maps(cell, sharpness), new_inputs(lengths)
        for begins_empty in (None, [bool(index % 2) for index in range(len(lengths))]):
            found = {engine: results(maps, inputs, lengths, slots, engine, begins_empty) for engine in ENGINES}
            for engine in ("stepwise", "fused"):
                what = f"{engine}, sharpness {sharpness}, begins_empty {begins_empty}"
                assert_same(found[engine], found["naive"], what)


@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(0, 12), max_size=5),
    slots=st.integers(1, 8),
    sharpness=st.sampled_from([1.0, 10.0, 100.0, 1000.0]),
    seed=st.integers(0, 1000),
)
def test_engines_are_naive_for_any_lengths_slots_and_sharpness(
    lengths: list[int], slots: int, sharpness: float, seed: int
) -> None:
    maps, inputs = new_maps("gated", sharpness, seed), new_inputs(lengths, seed)
    found = {engine: results(maps, inputs, lengths, slots, engine) for engine in ENGINES}
    for name, value in found["naive"].items():
        scale = max(1.0, float(value.abs().max())) if value.numel() else 1.0
        for engine in ("stepwise", "fused"):
            torch.testing.assert_close(found[engine][name], value, rtol=0, atol=1e-10 * scale * max(1.0, sharpness))


@pytest.mark.parametrize("cell", ["gated", "rnn"])
def test_gradients_pass_gradcheck(cell: OrderedMemoryCell) -> None:
    maps, lengths = new_maps(cell), torch.tensor([4, 2])
    inputs = new_inputs([4, 2]).requires_grad_()

    def run(values: torch.Tensor, *_: torch.Tensor) -> tuple[torch.Tensor, ...]:
        steps = ordered_memory(values, lengths, maps.weights(), 3, trace=True)
        assert steps.pointers is not None
        return steps.outputs, steps.pointers

    assert torch.autograd.gradcheck(run, (inputs, *maps.parameters()))


def test_the_first_tokens_are_as_the_equations_say() -> None:
    maps, inputs = new_maps(), new_inputs([2])
    weights = maps.weights()
    first, second = naive.layer_norm(naive.linear(inputs[0], weights.input), weights.input_norm)[:, None]
    composed = naive.cell(second, first, weights.cell)
    for engine in ENGINES:
        found = results(maps, inputs, [2], 3, engine)
        torch.testing.assert_close(found["outputs"][0], torch.cat([first, composed]).detach())
        assert found["pointers"][0].tolist() == [[0, 0, 0], [0, 0, 1]]
        after_nothing = results(maps, inputs, [2], 3, engine, [True])
        alone = naive.cell(first, torch.zeros_like(first), weights.cell)
        torch.testing.assert_close(after_nothing["outputs"][0, :1], alone.detach())
        assert after_nothing["pointers"][0, 0].tolist() == [0, 0, 1]


def test_only_slots_that_something_reaches_are_composed() -> None:
    cumulative = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.3, 0.0], [0.0, 0.4, 0.5], [0.0, 1.0, 1.0]])
    chosen = stepwise.choose(cumulative)
    assert chosen.order.tolist() == [1, 2, 0]
    assert chosen.sizes == [0, 1, 2, 3]
    assert chosen.sequence.tolist() == [1, 1, 2, 1, 2, 0]
    assert [place // 3 for place in chosen.place.tolist()] == [1, 2, 2, 3, 3, 3]


def test_slots_out_of_reach_count_in_the_attention_as_the_equations_say() -> None:
    """Where one of them has by far the highest score, what is in reach has less than 1 in all."""
    pointers = torch.tensor([[0.0, 1e-7, 0.5, 0.5]], dtype=torch.float64)
    chosen = stepwise.choose(pointers.cumsum(1).t())
    totals = []
    for seed in range(40):
        maps = new_maps(sharpness=150.0, seed=seed)
        elements, candidates = torch.randn(2, SIZE).double(), torch.randn(1, 4, SIZE).double()
        candidates[:, 0] = elements[0]
        expected = naive.attend(elements[1:], candidates, pointers, maps.weights()).pointers
        attention = stepwise._Attention(maps.weights(), NO_DROPOUT, elements, [1, 1])
        found = attention(1, pointers.cumsum(1).t(), candidates[0, 1:], chosen)
        torch.testing.assert_close(found.t(), expected, rtol=1e-9, atol=0)
        totals.append(float(expected.detach().sum()))
    assert 0 < min(totals) < 0.9
    assert max(totals) > 0.999


@pytest.fixture
def dropout_that_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout that changes every entry alike, so that where it acts can be compared."""
    for module, name in ((naive, "dropped"), (stepwise, "dropped_by_bits")):
        monkeypatch.setattr(module, name, lambda values, rate: values * (1 + rate))


@pytest.mark.usefixtures("dropout_that_scales")
@pytest.mark.parametrize("cell", ["gated", "rnn"])
def test_dropout_acts_on_the_same_values_in_both_engines(cell: OrderedMemoryCell) -> None:
    lengths = [5, 9, 1, 3]
    maps, inputs = new_maps(cell), new_inputs(lengths)
    without = results(maps, inputs, lengths, 4, "naive")
    for dropouts in (Dropouts(0.3, 0.0), Dropouts(0.0, 0.4), Dropouts(0.3, 0.4)):
        found = {engine: results(maps, inputs, lengths, 4, engine, dropouts=dropouts) for engine in ENGINES}
        assert_same(found["stepwise"], found["naive"], str(dropouts))
        assert not torch.allclose(found["naive"]["outputs"], without["outputs"])


def test_dropout_of_everything_leaves_the_biases() -> None:
    lengths = [4, 2]
    maps, inputs = new_maps(), new_inputs(lengths)
    found = {engine: results(maps, inputs, lengths, 3, engine, dropouts=Dropouts(1.0, 1.0)) for engine in ENGINES}
    assert_same(found["stepwise"], found["naive"], "everything dropped")
    pointers = found["stepwise"]["pointers"][0, 2]  # equal scores: in proportion to what is in reach
    torch.testing.assert_close(pointers, torch.tensor([0, 0.5, 0.5], dtype=torch.float64))


@pytest.mark.parametrize("dropouts", [Dropouts(0.3, 0.0), Dropouts(0.0, 0.3)])
def test_outputs_under_dropout_have_the_same_mean_and_spread_in_both_engines(dropouts: Dropouts) -> None:
    copies, maps = 4000, new_maps(sharpness=4.0)
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
    assert bool(((last["naive"].mean(0) - last["stepwise"].mean(0)).abs() < 5 * spread * (2 / copies) ** 0.5).all())
    torch.testing.assert_close(last["stepwise"].std(0), spread, rtol=0.1, atol=0)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_by_bits_drops_each_entry_with_its_probability_and_scales_the_others(rate: float) -> None:
    torch.manual_seed(0)
    values = torch.ones(4001, 9, dtype=torch.float64, requires_grad=True)
    found = dropped_by_bits(values, rate)
    kept = found.detach() != 0
    torch.testing.assert_close(found[kept], torch.full_like(found[kept], 1 / (1 - rate)), rtol=1e-3, atol=0)
    share = kept.double().flatten()[:36000].unflatten(0, (-1, 4)).mean(0)  # four entries share a draw
    torch.testing.assert_close(share, torch.full_like(share, 1 - rate), rtol=0, atol=0.025)
    found.sum().backward()
    torch.testing.assert_close(values.grad, found.detach())
    assert dropped_by_bits(torch.ones(0, 3), rate).shape == (0, 3)
    assert torch.equal(dropped_by_bits(values, 0.0), values)
    assert not dropped_by_bits(values, 1.0).any()


def test_what_stands_in_padding_changes_nothing() -> None:
    lengths = [5, 2]
    maps, inputs = new_maps(), new_inputs(lengths)
    spoiled = inputs.clone()
    spoiled[1, 2:] = torch.nan
    for engine in ENGINES:
        expected, found = (results(maps, values, lengths, 3, engine) for values in (inputs, spoiled))
        assert_same(found, expected, engine)
