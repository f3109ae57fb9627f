"""The Ordered Memory: its equations, engines, dropout, slots and padding."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from golden.ordered_memory_files import WEIGHTS
from golden.stack_tree_files import same
from hypothesis import given, settings
from hypothesis import strategies as st
from sequence_networks import with_gradients
from torch import Tensor
from tree_strategies import VOCABULARY, random_forest

from treemem.errors import RecipeError
from treemem.native import compile_mode
from treemem.networks.parsers.ordered_memory import equations
from treemem.networks.parsers.ordered_memory.equations import NO_DROPOUT, Dropouts
from treemem.networks.parsers.ordered_memory.layer import MemoryMaps
from treemem.networks.parsers.ordered_memory.run import ordered_memory
from treemem.nn import OrderedMemory
from treemem.schedule.tree_batch import TreeBatch

INPUT_SIZE, SIZE = 3, 4
ENGINES: Any = ("naive", "fused")
MAPS: Any = [("gated", "layer_norm"), ("gated", "tanh"), ("rnn", "layer_norm"), ("rnn", "tanh")]
needs_compiler = pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")


def new_maps(kinds: Any = MAPS[0], sharpness: float = 1.0, seed: int = 0) -> MemoryMaps:
    """Maps in float64; the greater ``sharpness``, the more of the attention is on one slot."""
    torch.manual_seed(seed)
    maps = MemoryMaps(INPUT_SIZE, SIZE, *kinds).double()
    with torch.no_grad():
        for norm in (each for each in maps.children() if isinstance(each, torch.nn.LayerNorm)):
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.uniform_(-0.5, 0.5)
        maps.score_map.weight.mul_(sharpness)
    return maps


def new_inputs(lengths: list[int], seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(lengths), max(lengths, default=0), INPUT_SIZE, generator=generator, dtype=torch.float64)


def results(maps: MemoryMaps, inputs: Tensor, lengths: list[int], slots: int, **options: Any) -> dict[str, Tensor]:
    """Outputs, pointers, and every gradient."""
    maps.zero_grad()
    inputs = inputs.clone().requires_grad_()
    given_lengths = torch.tensor(lengths, dtype=torch.int64)
    steps = ordered_memory(inputs, given_lengths, maps.weights(), slots, trace=True, **options)
    found = {"outputs": steps.outputs, "pointers": steps.pointers, "cumulative": steps.cumulative}
    return with_gradients(found, {"inputs": inputs, **dict(maps.named_parameters())})  # type: ignore[arg-type]


class ByHand:
    """The equations of the paper and of the authors' code, a vector at a time.

    Args:
        maps: the weights.
        dropouts: by what more than 1 each dropout multiplies.
    """

    def __init__(self, maps: MemoryMaps, dropouts: Dropouts = NO_DROPOUT) -> None:
        self.maps, self.factors = maps, Dropouts(*(1 + each for each in dropouts))

    def run(self, inputs: Tensor, slots: int, *, begins_empty: bool = False) -> dict[str, Tensor]:
        """Return the outputs, ``p`` and ``cp`` of ``inputs [longest, input_size]``."""
        memory = candidates = inputs.new_zeros(slots, SIZE)
        pointers, rows = inputs.new_zeros(slots), []
        for step, new in enumerate(inputs):
            x = self.maps.norm(self.maps.input_map(new))
            if step:
                pointers = self.attend(x, candidates, pointers)
                onward = pointers.flip(0).cumsum(0).flip(0)[:, None]
                memory = memory * (1 - onward) + candidates * onward
            else:
                pointers[-1] = float(begins_empty)
            cumulative = pointers.cumsum(0)
            below = [x]
            for held, share in zip(memory, cumulative, strict=True):
                below.append(x * (1 - share) + self.cell(below[-1], held) * share)
            candidates = torch.stack(below[1:])
            rows.append((below[-1], pointers.clone(), cumulative))
        return dict(zip(("outputs", "pointers", "cumulative"), map(torch.stack, zip(*rows, strict=True)), strict=True))

    def attend(self, x: Tensor, candidates: Tensor, before: Tensor) -> Tensor:
        scores = torch.stack([self.score(x, candidate) for candidate in candidates]) / math.sqrt(SIZE)
        reach = torch.cat([before.cumsum(0)[1:], before.new_ones(1)])
        within = (scores - scores.max()).exp() * reach * (reach >= 1e-5)
        return within / within.sum().clamp(min=1e-12)

    def score(self, x: Tensor, candidate: Tensor) -> Tensor:
        maps, factor = self.maps, self.factors.memory
        x, candidate = factor * x, factor * candidate
        if maps.score == "tanh":
            compared = maps.attention_map(torch.cat([candidate, x])).tanh()
        else:
            compared = (maps.query_norm(maps.query_map(x)) + maps.key_norm(maps.key_map(candidate))).relu()
        return maps.score_map(factor * compared)[0]

    def cell(self, vertical: Tensor, horizontal: Tensor) -> Tensor:
        maps, factor = self.maps, self.factors.cell
        inner = maps.cell_map(factor * torch.cat([vertical, horizontal]))
        if "gate_map.weight" not in maps.state_dict():
            return inner.tanh()
        a, b, c, candidate = maps.gate_map(factor * inner.relu()).chunk(4)
        return maps.norm(a.sigmoid() * vertical + b.sigmoid() * horizontal + c.sigmoid() * candidate)


@pytest.mark.parametrize("kinds", MAPS)
@pytest.mark.parametrize("sharpness", [1.0, 150.0])
def test_engines_compute_the_equations(kinds: Any, sharpness: float) -> None:
    """With sharp scores, slots out of reach have by far the highest ones, and slots fall below the threshold."""
    lengths = [12, 5]
    inputs, maps = new_inputs(lengths), new_maps(kinds, sharpness)
    empty = torch.tensor([False, True])
    found = [results(maps, inputs, lengths, 4, engine=engine, begins_empty=empty) for engine in ENGINES]
    for row, length in enumerate(lengths):
        expected = ByHand(maps).run(inputs[row, :length], 4, begins_empty=row == 1)
        for values in found:
            for name, value in expected.items():
                torch.testing.assert_close(values[name][row, :length], value.detach(), rtol=0, atol=1e-9)


@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(0, 12), max_size=5),
    slots=st.integers(1, 8),
    sharpness=st.sampled_from([1.0, 10.0, 100.0, 1000.0]),
    seed=st.integers(0, 1000),
    kinds=st.sampled_from(MAPS),
    skip=st.sampled_from([0.0, 1e-3]),
)
def test_fused_is_naive_for_any_lengths_slots_and_sharpness(
    lengths: list[int], slots: int, sharpness: float, seed: int, kinds: Any, skip: float
) -> None:
    maps, inputs = new_maps(kinds, sharpness, seed), new_inputs(lengths, seed)
    expected, found = (results(maps, inputs, lengths, slots, engine=engine, skip=skip) for engine in ENGINES)
    for name, value in expected.items():
        scale = max(1.0, float(value.abs().max())) if value.numel() else 1.0
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-10 * scale * max(1.0, sharpness))


def test_the_first_slot_that_is_composed_is_the_first_that_something_reaches() -> None:
    cumulative = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.3, 0.0], [0.0, 0.4, 0.5], [0.0, 1.0, 1.0]])
    assert equations.first_reached(cumulative, 9) == 1
    used = equations.without_skipped(equations.Attention(cumulative, cumulative), 0.35)
    assert used.cumulative[1].tolist() == used.pointers[1].tolist() == [0.0, 0.0, 0.0]
    assert equations.first_reached(used.cumulative, 9) == 2
    assert equations.first_reached(torch.zeros(4, 3), 9) == 3
    assert equations.first_reached(torch.tensor([[0.0], [torch.nan], [torch.nan]]), 9) == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_skipping_slots_hardly_changes_anything(engine: str) -> None:
    lengths = [30] * 8
    for sharpness in (1.0, 10.0, 60.0):
        maps, inputs = new_maps(sharpness=sharpness), new_inputs(lengths)
        given = (inputs, torch.tensor(lengths), maps.weights(), 9)
        found, expected = (ordered_memory(*given, engine=engine, skip=skip) for skip in (1e-5, 0.0))  # type: ignore[arg-type]
        torch.testing.assert_close(found.outputs, expected.outputs, rtol=0, atol=1e-6 * SIZE)
        gradients = [torch.autograd.grad(each.outputs.mean(), [*maps.parameters()]) for each in (found, expected)]
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kinds", MAPS[::3])
@pytest.mark.parametrize("dropouts", [Dropouts(0.3, 0.0), Dropouts(0.0, 0.4)])
def test_dropout_acts_on_what_each_map_reads(kinds: Any, dropouts: Dropouts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout that changes every entry alike shows where it acts."""
    monkeypatch.setattr(equations, "dropped", lambda values, rate: values * (1 + rate))
    maps, inputs = new_maps(kinds), new_inputs([9])
    found = results(maps, inputs, [9], 4, engine="naive", dropouts=dropouts)["outputs"][0]
    torch.testing.assert_close(found, ByHand(maps, dropouts).run(inputs[0], 4)["outputs"], rtol=0, atol=1e-10)
    assert not torch.allclose(found, results(maps, inputs, [9], 4, engine="naive")["outputs"][0])


