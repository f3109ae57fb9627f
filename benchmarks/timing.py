"""Two arms timed in alternation, so that a machine whose speed drifts slows both alike."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from benchmarks.device import calls_of, measured_device, synchronize

Arm = Callable[[], int]
"""Something to time: does one unit of work and returns how many examples that was."""


@dataclass(frozen=True)
class Budget:
    """How long to measure.

    Attributes:
        rounds: how often both arms take a turn.
        seconds: what a turn lasts at least.
        row_seconds: after so many, a row has enough of rounds, though never fewer than ``fewest_rounds``.
        examples: how many a workload has at most.
    """

    rounds: int = 5
    seconds: float = 0.3
    row_seconds: float = 20.0
    fewest_rounds: int = 2
    examples: int = 4096


@dataclass(frozen=True)
class Row:
    """One line of the table; rates are in examples (equations, sentences, pairs) a second.

    In rows of mode ``memory`` the rates are bytes a row of the schedule instead. In rows of mode ``launches ...`` and
    ``waits ...`` they are kernels that a step launches on CUDA, and how often it waits for the device. In rows of mode
    ``compiling`` they are the seconds that compiling takes and those that a batch then gains, and the ratio is after
    how many batches it has paid off.

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
        """The row as plain data for JSON, which knows no infinity."""
        return {
            name: [_finite(each) for each in value] if isinstance(value, tuple) else _finite(value)
            for name, value in asdict(self).items()
        }


def _finite(value: object) -> object:
    return None if value == math.inf else value


def rate_of(arm: Arm, at_least: float) -> float:
    """Examples a second, over as many units of work as fill ``at_least`` seconds; waits for the device at both ends."""
    synchronize()
    examples, begin = 0, time.perf_counter()
    while True:
        examples += arm()
        if time.perf_counter() - begin >= at_least:
            synchronize()
            return examples / (time.perf_counter() - begin)


def compare(workload: str, mode: str, baseline: str, ours: Arm, theirs: Arm, budget: Budget) -> Row:
    """Time ``ours`` and ``theirs`` in turn, after one untimed call of both."""
    ours()
    theirs()
    rates: list[float] = []
    baseline_rates: list[float] = []
    begin = time.perf_counter()
    for _ in range(budget.rounds):
        rates.append(rate_of(ours, budget.seconds))
        baseline_rates.append(rate_of(theirs, budget.seconds))
        if len(rates) >= budget.fewest_rounds and time.perf_counter() - begin > budget.row_seconds:
            break
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


def compare_calls(workload: str, mode: str, baseline: str, ours: Arm, theirs: Arm) -> Iterator[Row]:
    """On CUDA, the kernel launches and waits of a step of both, after they ran; nothing on the CPU."""
    if measured_device().type != "cuda":
        return
    for name, own, other in zip(("launches", "waits"), calls_of(ours), calls_of(theirs), strict=True):
        ratio = own / other if other else math.inf if own else 1.0
        yield Row(workload, f"{name} in {mode}", baseline, ratio, own, other, (ratio, ratio))
