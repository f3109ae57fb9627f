"""The register memory: a list under hard actions, rows that are only read, and a controller that drives it."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from treemem.errors import GraphError, RecipeError
from treemem.nn import LSTMCell, MemoryCell, RegisterMemory

FAR = 1e4
"""A logit that leaves nothing to the others."""


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def random_actions(memory: RegisterMemory, batch: int, size: int) -> list[torch.Tensor]:
    return [
        random(batch, control.size, seed=seed) if control.size else random(batch, seed=seed).sigmoid()
        for seed, control in enumerate(memory.controls(size))
    ]


STEPS = st.lists(st.tuples(*[st.sampled_from([-1, 0, 1])] * 2, st.integers(1, 9)), min_size=1, max_size=8)


@settings(max_examples=20)
@given(steps=STEPS, write=st.sampled_from(["convex", "erase-and-add"]))
def test_hard_shifts_move_a_reading_and_a_writing_head_over_a_list(
    steps: list[tuple[int, int, int]], write: Any
) -> None:
    memory = RegisterMemory(4, write=write)
    key, gate, power = torch.zeros(1, 1), torch.zeros(1), torch.zeros(1)
    state, cells, read_at, write_at = memory.initial(1, 1), [0.0] * 4, 0, 0
    for read_shift, write_shift, value in steps:
        heads = [[key, gate, FAR * torch.eye(3)[[shift + 1]], power] for shift in (read_shift, write_shift)]
        erase = [torch.ones(1, 1)] if write == "erase-and-add" else []
        state, readout = memory.step(state, torch.tensor([[float(value)]]), *heads[0], *heads[1], *erase)
        read_at, write_at = (read_at + read_shift) % 4, (write_at + write_shift) % 4
        assert readout.item() == cells[read_at]  # before the writing
        cells[write_at] = float(value)
        assert state.rows.flatten().tolist() == cells


def test_contents_are_found_by_keys_that_are_kept_apart() -> None:
    memory = RegisterMemory(2, key_size=2, location=False)
    state = memory.starting_from(torch.tensor([[[1.0, 0.0, 7.0], [0.0, 1.0, 8.0]]]))
    read, write, new_key = torch.tensor([[0.0, FAR]]), torch.tensor([[FAR, 0.0]]), torch.tensor([[0.5, 0.5]])
    state, readout = memory.step(state, torch.tensor([[9.0]]), read, write, new_key)
    assert readout.tolist() == [[8.0]]
    assert state.rows.tolist() == [[[0.5, 0.5, 9.0], [0.0, 1.0, 8.0]]]


def test_prefix_rows_are_read_and_not_written() -> None:
    memory = RegisterMemory(2, location=False)
    prefix = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]])
    state = memory.starting_from(prefix, read_only=True)
    key = torch.tensor([[0.0, FAR]])
    state, readout = memory.step(state, torch.full((1, 2), 3.0), key, key)
    assert readout.tolist() == [[0.0, 1.0]]
    assert state.rows[:, :3].tolist() == prefix.tolist()
    assert state.rows[:, 3:].tolist() == [[[1.5, 1.5], [1.5, 1.5]]]  # equal rows share the writing


def test_rows_filled_at_the_start_leave_the_others_zero() -> None:
    state = RegisterMemory(3).starting_from(torch.ones(2, 1, 4))
    assert state.rows[:, :, 0].tolist() == [[1.0, 0.0, 0.0]] * 2


VARIANTS = [
    {"similarity": similarity, "write": write, "key_size": key_size, "location": location}
    for similarity, write, key_size, location in product(
        ("dot", "cosine"), ("convex", "erase-and-add"), (None, 3), (True, False)
    )
]


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


def test_sampled_rows_have_the_log_probability_of_reading_and_writing() -> None:
    soft = RegisterMemory(3, location=False)
    hard = RegisterMemory(3, location=False, addressing="reinforce")
    actions, rows = random_actions(soft, 4, 2), random(4, 3, 2, seed=9)
    weights, _ = soft.step(soft.starting_from(rows), *actions)
    torch.manual_seed(0)
    for training in (True, False):
        found, _ = hard.train(training).step(hard.starting_from(rows), *actions)
        expected = (found.read_weights * weights.read_weights).sum(1) * (
            found.write_weights * weights.write_weights
        ).sum(1)
        torch.testing.assert_close(found.log_probability.exp(), expected)
    assert found.read_weights.argmax(1).tolist() == weights.read_weights.argmax(1).tolist()


def test_wrong_options_and_sizes_are_refused() -> None:
    with pytest.raises(RecipeError, match="rows"):
        RegisterMemory(0)
    with pytest.raises(RecipeError, match="addressing"):
        RegisterMemory(addressing="hard")  # type: ignore[arg-type]
    memory = RegisterMemory(2, location=False)
    with pytest.raises(GraphError, match=r"rows \[1, 3, 4\] do not fit 2 rows"):
        memory.starting_from(torch.zeros(1, 3, 4))
    with pytest.raises(GraphError, match="does not fit row keys"):
        memory.step(memory.initial(1, 4), torch.zeros(1, 4), torch.zeros(1, 3), torch.zeros(1, 4))
    with pytest.raises(GraphError, match="need values"):
        memory.step(memory.initial(1, 4), torch.zeros(1, 3), torch.zeros(1, 4), torch.zeros(1, 4))