@needs_compiler
@pytest.mark.parametrize("kinds", MAPS[::3])
def test_gradients_with_dropout_are_those_of_the_same_masks(kinds: Any) -> None:
    maps, lengths = new_maps(kinds), torch.tensor([4, 2])
    inputs = new_inputs([4, 2]).requires_grad_()

    def run(values: Tensor, *_: Tensor) -> Tensor:
        torch.manual_seed(3)
        return ordered_memory(values, lengths, maps.weights(), 3, dropouts=Dropouts(0.4, 0.3)).outputs

    assert torch.autograd.gradcheck(run, (inputs, *maps.parameters()), fast_mode=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_dropout_of_everything_leaves_the_biases(engine: str) -> None:
    found = results(new_maps(), new_inputs([4, 2]), [4, 2], 3, engine=engine, dropouts=Dropouts(1.0, 1.0))
    pointers = found["pointers"][0, 2]  # equal scores: in proportion to what is in reach
    torch.testing.assert_close(pointers, torch.tensor([0, 0.5, 0.5], dtype=torch.float64))


@pytest.mark.parametrize("kinds", MAPS[:2])
@pytest.mark.parametrize("dropouts", [Dropouts(0.3, 0.0), Dropouts(0.0, 0.3)])
def test_outputs_under_dropout_have_the_same_mean_and_spread_in_both_engines(dropouts: Dropouts, kinds: Any) -> None:
    copies, maps = 4000, new_maps(kinds, sharpness=4.0)
    inputs, lengths = new_inputs([5]).expand(copies, -1, -1), torch.full((copies,), 5)
    ends = []
    for seed, engine in enumerate(ENGINES):
        torch.manual_seed(seed)
        with torch.no_grad():
            found = ordered_memory(inputs, lengths, maps.weights(), 3, dropouts=dropouts, engine=engine)
        ends.append(found.outputs[:, -1])
    spread = ends[0].std(0)
    assert bool((spread > 1e-3).all())
    assert bool(((ends[0].mean(0) - ends[1].mean(0)).abs() < 5 * spread * (2 / copies) ** 0.5).all())
    torch.testing.assert_close(ends[1].std(0), spread, rtol=0.1, atol=0)


def test_the_loop_that_the_benchmarks_compare_with_gives_the_encodings_and_gradients_of_the_golden_file() -> None:
    tests = Path(__file__).parents[2]
    sys.path.append(str(tests.parent))
    from benchmarks.published_ordered_memory import published_ordered_memory

    arrays = dict(np.load(tests / "golden" / "sequence" / "om_right_padded.npz"))
    inputs, lengths = torch.from_numpy(arrays["X"]).transpose(0, 1), torch.from_numpy(arrays["lengths"])
    maps = MemoryMaps(inputs.shape[2], len(arrays["W_in"]), "gated").double()
    with torch.no_grad():
        for name, parameter in WEIGHTS.items():
            own = maps.get_parameter(parameter)
            own.copy_(torch.from_numpy(arrays[name]).view_as(own))
    found = published_ordered_memory(inputs, lengths, maps.weights(), int(arrays["n_slots"]), 0.0)
    same(found, arrays["encoding"], "encoding")
    (found * torch.from_numpy(arrays["loss_weight"])).sum().backward()
    gradients = [name for name in WEIGHTS if f"grad_{name}" in arrays]
    assert gradients
    for name in gradients:
        own = maps.get_parameter(WEIGHTS[name]).grad
        assert own is not None
        same(own.view(arrays[f"grad_{name}"].shape), arrays[f"grad_{name}"], name)


def new_layer(seed: int = 0, **options: Any) -> OrderedMemory:
    torch.manual_seed(seed)
    return OrderedMemory(SIZE, VOCABULARY, **{"slots": 6, **options}).double()


def layer_inputs(sequences: int, longest: int) -> Tensor:
    return torch.randn(sequences, longest, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_with_the_published_left_padding_only_the_longest_are_read_as_if_alone() -> None:
    inputs, lengths = layer_inputs(3, 6), torch.tensor([6, 4, 6])
    layer, alone = new_layer(padding="left"), new_layer()
    found, expected = layer.read(inputs, lengths).encoding, alone.read(inputs, lengths).encoding
    torch.testing.assert_close(found[[0, 2]], expected[[0, 2]])
    assert not torch.allclose(found[1], expected[1])
    torch.testing.assert_close(layer.read(inputs[1:2, :4], lengths[1:2]).encoding, expected[1:2])
    alone.padding = "left"
    assert alone.options["padding"] == "left"
    torch.testing.assert_close(alone.read(inputs, lengths).encoding, found)
    with pytest.raises(RecipeError, match="did you mean left"):
        layer.padding = "lfet"  # type: ignore[assignment]
    assert layer.padding == "left"


def test_the_backward_half_is_a_memory_that_reads_the_reversed_sequence() -> None:
    layer, other = new_layer(bidirectional=True), new_layer(seed=1)
    assert layer.backward_memory is not None
    other.forward_memory.load_state_dict(layer.backward_memory.state_dict())
    inputs, lengths = layer_inputs(2, 5), torch.tensor([5, 3])
    mirrored = torch.stack([inputs[0].flip(0), torch.cat([inputs[1, :3].flip(0), inputs[1, 3:]])])
    found, expected = layer.read(inputs, lengths, trace=True), other.read(mirrored, lengths, trace=True)
    torch.testing.assert_close(found.encoding[:, SIZE:], expected.encoding)
    for index, length in enumerate(lengths.tolist()):
        for ours, theirs in (
            (found.outputs[..., SIZE:], expected.outputs),
            (found.trace["backward_pointers"], expected.trace["pointers"]),
            (found.trace["backward_cumulative"], expected.trace["cumulative"]),
        ):
            torch.testing.assert_close(ours[index, :length], theirs[index, :length].flip(0))


@pytest.mark.parametrize(
    ("padding", "length", "least", "most"),
    [("right", 7, 0, 1e-12), ("right", 8, 1e-6, 0.01), ("left", 6, 0, 1e-12), ("left", 7, 1e-9, 0.1)],
)
def test_twice_the_slots_change_nothing_until_a_sequence_could_fill_them_and_little_then(
    padding: Any, length: int, least: float, most: float
) -> None:
    """In a sequence that begins empty, as those do that are padded on the left, this takes a slot."""
    layer, inputs, lengths = new_layer(padding=padding), layer_inputs(2, 8), torch.tensor([8, length])
    few = layer.read(inputs, lengths).encoding[1]
    layer.slots *= 2
    assert layer.options["slots"] == layer.slots == 12
    difference = float((layer.read(inputs, lengths).encoding[1] - few).detach().abs().max())
    assert least <= difference <= most


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "score": "tanh"}, {"engine": "naive", "cell": "rnn"}])
def test_evaluation_may_have_slots_of_its_own(options: dict[str, Any]) -> None:
    inputs, lengths = layer_inputs(3, 14), torch.tensor([14, 4, 8])
    few, many = new_layer(**options), new_layer(**options, slots=12)
    layer = new_layer(**options, evaluation_slots=12)
    batch = TreeBatch.from_forest(random_forest(seed=3, num_trees=4, size=12), VOCABULARY)
    for same_as, mode in ((few, True), (many, False)):
        layer.train(mode)
        ours, theirs = layer.read(inputs, lengths, trace=True), same_as.read(inputs, lengths, trace=True)
        assert torch.equal(ours.encoding, theirs.encoding)
        assert torch.equal(ours.trace["pointers"], theirs.trace["pointers"])
        for name, contents in layer.slot_contents(batch).items():
            assert torch.equal(contents, same_as.slot_contents(batch)[name])
    layer.evaluation_slots = None
    assert layer.options["evaluation_slots"] is None
    assert torch.equal(layer.read(inputs, lengths).encoding, few.read(inputs, lengths).encoding)
    assert not torch.equal(few.read(inputs, lengths).encoding, many.read(inputs, lengths).encoding)
    for name in ("slots", "evaluation_slots"):
        with pytest.raises(RecipeError, match=name):
            setattr(layer, name, 0)
    assert layer.slots == 6


@pytest.mark.parametrize("padding", ["right", "right flipped", "left"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "dropout": 0.5}, {"cell": "rnn"}])
def test_the_last_slot_holds_the_output_at_every_token_and_slots_after_the_end_are_empty(
    options: dict[str, Any], padding: str
) -> None:
    layer = new_layer(padding=padding, **options)
    batch = TreeBatch.from_forest(random_forest(seed=4, num_trees=4, size=9), VOCABULARY)
    held = layer.slot_contents(batch)
    states = layer.eval()(batch)
    assert set(held) == ({"slots", "backward_slots"} if "bidirectional" in options else {"slots"})
    torch.testing.assert_close(torch.cat([value[:, :, -1] for value in held.values()], 2), states.h)
    for value in held.values():
        assert value.shape == (4, states.h.shape[1], 6, SIZE)
        for sequence, length in enumerate(states.lengths.tolist()):
            assert not value[sequence, length:].any()


def test_the_encoder_for_logic_has_as_many_parameters_as_published() -> None:
    for size, published in ((200, 1_083_601), (128, 444_673)):
        maps = OrderedMemory(size, VOCABULARY).forward_memory
        assert sum(parameter.numel() for parameter in maps.parameters()) == published
