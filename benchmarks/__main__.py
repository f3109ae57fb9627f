"""Our engine against every other way of running the same networks, in one process and in turns.

Rates are examples (equations, sentences, pairs, trees) a second. No row is measured before all ways of running its
network gave the same scores and gradients in float64.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from benchmarks.agreement import Disagreement
from benchmarks.device import measure_on
from benchmarks.encoders import ENCODER_BASELINES, ENCODERS
from benchmarks.measure import available, cost_per_node, measured
from benchmarks.memories import MEMORIES, MEMORY_BASELINES, QUICK_MEMORIES
from benchmarks.operations import OperationWorkload
from benchmarks.report import as_markdown, environment, write
from benchmarks.timing import Budget, Row
from benchmarks.where import where_time_goes
from benchmarks.workloads import (
    BASELINES,
    FORESTS,
    GPU_WORKLOADS,
    QUICK_FORESTS,
    QUICK_WORKLOADS,
    WORKLOADS,
    Workload,
)

_Named = TypeVar("_Named", Workload, OperationWorkload)
QUICK = Budget(rounds=1, seconds=0.02, examples=256)


def main() -> None:
    """Measure, print a Markdown table and write the files that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="the workload of this name, or all whose names contain it")
    every = list(dict.fromkeys([*BASELINES, *MEMORY_BASELINES, *ENCODER_BASELINES]))
    parser.add_argument("--baseline", choices=every, action="append", help="only against this; may be repeated")
    parser.add_argument("--device", type=torch.device, default="cpu", help="cpu, or cuda for a GPU (cpu)")
    parser.add_argument("--threads", type=_positive(int), help="of torch; its own choice by default")
    parser.add_argument("--seconds", type=_positive(float), help="what a turn of one arm lasts at least (0.3)")
    parser.add_argument(
        "--where", action="store_true", help="in place of comparisons: what the time of our step is spent on"
    )
    parser.add_argument("--quick", action="store_true", help="a glance at small workloads, not worth quoting")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the rows as JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="where to write the table")
    options = parser.parse_args()
    if options.device.type not in ("cpu", "cuda"):
        parser.error(f"--device is {options.device}; it must be cpu or cuda")
    if options.device.type == "cuda" and not torch.cuda.is_available():
        parser.error("--device is cuda and this machine has no CUDA device that torch can use")
    if options.device.type == "cuda" and options.where:
        parser.error("--where measures the CPU; leave out --device")
    measure_on(options.device)
    if options.threads:
        torch.set_num_threads(options.threads)
    budget = QUICK if options.quick else Budget() if options.seconds is None else Budget(seconds=options.seconds)
    baselines = [name for name in options.baseline or every if available(name)]
    every_workload = WORKLOADS if options.device.type == "cpu" else GPU_WORKLOADS
    workloads = _named(QUICK_WORKLOADS if options.quick else every_workload, options.only)
    first, *others = QUICK_FORESTS if options.quick else FORESTS
    forests = _named(others, options.only)
    operations = _named(QUICK_MEMORIES if options.quick else (*MEMORIES, *ENCODERS), options.only)
    if not workloads and not forests and not operations:
        known = [*(QUICK_WORKLOADS if options.quick else every_workload), *others, *MEMORIES, *ENCODERS]
        parser.error(f"no workload is called {options.only!r}; there are {', '.join(each.name for each in known)}")
    if options.where and (options.json or options.markdown or not workloads):
        parser.error("--where prints a table of each workload of trees but forests, and writes no file")
    for path in (options.json, options.markdown):
        if path is not None and not path.parent.is_dir():
            parser.error(f"there is no folder {path.parent} to write {path.name} to")
    heading = [environment(), f"`{shlex.join(['python', '-m', 'benchmarks', *sys.argv[1:]])}`"]
    print("\n".join(heading), flush=True)
    if options.where:
        for workload in workloads:
            print(f"\n{where_time_goes(workload, budget.examples)}", flush=True)
        return
    missing = [name for name in BASELINES if not available(name)]
    if missing:
        print(f"without DGL, which is not here: no {' and no '.join(missing)}")
    parts: list[tuple[str, Iterator[Row]]] = [(each.name, measured(each, baselines, budget)) for each in workloads]
    parts += [(each.name, each.measured(baselines, budget)) for each in operations]
    if forests:
        parts.append(("cost per node", cost_per_node([first, *forests], budget)))
    rows: list[Row] = []
    begin = time.perf_counter()
    for name, part in parts:
        try:
            rows += part
        except Disagreement as error:
            sys.exit(f"{error}; no speed is worth printing")
        write(rows, heading, options.json, options.markdown)
        print(f"{name}: done after {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    print(as_markdown(rows))


def _positive(number: Callable[[str], float]) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = number(text)
        if not value > 0:
            raise ValueError
        return value

    parse.__name__ = f"positive {number.__name__}"
    return parse


def _named(workloads: Sequence[_Named], name: str | None) -> list[_Named]:
    """The workload of that name, or else those whose names contain it."""
    exact = [each for each in workloads if each.name == name]
    return exact or [each for each in workloads if (name or "") in each.name]


if __name__ == "__main__":
    main()
