"""From workloads to rows."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence

from benchmarks.agreement import check_agreement, has_dgl
from benchmarks.device import measured_device
from benchmarks.memory import least_bytes, peak_bytes
from benchmarks.problem import Problem
from benchmarks.timing import Arm, Budget, Row, compare, compare_calls
from benchmarks.ways import Way, by_engine
from benchmarks.workloads import BASELINES, NEED_CPU, NEED_DGL, Workload
from treemem.native import nothing_compiled

MODES = ("training", "inference")


def measured(workload: Workload, baselines: Sequence[str], budget: Budget) -> Iterator[Row]:
    """The rows of one workload, after all its ways of running were found to agree.

    Raises:
        Disagreement: they do not.
    """
    chosen = [name for name in workload.baselines if name in baselines]
    check_agreement(workload, chosen)
    problem = workload.problem(budget.examples)
    print(f"{workload.name}: {problem.examples.source}", file=sys.stderr, flush=True)
    ours = by_engine(problem, workload.engine)
    for name in chosen:
        theirs = BASELINES[name](problem)
        for mode in MODES:
            arms = _arm(ours, mode), _arm(theirs, mode)
            yield compare(workload.name, mode, name, *arms, budget)
            yield from compare_calls(workload.name, mode, name, *arms)
    if workload.compiling and problem.device.type == "cpu":
        yield from _compiling(workload, problem, budget)
    if workload.memory:
        yield from _memory(workload, problem, [name for name in chosen if name == "level-autograd"])


def cost_per_node(forests: Sequence[Workload], budget: Budget) -> Iterator[Row]:
    """Forests of equal trees and different sizes: each against the first.

    Raises:
        Disagreement: our engine and the definition have different outcomes.
    """
    check_agreement(forests[0], ())
    theirs = by_engine(forests[0].problem(0))
    for forest in forests[1:]:
        ours = by_engine(forest.problem(0))
        for mode in MODES:
            yield compare(forest.name, mode, forests[0].name, _arm(ours, mode), _arm(theirs, mode), budget)


def available(baseline: str) -> bool:
    """Whether a baseline can run here."""
    if measured_device().type != "cpu" and baseline in NEED_CPU:
        return False
    return baseline not in NEED_DGL or has_dgl()


def _compiling(workload: Workload, problem: Problem, budget: Budget) -> Iterator[Row]:
    """How long compiling takes if no earlier process has done it, against what a training batch gains by it."""
    ours, theirs = by_engine(problem), by_engine(problem, engine="autograd")
    row = compare(workload.name, "training", "uncompiled", ours.train, theirs.train, budget)
    gained = problem.batch_size * (1 / row.baseline_rate - 1 / row.rate)
    with nothing_compiled():
        begin = time.perf_counter()
        ours.train()
        seconds = time.perf_counter() - begin
    batches = seconds / gained if gained > 0 else math.inf
    yield Row(workload.name, "compiling", "batch", batches, seconds, gained, (batches, batches))


def _memory(workload: Workload, problem: Problem, baselines: Sequence[str]) -> Iterator[Row]:
    """The peak of a training step in bytes a row, against what must be kept and against baselines."""
    first = problem.first_batch()
    rows = first.step(0).batch.schedule.num_rows
    peak = peak_bytes(first, by_engine(first)) / rows
    others = {"kept": least_bytes(first) / rows}
    others |= {name: peak_bytes(first, BASELINES[name](first)) / rows for name in baselines}
    for name, other in others.items():
        yield Row(workload.name, "memory", name, peak / other, peak, other, (peak / other, peak / other))


def _arm(way: Way, mode: str) -> Arm:
    return way.train if mode == "training" else way.score
