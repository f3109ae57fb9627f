"""A histogram of the log odds that a network gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_LARGEST, _BINS_A_UNIT = 10, 4
_EDGES = np.arange(-_LARGEST * _BINS_A_UNIT, _LARGEST * _BINS_A_UNIT + 1) / _BINS_A_UNIT


@dataclass(frozen=True, eq=False)
class OddsCount:
    """A histogram of the log odds ``log(p / (1 - p))`` of binary predictions.

    Attributes:
        no, yes: number of examples with label 0 or 1, int64 ``[bins]``. A bin is a quarter wide; the first and the last
            hold all log odds outside -10 to 10.
    """

    no: NDArray[np.int64]
    yes: NDArray[np.int64]

    @classmethod
    def of(cls, probabilities: NDArray[np.float64], labels: NDArray[np.bool_]) -> OddsCount:
        """Count examples from P(label = 1) and labels, both ``[examples]``."""
        with np.errstate(divide="ignore"):
            odds = np.log(probabilities) - np.log1p(-probabilities)
        bins = np.searchsorted(_EDGES, odds, side="right")
        return cls(*(np.bincount(bins[labels == value], minlength=len(_EDGES) + 1) for value in (False, True)))

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]]) -> OddsCount:
        """Return the counts of :meth:`to_lists`."""
        no, yes = lists
        return cls(np.array(no, np.int64), np.array(yes, np.int64))

    def to_lists(self) -> list[list[int]]:
        """Return the counts as plain lists, for JSON."""
        return [self.no.tolist(), self.yes.tolist()]

    def accuracy(self, threshold: float = 0.0) -> float:
        """Return the accuracy with a log-odds threshold, a multiple of a quarter."""
        first = int(np.searchsorted(_EDGES, threshold, side="right"))
        return float((self.no[:first].sum() + self.yes[first:].sum()) / (self.no.sum() + self.yes.sum()))
