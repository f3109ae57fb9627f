"""The nondeterministic stack: equal to a sum over all runs, and to the paper's recurrences with their gradients."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from treemem.networks.memories.nondeterministic_stack.equations import AutomatonState, automaton_step, naive_readings


class Weights(NamedTuple):
    push: torch.Tensor
    replace: torch.Tensor
    pop: torch.Tensor
    value: torch.Tensor


def drawn(batch: int, time: int, states: int, symbols: int, size: int, scale: float = 1.0, seed: int = 0) -> Weights:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return scale * torch.randn(batch, time, *shape, generator=generator, dtype=torch.float64)

    pair = (states, symbols)
    value = torch.rand(batch, time, size, generator=generator, dtype=torch.float64)
    return Weights(normal(*pair, *pair), normal(*pair, *pair), normal(*pair, states), value)


def by_steps(weights: Weights, bottom: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    states, symbols = weights.pop.shape[2:4]
    state = AutomatonState.empty(len(weights.pop), states, symbols, bottom)
    logarithms, means = [], []
    for step in range(weights.pop.shape[1]):
        state, mean = automaton_step(state, *(each[:, step] for each in weights))
        logarithms.append(state.log_probability)
        means.append(mean)
    return torch.stack(logarithms, 1), torch.stack(means, 1)


def summed_over_runs(weights: Weights, bottom: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Readings of the first example: each stack that a run can have, with its state and the weight of its runs."""
    push, replace, pop = (each[0].exp() for each in weights[:3])
    states, symbols = pop.shape[1:3]
    runs: dict[Any, Any] = {(0, ((0, -1),)): torch.ones(())}  # a symbol, and the step that pushed it
    probabilities, means = [], []
    for step in range(len(pop)):
        following: dict[Any, Any] = {}
        for (state, stack), weight in runs.items():
            top, pushed_at = stack[-1]
            for to in range(states):
                found = {(to, stack[:-1]): pop[step, state, top, to]} if len(stack) > 1 else {}
                for symbol in range(symbols):
                    found[to, (*stack, (symbol, step))] = push[step, state, top, to, symbol]
                    found[to, (*stack[:-1], (symbol, pushed_at))] = replace[step, state, top, to, symbol]
                for key, action in found.items():
                    following[key] = following.get(key, 0) + weight * action
        runs = following
        total, vectors = push.new_zeros(states, symbols), push.new_zeros(states, symbols, len(bottom))
        for (state, stack), weight in runs.items():
            symbol, pushed_at = stack[-1]
            total[state, symbol] += weight
            vectors[state, symbol] += weight * (bottom if pushed_at < 0 else weights.value[0, pushed_at])
        probabilities.append(total / total.sum())
        means.append(vectors / total[..., None])
    return torch.stack(probabilities), torch.stack(means)


@pytest.mark.parametrize(("states", "symbols", "time"), [(1, 2, 6), (2, 2, 5), (3, 1, 5), (2, 3, 4)])
def test_readings_are_sums_over_all_runs(states: int, symbols: int, time: int) -> None:
    weights, bottom = drawn(1, time, states, symbols, 2), torch.tensor([0.3, -1.0], dtype=torch.float64)
    probability, mean = summed_over_runs(weights, bottom)
    for found, vectors in (naive_readings(*weights, bottom), by_steps(weights, bottom)):
        torch.testing.assert_close(found[0].exp(), probability, rtol=0, atol=1e-12)
        torch.testing.assert_close(vectors[0], mean, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [0, 3])
@pytest.mark.parametrize("scale", [1.0, 60.0])
@settings(max_examples=10)
@given(seed=st.integers(0, 1000), time=st.integers(1, 11))
def test_steps_equal_the_recurrences_with_their_gradients(size: int, scale: float, seed: int, time: int) -> None:
    weights = Weights(*(each.requires_grad_() for each in drawn(2, time, 2, 3, size, scale, seed)))
    bottom = torch.linspace(-1, 1, size, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    factors = torch.randn(2, 2, time, 2, 3, generator=generator, dtype=torch.float64)

    def results(logarithm: torch.Tensor, mean: torch.Tensor) -> tuple[torch.Tensor, ...]:
        loss = (logarithm.exp() * factors[0]).sum() + (mean * factors[1, ..., None]).sum()
        return logarithm.exp(), mean, *torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)

    expected = results(*naive_readings(*weights, bottom))
    torch.testing.assert_close(results(*by_steps(weights, bottom)), expected, rtol=0, atol=1e-10)


