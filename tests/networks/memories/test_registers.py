"""The register memory: its equations for one example by hand, hard addresses and their gradients, and a controller."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from treemem.errors import GraphError, RecipeError
from treemem.networks.memories.registers.equations import (
    chosen_row,
    content_weights,
    convex_write,
    erase_and_add,
    read_rows,
    sampled_row,
    sharpened,
    shifted,
    straight_through,
    with_prefix,
)
from treemem.nn import LSTMCell, MemoryCell, RegisterMemory

VARIANTS: list[dict[str, Any]] = [
    {"similarity": similarity, "write": write, "key_size": key_size, "location": location}
    for similarity, write, key_size, location in product(
        ("dot", "cosine"), ("convex", "erase-and-add"), (None, 3), (True, False)
    )
]


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def random_actions(memory: RegisterMemory, batch: int, size: int) -> dict[str, Tensor]:
    """For each name of a control what a controller could give."""
    return {
        name: random(batch, control.size, seed=seed) if control.size else random(batch, seed=seed).sigmoid()
        for seed, control in enumerate(memory.controls(size)[1:])
        for name in control.names
    }


def addressed(memory: RegisterMemory, head: str, rows: Tensor, last: Tensor, given: dict[str, Tensor]) -> Tensor:
    """The weights of one example (Graves et al. 2014)."""
    scores = []
    for row in rows[:, : memory.key_size]:
        score = given[f"{head}_key"] @ row
        if memory.similarity == "cosine":
            squares = [(each @ each) + 1e-6 for each in (given[f"{head}_key"], row)]
            score = functional.softplus(given[f"{head}_sharpness"]) * score / (squares[0] * squares[1]).sqrt()
        scores.append(score)
    weights = torch.stack(scores).softmax(0)
    if not memory.location:
        return weights
    gate, shifts = given[f"{head}_gate"], given[f"{head}_shift"].softmax(0)
    mixed = gate * weights + (1 - gate) * last
    moved = torch.zeros_like(mixed)
    for place in range(len(mixed)):
        for shift, share in enumerate(shifts, -memory.max_shift):
            moved[(place + shift) % len(mixed)] += share * mixed[place]
    sharp = moved ** (1 + functional.softplus(given[f"{head}_power"]))
    return sharp / sharp.sum()


@pytest.mark.parametrize("options", [*VARIANTS, {"max_shift": 3}], ids=str)
def test_a_step_is_that_of_the_equations(options: dict[str, Any]) -> None:
    """With two rows in front that are only read; what is read is from before the writing."""
    memory, batch, size = RegisterMemory(4, **options), 3, 2
    prefix, actions = random(batch, 2, (memory.key_size or 0) + size, seed=20), random_actions(memory, batch, size)
    state = memory.starting_from(prefix, read_only=True)
    state = state._replace(
        rows=torch.cat([prefix, random(batch, 4, prefix.shape[2], seed=21)], 1),
        read_weights=random(batch, 6, seed=22).softmax(1),
        write_weights=random(batch, 4, seed=23).softmax(1),
    )
    value = random(batch, size, seed=24)
    found, readout = memory.step(state, value, *actions.values())
    for example in range(batch):
        rows, given = state.rows[example], {name: each[example] for name, each in actions.items()}
        read = addressed(memory, "read", rows, state.read_weights[example], given)
        write = addressed(memory, "write", rows[2:], state.write_weights[example], given)
        new = value[example] if memory.key_size is None else torch.cat([given["key"], value[example]])
        written = [*rows[:2]]
        for row, weight in zip(rows[2:], write, strict=True):
            kept = 1 - weight * given["erase"] if memory.write == "erase-and-add" else 1 - weight
            written.append(kept * row + weight * new)
        expected = (torch.stack(written), read, write, read @ rows[:, memory.key_size or 0 :])
        ours = (found.rows[example], found.read_weights[example], found.write_weights[example], readout[example])
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)


def test_rows_filled_at_the_start_leave_the_others_zero_and_all_weight_is_on_the_first() -> None:
    state = RegisterMemory(3).starting_from(torch.ones(2, 1, 4))
    assert state.rows[:, :, 0].tolist() == state.read_weights.tolist() == [[1.0, 0.0, 0.0]] * 2


def test_the_gradient_of_a_cosine_with_a_row_of_zeros_is_finite() -> None:
    rows = torch.zeros(1, 2, 3, requires_grad=True)
    content_weights(torch.ones(1, 3), rows)[0, 0].backward()
    assert rows.grad is not None
    assert bool(rows.grad.isfinite().all())


def test_a_high_power_of_many_equal_weights_is_uniform() -> None:
    equal = torch.full((1, 64), 1 / 64)
    torch.testing.assert_close(sharpened(equal, torch.tensor([100.0])), equal)


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
    for write, read in product(range(3), range(3)):
        written = chosen_row(write_logits.softmax(-1), torch.tensor([write]))
        chosen = chosen_row(read_logits.softmax(-1), torch.tensor([read]))
        loss = read_rows(convex_write(rows, written.weights, value), chosen.weights).square().sum()
        log_probability = (written.log_probability + chosen.log_probability).sum()
        estimate = estimate + log_probability.exp().detach() * (log_probability * loss.detach() + loss)
        expected_loss = expected_loss + log_probability.exp() * loss
    found = torch.autograd.grad(estimate, leaves, retain_graph=True)
    torch.testing.assert_close(found, torch.autograd.grad(expected_loss, leaves))


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


def test_sampled_rows_have_the_log_probability_of_reading_and_writing() -> None:
    soft, hard = (RegisterMemory(3, location=False, addressing=each) for each in ("soft", "reinforce"))
    actions, rows = random_actions(soft, 4, 2), random(4, 3, 2, seed=9)
    value = random(4, 2, seed=8)
    weights, _ = soft.step(soft.starting_from(rows), value, *actions.values())
    torch.manual_seed(0)
    for training in (True, False):
        found, _ = hard.train(training).step(hard.starting_from(rows), value, *actions.values())
        read, write = (found.read_weights * weights.read_weights, found.write_weights * weights.write_weights)
        torch.testing.assert_close(found.log_probability.exp(), read.sum(1) * write.sum(1))
    assert found.read_weights.argmax(1).tolist() == weights.read_weights.argmax(1).tolist()


def test_nan_stays_in_its_own_example() -> None:
    key, rows = torch.tensor([[float("nan"), 1.0], [1.0, 1.0]]), torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    hard = straight_through(content_weights(key, rows.expand(2, -1, -1)))
    assert hard.isnan().all(1).tolist() == [True, False]


@pytest.mark.parametrize("addressing", ["soft", "straight-through", "reinforce"])
@pytest.mark.parametrize("options", VARIANTS[::3])
def test_a_controller_learns_from_what_it_reads(options: dict[str, Any], addressing: Any) -> None:
    torch.manual_seed(0)
    memory = RegisterMemory(4, addressing=addressing, **options)
    cell = MemoryCell(lambda width: LSTMCell(width, 6), [memory], input_size=2, memory_size=3)
    state = cell.initial(5)
    for _ in range(3):
        output, state = cell(torch.randn(5, 2), state)
    (output.square().sum() + state[1][0].log_probability.sum() + state[2].sum()).backward()
    gradients = [parameter.grad for parameter in cell.parameters()]
    assert all(gradient is not None and bool(gradient.isfinite().all()) for gradient in gradients)
    if addressing != "soft":
        weights = state[1][0].write_weights
        assert sorted(weights.flatten().tolist()) == [0.0] * 15 + [1.0] * 5


ROWS, WEIGHTS, VALUE = torch.zeros(2, 3, 4), torch.zeros(2, 3), torch.zeros(2, 4)
MEMORY = RegisterMemory(2, location=False)


@pytest.mark.parametrize(
    ("run", "error", "words"),
    [
        (lambda: RegisterMemory(0), RecipeError, "rows"),
        (lambda: RegisterMemory(addressing="hard"), RecipeError, "addressing"),  # type: ignore[arg-type]
        (lambda: MEMORY.starting_from(torch.zeros(1, 3, 4)), GraphError, r"\[1, 3, 4\]"),
        (lambda: MEMORY.step(MEMORY.initial(2, 4), VALUE, torch.zeros(2, 3), VALUE), GraphError, "row keys"),
        (lambda: MEMORY.step(MEMORY.initial(2, 4), torch.zeros(2, 3), VALUE, VALUE), GraphError, "values"),
        (lambda: content_weights(torch.zeros(2, 1), ROWS), GraphError, r"key \[2, 1\]"),
        (lambda: shifted(WEIGHTS, torch.zeros(2, 2)), GraphError, "2 shifts"),
        (lambda: read_rows(ROWS, torch.zeros(2, 1)), GraphError, r"weights \[2, 3\], not \[2, 1\]"),
        (lambda: convex_write(ROWS, WEIGHTS, torch.zeros(2, 1)), GraphError, r"values \[2, 4\], not \[2, 1\]"),
        (lambda: erase_and_add(ROWS, WEIGHTS, VALUE, torch.zeros(1, 4)), GraphError, r"\[2, 4\], not \[1, 4\]"),
        (lambda: with_prefix(torch.zeros(1, 3, 4), ROWS), GraphError, "does not fit rows"),
    ],
)
def test_wrong_options_and_sizes_are_refused(run: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        run()
