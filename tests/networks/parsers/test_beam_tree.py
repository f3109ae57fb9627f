"""The search for trees with a beam: engines, exhaustive search, noise, dropout and gradients."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from engine_parity import assert_same
from torch import Tensor

from treemem.engines.affine import Affine, linear
from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.gated_cell.equations import GatedCellWeights, gated_cell
from treemem.networks.parsers.beam_tree.equations import BeamTreeWeights, ChildrenScore
from treemem.networks.parsers.beam_tree.run import beam_trees

SIZE = 6
ENGINES: tuple[SequenceEngine, ...] = ("naive", "fused")


def affine(outputs: int, inputs: int) -> Affine:
    return Affine(torch.randn(outputs, inputs).double(), torch.randn(outputs).double())


def weights(sort: str, seed: int = 0) -> BeamTreeWeights:
    torch.manual_seed(seed)
    norm = Affine(torch.randn(SIZE).double(), torch.randn(SIZE).double())
    cell = GatedCellWeights(affine(4 * SIZE, 2 * SIZE), affine(4 * SIZE, 4 * SIZE), norm)
    return BeamTreeWeights(cell, ChildrenScore(affine(4, 8), affine(1, 4)) if sort == "children" else affine(1, SIZE))


def parameters(own: BeamTreeWeights) -> list[Tensor]:
    score = [*own.score.hidden, *own.score.score] if isinstance(own.score, ChildrenScore) else own.score
    return [*own.cell.hidden, *own.cell.gates, *own.cell.norm, *score]


def leaves_of(lengths: tuple[int, ...], longer: int = 1) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(len(lengths), max(lengths, default=0) + longer, SIZE).double()


def run(own: BeamTreeWeights, lengths: tuple[int, ...], beam_size: int, **options: Any) -> dict[str, Tensor]:
    """Encodings, trees and all gradients."""
    leaves = leaves_of(lengths).requires_grad_()
    tensors = [each.detach().requires_grad_() for each in parameters(own)]
    found = beam_trees(leaves, torch.tensor(lengths, dtype=torch.int64), _with(own, tensors), beam_size, **options)
    loss = (found.encoding * torch.cos(torch.arange(found.encoding.numel())).view(found.encoding.shape)).sum()
    if loss.requires_grad:
        loss.backward()
    gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in (leaves, *tensors)]
    named = {f"gradient {number}": each for number, each in enumerate(gradients)}
    return {"encoding": found.encoding.detach(), **({} if found.joined is None else {"joined": found.joined}), **named}


def _with(own: BeamTreeWeights, tensors: list[Tensor]) -> BeamTreeWeights:
    pairs = [Affine(*pair) for pair in zip(tensors[0::2], tensors[1::2], strict=True)]
    score = ChildrenScore(*pairs[3:]) if isinstance(own.score, ChildrenScore) else pairs[3]
    return BeamTreeWeights(GatedCellWeights(*pairs[:3]), score)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("sort", "soft"), [("children", False), ("composed", False), ("composed", True)])
def test_equal_tokens_give_the_same_trees_alone_and_in_a_batch(sort: str, soft: bool, engine: SequenceEngine) -> None:
    """Equal pairs have equal scores but for rounding, which depends on how many are computed together."""
    own = weights(sort)
    tensors = [each.float() for each in parameters(own)]
    own = _with(own, tensors)
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


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("sort", ["children", "composed"])
def test_a_beam_that_is_wide_enough_is_exhaustive(sort: str, engine: SequenceEngine) -> None:
    """Four leaves have six orders of compositions."""
    for seed in range(3):
        own = weights(sort, seed)
        leaves = leaves_of((4,), longer=0)
        every = exhaustive(leaves[0], own)
        assert len(every) == 6
        log, roots, places = zip(*every, strict=True)
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
    own = weights("composed")
    own = _with(own, [*parameters(own)[:-2], *(sharpness * each for each in own.score)])
    own = _with(own, [each.to(dtype) for each in parameters(own)])
    leaves, lengths = leaves_of((9, 7)).to(dtype), torch.tensor([9, 7])
    found = []
    for engine in ENGINES:
        given = leaves.clone().requires_grad_()
        encoding = beam_trees(given, lengths, own, 3, soft=True, engine=engine).encoding
        (gradient,) = torch.autograd.grad((encoding * torch.linspace(-1, 1, SIZE, dtype=dtype)).sum(), given)
        found.append(gradient)
    torch.testing.assert_close(*found, rtol=1e-3 if dtype == torch.float32 else 1e-9, atol=1e-6)
    assert torch.full((8,), torch.finfo(dtype).tiny, dtype=dtype).div(2).all(), "small numbers are 0 afterwards"


@pytest.mark.parametrize(("sort", "soft"), [("children", False), ("composed", False), ("composed", True)])
def test_noise_changes_the_choices_of_both_engines_alike_and_enters_no_sum(sort: str, soft: bool) -> None:
    own = weights(sort)
    arguments = leaves_of((7,)), torch.tensor([7]), own, 2
    encodings = []
    for seed in range(4):

        def noise(shape: tuple[int, ...], seed: int = seed) -> Tensor:
            return 9 * torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

        both = [beam_trees(*arguments, soft=soft, noise=noise, engine=engine).encoding for engine in ENGINES]
        torch.testing.assert_close(*both)
        encodings.append(both[0])
    assert not all(torch.equal(encodings[0], each) for each in encodings)
    constant = [run(own, (7,), 2, soft=soft, noise=draw) for draw in (None, lambda shape: torch.full(shape, 3.0))]
    assert_same(*constant, "constant noise")


@pytest.mark.parametrize(("sort", "soft"), [("children", False), ("composed", False), ("composed", True)])
def test_dropout_is_drawn_once_for_forward_and_backward(sort: str, soft: bool) -> None:
    own, lengths = weights(sort), torch.tensor([6, 3])
    encodings = []
    for grad in (True, False):
        torch.manual_seed(3)
        with torch.set_grad_enabled(grad):
            leaves = leaves_of((6, 3)).requires_grad_(grad)
            encodings.append(beam_trees(leaves, lengths, own, 2, soft=soft, dropout=0.5).encoding.detach())
    torch.testing.assert_close(*encodings)
    assert not torch.allclose(encodings[0], beam_trees(leaves_of((6, 3)), lengths, own, 2, soft=soft).encoding)
    whole = [run(own, (6, 3), 2, soft=soft, dropout=1.0, engine=engine) for engine in ENGINES]
    assert_same(*whole, "everything dropped")


@pytest.mark.parametrize("engine", ENGINES)
def test_of_equally_likely_pairs_the_first_is_composed(engine: SequenceEngine) -> None:
    own = weights("children")
    own = own._replace(score=ChildrenScore(*(Affine(torch.zeros_like(w), b) for w, b in own.score)))
    found = beam_trees(leaves_of((4,)), torch.tensor([4]), own, 2, engine=engine, trace=True).joined
    assert found is not None
    assert found[0].tolist() == [0, 1, 2, 3, 0]
