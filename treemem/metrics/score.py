"""How well examples were predicted, and published figures to compare with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """How well the examples of one group were predicted; fractions, not percent.

    Attributes:
        group: what these examples have in common (a depth, a length), or ``"all"``.
        majority: accuracy of always giving the commoner answer.
        precision, recall, f1: of the positive class, where the task has one.
        deviation: of the accuracy, where this is the mean of several runs.
    """

    group: int | str
    examples: int
    accuracy: float
    majority: float
    precision: float | None = None
    recall: float | None = None
    f1: float | None = None
    deviation: float | None = None


@dataclass(frozen=True)
class PublishedFigure:
    """One number of a published table; a fraction, with the deviation over its runs where the table has one."""

    network: str
    split: str
    metric: str
    value: float
    deviation: float | None
    source: str
