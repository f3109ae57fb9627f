"""``python -m benchmarks [--only NAME] [--quick] [--json FILE]``: our engine against every baseline."""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

import torch

from benchmarks.equations import BASELINES, WORKLOADS, Budget, measure
from benchmarks.timing import as_markdown

QUICK = Budget(rounds=2, seconds=0.1, equations=256, recursed=8)


def main() -> None:
    """Measure, print a Markdown table and write the rows as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="only workloads whose name contains this")
    parser.add_argument("--baseline", choices=BASELINES, action="append", help="only against this; may be repeated")
    parser.add_argument("--hidden-size", type=int, default=50, help="width of a state (%(default)s)")
    parser.add_argument("--threads", type=int, help="of torch; its own choice by default")
    parser.add_argument("--quick", action="store_true", help="a glance: one workload, figures not worth quoting")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write the rows")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    workloads = [each for each in WORKLOADS if (options.only or "") in each.name]
    if not workloads:
        parser.error(f"no workload is called {options.only!r}; there are {', '.join(each.name for each in WORKLOADS)}")
    if options.quick:
        workloads = workloads[:1]
    budget = QUICK if options.quick else Budget()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.processor() or platform.machine()}")
    rows = []
    for workload in workloads:
        rows += measure(workload, tuple(options.baseline or BASELINES), options.hidden_size, budget)
        print(f"{workload.name}: done", flush=True)
    print(as_markdown(rows))
    if options.json:
        options.json.write_text(json.dumps([row.as_record() for row in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
