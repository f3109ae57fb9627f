"""Ranks of the right candidate, and how often it is among the first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RANKS = ("raw", "class", "collapsed", "random_collapse")
"""How the right candidate is ranked; see :class:`Completion`."""

TOP = tuple(range(1, 11))
"""The ranks that accuracy is recorded to."""

SHOWN = (1, 3, 5, 10)
"""Those of them that tables show."""


@dataclass(frozen=True)
class RankScore:
    """How well the blanks of one group were filled; fractions.

    Attributes:
        group: the depth of the equations, or ``"all"``.
        equations: how many there are.
        top: the share of blanks whose rank is at most 1, 2, ..., 10.
        mrr: the mean of 1 / rank.
    """

    group: int | str
    equations: int
    top: tuple[float, ...]
    mrr: float


@dataclass(frozen=True, eq=False)
class Completion:
    """At which rank the right candidate is, for each blank. Ranks count from 1.

    Candidates are sorted by descending score; of equal scores the earlier candidate comes first, as in a stable sort.
    Equal scores are common: a network reads ``One:1`` as ``Integer:1`` and ``Rational:0`` as ``Integer:0``, so that
    candidates that differ in these alone always have one score, and the one that is earlier in the list of candidates
    the better rank. (A network that says the same of all candidates therefore ranks them as they are listed.)

    Attributes:
        depth: int64 ``[blanks]``, of the equations, from the root ``Equality``.
        best: int64 ``[blanks]``, the candidate of rank 1.
        ranks: int64 ``[blanks, draws]`` by name; one draw for all but the last:
            ``"raw"``: of the original, spelled as it was, among all candidates;
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
        """The scores of one of the ranks by depth, ascending, and of all equations last."""
        ranks = self.ranks[name]
        groups: list[int | str] = [*np.unique(self.depth).tolist(), "all"]
        return [rank_score(group, ranks if group == "all" else ranks[self.depth == group]) for group in groups]


def rank_score(group: int | str, ranks: NDArray[np.int64]) -> RankScore:
    """The score of blanks with these ranks, ``[blanks, draws]``: the mean over draws."""
    top = tuple(float((ranks <= most).mean()) for most in TOP)
    return RankScore(group, len(ranks), top, float((1 / ranks).mean()))


def commonest_first(original: NDArray[np.int64], value_class: NDArray[np.int64]) -> NDArray[np.int64]:
    """The ranks of the right classes in a list that is the same for all blanks, the commonest class first.

    No list that does not look at the equation does better; a network that does should.

    Args:
        original: int64 ``[blanks]``, the candidate that is right.
        value_class: int64 ``[candidates]``, numbered from 0 without a gap.

    Returns:
        int64 ``[blanks, 1]``.
    """
    right_class = value_class[original]
    order = np.argsort(-np.bincount(right_class, minlength=int(value_class.max()) + 1), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(1, len(order) + 1)
    return rank[right_class, None]


def rank_candidates(
    scores: NDArray[np.floating],
    original: NDArray[np.int64],
    value_class: NDArray[np.int64],
    *,
    draws: int = 10,
    random: np.random.Generator,
) -> dict[str, NDArray[np.int64]]:
    """The ranks of :class:`Completion`.

    Args:
        scores: ``[blanks, candidates]``.
        original: int64 ``[blanks]``, the candidate that is right.
        value_class: int64 ``[candidates]``, numbered from 0 without a gap.
        draws: how often one candidate of each class is drawn, anew for each blank.
        random: where the draws come from.
    """
    num_blanks, num_candidates = scores.shape
    blank = np.arange(num_blanks)
    order = np.argsort(-scores, axis=1, kind="stable")
    place = np.empty_like(order)
    place[blank[:, None], order] = np.arange(num_candidates)
    by_class = np.argsort(value_class, kind="stable")
    size = np.bincount(value_class)
    begin = np.cumsum(size) - size
    right_class = value_class[original]
    best = np.minimum.reduceat(place[:, by_class], begin, axis=1)  # [blanks, classes]
    drawn = by_class[begin + (random.random((num_blanks, draws, len(size))) * size).astype(np.int64)]
    drawn_place = place[blank[:, None, None], drawn]  # [blanks, draws, classes]
    right_drawn = drawn_place[blank, :, right_class]
    return {
        "raw": place[blank, original, None] + 1,
        "class": best[blank, right_class, None] + 1,
        "collapsed": (best <= best[blank, right_class, None]).sum(1, keepdims=True),
        "random_collapse": (drawn_place <= right_drawn[:, :, None]).sum(2),
    }
