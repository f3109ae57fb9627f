"""Transitions over a stack and a buffer: engines, given and chosen transitions, and the gradient of a policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from engine_parity import assert_same
from torch import Tensor

from treemem.engines.affine import Affine
from treemem.engines.sequence_engine import SequenceEngine
from treemem.native import compile_mode
from treemem.networks.parsers.spinn.batched import normalised
from treemem.networks.parsers.spinn.equations import Policy, SPINNWeights, TrackerWeights
from treemem.networks.parsers.spinn.run import policy_steps, run_transitions, transition_actions
from treemem.ops import compile_steps

SIZE, TRACKER = 4, 3
LENGTHS = [(5, 1, 9, 0, 2, 3), (1, 1), ()]
ENGINES: tuple[SequenceEngine, ...] = ("naive", "fused")
LANGUAGES = ["torch", pytest.param("C++", marks=pytest.mark.skipif(not compile_mode.compiler(), reason="no compiler"))]


def tensors(seed: int = 0, tracker: bool = True) -> list[Tensor]:
    torch.manual_seed(seed)
    shapes: list[tuple[int, ...]] = [(5 * SIZE, 2 * SIZE), (5 * SIZE,)]
    if tracker:
        shapes += [(4 * TRACKER, 3 * SIZE), (4 * TRACKER,), (4 * TRACKER, TRACKER), (5 * SIZE, TRACKER)]
        shapes += [(2, 2 * TRACKER), (2,)]
    return [torch.randn(shape).double() for shape in shapes]


def weights(of: list[Tensor]) -> SPINNWeights:
    tracker = TrackerWeights(Affine(*of[2:4]), of[4], of[5], Affine(*of[6:])) if len(of) > 2 else None
    return SPINNWeights(Affine(*of[:2]), tracker)


def leaves_of(lengths: tuple[int, ...], longer: int = 1) -> Tensor:
    torch.manual_seed(1)
    leaves = torch.randn(len(lengths), max(lengths, default=0) + longer, 2 * SIZE).double()
    for row, length in enumerate(lengths):
        leaves[row, length:] = torch.nan
    return leaves


def uniform_of(lengths: tuple[int, ...], seed: int, engine: SequenceEngine) -> Any:
    """The same numbers of each sequence and step whatever the engine; both read the longest sequence first."""
    longest = sorted(lengths, reverse=True)
    drawn = torch.rand(len(longest), 20, generator=torch.Generator().manual_seed(seed)).double()
    alone = iter([(row, step) for row, length in enumerate(longest) for step in range(2 * length - 1)])
    steps = iter(range(20))

    def uniform(shape: tuple[int, ...]) -> Tensor:
        if engine == "naive":
            row, step = next(alone)
            return drawn[row, step][None]
        return drawn[: shape[0], next(steps)]

    return uniform


def run(
    lengths: tuple[int, ...], engine: SequenceEngine, seed: int, sort: str, norms: tuple[Affine, ...] = ()
) -> dict[str, Tensor]:
    leaves = leaves_of(lengths).requires_grad_()
    own = [each.requires_grad_() for each in tensors(seed, tracker=sort != "given")]
    length = torch.tensor(lengths, dtype=torch.int64)
    steps = 2 * leaves.shape[1] - 1
    given = policy = None
    if sort.startswith("given"):
        given = torch.randint(0, 2, (len(lengths), max(steps, 0)), generator=torch.Generator().manual_seed(seed))
    elif sort == "sampled":
        policy = Policy(0.7, uniform_of(lengths, seed, engine))
    own_weights = weights(own)._replace(norms=norms)
    found = run_transitions(leaves, length, own_weights, given=given, policy=policy, engine=engine)
    outputs = [found.roots, *([] if found.logits is None else [found.logits])]
    weighted = [(torch.cos(torch.arange(each.numel())).view(each.shape) * each).sum() for each in outputs]
    torch.stack([*weighted, 0 * own[0].sum()]).sum().backward()
    gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in (leaves, *own)]
    named = {f"gradient {number}": each for number, each in enumerate(gradients)}
    results = {f"output {number}": each.detach() for number, each in enumerate(outputs)}
    return {**results, "actions": found.actions, "chosen": found.chosen, "joined": found.joined(length), **named}


@pytest.mark.usefixtures("unset_memory_is_nan")
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("sort", ["given", "given, tracker", "greedy", "sampled"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_fused_engine_equals_the_naive_one(language: str, sort: str, lengths: tuple[int, ...]) -> None:
    """The naive engine reads sequence by sequence, so the batch has no effect either."""
    expected = run(lengths, "naive", 0, sort)
    with compile_steps(language == "C++"):
        found = run(lengths, "fused", 0, sort)
    assert_same(found, expected, "")


def norms() -> tuple[Affine, ...]:
    torch.manual_seed(2)
    shapes = (2, SIZE), (3, SIZE), (1, TRACKER)
    return tuple(Affine(*torch.randn(2, *shape).double()) for shape in shapes)


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("sort", ["given", "given, tracker", "greedy", "sampled"])
def test_without_the_normalisation_itself_the_normalised_run_equals_the_plain_one(
    monkeypatch: pytest.MonkeyPatch, sort: str, lengths: tuple[int, ...]
) -> None:
    monkeypatch.setattr("treemem.networks.parsers.spinn.batched.normalised", lambda values, norm: values)
    expected, found = (run(lengths, "fused", 0, sort, own) for own in ((), norms()))
    assert_same(found, expected, "")


def test_a_part_is_normalised_over_all_its_entries() -> None:
    torch.manual_seed(0)
    values, (gain, bias) = 3 * torch.randn(5, 2, 4).double() + 1, torch.randn(2, 2, 4).double()
    found = normalised(values, Affine(gain, bias))
    for part in range(2):
        own = values[:, part].numpy()
        standard = torch.from_numpy((own - own.mean()) / (own.std(ddof=1) + 1e-5))
        torch.testing.assert_close(found[:, part], gain[part] * standard + bias[part])
    equal = torch.zeros(5, 2, 4, dtype=torch.float64, requires_grad=True)
    start = normalised(equal, Affine(gain, bias))
    torch.testing.assert_close(start, bias.expand(5, 2, 4))
    start.sum().backward()
    assert equal.grad is not None
    assert equal.grad.isfinite().all()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_normalisation_reads_all_sequences_that_are_not_empty_in_any_order(engine: SequenceEngine) -> None:
    """Given are left-branching trees: what a tree becomes depends on a sequence that ended long ago."""
    own, lengths = weights(tensors())._replace(norms=norms()), torch.tensor([4, 0, 1, 2])
    leaves = leaves_of((4, 0, 1, 2))
    given = torch.ones(4, 9, dtype=torch.int64)

    def roots(rows: list[int]) -> Tensor:
        found = run_transitions(leaves[rows], lengths[rows], own, given=given[: len(rows)], engine=engine)
        return found.roots

    expected = roots([0, 1, 2, 3])
    assert not expected[1].any()
    for rows in ([3, 2, 0, 1], [2, 0, 3]):
        torch.testing.assert_close(roots(rows), expected[rows])
    assert not torch.allclose(roots([0, 3])[0], expected[0])
    torch.testing.assert_close(roots([2]), expected[2:3])  # of one token; nothing is composed


TREES_OF_FOUR = [
    [0, 0, 1, 0, 1, 0, 1],
    [0, 0, 0, 1, 1, 0, 1],
    [0, 0, 1, 0, 0, 1, 1],
    [0, 0, 0, 1, 0, 1, 1],
    [0, 0, 0, 0, 1, 1, 1],
]


@pytest.mark.parametrize("baseline", [0.0, 1.7])
def test_the_credited_steps_give_the_gradient_of_the_expected_reward(baseline: float) -> None:
    """The expectation over all trees of four leaves, each with a reward of its own."""
    temperature = 0.8
    own = [each.requires_grad_() for each in tensors()]
    leaves = leaves_of((4,) * 5, longer=0)[:1].expand(5, -1, -1)
    lengths = torch.full((5,), 4)
    found = run_transitions(leaves, lengths, weights(own), given=torch.tensor(TREES_OF_FOUR))
    assert found.actions.tolist() == TREES_OF_FOUR
    steps = policy_steps(found, lengths, temperature)
    log_probability = (steps.log_probability * steps.free).sum(1)
    probability = log_probability.exp()
    torch.testing.assert_close(probability.sum(), torch.ones(()).double())
    reward = torch.tensor([1.0, -0.5, 2.0, 0.3, 0.9]).double()
    exact = torch.autograd.grad((probability * reward).sum(), own[2:], retain_graph=True, allow_unused=True)
    estimate = (probability.detach() * (reward - baseline) * log_probability).sum()
    for ours, expected in zip(torch.autograd.grad(estimate, own[2:], allow_unused=True), exact, strict=True):
        torch.testing.assert_close(ours, expected)


def test_sampled_transitions_have_the_probabilities_of_the_policy() -> None:
    count = 4000
    own = [each / 3 for each in tensors()]
    leaves = leaves_of((4,), longer=0).expand(count, -1, -1)
    generator = torch.Generator().manual_seed(0)

    def uniform(shape: tuple[int, ...]) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    sampled = run_transitions(leaves, torch.full((count,), 4), weights(own), policy=Policy(1.3, uniform))
    lengths = torch.full((5,), 4)
    given = run_transitions(leaves[:5], lengths, weights(own), given=torch.tensor(TREES_OF_FOUR))
    steps = policy_steps(given, lengths, 1.3)
    probability = (steps.log_probability * steps.free).sum(1).exp()
    share = torch.tensor([(sampled.actions == torch.tensor(each)).all(1).double().mean() for each in TREES_OF_FOUR])
    torch.testing.assert_close(share.double(), probability, atol=0.03, rtol=0)


def test_transitions_from_reductions() -> None:
    expected = [[0, 0, 0, 1, 1], [0] * 5, [0] * 5, [0, 0, 1, 0, 1]]
    found = transition_actions(np.array([0, 0, 2, 0, 0, 1, 1]), np.array([0, 3, 3, 4, 7]))
    assert found.tolist() == expected
    assert transition_actions(np.zeros(0, np.int64), np.zeros(1, np.int64)).shape == (0, 0)


@pytest.mark.parametrize("engine", ENGINES)
def test_transitions_that_are_not_possible_are_replaced(engine: SequenceEngine) -> None:
    own, leaves, lengths = weights(tensors()), leaves_of((3, 1)), torch.tensor([3, 1])
    for choice, actions in ((0, [0, 0, 0, 1, 1]), (1, [0, 0, 1, 0, 1])):
        given = torch.full((2, 7), choice)
        found = run_transitions(leaves, lengths, own, given=given, engine=engine)
        assert found.actions.tolist() == [[*actions, 0, 0], [0] * 7]
        assert found.chosen.tolist() == [[choice] * 5 + [0, 0], [choice] + [0] * 6]
