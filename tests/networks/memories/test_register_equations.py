"""Register memories: addressing by hand-computed numbers, writing by lists, and the gradients of hard addresses."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from treemem.errors import GraphError
from treemem.networks.memories.registers.equations import (
    Similarity,
    chosen_row,
    content_weights,
    convex_write,
    erase_and_add,
    interpolated,
    location_weights,
    read_rows,
    sampled_row,
    sharpened,
    shifted,
    straight_through,
    with_prefix,
)

ROWS = torch.tensor([[[3.0, 4.0], [0.0, 2.0]]], dtype=torch.float64)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(("similarity", "scores"), [("cosine", (0.6, 0.0)), ("dot", (6.0, 0.0))])
def test_content_weights_are_a_softmax_of_sharp_similarities(similarity: Similarity, scores: tuple[float, ...]) -> None:
    key, sharpness = torch.tensor([[2.0, 0.0]], dtype=torch.float64), torch.tensor([1.5], dtype=torch.float64)
    found = content_weights(key, ROWS, sharpness, similarity)
    exponents = [math.exp(1.5 * score) for score in scores]
    expected = torch.tensor([[x / sum(exponents) for x in exponents]], dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_the_gradient_of_a_cosine_with_a_row_of_zeros_is_finite() -> None:
    rows = torch.zeros(1, 2, 3, requires_grad=True)
    content_weights(torch.ones(1, 3), rows)[0, 0].backward()
    assert rows.grad is not None
    assert bool(rows.grad.isfinite().all())


def test_a_shift_of_one_moves_weight_to_the_next_row_and_around_the_end() -> None:
    weights = torch.tensor([[0.5, 0.2, 0.0, 0.3]])
    assert shifted(weights, torch.tensor([[0.0, 0.0, 1.0]])).tolist() == [weights[0, [3, 0, 1, 2]].tolist()]
    assert shifted(weights, torch.tensor([[1.0, 0.0, 0.0]])).tolist() == [weights[0, [1, 2, 3, 0]].tolist()]
    mixed = shifted(weights, torch.tensor([[0.1, 0.6, 0.3]]))
    torch.testing.assert_close(mixed, torch.tensor([[0.41, 0.27, 0.09, 0.23]]))


def test_two_rows_may_be_shifted_by_more_than_their_number() -> None:
    found = shifted(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.1, 0.2, 0.3, 0.2, 0.2]]))
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.4]]))


def test_interpolation_and_sharpening_by_hand() -> None:
    content, last = torch.tensor([[0.8, 0.2]]), torch.tensor([[0.0, 1.0]])
    mixed = interpolated(content, last, torch.tensor([0.25]))
    torch.testing.assert_close(mixed, torch.tensor([[0.2, 0.8]]))
    torch.testing.assert_close(sharpened(mixed, torch.tensor([2.0])), torch.tensor([[1 / 17, 16 / 17]]))
    found = location_weights(content, last, torch.tensor([0.25]), torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([2.0]))
    torch.testing.assert_close(found, torch.tensor([[16 / 17, 1 / 17]]))


def test_a_high_power_of_many_equal_weights_is_uniform() -> None:
    torch.testing.assert_close(
        sharpened(torch.full((1, 64), 1 / 64), torch.tensor([100.0])), torch.full((1, 64), 1 / 64)
    )


@settings(max_examples=20)
@given(
    writes=st.lists(
        st.tuples(st.integers(0, 3), st.integers(-3, 3), st.booleans(), st.integers(0, 3)), min_size=1, max_size=8
    )
)
def test_hard_writes_and_reads_are_those_of_a_list(writes: list[tuple[int, int, bool, int]]) -> None:
    convex, added = torch.zeros(1, 4, 1), torch.zeros(1, 4, 1)
    replaced, sums = [0.0] * 4, [0.0] * 4
    for row, value, erases, read in writes:
        weights, vector = torch.eye(4)[None, row], torch.tensor([[float(value)]])
        convex = convex_write(convex, weights, vector)
        added = erase_and_add(added, weights, torch.full((1, 1), float(erases)), vector)
        replaced[row] = float(value)
        sums[row] = value + (0.0 if erases else sums[row])
        assert read_rows(convex, torch.eye(4)[None, read]).item() == replaced[read]
        assert read_rows(added, torch.eye(4)[None, read]).item() == sums[read]


def test_soft_writes_by_hand() -> None:
    rows, weights = torch.tensor([[[4.0], [2.0]]]), torch.tensor([[0.25, 0.5]])
    assert convex_write(rows, weights, torch.tensor([[8.0]])).flatten().tolist() == [5.0, 5.0]
    found = erase_and_add(rows, weights, torch.tensor([[0.5]]), torch.tensor([[8.0]]))
    assert found.flatten().tolist() == [4 * 0.875 + 2, 2 * 0.75 + 4]


def test_straight_through_is_one_hot_with_the_soft_gradient() -> None:
    logits, rows = random(3, 5).requires_grad_(), random(3, 5, 2, seed=1)
    hard = straight_through(logits.softmax(-1))
    assert hard.tolist() == torch.eye(5)[logits.argmax(-1)].tolist()
    (found,) = torch.autograd.grad(read_rows(rows, hard).sum(), logits)
    (expected,) = torch.autograd.grad(read_rows(rows, logits.softmax(-1)).sum(), logits)
    torch.testing.assert_close(found, expected)


def test_the_expected_gradient_of_reinforce_is_that_of_the_expected_loss() -> None:
    """All pairs of a written and a read row, so that nothing is random."""
    write_logits, read_logits, value = random(1, 3, seed=1), random(1, 3, seed=2), random(1, 2, seed=3)
    leaves = [leaf.requires_grad_() for leaf in (write_logits, read_logits, value)]
    rows = random(1, 3, 2, seed=4)

    estimate, expected_loss = torch.zeros(()), torch.zeros(())
    for write in range(3):
        for read in range(3):
            written = chosen_row(write_logits.softmax(-1), torch.tensor([write]))
            chosen = chosen_row(read_logits.softmax(-1), torch.tensor([read]))
            loss = read_rows(convex_write(rows, written.weights, value), chosen.weights).square().sum()
            log_probability = (written.log_probability + chosen.log_probability).sum()
            estimate = estimate + log_probability.exp().detach() * (log_probability * loss.detach() + loss)
            expected_loss = expected_loss + log_probability.exp() * loss
    for found, expected in zip(
        torch.autograd.grad(estimate, leaves, retain_graph=True),
        torch.autograd.grad(expected_loss, leaves),
        strict=True,
    ):
        torch.testing.assert_close(found, expected)


def test_a_sampled_row_is_one_hot_with_its_log_probability() -> None:
    weights = torch.tensor([[0.2, 0.5, 0.3], [0.0, 0.0, 1.0]])
    generator = torch.Generator().manual_seed(0)
    drawn = set()
    for _ in range(50):
        hard, log_probability = sampled_row(weights, generator)
        rows = hard.argmax(-1)
        assert hard.tolist() == torch.eye(3)[rows].tolist()
        torch.testing.assert_close(log_probability.exp(), weights[[0, 1], rows])
        drawn.add(rows[0].item())
        assert rows[1] == 2
    assert drawn == {0, 1, 2}


def test_nan_stays_in_its_own_example() -> None:
    key = torch.tensor([[float("nan"), 1.0], [1.0, 1.0]])
    hard = straight_through(content_weights(key, ROWS.float().expand(2, -1, -1)))
    assert hard.isnan().all(1).tolist() == [True, False]


def test_prefix_rows_stand_first() -> None:
    assert with_prefix(torch.ones(1, 1, 2), torch.zeros(1, 2, 2))[0, :, 0].tolist() == [1.0, 0.0, 0.0]


def test_wrong_sizes_are_refused() -> None:
    rows, weights, value = torch.zeros(2, 3, 4), torch.zeros(2, 3), torch.zeros(2, 4)
    with pytest.raises(GraphError, match=r"key \[2, 1\] does not fit row keys \[2, 3, 4\]"):
        content_weights(torch.zeros(2, 1), rows)
    with pytest.raises(GraphError, match="2 shifts have no middle one"):
        shifted(weights, torch.zeros(2, 2))
    with pytest.raises(GraphError, match=r"need weights \[2, 3\], not \[2, 1\]"):
        read_rows(rows, torch.zeros(2, 1))
    with pytest.raises(GraphError, match=r"need values \[2, 4\], not \[2, 1\]"):
        convex_write(rows, weights, torch.zeros(2, 1))
    with pytest.raises(GraphError, match=r"need values \[2, 4\], not \[1, 4\]"):
        erase_and_add(rows, weights, value, torch.zeros(1, 4))
    with pytest.raises(GraphError, match="does not fit rows"):
        with_prefix(torch.zeros(1, 3, 4), rows)
