"""Recursion in Recursion: how sequences are cut, levels on both engines, draws, trees and wrong options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from engine_parity import assert_same
from sequence_networks import SIZE, made, padded_inputs, results
from tree_strategies import VOCABULARY

from treemem import Forest, GraphError, RecipeError, TreeBatch
from treemem.networks.gated_cell.equations import gated_cell
from treemem.networks.parsers.recursion_in_recursion.equations import Chunk, chunks_of, next_places, slots_after
from treemem.networks.parsers.recursion_in_recursion.state_space import kernel
from treemem.nn import EfficientBeamTreeGRC, RecursionInRecursion, RecursionInRecursionGRC

ALIGNMENTS = ("score", "random", "none")
LENGTHS = (0, 1, 2, 3, 4, 5, 7, 9, 11, 26)


def network(**options: Any) -> Any:
    return made("RecursionInRecursion", **{"chunk_size": 3, "beam_size": 3, "scored_size": 2, **options}).eval()


@pytest.mark.parametrize(
    ("positions", "chunks", "left"),
    [
        (1, [Chunk(0, 1, 1)], 1),
        (4, [Chunk(0, 4, 4)], 1),
        (5, [Chunk(0, 5, 5)], 1),
        (6, [Chunk(0, 4, 4), Chunk(4, 2, 4)], 2),
        (8, [Chunk(0, 4, 4), Chunk(4, 4, 4)], 2),
        (9, [Chunk(0, 4, 4), Chunk(4, 4, 4), Chunk(8, 1, 4)], 3),
    ],
)
def test_a_level_of_less_than_one_and_a_half_chunks_is_one(positions: int, chunks: list[Chunk], left: int) -> None:
    assert chunks_of(positions, positions, 4) == chunks
    assert next_places(positions, 4) == left


def test_the_number_of_slots_grows_to_the_number_of_beams() -> None:
    assert [slots_after(1, size, 5).most for size in (1, 2, 3, 4, 30)] == [1, 1, 2, 5, 5]
    assert slots_after(2, 3, 5) == (4, False)
    assert slots_after(3, 3, 5) == (5, True)


@pytest.mark.parametrize("alignment", ALIGNMENTS)
@pytest.mark.parametrize(("chunk_size", "beam_size"), [(2, 1), (3, 3), (3, 8), (5, 2)])
def test_engines_agree_on_every_output_and_gradient(chunk_size: int, beam_size: int, alignment: str) -> None:
    for noise in (False, True):
        own = network(chunk_size=chunk_size, beam_size=beam_size, alignment=alignment, noise=noise).train(not noise)
        found = [results(own, LENGTHS, engine) for engine in ("naive", "fused")]
        assert_same(*found, f"{chunk_size}, {beam_size}, {alignment}")


@pytest.mark.parametrize(("chunk_size", "beam_size"), [(3, 3), (4, 8)])
@pytest.mark.parametrize("alignment", ALIGNMENTS)
def test_a_sequence_is_encoded_as_if_alone(alignment: str, chunk_size: int, beam_size: int) -> None:
    """With chunks of 4, the 5 tokens of another sequence are one chunk, whose search makes choices for longer."""
    own = network(alignment=alignment, chunk_size=chunk_size, beam_size=beam_size)
    inputs = padded_inputs(LENGTHS, SIZE)
    together = own.read(inputs, torch.tensor(LENGTHS), trace=True)
    for row, length in enumerate(LENGTHS):
        alone = own.read(inputs[row : row + 1, :length], torch.tensor([length]), trace=True)
        torch.testing.assert_close(together.encoding[row], alone.encoding[0], rtol=0, atol=1e-12)
        assert together.trace["joined"][row, :length].tolist() == alone.trace["joined"][0].tolist()


def test_one_chunk_without_a_state_space_is_the_search_for_one_tree() -> None:
    whole = network(chunk_size=40, state_space=False)
    searching = made("EfficientBeamTreeGRC", beam_size=3, scored_size=2).eval()
    searching.load_state_dict(whole.state_dict())
    assert isinstance(searching, EfficientBeamTreeGRC)
    inputs = padded_inputs(LENGTHS, SIZE)
    found, expected = (own.read(inputs, torch.tensor(LENGTHS), trace=True) for own in (whole, searching))
    torch.testing.assert_close(found.encoding, expected.encoding, rtol=0, atol=1e-12)
    assert torch.equal(found.trace["joined"], expected.trace["joined"])


def test_draws_are_random_in_training_alone_and_only_with_noise() -> None:
    inputs, lengths = padded_inputs((26, 17), SIZE), torch.tensor([26, 17])
    for training, noise, differ in ((False, True, False), (True, False, False), (True, True, True)):
        own = network(noise=noise).train(training)
        with torch.no_grad():
            encodings = [own.read(inputs, lengths).encoding for _ in range(2)]
        assert torch.equal(*encodings) is not differ


def test_trees_keep_chunks_together() -> None:
    batch = TreeBatch.from_forest(Forest.from_trees(["(f x (f y (f x (f y (f x (f y (f x y)))))))"]), VOCABULARY)
    (tree,) = RecursionInRecursion(8, VOCABULARY, chunk_size=2, beam_size=2, form="leaves").induced_trees(batch)
    assert str(tree) == "(X (X (X x y) (X x y)) (X (X x y) (X x y)))"


def reading(**options: Any) -> Any:
    return made("RecursionInRecursionGRC", **{"chunk_size": 3, **options}).eval()


CHAINS = pytest.mark.parametrize(
    "options", [{}, {"from_zero": False}, {"chunk_size": 2, "from_zero": False, "state_space": False}], ids=str
)


@CHAINS
def test_engines_that_read_chunks_agree_on_every_output_and_gradient(options: dict[str, Any]) -> None:
    for lengths in (LENGTHS, (1, 0), (0,), ()):
        found = [results(reading(**options).train(), lengths, engine) for engine in ("naive", "fused")]
        assert_same(*found, f"{options}, {lengths}")


@CHAINS
def test_a_sequence_whose_chunks_are_read_is_encoded_as_if_alone(options: dict[str, Any]) -> None:
    own, inputs = reading(**options), padded_inputs(LENGTHS, SIZE)
    together = own.read(inputs, torch.tensor(LENGTHS), trace=True)
    for row, length in enumerate(LENGTHS):
        alone = own.read(inputs[row : row + 1, :length], torch.tensor([length]), trace=True)
        torch.testing.assert_close(together.encoding[row], alone.encoding[0], rtol=0, atol=1e-12)
        assert together.trace["joined"][row, :length].tolist() == alone.trace["joined"][0].tolist()


def test_chunks_of_two_without_the_zero_vector_are_the_search_with_one_beam() -> None:
    own, searching = reading(chunk_size=2, from_zero=False), network(chunk_size=2, beam_size=1, alignment="none")
    searching.load_state_dict(own.state_dict(), strict=False)
    inputs = padded_inputs(LENGTHS, SIZE)
    found, expected = (layer.read(inputs, torch.tensor(LENGTHS), trace=True) for layer in (own, searching))
    torch.testing.assert_close(found.encoding, expected.encoding, rtol=0, atol=1e-12)
    assert torch.equal(found.trace["joined"], expected.trace["joined"])


def test_a_chunk_that_begins_with_the_zero_vector_passes_its_first_position_through_the_cell() -> None:
    own = reading(chunk_size=2, state_space=False)
    cell = lambda left, right: gated_cell(left[None], right[None], own.cell.weights())[0]  # noqa: E731
    inputs = padded_inputs((1, 3), SIZE, longer=0)
    encoding = own.read(inputs, torch.tensor([1, 3])).encoding
    x, y, z = own.leaves(inputs[1])
    zero = torch.zeros_like(x)
    pair, last = cell(cell(zero, x), y), cell(zero, z)
    torch.testing.assert_close(encoding[0], own.leaves(inputs[0, 0]), rtol=0, atol=1e-12)
    torch.testing.assert_close(encoding[1], cell(cell(zero, pair), last), rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", [network, reading])
def test_dropout_of_the_cell_is_of_training_alone(make: Callable[..., Any]) -> None:
    options = {"alignment": "none", "noise": False} if make is network else {}
    own, plain = make(dropout=0.5, **options), make(**options)
    inputs, lengths = padded_inputs((9, 6), SIZE), torch.tensor([9, 6])
    for engine in ("naive", "fused"):
        own.engine = engine
        assert torch.equal(own.eval().read(inputs, lengths).encoding, own.read(inputs, lengths).encoding)
        torch.testing.assert_close(own.read(inputs, lengths).encoding, plain.read(inputs, lengths).encoding)
        assert not torch.equal(own.train().read(inputs, lengths).encoding, own.read(inputs, lengths).encoding)


def test_trees_of_chunks_that_are_read_branch_to_the_left() -> None:
    batch = TreeBatch.from_forest(Forest.from_trees(["(f x (f y (f x (f y x))))"]), VOCABULARY)
    (tree,) = RecursionInRecursionGRC(8, VOCABULARY, chunk_size=3, form="leaves").induced_trees(batch)
    assert str(tree) == "(X (X (X x y) x) (X y x))"
    broken = RecursionInRecursionGRC(8, VOCABULARY, form="leaves")
    torch.nn.init.constant_(broken.cell.norm.weight, torch.inf)
    with pytest.raises(GraphError, match="is not a number"):
        broken.induced_trees(batch)


def test_the_kernel_is_that_of_the_recurrence() -> None:
    """An impulse through the discretised state space of each channel, step by step."""
    layer = network().state_space
    weights = layer.weights()
    poles = torch.complex(-weights.log_decay.exp(), -weights.frequency)
    step = weights.log_step.exp()[:, None]
    state = torch.view_as_complex(weights.read_in) * step / (1 - step * poles / 2)
    found = []
    for _ in range(5):
        found.append(2 * (torch.view_as_complex(weights.read_out) * state).sum(1).real)
        state = state * (1 + step * poles / 2) / (1 - step * poles / 2)
    torch.testing.assert_close(kernel(weights, 5), torch.stack(found, 1), rtol=1e-10, atol=1e-10)


def test_what_is_read_from_the_end_has_gradients_only_if_it_is_asked_for() -> None:
    inputs, lengths = padded_inputs((9, 6), SIZE), torch.tensor([9, 6])
    for trained in (False, True):
        own = network(trained_backwards=trained)
        own.read(inputs, lengths).encoding.square().sum().backward()
        gradient = own.state_space.read_out.grad
        assert gradient[:SIZE].any()
        assert bool(gradient[SIZE:].any()) is trained


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"chunk_size": 1}, "chunk_size must be at least 2"),
        ({"alignment": "none", "alignment_temperature": 2.0}, "alignment_temperature=2 has no effect"),
        ({"beam_size": 0}, "beam_size"),
        ({"alignment": "scores"}, "alignment"),
        ({"alignment_temperature": 0}, "alignment_temperature"),
        ({"state_space_dropout": 2}, "state_space_dropout"),
    ],
)
def test_wrong_options_are_refused_by_their_name(options: dict[str, Any], named: str) -> None:
    with pytest.raises(RecipeError, match=named):
        RecursionInRecursion(8, VOCABULARY, **options)
    if options.keys() <= inspect.signature(RecursionInRecursionGRC).parameters.keys():
        with pytest.raises(RecipeError, match=named):
            RecursionInRecursionGRC(8, VOCABULARY, **options)
