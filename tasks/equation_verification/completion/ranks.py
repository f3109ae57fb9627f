"""Ranks of the correct candidate, and top-k accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RANKS = ("raw", "class", "collapsed", "random_collapse")
"""The names of the ranks; see :class:`Completion`."""

TOP = tuple(range(1, 11))
"""The k of the recorded top-k accuracies."""

SHOWN = (1, 3, 5, 10)
"""The k that tables show."""


@dataclass(frozen=True)
class RankScore:
    """Scores of the blanks of one group, as fractions.

    Attributes:
        group: the depth of the equations, or ``"all"``.
        equations: their number.
        top: top-k accuracy for k = 1, 2, ..., 10.
        mrr: mean of 1 / rank.
    """

    group: int | str
    equations: int
    top: tuple[float, ...]
    mrr: float


@dataclass(frozen=True, eq=False)
class Completion:
    """The rank of the correct candidate for each blank, from 1.

    Candidates are sorted by descending score; of equal scores the earlier candidate comes first. Networks read
    ``One:1`` as ``Integer:1`` and ``Rational:0`` as ``Integer:0``, so candidates that differ in these only have equal
    scores.

    Attributes:
        depth: int64 ``[blanks]``, of the equations, from the root ``Equality``.
        best: int64 ``[blanks]``, the candidate of rank 1.
        ranks: int64 ``[blanks, draws]`` by name; one draw for all but the last:
            ``"raw"``: of the original, as spelled, among all candidates;
            ``"class"``: of the best candidate of the original's value class among all candidates;
            ``"collapsed"``: of the original's class among the classes, each by its best candidate;
            ``"random_collapse"``: of the original's class among the classes, each by one random candidate.
    """

    depth: NDArray[np.int64]
    best: NDArray[np.int64]
    ranks: Mapping[str, NDArray[np.int64]]

    def __len__(self) -> int:
        return len(self.depth)

    def scores(self, name: str) -> list[RankScore]:
        """Return the scores of a rank, by ascending depth, and of all equations last; means over draws."""
        scores = []
        for group in (*np.unique(self.depth).tolist(), "all"):
            ranks = self.ranks[name][(self.depth == group) | (group == "all")]
            top = tuple(float((ranks <= most).mean()) for most in TOP)
            scores.append(RankScore(group, len(ranks), top, float((1 / ranks).mean())))
        return scores


def commonest_first(original: NDArray[np.int64], value_class: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the ranks in a list that is the same for all blanks, with the commonest value class first.

    This is the best list that does not look at the equation. Arguments are those of :func:`rank_candidates`; returns
    int64 ``[blanks, 1]``.
    """
    true_class = value_class[original]
    order = np.argsort(-np.bincount(true_class, minlength=int(value_class.max()) + 1), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(1, len(order) + 1)
    return rank[true_class, None]


def rank_candidates(
    scores: NDArray[np.floating],
    original: NDArray[np.int64],
    value_class: NDArray[np.int64],
    *,
    draws: int = 10,
    random: np.random.Generator,
) -> dict[str, NDArray[np.int64]]:
    """Return the ranks of :class:`Completion`.

    Args:
        scores: ``[blanks, candidates]``.
        original: int64 ``[blanks]``, the correct candidate.
        value_class: int64 ``[candidates]``, numbered from 0 without a gap.
        draws: number of draws of one candidate of each class, for each blank.
        random: source of the draws.
    """
    num_blanks, num_candidates = scores.shape
    blank = np.arange(num_blanks)
    order = np.argsort(-scores, axis=1, kind="stable")
    place = np.empty_like(order)
    place[blank[:, None], order] = np.arange(num_candidates)
    by_class = np.argsort(value_class, kind="stable")
    size = np.bincount(value_class)
    begin = np.cumsum(size) - size
    true_class = value_class[original]
    best = np.minimum.reduceat(place[:, by_class], begin, axis=1)  # [blanks, classes]
    drawn = by_class[begin + (random.random((num_blanks, draws, len(size))) * size).astype(np.int64)]
    drawn_place = place[blank[:, None, None], drawn]  # [blanks, draws, classes]
    true_drawn = drawn_place[blank, :, true_class]
    return {
        "raw": place[blank, original, None] + 1,
        "class": best[blank, true_class, None] + 1,
        "collapsed": (best <= best[blank, true_class, None]).sum(1, keepdims=True),
        "random_collapse": (drawn_place <= true_drawn[:, :, None]).sum(2),
    }
