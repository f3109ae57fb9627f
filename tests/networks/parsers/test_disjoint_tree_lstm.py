"""A parser and a composition apart from each other: engines, and the gradient of the policy."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from engine_parity import assert_same
from torch import Tensor

from treemem.engines.affine import Affine
from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.parsers.disjoint_tree_lstm.equations import ParserWeights
from treemem.networks.parsers.disjoint_tree_lstm.plan import tree_plan
from treemem.networks.parsers.disjoint_tree_lstm.run import choices_of, choose_trees, compose_trees
from treemem.ops import compile_steps

SIZE = 4
LENGTHS = [(5, 1, 9, 0, 2, 3), (1, 1), ()]
ENGINES: tuple[SequenceEngine, ...] = ("naive", "fused")


def tensors(seed: int = 0) -> list[Tensor]:
    """Cell and query of the parser, cell of the composition."""
    torch.manual_seed(seed)
    cell: list[tuple[int, ...]] = [(5 * SIZE, 2 * SIZE), (5 * SIZE,)]
    return [torch.randn(shape).double() for shape in (*cell, (SIZE,), *cell)]


def leaves_of(lengths: tuple[int, ...], longer: int = 1, seed: int = 1) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(len(lengths), max(lengths, default=0) + longer, 2 * SIZE).double()


def noise_of(lengths: tuple[int, ...], seed: int) -> Any:
    """Noise of each sequence, the longest first, and step."""
    longest = max(lengths, default=0)
    drawn = torch.rand(len(lengths), 12, 12, generator=torch.Generator().manual_seed(seed)).double()
    return lambda shape: 3 * drawn[: shape[0], longest - 1 - shape[1], : shape[1]]


def run(lengths: tuple[int, ...], engine: SequenceEngine, seed: int, noisy: bool) -> dict[str, Tensor]:
    own = [each.requires_grad_() for each in tensors(seed)]
    of_parser, of_composition = (leaves_of(lengths, seed=each).requires_grad_() for each in (1, 2))
    length = torch.tensor(lengths, dtype=torch.int64)
    weights = ParserWeights(Affine(*own[:2]), own[2])
    noise = noise_of(lengths, seed) if noisy else None
    places = choose_trees(of_parser, length, weights, noise=noise, engine=engine)
    plan = tree_plan(places, length)
    roots = compose_trees(of_composition, plan, Affine(*own[3:]), engine=engine)
    outputs = {"roots": roots, **choices_of(of_parser, plan, weights, engine=engine)._asdict()}
    weighted = [(torch.cos(torch.arange(each.numel())).view(each.shape) * each).sum() for each in outputs.values()]
    torch.stack([*weighted, 0 * own[0].sum()]).sum().backward()
    inputs = (of_parser, of_composition, *own)
    gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in inputs]
    named = {f"gradient {number}": each for number, each in enumerate(gradients)}
    return {"places": places, **{name: each.detach() for name, each in outputs.items()}, **named}


@pytest.mark.usefixtures("unset_memory_is_nan")
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("compiles", [False, True])
def test_the_fused_engine_equals_the_naive_one(compiles: bool, noisy: bool, lengths: tuple[int, ...]) -> None:
    with compile_steps(compiles):
        expected, found = (run(lengths, engine, 0, noisy) for engine in ENGINES)
    assert_same(found, expected, "")


@pytest.mark.parametrize("engine", ENGINES)
def test_of_equally_good_pairs_the_first_is_chosen(engine: SequenceEngine) -> None:
    weights = ParserWeights(Affine(*tensors()[:2]), torch.zeros(SIZE).double())
    places = choose_trees(leaves_of((4, 2)), torch.tensor([4, 2]), weights, engine=engine)
    assert not places.any()


def test_samples_have_the_probabilities_of_the_policy() -> None:
    """All six ways to choose the pairs of four leaves, two of which make the same tree."""
    count = 6000
    own = tensors()
    weights = ParserWeights(Affine(*own[:2]), 2 * own[2])
    ways = torch.tensor([[*each, 0] for each in product(range(3), range(2))])
    leaves = leaves_of((4,), longer=0)
    plan = tree_plan(ways, torch.full((6,), 4))
    probability = choices_of(leaves.expand(6, -1, -1), plan, weights).log_probability.sum(1).exp()
    torch.testing.assert_close(probability.sum(), torch.ones(()).double())
    assert probability.max() > 2 * probability.min()
    generator = torch.Generator().manual_seed(0)

    def noise(shape: tuple[int, ...]) -> Tensor:
        return -torch.log(-torch.log(torch.rand(shape, generator=generator, dtype=torch.float64)))

    places = choose_trees(leaves.expand(count, -1, -1), torch.full((count,), 4), weights, noise=noise)
    share = torch.stack([(places == each).all(1).double().mean() for each in ways])
    torch.testing.assert_close(share, probability, atol=0.02, rtol=0)


def test_a_composition_has_no_gradient_by_the_parser() -> None:
    found = run((5, 3), "fused", 0, noisy=True)
    plan = tree_plan(found["places"], torch.tensor([5, 3]))
    leaves = leaves_of((5, 3)).requires_grad_()
    own = [each.requires_grad_() for each in tensors()]
    compose_trees(leaves, plan, Affine(*own[3:])).sum().backward()
    assert [each.grad is None for each in own] == [True] * 3 + [False] * 2
