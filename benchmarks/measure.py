"""From workloads to rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.agreement import check_agreement, has_dgl
from benchmarks.timing import Arm, Budget, Row, compare
from benchmarks.ways import Way, by_engine
from benchmarks.workloads import BASELINES, NEED_DGL, Workload

MODES = ("training", "inference")


def measured(workload: Workload, baselines: Sequence[str], budget: Budget) -> Iterator[Row]:
    """The rows of one workload, after all its ways of running were found to agree.

    Raises:
        Disagreement: they do not.
    """
    chosen = [name for name in workload.baselines if name in baselines]
    check_agreement(workload, chosen)
    problem = workload.problem(budget.examples)
    ours = by_engine(problem)
    for name in chosen:
        theirs = BASELINES[name](problem)
        for mode in MODES:
            yield compare(workload.name, mode, name, _arm(ours, mode), _arm(theirs, mode), budget)


def available(baseline: str) -> bool:
    """Whether a baseline can run here."""
    return baseline not in NEED_DGL or has_dgl()


def _arm(way: Way, mode: str) -> Arm:
    return way.train if mode == "training" else way.score
