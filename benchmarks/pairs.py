"""Two checkouts of the library on the same workloads, in turns:

    python -m benchmarks.pairs BEFORE AFTER --threads 1

Each checkout runs in a process of its own. A figure is the median ratio of the CPU times of a step, with the smallest
and the largest. For memory it is the ratio of the most bytes of tensors that a training step holds at once. Above 1,
AFTER is faster or needs less. Each step makes its batch; in a turn both take the same batches.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import environment

_ROOT = Path(__file__).parents[1]
_START = """
import sys, treemem
sys.path.insert(0, sys.argv[1])
from benchmarks.checkout_steps import main
main(sys.argv[2], int(sys.argv[3]))
"""  # the library of one checkout, the workloads of this one
MODES = ("training", "inference")
_KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 36)}
"""For the C library. Otherwise it may give large tensors back to the system at every step. Whether it does depends on
what the process did before, and costs up to a fifth of a step."""


class Checkout:
    """A process that runs the steps of a checkout."""

    def __init__(self, folder: Path, threads: int) -> None:
        self.folder = folder
        environ = {
            **os.environ,
            **_KEEP_MEMORY,
            "PYTHONPATH": str(folder),
            "OMP_NUM_THREADS": str(threads),
            "DGLBACKEND": "pytorch",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, str(_ROOT), str(folder), str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ, cwd=folder,
        )  # fmt: skip

    def commit(self) -> str:
        """Its commit, with a word if files differ from it."""
        command = ["git", "-C", str(self.folder), "describe", "--always", "--exclude=*", "--dirty"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "no commit"

    def ask(self, name: str, **options: Any) -> dict[str, Any]:
        """The answer to a request; see :func:`benchmarks.checkout_steps.answer`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"name": name, **options}) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process of {self.folder} has ended with code {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process."""
        with suppress(BrokenPipeError):
            self._process.communicate()


def row(name: str, checkouts: Sequence[Checkout], rounds: int, seconds: float) -> str:
    """The line of a workload."""
    first = [each.ask(name) for each in checkouts]
    for own, found in zip(checkouts, first, strict=True):
        if "error" in found:
            return f"| {name} | {own.folder}: {found['error']} | | | | |"
    cells, times = [], []
    for mode in MODES:
        turns = [_turn(name, mode, checkouts, seconds) for _ in range(rounds)]
        ratios = [before / after for before, after in turns]
        cells.append(f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
        times.append(f"{1000 * statistics.median(after for _, after in turns):.1f}")
    before, after = (found["loss"] for found in first)
    same = "yes" if abs(before - after) <= 1e-4 * abs(before) else f"{before:.6g}, {after:.6g}"
    memory = f"{first[0]['peak'] / first[1]['peak']:.2f}"
    return f"| {name} | {' | '.join(cells)} | {memory} | {', '.join(times)} | {same} |"


def _turn(name: str, mode: str, checkouts: Sequence[Checkout], seconds: float) -> tuple[float, float]:
    """CPU seconds of a step of both checkouts, which take equally many."""
    first, second = checkouts
    before = first.ask(name, mode=mode, seconds=seconds)
    return before["seconds"], second.ask(name, mode=mode, count=before["count"])["seconds"]


def main() -> None:
    """Print the table, line by line."""
    from benchmarks.checkout_steps import CASES

    parser = argparse.ArgumentParser(prog="python -m benchmarks.pairs", description=__doc__)
    parser.add_argument("before", type=Path, help="folder of a checkout")
    parser.add_argument("after", type=Path, help="folder of another one")
    parser.add_argument("--only", default="", metavar="NAME", help="workloads whose names contain it")
    parser.add_argument("--threads", type=int, default=1, help="of torch (1)")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each checkout (7)")
    parser.add_argument("--seconds", type=float, default=0.2, help="CPU time that a turn takes at least (0.2)")
    options = parser.parse_args()
    names = [name for name in CASES if options.only in name]
    if not names:
        parser.error(f"no workload is called {options.only!r}; there are {', '.join(CASES)}")
    for folder in (options.before, options.after):
        if not (folder / "treemem").is_dir():
            parser.error(f"there is no treemem in {folder}")
    torch.set_num_threads(options.threads)
    checkouts = [Checkout(folder.resolve(), options.threads) for folder in (options.before, options.after)]
    before, after = checkouts
    print(f"{environment()}\n\nBefore: `{before.commit()}`. After: `{after.commit()}`.\n")
    print("| workload | training | inference | peak memory | after, ms | same loss |\n|---|---:|---:|---:|---:|---|")
    try:
        for name in names:
            print(row(name, checkouts, options.rounds, options.seconds), flush=True)
    finally:
        for each in checkouts:
            each.close()


if __name__ == "__main__":
    main()
