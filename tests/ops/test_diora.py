"""DIORA: engines, the tree of the largest sum of scores, and its loss of reconstruction."""

from __future__ import annotations

import pytest
import torch
from engine_parity import assert_same
from torch import Tensor
from tree_strategies import VOCABULARY, random_forest

from treemem.engines.affine import Affine
from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.parsers.diora import batched
from treemem.networks.parsers.diora.equations import (
    DIORAWeights,
    MLPWeights,
    PassWeights,
    TreeLSTMWeights,
    best_parses,
    unit,
)
from treemem.networks.parsers.diora.run import inside_outside
from treemem.nn import DIORA
from treemem.schedule.tree_batch import TreeBatch

ENGINES: tuple[SequenceEngine, ...] = ("naive", "fused")
LENGTHS = [(), (0,), (1,), (5,), (2, 0, 4, 1), (3, 6, 6, 5)]
SIZE = 3


def weights(of: list[Tensor], mlp: bool, outside: bool) -> DIORAWeights:
    def one(own: list[Tensor], forget_bias: float) -> PassWeights:
        hidden = Affine(*own[1:3])
        return PassWeights(
            MLPWeights(hidden, Affine(*own[3:])) if mlp else TreeLSTMWeights(hidden, forget_bias), own[0]
        )

    half = len(of) // 2
    root = of[-1] if not mlp else of[-1] * torch.tensor([[1.0], [0.0]])
    return DIORAWeights(one(of[:half], 1.0), one(of[half:-1], 0.0) if outside else None, root)


def run(lengths: tuple[int, ...], mlp: bool, outside: bool, engine: SequenceEngine) -> dict[str, Tensor]:
    torch.manual_seed(len(lengths))
    hidden = [(SIZE, 2 * SIZE), (SIZE,), (SIZE, SIZE), (SIZE,)] if mlp else [(5 * SIZE, 2 * SIZE), (5 * SIZE,)]
    shapes: list[tuple[int, ...]] = [*2 * [(SIZE, SIZE), *hidden], (2, SIZE)]
    own = [torch.randn(shape).double().requires_grad_() for shape in shapes]
    inputs = torch.randn(2, len(lengths), max(lengths, default=0), SIZE).double()
    if mlp:
        inputs[1] = 0
    inputs.requires_grad_()
    length = torch.tensor(lengths, dtype=torch.int64)
    charts = inside_outside(unit(inputs), length, weights(own, mlp, outside), engine=engine)
    results, total = {}, 0 * torch.stack([each.sum() for each in (*own, inputs)]).sum()
    for name in ("inside", "outside") if outside else ("inside",):
        for part, values in zip("hcs", getattr(charts, name), strict=True):
            for row, end in enumerate(lengths):
                cells = [values[i, j, row] for i in range(end) for j in range(i + 1, end + 1)]
                for number, cell in enumerate(cells):
                    results[f"{name} {part} {row} {number}"] = cell.detach()
                    total = total + (torch.cos(torch.arange(cell.numel()) + number).view(cell.shape) * cell).sum()
    total.backward()
    results |= {
        f"gradient {number}": torch.zeros_like(each) if each.grad is None else each.grad
        for number, each in enumerate(own)
    }
    assert inputs.grad is not None
    there = torch.arange(inputs.shape[2]) < length[:, None]
    results["gradient of leaves"] = inputs.grad[:, there] if not mlp else inputs.grad[0, there]
    return {**results, "splits": best_parses(charts.scores, length)}


@pytest.mark.usefixtures("unset_memory_is_nan")
@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("mlp", [True, False], ids=["mlp", "tree_lstm"])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize(("numbers", "kept"), [(100, 0), (100, 1 << 20), (1 << 20, 0)])
def test_the_fused_engine_equals_the_naive_one(
    monkeypatch: pytest.MonkeyPatch, lengths: tuple[int, ...], mlp: bool, outside: bool, numbers: int, kept: int
) -> None:
    """The naive engine reads sequence by sequence, so the batch has no effect either."""
    monkeypatch.setattr(batched, "_ON_CPU", numbers)
    monkeypatch.setattr(batched, "_KEPT", kept)
    expected, found = (run(lengths, mlp, outside, engine) for engine in ENGINES)
    assert_same(found, expected, "")


def trees_of(begin: int, end: int) -> list[list[tuple[int, int, int]]]:
    """The splits of every binary tree."""
    if end - begin == 1:
        return [[]]
    return [
        [(begin, middle, end), *left, *right]
        for middle in range(begin + 1, end)
        for left in trees_of(begin, middle)
        for right in trees_of(middle, end)
    ]


def test_the_parse_has_the_largest_sum_of_scores_of_all_trees() -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([6, 3, 1, 0, 5])
    scores = torch.randn(6, 7, 6, len(lengths))
    found = best_parses(scores, lengths)
    for row, length in enumerate(lengths.tolist()):
        expected = torch.zeros(6)
        if length > 1:
            best = max(trees_of(0, length), key=lambda tree: sum(scores[i, j, k - i, row].item() for i, k, j in tree))
            for begin, middle, end in best:
                expected[middle] = end - begin
        assert torch.equal(found[row], expected)


@pytest.mark.parametrize("negatives", [0, 4])
def test_words_are_told_from_what_is_around_them_after_training(negatives: int) -> None:
    torch.manual_seed(0)
    batch = TreeBatch.from_forest(random_forest(seed=3, num_trees=8, size=7), VOCABULARY)
    layer = DIORA(16, VOCABULARY, negatives=negatives)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    losses = []
    for _ in range(60):
        loss = layer(batch).auxiliary_losses["reconstruction"]
        assert loss.count == layer.tokens(batch)[1].sum()
        losses.append(loss.mean.item())
        optimizer.zero_grad()
        loss.mean.backward()
        optimizer.step()
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
    assert not layer.eval()(batch).auxiliary_losses
    assert not DIORA(4, VOCABULARY, outside=False)(batch).auxiliary_losses
