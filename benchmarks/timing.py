"""Two arms timed in alternation, so that a machine whose speed drifts slows both alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Row:
    """One line of the table; rates are in examples a second.

    Attributes:
        ratio: median over the rounds of (our rate / the baseline's rate in the same round).
        spread: smallest and largest of those ratios.
    """

    workload: str
    mode: str
    baseline: str
    ratio: float
    rate: float
    baseline_rate: float
    spread: tuple[float, float]

    def as_record(self) -> dict[str, object]:
        """The row as plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Arm:
    """Something to time: ``run`` does the whole work on ``examples`` examples."""

    run: Callable[[], object]
    examples: int


def seconds_of(run: Callable[[], object], at_least: float) -> float:
    """Seconds one call of ``run`` takes, averaged over as many calls as fill ``at_least`` seconds."""
    calls, begin = 0, time.perf_counter()
    while True:
        run()
        calls += 1
        elapsed = time.perf_counter() - begin
        if elapsed >= at_least:
            return elapsed / calls


def compare(
    workload: str, mode: str, baseline: str, ours: Arm, theirs: Arm, *, rounds: int = 5, at_least: float = 1.0
) -> Row:
    """Time ``ours`` and ``theirs`` in turn, ``rounds`` times each after one untimed call of both."""
    ours.run()
    theirs.run()
    rates, baseline_rates = [], []
    for _ in range(rounds):
        rates.append(ours.examples / seconds_of(ours.run, at_least))
        baseline_rates.append(theirs.examples / seconds_of(theirs.run, at_least))
    ratios = [rate / other for rate, other in zip(rates, baseline_rates, strict=True)]
    return Row(
        workload,
        mode,
        baseline,
        statistics.median(ratios),
        statistics.median(rates),
        statistics.median(baseline_rates),
        (min(ratios), max(ratios)),
    )


def as_markdown(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| workload | mode | baseline | ratio | spread | equations/s | baseline's |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.workload} | {row.mode} | {row.baseline} | {row.ratio:.1f} | {row.spread[0]:.1f}-{row.spread[1]:.1f} "
        f"| {row.rate:,.0f} | {row.baseline_rate:,.0f} |"
        for row in rows
    ]
    return "\n".join(lines)
