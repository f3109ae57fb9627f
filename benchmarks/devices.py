"""Our training step and scoring step on the CPU and on a GPU, in milliseconds, and how long the GPU is busy in it:

    python -m benchmarks.devices --threads 8

Batches of trees are made on the CPU in either case, as in training. On a GPU a step runs with the kernels of the
library, in plain torch, and as a CUDA graph. Beside it stands torch's operation if there is one.
"""

from __future__ import annotations

import argparse
import faulthandler
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, supported_activities

from benchmarks.device import CPU, calls_of, measure_on, measured_device, synchronize
from benchmarks.device_records import Record, add, read, table
from benchmarks.encoders import ENCODERS
from benchmarks.memories import MEMORIES
from benchmarks.operations import Operation
from benchmarks.problem import Problem
from benchmarks.report import environment
from benchmarks.ways import by_engine
from benchmarks.workloads import gated_network, of_equations, of_logic, of_sentences
from treemem.engines.cuda.trees_in_bucket import TreesInBucket
from treemem.ops import CapturedStep, cuda_kernels

Step = Callable[[], object]
WORKLOADS = (
    *(of_equations(8, 13, size, share_subtrees=True) for size in (256, 1024, 4096)),
    of_logic("tree-cell hidden 200", gated_network, share_subtrees=True),
    of_sentences(256),
    *(replace(of_sentences(size), name=f"sst hidden {size} batch 1024", batch_size=1024) for size in (256, 512)),
)
OPERATIONS = tuple(each for each in (*ENCODERS, *MEMORIES) if "sharp" not in each.name)
PEERS = ("torch-lstm", "torch-gru")
"""Baselines of operations that are torch's own."""
WAYS = ("cpu", "kernels", "torch", "graph", "peer")
MODES = ("training", "inference")


def named(name: str) -> list[str]:
    """The workload of that name, or else those whose names contain it."""
    names = [workload.name for workload in (*WORKLOADS, *OPERATIONS)]
    return [name] if name in names else [known for known in names if name in known]


def steps(name: str, way: str, small: bool) -> dict[str, Step]:
    """The steps of a workload on the measured device; none if it does not run that way.

    Args:
        name: of the workload.
        way: one of :data:`WAYS`.
        small: whether the workload is of a small size.
    """
    for workload in WORKLOADS:
        if workload.name == name and way != "peer":
            few = replace(workload, examples=lambda _, make=workload.small: make())  # type: ignore[misc]
            problem = (few if small else workload).problem(0)
            if way == "graph":
                return {mode: _captured_trees(problem, mode == "training") for mode in MODES}
            ours = by_engine(problem)
            return {"training": ours.train, "inference": ours.score}
    for operation in OPERATIONS:
        if operation.name == name:
            batch = operation.make(small, torch.float32)
            runs = [batch.others[peer] for peer in PEERS if peer in batch.others] if way == "peer" else [batch.ours]
            for run in runs:
                found = {"training": partial(batch.train, run), "inference": partial(batch.score, run)}
                return found if way != "graph" else {mode: _captured(step, batch) for mode, step in found.items()}
    return {}


def _captured_trees(problem: Problem, training: bool) -> Step:
    """A step on the problem's first batch, which is made anew each time, as a CUDA graph that was captured."""
    every_node = problem.examples.every_node

    def step(trees: TreesInBucket, label: Tensor) -> None:
        states = problem.layer.in_bucket(trees)
        encodings = states.h if every_node else states.root
        if training:
            problem.zero_grad()
            problem.loss(encodings, label).backward()
        else:
            problem.head(encodings)

    module = nn.ModuleList([problem.layer, problem.head])
    captured = CapturedStep(step, module, padding=(-1,), of_nodes=(0,) if every_node else ())

    def run() -> None:
        batch, feat, label = problem.step(0)
        with torch.set_grad_enabled(training):
            captured(batch.with_feat(feat), label)

    for _ in range(2):
        run()
    assert captured.num_graphs == 1, "the step was not captured"
    return run


