"""How sure a network was of its answers, in few numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_LARGEST, _BINS_A_UNIT = 10, 4
_EDGES = np.arange(-_LARGEST * _BINS_A_UNIT, _LARGEST * _BINS_A_UNIT + 1) / _BINS_A_UNIT


@dataclass(frozen=True, eq=False)
class OddsCount:
    """Yes-or-no examples counted by the log odds, ``log(p / (1 - p))``, that a network gave to yes.

    From the counts of one set of examples a threshold can be chosen, and from those of another it can be said what that
    would have given, without the answers themselves.

    Attributes:
        no, yes: int64 ``[bins]``, examples whose answer is no or yes. A bin is a quarter wide; the first and the last
            hold all beyond odds of -10 and 10.
    """

    no: NDArray[np.int64]
    yes: NDArray[np.int64]

    @classmethod
    def of(cls, probabilities: NDArray[np.float64], labels: NDArray[np.bool_]) -> OddsCount:
        """Count examples.

        Args:
            probabilities: of yes, ``[examples]``.
            labels: whether the answer is yes, ``[examples]``.
        """
        with np.errstate(divide="ignore"):
            odds = np.log(probabilities) - np.log1p(-probabilities)
        bins = np.searchsorted(_EDGES, odds, side="right")
        return cls(*(np.bincount(bins[labels == value], minlength=len(_EDGES) + 1) for value in (False, True)))

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]]) -> OddsCount:
        """The counts that :meth:`to_lists` gave."""
        no, yes = lists
        return cls(np.array(no, np.int64), np.array(yes, np.int64))

    def to_lists(self) -> list[list[int]]:
        """The counts as JSON can hold them."""
        return [self.no.tolist(), self.yes.tolist()]

    def accuracy(self, threshold: float = 0.0) -> float:
        """The fraction that is right where yes is said from log odds of ``threshold`` on, a multiple of a quarter."""
        first = int(np.searchsorted(_EDGES, threshold, side="right"))
        return float((self.no[:first].sum() + self.yes[first:].sum()) / (self.no.sum() + self.yes.sum()))

    def best_threshold(self) -> float:
        """The log odds from which on to say yes for the most right answers; of equally good ones the nearest to 0."""
        right = np.cumsum(self.no[:-1]) - np.cumsum(self.yes[:-1])
        best = np.flatnonzero(right == right.max())
        return float(_EDGES[best[np.argmin(np.abs(_EDGES[best]))]])