def test_an_example_that_waits_branches_and_is_taken_goes_on_as_if_it_had_not() -> None:
    """The first example runs all steps, the second one waits at some, and both go on in two ways from step 8."""
    weights, bottom = drawn(2, 10, 2, 2, 1), torch.ones(1, dtype=torch.float64)
    leaves, waits, loss = [each.requires_grad_() for each in weights], (2, 3, 6), torch.zeros(())
    state = AutomatonState.empty(2, 2, 2, bottom)
    for step in range(8):
        after, _ = automaton_step(state, *(each[:, step] for each in leaves))
        after.where(torch.tensor([False, True]), state)  # changes nothing
        state = after if step not in waits else after.where(torch.tensor([True, False]), state)
    rows = torch.tensor([1, 0, 0])
    for step in (8, 9):
        branch, mean = automaton_step(state.take(rows), *(each[rows, step] for each in leaves))
        loss = loss + (branch.log_probability.exp() ** 2).sum() + mean.square().sum()
    found = [loss, *torch.autograd.grad(loss, leaves)]
    expected = torch.zeros(())
    for row in rows.tolist():
        for last in (8, 9):
            steps = [*(step for step in range(8) if not (row and step in waits)), last]
            logarithm, means = naive_readings(*(each[[row]][:, steps] for each in leaves), bottom)
            expected = expected + (logarithm[:, -1].exp() ** 2).sum() + means[:, -1].square().sum()
    torch.testing.assert_close(found, [expected, *torch.autograd.grad(expected, leaves)], rtol=0, atol=1e-10)


@pytest.mark.parametrize("rare", [-95.0, -120.0])
def test_a_symbol_far_less_probable_than_another_is_not_lost_beneath(rare: float) -> None:
    """Symbol 1 is rare beneath the top, a pop uncovers it, and then its weight rises."""
    never = torch.full((1, 4, 1, 3, 1, 3), -torch.inf)
    push, replace, pop = never.clone(), never.clone(), never[..., 0].clone()
    push[0, 0, 0, 0, 0, 1], push[0, 0, 0, 0, 0, 2] = rare, 0.0
    push[0, 1, 0, 1:, 0, 0] = 0.0
    pop[0, 2, 0, 0, 0] = 0.0
    replace[0, 3, 0, 1, 0, 1], replace[0, 3, 0, 2, 0, 2] = -rare, 0.0
    weights = Weights(push, replace, pop, torch.zeros(1, 4, 0))
    found = by_steps(weights, torch.zeros(0))[0].exp()
    torch.testing.assert_close(found[0, -1].flatten(), torch.tensor([0.0, 0.5, 0.5]))
    torch.testing.assert_close(found, naive_readings(*weights[:3])[0].exp())


@pytest.mark.parametrize("scale", [30.0, 100.0])
def test_single_precision_holds_for_extreme_weights(scale: float) -> None:
    weights = drawn(20, 20, 2, 3, 0, scale)
    expected = by_steps(weights, torch.zeros(0, dtype=torch.float64))[0].exp()
    single = Weights(*(each.float().requires_grad_() for each in weights))
    found = by_steps(single, torch.zeros(0))[0].exp()
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-3)
    found.square().sum().backward()
    assert all(each.grad is not None and bool(each.grad.isfinite().all()) for each in single[:3])


def test_nothing_is_read_if_no_run_is_left() -> None:
    weights = Weights(*(each.requires_grad_() for each in drawn(2, 4, 2, 2, 1)))
    blocked = torch.zeros(2, 4, dtype=torch.float64)
    blocked[0, 1] = -torch.inf  # of the first example, all actions at step 1
    gone = [each + blocked.view(2, 4, *[1] * (each.dim() - 2)) for each in weights[:3]]
    for logarithm, mean in (
        by_steps(Weights(*gone, weights.value), torch.ones(1, dtype=torch.float64)),
        naive_readings(*gone, weights.value, torch.ones(1, dtype=torch.float64)),
    ):
        assert (logarithm[0, 1:] == -torch.inf).all()
        assert (mean[0, 1:] == 0).all()
        assert logarithm[1].isfinite().all()
        loss = logarithm.exp().square().sum() + mean.sum()
        assert all(bool(each.isfinite().all()) for each in torch.autograd.grad(loss, weights))
