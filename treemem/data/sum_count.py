"""A loss as a sum and a count."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class SumCount:
    """A sum over some examples, nodes or tokens, and how many they are; if they have weights, the sum of these.

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
        """The count, or 1 if it is 0."""
        if isinstance(self.count, Tensor):
            return self.count.where(self.count != 0, 1)
        return self.count or 1.0

    def __add__(self, other: SumCount) -> SumCount:
        return SumCount(self.sum + other.sum, self.count + other.count)

    @classmethod
    def of_losses(cls, losses: Tensor, weight: Tensor | None = None) -> SumCount:
        """Return the sum of losses times their weights, and the sum of the weights.

        The mean is then the weighted mean, as that of torch's ``cross_entropy(..., weight=...)``.

        Args:
            losses: of any shape.
            weight: of the same shape; None: all are 1.
        """
        if weight is None:
            return cls(losses.sum(), float(losses.numel()))
        weight = weight.to(losses)
        return cls((weight * losses).sum(), weight.sum())

    @classmethod
    def zero(cls, device: torch.device | str = "cpu") -> SumCount:
        """Return a sum of nothing."""
        return cls(torch.zeros((), device=device), 0.0)


def mean_of(total: Tensor | float, count: Tensor | float) -> float:
    """Return the mean of a recorded sum and count, 0 if the count is 0."""
    return float(total) / (float(count) or 1.0)
