"""The search for trees with a beam: exhaustive search, ties, noise, dropout and gradients."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from engine_parity import assert_same
from sequence_networks import SIZE, made, with_gradients
from torch import Tensor

from treemem.engines.affine import Affine, linear
from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.gated_cell.equations import gated_cell
from treemem.networks.parsers.beam_tree.equations import BeamTreeWeights, ChildrenScore
from treemem.networks.parsers.beam_tree.run import beam_trees

ENGINES: tuple[SequenceEngine, ...] = ("naive", "fused")
NETWORKS = {"children": "EfficientBeamTreeGRC", "composed": "BeamTreeGRC"}
"""By what is scored."""
every_engine = pytest.mark.parametrize("engine", ENGINES)
every_search = pytest.mark.parametrize(("sort", "soft"), [("children", False), ("composed", False), ("composed", True)])


def network_of(sort: str, seed: int = 0) -> Any:
    return made(NETWORKS[sort], seed, **({"scored_size": 4} if sort == "children" else {}))


def leaves_of(lengths: tuple[int, ...], longer: int = 1) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(len(lengths), max(lengths) + longer, SIZE).double()


def run(network: Any, lengths: tuple[int, ...], beam_size: int, **options: Any) -> dict[str, Tensor]:
    """Encodings and all gradients."""
    network.zero_grad()
    leaves = leaves_of(lengths).requires_grad_()
    found = beam_trees(leaves, torch.tensor(lengths), network.weights(), beam_size, **options).encoding
    return with_gradients({"encoding": found}, {"leaves": leaves, **dict(network.named_parameters())})


@every_engine
@every_search
def test_equal_tokens_give_the_same_trees_alone_and_in_a_batch(sort: str, soft: bool, engine: SequenceEngine) -> None:
    """Equal pairs have equal scores but for rounding, which depends on how many are computed together."""
    own = network_of(sort).float().weights()
    torch.manual_seed(2)
    lengths = torch.randint(6, 12, (16,))
    leaves = torch.randn(2, SIZE)[torch.randint(0, 2, (16, 12))]
    found = beam_trees(leaves, lengths, own, 3, soft=soft, engine=engine).encoding
    for row, length in enumerate(lengths.tolist()):
        alone = beam_trees(leaves[row, None, :length], lengths[row, None], own, 3, soft=soft).encoding[0]
        torch.testing.assert_close(found[row], alone, rtol=1e-4, atol=1e-4)


def exhaustive(leaves: Tensor, own: BeamTreeWeights) -> list[tuple[Tensor, Tensor, list[int]]]:
    """The log probability of every order of compositions, its root, and the places composed."""
    if len(leaves) == 1:
        return [(leaves.new_zeros(()), leaves[0], [])]
    pairs = [torch.stack(pair) for pair in pairwise(leaves)]
    composed = [gated_cell(*pair[:, None], own.cell)[0] for pair in pairs]
    if isinstance(own.score, ChildrenScore):
        scores = torch.stack([own.score.of(pair) for pair in pairs])
    else:
        scores = torch.stack([linear(node, own.score)[0] for node in composed])
    found = []
    for place, own_log in enumerate(scores - scores.logsumexp(0)):
        rest = torch.cat([leaves[:place], composed[place][None], leaves[place + 2 :]])
        found += [(own_log + log, root, [place, *places]) for log, root, places in exhaustive(rest, own)]
    return found


@every_engine
@pytest.mark.parametrize("sort", NETWORKS)
def test_a_beam_that_is_wide_enough_is_exhaustive(sort: str, engine: SequenceEngine) -> None:
    """Four leaves have six orders of compositions."""
    for seed in range(3):
        own, leaves = network_of(sort, seed).weights(), leaves_of((4,), longer=0)
        log, roots, places = zip(*exhaustive(leaves[0], own), strict=True)
        assert len(log) == 6
        probability = torch.stack(log).exp()
        torch.testing.assert_close(probability.sum(), torch.ones(()).double())
        found = beam_trees(leaves, torch.tensor([4]), own, 6, engine=engine, trace=True)
        torch.testing.assert_close(found.encoding[0], probability @ torch.stack(roots))
        begins, joined = [0, 1, 2, 3], [0.0] * 4
        for step, place in enumerate(places[int(probability.argmax())], 1):
            joined[begins.pop(place + 1)] = step
        assert found.joined is not None
        assert found.joined[0].tolist() == joined


@pytest.mark.parametrize(("dtype", "sharpness"), [(torch.float32, 60), (torch.float64, 450)])
def test_gradients_that_vanish_leave_the_others_as_they_are(dtype: torch.dtype, sharpness: int) -> None:
    """The last beam of a sharp search has a probability near 0, and so do its gradients."""
    network = network_of("composed").to(dtype)
    own = network.weights()
    own = own._replace(score=Affine(*(sharpness * each for each in own.score)))
    leaves, lengths = leaves_of((9, 7)).to(dtype), torch.tensor([9, 7])
    found = []
    for engine in ENGINES:
        given = leaves.clone().requires_grad_()
        encoding = beam_trees(given, lengths, own, 3, soft=True, engine=engine).encoding
        (gradient,) = torch.autograd.grad((encoding * torch.linspace(-1, 1, SIZE, dtype=dtype)).sum(), given)
        found.append(gradient)
    torch.testing.assert_close(*found, rtol=1e-3 if dtype == torch.float32 else 1e-9, atol=1e-6)
    assert torch.full((8,), torch.finfo(dtype).tiny, dtype=dtype).div(2).all(), "small numbers are 0 afterwards"


@every_search
def test_noise_changes_the_choices_of_both_engines_alike_and_enters_no_sum(sort: str, soft: bool) -> None:
    network = network_of(sort)
    encodings = []
    for seed in range(4):

        def noise(shape: tuple[int, ...], seed: int = seed) -> Tensor:
            return 9 * torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

        both = [run(network, (7,), 2, soft=soft, noise=noise, engine=engine) for engine in ENGINES]
        assert_same(*both, "noise")
        encodings.append(both[0]["encoding"])
    assert not all(torch.equal(encodings[0], each) for each in encodings)
    constant = [run(network, (7,), 2, soft=soft, noise=draw) for draw in (None, lambda shape: torch.full(shape, 3.0))]
    assert_same(*constant, "constant noise")


@every_search
def test_dropout_is_drawn_once_for_forward_and_backward(sort: str, soft: bool) -> None:
    network, lengths = network_of(sort), torch.tensor([6, 3])
    encodings = []
    for grad in (True, False):
        torch.manual_seed(3)
        with torch.set_grad_enabled(grad):
            leaves = leaves_of((6, 3)).requires_grad_(grad)
            encodings.append(
                beam_trees(leaves, lengths, network.weights(), 2, soft=soft, dropout=0.5).encoding.detach()
            )
    torch.testing.assert_close(*encodings)
    assert not torch.allclose(encodings[0], run(network, (6, 3), 2, soft=soft)["encoding"])
    whole = [run(network, (6, 3), 2, soft=soft, dropout=1.0, engine=engine) for engine in ENGINES]
    assert_same(*whole, "everything dropped")
