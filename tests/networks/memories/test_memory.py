"""Memories: equal to lists under hard actions, equal by steps and over whole sequences, with right gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_strategies import VOCABULARY

from treemem.errors import GraphError, RecipeError
from treemem.networks.memories.memory import Memory
from treemem.networks.memories.neural_stack.equations import End, naive_run
from treemem.nn import (
    DoublyLinkedList,
    MemoryRNN,
    NeuralDeque,
    NeuralQueue,
    NeuralStack,
    NondeterministicStack,
    SuperpositionStack,
)

ACTIONS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12)
ONE_ENDED: list[tuple[type[NeuralStack | NeuralQueue], End]] = [(NeuralStack, "top"), (NeuralQueue, "bottom")]
VALUES = torch.eye(24, dtype=torch.float64)
"""A value for each step, so that what is read says which was pushed when."""


def run_by_steps(memory: Memory, value: torch.Tensor, *actions: torch.Tensor) -> torch.Tensor:
    state = memory.initial(len(value), value.shape[-1], value)
    readouts = []
    for step in range(value.shape[1]):
        state, readout = memory.step(state, value[:, step], *(action[:, step] for action in actions))
        readouts.append(readout)
    return torch.stack(readouts, 1)


def hard(actions: list[tuple[bool, ...]]) -> list[torch.Tensor]:
    return [torch.tensor([row], dtype=torch.float64) for row in zip(*actions, strict=True)]


@pytest.mark.parametrize(("memory_class", "end"), ONE_ENDED)
@given(actions=ACTIONS)
def test_hard_actions_make_a_stack_and_a_queue(
    memory_class: type[NeuralStack | NeuralQueue], end: End, actions: list[tuple[bool, bool]]
) -> None:
    push, pop = hard(actions)
    value = VALUES[None, : len(actions)]
    found = memory_class()(value, push, pop)
    items: list[int] = []
    for step, (pushes, pops) in enumerate(actions):
        if pops and items:
            items.pop(-1 if end == "top" else 0)
        items += [step] if pushes else []
        expected = VALUES[items[-1 if end == "top" else 0]] if items else torch.zeros(24)
        torch.testing.assert_close(found[0, step], expected.double())


@given(actions=st.lists(st.tuples(*[st.booleans()] * 4), min_size=1, max_size=12))
def test_hard_actions_make_a_deque(actions: list[tuple[bool, ...]]) -> None:
    push_top, push_bottom, pop_top, pop_bottom = hard(actions)
    value = torch.stack([VALUES[: len(actions)], VALUES[12 : 12 + len(actions)]], 1)[None]
    found = NeuralDeque()(value, torch.stack([push_top, push_bottom], 2), torch.stack([pop_top, pop_bottom], 2))
    items: list[int] = []  # bottom first
    for step, (pushes_top, pushes_bottom, pops_top, pops_bottom) in enumerate(actions):
        items = items[:-1] if pops_top else items
        items = items[1:] if pops_bottom else items
        items = [*([12 + step] if pushes_bottom else []), *items, *([step] if pushes_top else [])]
        nothing = torch.zeros(24, dtype=torch.float64)
        top, bottom = (VALUES[items[-1]], VALUES[items[0]]) if items else (nothing, nothing)
        torch.testing.assert_close(found[0, step], torch.cat([top, bottom]))


@given(actions=st.lists(st.sampled_from(["push", "pop", "no_op"]), min_size=1, max_size=12))
def test_hard_actions_make_a_superposition_stack(actions: list[str]) -> None:
    names = ("push", "pop", "no_op")
    weights = [torch.tensor([[float(action == name) for action in actions]]) for name in names]
    value = torch.arange(1.0, len(actions) + 1)[None, :, None]
    found = SuperpositionStack(depth=12, top_k=2, empty=-1.0)(value, *weights)
    items: list[float] = []
    for step, action in enumerate(actions):
        if action == "push":
            items.append(step + 1.0)
        elif action == "pop":
            items = items[:-1]
        assert found[0, step].tolist() == [*items[::-1], -1.0, -1.0][:2]


@given(actions=st.lists(st.sampled_from(["insert", "left", "right", "no_op"]), min_size=1, max_size=12))
def test_hard_actions_make_a_list_with_a_head(actions: list[str]) -> None:
    names = ("insert", "left", "right", "no_op")
    weights = [torch.tensor([[float(action == name) for action in actions]]) for name in names]
    value = torch.arange(1.0, len(actions) + 1)[None, :, None]
    found = DoublyLinkedList(length=61)(value, *weights)
    cells, head = [-1.0] * 61, 30
    for step, action in enumerate(actions):
        if action == "insert":
            cells.insert(head + 1, step + 1.0)
        head += {"insert": 1, "left": -1, "right": 1, "no_op": 0}[action]
        assert found[0, step, 0] == cells[head]


@pytest.mark.parametrize("read_strength", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(("memory_class", "end"), ONE_ENDED)
@settings(max_examples=10)
@given(seed=st.integers(0, 1000), quarters=st.booleans())
def test_whole_sequences_steps_and_equations_are_equal_with_their_gradients(
    memory_class: type[NeuralStack | NeuralQueue], end: End, read_strength: float, seed: int, quarters: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    value = torch.randn(3, 9, 2, generator=generator, dtype=torch.float64)
    push, pop = torch.rand(2, 3, 9, generator=generator, dtype=torch.float64) * 1.5
    if quarters:  # many ties
        push, pop = (push * 4).round() / 4, (pop * 4).round() / 4
    weight = torch.randn(3, 9, 2, generator=generator, dtype=torch.float64)
    inputs = [each.requires_grad_() for each in (value, push.clone(), pop.clone())]
    memory = memory_class(read_strength)

    def results(run: Callable[..., torch.Tensor]) -> tuple[Any, ...]:
        found = run(*inputs)
        return found, *torch.autograd.grad((found * weight).sum(), inputs)

    expected = results(lambda *given: naive_run(*given, end, read_strength)[0])
    for run in (memory, lambda *given: run_by_steps(memory, *given)):
        torch.testing.assert_close(results(run), expected, rtol=0, atol=1e-10)


def test_a_state_can_be_gone_on_from_twice() -> None:
    memory, one = NeuralStack(), torch.ones(1)
    state = memory.initial(1, 1)
    nothing = torch.zeros(1)
    for number in range(10):
        state, _ = memory.step(state, torch.full((1, 1), float(number)), one, nothing)
    first, _ = memory.step(state, torch.full((1, 1), 20.0), one, nothing)
    second, _ = memory.step(state, torch.full((1, 1), 30.0), one, nothing)
    for branch, expected in ((first, 20.0), (second, 30.0), (state, 9.0)):
        _, readout = memory.step(branch, torch.zeros(1, 1), nothing, nothing)
        assert readout.item() == expected


def test_values_are_kept_once_for_all_steps() -> None:
    memory = NeuralStack()
    state = memory.initial(2, 3)
    value, push = torch.randn(2, 3, requires_grad=True), torch.full((2,), 0.9, requires_grad=True)
    kept = set()
    for _ in range(500):
        state, _ = memory.step(state, value, push, push)
        kept.add(state.items.data_ptr())
    assert len(kept) == 7, "of 8, 16, ... 512 items"


@pytest.mark.parametrize("memory", ["stack", "list", "register", "nondeterministic"])
def test_a_memory_learns_in_mixed_precision(memory: Any) -> None:
    torch.manual_seed(0)
    network = MemoryRNN(8, VOCABULARY, memory=memory, memory_size=4)
    inputs, lengths = torch.randn(3, 5, 8), torch.tensor([5, 2, 4])
    exact = network.read(inputs, lengths).encoding
    with torch.autocast("cpu", torch.bfloat16):
        found = network.read(inputs, lengths).encoding
    torch.testing.assert_close(found, exact, rtol=0.1, atol=0.05)
    found.sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in network.cell.parameters())


def test_automata_whose_weights_sum_to_one_may_have_no_action() -> None:
    """No run reaches the pairs that have none."""
    memory = NondeterministicStack(2, 2, normalized=True)
    push, replace, pop = torch.full((1, 4, 4), -torch.inf), torch.full((1, 4, 4), -torch.inf), torch.zeros(1, 4, 2)
    push[0, 0] = torch.tensor([0.0, 1.0, -torch.inf, 0.0])
    pop[0, 2:] = -torch.inf
    actions = [each.flatten(1).requires_grad_() for each in (push, replace, pop)]
    _, readout = memory.step(memory.initial(1, 0), *actions)
    torch.testing.assert_close(readout[0], torch.tensor([0.0, 1.0, -torch.inf, 0.0]).softmax(0))
    readout.square().sum().backward()
    assert all(bool(each.grad.isfinite().all()) for each in actions if each.grad is not None)


@pytest.mark.parametrize("memory", [NeuralStack(), NeuralQueue(), SuperpositionStack(5)])
def test_no_steps_and_values_of_no_width_are_read(memory: Any) -> None:
    assert memory(torch.zeros(2, 0, 4), torch.rand(2, 0), torch.rand(2, 0)).shape == (2, 0, 4)
    assert memory(torch.zeros(2, 30, 0), torch.rand(2, 30), torch.rand(2, 30)).shape == (2, 30, 0)


STACK, VALUE, PUSH, AUTOMATON = NeuralStack(), torch.randn(2, 3, 4), torch.rand(2, 3), NondeterministicStack(1, 2)


@pytest.mark.parametrize(
    ("run", "error", "words"),
    [
        (lambda: STACK(VALUE, torch.rand(2, 2), PUSH), GraphError, r"actions \[2, 3, \.\.\.\], not \[2, 2\]"),
        *(
            (lambda wrong=wrong: STACK(VALUE, torch.full((2, 3), wrong), PUSH), GraphError, "strength .* NaN")
            for wrong in (-0.1, float("nan"))
        ),
        (lambda: SuperpositionStack(5)(VALUE, *[torch.rand(2, 3, 5)] * 2), GraphError, r"\[2\], not \[2, 5\]"),
        (
            lambda: AUTOMATON.step(AUTOMATON.initial(2, 0), *(torch.zeros(2, width) for width in (3, 4, 2))),
            GraphError,
            r"log_push \[2, 4\], .* not \[2, 3\]",
        ),
        (lambda: NondeterministicStack(bottom="x"), RecipeError, "bottom"),  # type: ignore[arg-type]
        (lambda: NondeterministicStack(vectors=True, reads_states=False), RecipeError, "vectors: true"),
    ],
)
def test_wrong_actions_and_options_are_refused(run: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        run()
