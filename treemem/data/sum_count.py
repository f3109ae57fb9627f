"""A loss as a sum and a count."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class SumCount:
    """A sum over some examples, nodes or tokens, and how many they are.

    Sums and counts of several processes or micro-batches add up, so that their mean does not depend on the division.

    Attributes:
        sum: ``[]``.
        count: ``[]``, or a plain number.
    """

    sum: Tensor
    count: Tensor | float

    @property
    def mean(self) -> Tensor:
        """The sum divided by the count; 0 if the count is 0."""
        return self.sum / self.divisor

    @property
    def divisor(self) -> Tensor | float:
        """The count, but at least 1."""
        return self.count.clamp(min=1) if isinstance(self.count, Tensor) else max(1.0, self.count)

    def __add__(self, other: SumCount) -> SumCount:
        return SumCount(self.sum + other.sum, self.count + other.count)

    @classmethod
    def zero(cls, device: torch.device | str = "cpu") -> SumCount:
        """Return a sum of nothing."""
        return cls(torch.zeros((), device=device), 0.0)
