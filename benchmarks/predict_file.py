"""How fast, and in how much memory, `treemem predict` answers a file of generated equations.

The file is made where there is none: text lines, generated 50,000 at a time from as many seeds as it takes, and in an
order drawn by lot. `--processes` makes it in as many processes. What is in the file is said before it is predicted:

    python -m benchmarks.predict_file equations.txt --records 1000000

Memory is that of all processes of the command, asked for ten times a second; pages that they share count in each of
them, so that it is no less than what they need. It is read where the system has a folder /proc.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import environment
from treemem.predict.chunks import CHUNK_RECORDS
from treemem.records import replacing
from treemem.task import TASKS
from treemem.tasks.equation_verification.generation.generator import generate_equations
from treemem.trees import format_equation
from treemem.trees.formats.record_reader import read_examples

PART = 50_000


def make(path: Path, records: int, processes: int) -> None:
    """Write so many generated equations to a file, one a line."""
    sizes = [min(PART, records - begin) for begin in range(0, records, PART)]
    with ProcessPoolExecutor(processes) as pool:
        parts = list(pool.map(_lines, sizes, range(1, len(sizes) + 1)))
    lines = list(itertools.chain.from_iterable(parts))
    random.Random(0).shuffle(lines)
    with replacing(path) as temporary:
        temporary.write_text("\n".join([*lines, ""]), encoding="utf-8")


def _lines(size: int, seed: int) -> list[str]:
    return [format_equation(tree) for tree in generate_equations(size, seed=seed)]


def about(path: Path) -> str:
    """How many equations a file has, of how many nodes, and how many lines stood there before."""
    reader = TASKS.find("equation_verification")().reader
    count = nodes = 0
    seen: set[str] = set()
    with path.open(encoding="utf-8") as stream:
        while lines := [line.rstrip("\n") for line in itertools.islice(stream, CHUNK_RECORDS)]:
            seen.update(lines)
            nodes += read_examples(reader, lines, range(count, count + len(lines))).forest.num_nodes
            count += len(lines)
    return (
        f"{count:,} equations, {nodes / count:.1f} nodes on average, {100 * (1 - len(seen) / count):.2f} % there before"
    )


class Spent(NamedTuple):
    """What a command took: seconds, CPU seconds, the most bytes of its first process, and of all at one time."""

    seconds: float
    cpu_seconds: float
    bytes_of_first: int
    bytes_of_all: int


def predict(command: Sequence[str]) -> Spent:
    """Run a command to its end."""
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(command)
    first = together = 0
    while process.poll() is None:
        sizes = resident_bytes(process.pid)
        first, together = max(first, sizes[0]), max(together, sum(sizes))
        time.sleep(0.1)
    seconds = time.perf_counter() - begin
    if process.returncode:
        sys.exit(process.returncode)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = used.ru_utime - before.ru_utime + used.ru_stime - before.ru_stime
    return Spent(seconds, cpu_seconds, first, together)


def resident_bytes(process: int) -> list[int]:
    """The resident memory of a process and of its descendants; zeros where it cannot be told."""
    children: dict[int, list[int]] = {}
    resident = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:  # it has ended
            continue
        fields = text.rpartition(")")[2].split()  # from the third on: state, parent, ..., resident pages
        children.setdefault(int(fields[1]), []).append(int(folder.name))
        resident[int(folder.name)] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    family = [process]
    for member in family:
        family += children.get(member, [])
    return [resident.get(member, 0) for member in family]


def main() -> None:
    """Make the file, say what is in it, predict it, and print the rate and the memory."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.predict_file",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, help="of equations, one a line")
    parser.add_argument("--records", type=int, default=1_000_000, help="how many, where it is made (%(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="that make it (%(default)s)")
    parser.add_argument("--model", default="equation_verification", help="as treemem predict takes it (%(default)s)")
    parser.add_argument("--readers", type=int, help="as treemem predict --processes")
    options = parser.parse_args()
    if not options.file.exists():
        make(options.file, options.records, options.processes)
    print(f"{environment()}\n{about(options.file)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "answers.jsonl"
        command = [sys.executable, "-m", "treemem", "predict", options.model, str(options.file), "-o", str(output)]
        command += ["--processes", str(options.readers)] if options.readers else []
        spent = predict(command)
        with output.open("rb") as answers:
            records = sum(1 for _ in answers)
    rate = records / spent.seconds
    print(f"{records:,} answers in {spent.seconds:.1f} s, {rate:,.0f} a second; {spent.cpu_seconds:.1f} s of CPU time;")
    first, together = spent.bytes_of_first / 2**20, spent.bytes_of_all / 2**20
    print(f"most memory: {first:,.0f} MiB of the process that scores, {together:,.0f} MiB of all together")


if __name__ == "__main__":
    main()
