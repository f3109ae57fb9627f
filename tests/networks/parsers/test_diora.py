"""DIORA: the tree of the largest sum of scores, and its loss of reconstruction."""

from __future__ import annotations

import torch
from tree_strategies import VOCABULARY, random_forest

from treemem.networks.parsers.diora.equations import best_parses
from treemem.nn import DIORA
from treemem.schedule.tree_batch import TreeBatch


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


def test_words_are_told_from_what_is_around_them_after_training() -> None:
    torch.manual_seed(0)
    batch = TreeBatch.from_forest(random_forest(seed=3, num_trees=8, size=7), VOCABULARY)
    layer = DIORA(8, VOCABULARY, negatives=4)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.03)
    losses = []
    for _ in range(30):
        loss = layer(batch).auxiliary_losses["reconstruction"]
        assert loss.count == layer.tokens(batch)[1].sum()
        losses.append(loss.mean.item())
        optimizer.zero_grad()
        loss.mean.backward()
        optimizer.step()
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
    assert not layer.eval()(batch).auxiliary_losses
    assert not DIORA(4, VOCABULARY, outside=False)(batch).auxiliary_losses
