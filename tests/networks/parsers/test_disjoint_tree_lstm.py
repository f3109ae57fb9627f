"""A parser and a composition apart from each other: engines, samples, and where gradients end."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from engine_parity import assert_same
from sequence_networks import SIZE, made, with_gradients
from torch import Tensor

from treemem.engines.affine import Affine
from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.parsers.disjoint_tree_lstm.plan import tree_plan
from treemem.networks.parsers.disjoint_tree_lstm.run import choices_of, choose_trees, compose_trees
from treemem.ops import compile_steps

LENGTHS = [(5, 1, 9, 0, 2, 3), (1, 1), ()]


def leaves_of(lengths: tuple[int, ...], longer: int = 1, seed: int = 1) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(len(lengths), max(lengths, default=0) + longer, 2 * SIZE).double()


def noise_of(lengths: tuple[int, ...]) -> Any:
    """Noise of each sequence, the longest first, and step."""
    longest = max(lengths, default=0)
    numbers = torch.rand(len(lengths), 12, 12, generator=torch.Generator().manual_seed(0)).double()
    return lambda shape: 3 * numbers[: shape[0], longest - 1 - shape[1], : shape[1]]


def results(lengths: tuple[int, ...], engine: SequenceEngine, noisy: bool = True) -> dict[str, Tensor]:
    network, length = made("DisjointTreeLSTM"), torch.tensor(lengths, dtype=torch.int64)
    inputs = {name: leaves_of(lengths, seed=seed).requires_grad_() for seed, name in enumerate(("parser", "leaves"), 1)}
    weights, noise = network.parser.weights(), noise_of(lengths) if noisy else None
    places = choose_trees(inputs["parser"], length, weights, noise=noise, engine=engine)
    plan = tree_plan(places, length)
    roots = compose_trees(inputs["leaves"], plan, Affine.of(network.cell.map), engine=engine)
    choices = choices_of(inputs["parser"], plan, weights, engine=engine)._asdict()
    return with_gradients({"places": places, "roots": roots, **choices}, {**inputs, **dict(network.named_parameters())})


@pytest.mark.usefixtures("unset_memory_is_nan")
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("compiles", [False, True])
def test_the_fused_engine_equals_the_naive_one(compiles: bool, lengths: tuple[int, ...]) -> None:
    for noisy in (False, True):
        with compile_steps(compiles):
            expected, found = (results(lengths, engine, noisy) for engine in ("naive", "fused"))
        assert_same(found, expected, f"noisy: {noisy}")


def test_samples_have_the_probabilities_of_the_policy() -> None:
    """All six ways to choose the pairs of four leaves, two of which make the same tree."""
    count, weights = 6000, made("DisjointTreeLSTM").parser.weights()
    weights = weights._replace(query=2 * weights.query)
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
    network = made("DisjointTreeLSTM").train()
    network.read(torch.randn(2, 5, SIZE).double(), torch.tensor([5, 3])).encoding.sum().backward()
    learned = {name for name, each in network.named_parameters() if each.grad is not None and each.grad.any()}
    assert {name.partition(".")[0] for name in learned} == {"leaves", "cell"}