def _captured(step: Step, batch: Operation) -> Step:
    """The step as a CUDA graph, after it ran and was captured."""
    module = nn.Linear(1, 1).to(measured_device())  # says where the step runs; gradients are those of the batch
    captured = CapturedStep(lambda: (step(), None)[1], module)
    for _ in range(2):
        captured()
    assert captured.num_graphs == 1, "the step was not captured"
    return captured


def milliseconds(step: Step, rounds: int = 5) -> float:
    """The median time of a step, after one that does not count."""
    times = []
    for _ in range(rounds + 1):
        synchronize()
        begin = time.perf_counter()
        step()
        synchronize()
        times.append(time.perf_counter() - begin)
    return 1000 * statistics.median(times[1:])


def busy_milliseconds(step: Step) -> float:
    """How long the kernels of a step take."""
    kinds = {ProfilerActivity.CUDA} & supported_activities() or {ProfilerActivity.CPU}
    with profile(activities=list(kinds)) as profiled:
        step()
        synchronize()
    return sum(event.self_device_time_total for event in profiled.key_averages()) / 1000


def measured(name: str, way: str, small: bool, rounds: int) -> Iterator[Record]:
    """The records of a workload: times in milliseconds, and on a GPU the time in which it computes, launches and waits.

    Args:
        name, way, small: see :func:`steps`.
        rounds: how often a step is timed; 0: kernels are compiled and nothing is timed.
    """
    with cuda_kernels(way in ("kernels", "graph")) if way != "cpu" else nullcontext():
        for mode, step in steps(name, way, small).items():
            if not rounds:
                step()
                continue
            record: Record = {"mode": mode, "milliseconds": milliseconds(step, rounds)}
            if way != "cpu":
                calls = calls_of(step)
                record |= {"busy": busy_milliseconds(step), "launches": calls.launches, "waits": calls.waits}
            yield record


def run(
    names: Sequence[str], ways: Sequence[str], gpu: torch.device, file: Path, limit: int, small: bool, rounds: int
) -> None:
    """Measure what the file does not have yet, and add it as it comes, a line of JSON for each record.

    A failure is a record, too. If it leaves the GPU unusable, or if a workload takes ``limit`` seconds, the process
    ends with an error; the next run goes on after this workload.
    """
    done = {(record["workload"], record["way"]) for record in read(file)}
    for way in ways:
        measure_on(CPU if way == "cpu" else gpu)
        for name in names:
            if (name, way) in done:
                continue
            about = {"workload": name, "way": way}
            add(file, {**about, "begun": True})
            if limit:
                faulthandler.dump_traceback_later(limit, exit=True)
            try:
                for record in measured(name, way, small, rounds):
                    add(file, {**about, **record})
            except Exception as error:  # of any sort: the other workloads are still worth their time
                add(file, {**about, "error": f"{type(error).__name__}: {error}"[:500]})
                synchronize()
            finally:
                faulthandler.cancel_dump_traceback_later()


def main(gpu: torch.device | None = None) -> None:
    """Print the table; without a GPU, only the times on the CPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.devices", description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of torch on the CPU")
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME", help="workloads whose names contain one")
    parser.add_argument("--ways", nargs="+", choices=WAYS, help="how to run (all that this machine has)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="lines of JSON; what is in the file is not measured")
    parser.add_argument("--limit", type=int, default=0, metavar="SECONDS", help="for one workload (no limit)")
    parser.add_argument("--rounds", type=int, default=5, help="the median counts; 0: only compile (5)")
    parser.add_argument("--small", action="store_true", help="small sizes, which say nothing about speed")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if gpu is None and torch.cuda.is_available():
        gpu = torch.device("cuda")
    ways = options.ways or (WAYS[:1] if gpu is None else WAYS)
    names = list(dict.fromkeys(name for part in options.only for name in named(part)))
    if not names:
        parser.error(f"no workload is called {options.only}; there are {', '.join(named(''))}")
    with TemporaryDirectory() as folder:
        file = options.json or Path(folder) / "records.jsonl"
        run(names, ways, gpu or CPU, file, options.limit, options.small, options.rounds)
        print(f"{environment()}\n\n{table(read(file))}")


if __name__ == "__main__":
    main()
