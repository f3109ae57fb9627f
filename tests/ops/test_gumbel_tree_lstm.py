"""The Gumbel Tree-LSTM: engines, gradients through choices, noise and attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from engine_parity import assert_same
from torch import Tensor

from treemem.engines.affine import Affine
from treemem.engines.sequence_engine import SequenceEngine
from treemem.native import compile_mode
from treemem.native.threads import torch_threads
from treemem.networks.parsers.gumbel_tree_lstm.equations import GumbelTreeWeights
from treemem.networks.parsers.gumbel_tree_lstm.run import attend_to_nodes, gumbel_trees
from treemem.networks.parsers.native_pairs import native_pairs
from treemem.ops import compile_steps

compiled = pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")
SIZE = 4
LENGTHS = [(5, 1, 9, 0, 2, 3), (4, 4), (2,), (1, 1), (0, 0), ()]
ENGINES: tuple[SequenceEngine, ...] = ("naive", "fused")


def tensors(seed: int = 0) -> list[Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(shape).double() for shape in ((5 * SIZE, 2 * SIZE), (5 * SIZE,), (SIZE,))]


def weights(of: list[Tensor]) -> GumbelTreeWeights:
    return GumbelTreeWeights(Affine(*of[:2]), of[2], 0.7)


def leaves_of(lengths: tuple[int, ...], longer: int = 1) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(len(lengths), max(lengths, default=0) + longer, 2 * SIZE).double()


def noise_of(lengths: tuple[int, ...], seed: int) -> Any:
    """Noise of each sequence, the longest first, and step."""
    longest = max(lengths, default=0)
    drawn = torch.rand(len(lengths), 12, 12, generator=torch.Generator().manual_seed(seed)).double()
    return lambda shape: 3 * drawn[: shape[0], longest - 1 - shape[1], : shape[1]]


def run(lengths: tuple[int, ...], seed: int = 0, **options: Any) -> dict[str, Tensor]:
    """Roots, compositions, trees and all gradients."""
    leaves = leaves_of(lengths).requires_grad_()
    own = [each.requires_grad_() for each in tensors(seed)]
    found = gumbel_trees(leaves, torch.tensor(lengths, dtype=torch.int64), weights(own), trace=True, **options)
    outputs = {"roots": found.roots, "compositions": found.compositions}
    weighted = [(torch.cos(torch.arange(each.numel())).view(each.shape) * each).sum() for each in outputs.values()]
    loss = torch.stack(weighted).sum()
    if loss.requires_grad:
        loss.backward()
    gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in (leaves, *own)]
    assert found.joined is not None
    named = {f"gradient {number}": each for number, each in enumerate(gradients)}
    return {**{name: each.detach() for name, each in outputs.items()}, "joined": found.joined, **named}


@pytest.mark.usefixtures("unset_memory_is_nan")
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("temperature", [None, 1.0, 0.3])
def test_the_fused_engine_equals_the_naive_one(temperature: float | None, lengths: tuple[int, ...]) -> None:
    for seed in range(3):
        expected, found = (
            run(lengths, seed, temperature=temperature, noise=noise_of(lengths, seed), engine=engine)
            for engine in ENGINES
        )
        assert_same(found, expected, f"seed {seed}")
        with torch.no_grad():
            leaves = leaves_of(lengths)
            length = torch.tensor(lengths, dtype=torch.int64)
            quiet = [gumbel_trees(leaves, length, weights(tensors(seed)), engine=engine).roots for engine in ENGINES]
        torch.testing.assert_close(*quiet)


@compiled
def test_the_fused_engine_is_in_cpp_where_it_can_be() -> None:
    own, lengths = weights(tensors()), torch.tensor([3, 2])
    leaves = leaves_of((3, 2), longer=0)
    assert native_pairs(leaves, lengths, [2, 2, 1], own.cell, own.query, 1.0, None) is not None
    with compile_steps(False):
        assert native_pairs(leaves, lengths, [2, 2, 1], own.cell, own.query, 1.0, None) is None


@pytest.mark.usefixtures("unset_memory_is_nan")
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_take_sequences_and_change_nothing(threads: int) -> None:
    lengths = tuple(1 + 7 * index % 12 for index in range(90))
    with torch_threads(1):
        expected = run(lengths, temperature=0.5, noise=noise_of(lengths, 0), engine="fused")
    with torch_threads(threads):
        found = run(lengths, temperature=0.5, noise=noise_of(lengths, 0), engine="fused")
    assert_same(found, expected, "threads")


@pytest.mark.parametrize("compiles", [True, False])
def test_scores_that_are_not_finite_end_in_an_encoding_that_is_not_finite(compiles: bool) -> None:
    leaves = leaves_of((4, 3))
    leaves[0, 2] = torch.nan
    with compile_steps(compiles):
        found = gumbel_trees(leaves, torch.tensor([4, 3]), weights(tensors()), temperature=1.0, trace=True)
    assert found.joined is not None
    assert found.joined[0].isnan().any()
    assert found.roots[1].isfinite().all()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("compiles", [True, False])
def test_of_equally_good_pairs_the_first_is_chosen(compiles: bool, engine: SequenceEngine) -> None:
    own = weights(tensors())._replace(query=torch.zeros(SIZE).double())
    with compile_steps(compiles):
        found = gumbel_trees(leaves_of((4,)), torch.tensor([4]), own, engine=engine, trace=True).joined
    assert found is not None
    assert found[0].tolist() == [0, 1, 2, 3, 0]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("compiles", [True, False])
def test_pairs_that_differ_by_rounding_alone_are_equally_good(compiles: bool, engine: SequenceEngine) -> None:
    own = weights(tensors())._replace(query=torch.zeros(SIZE).double())
    scores = {3: [1.0, 1.0 + 1e-15, 0.5], 2: [1.0, 1.0 + 1e-13]}

    def noise(shape: tuple[int, ...]) -> Tensor:
        return torch.tensor([scores[shape[1]]], dtype=torch.float64)

    with compile_steps(compiles):
        found = gumbel_trees(leaves_of((4,)), torch.tensor([4]), own, noise=noise, engine=engine, trace=True).joined
    assert found is not None
    assert found[0].tolist() == [0, 1, 3, 2, 0]


def test_attention_reads_the_nodes_of_each_tree_alone() -> None:
    torch.manual_seed(0)
    leaves, inner = torch.randn(4, 3, SIZE).double(), torch.randn(4, 2, SIZE).double()
    found = attend_to_nodes(leaves, inner, torch.tensor([3, 2, 1, 0]))
    for row, length in enumerate((3, 2, 1)):
        nodes = torch.cat([leaves[row, :length], inner[row, : length - 1]])
        torch.testing.assert_close(found[row], (nodes @ nodes.mean(0)).softmax(0) @ nodes)
    assert not found[3].any()


@compiled
def test_the_fused_engine_refuses_a_second_derivative() -> None:
    leaves = leaves_of((3,)).requires_grad_()
    found = gumbel_trees(leaves, torch.tensor([3]), weights(tensors()))
    (gradient,) = torch.autograd.grad(found.roots.sum(), leaves, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.sum().backward()
