"""Our training step and scoring step on the CPU and on a GPU, in milliseconds, and how long the GPU is busy in it:

    python -m benchmarks.devices --threads 8

Batches are made on the CPU in either case, as in training.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.device import CPU, measure_on, synchronize
from benchmarks.encoders import ENCODERS
from benchmarks.memories import MEMORIES
from benchmarks.report import environment
from benchmarks.ways import by_engine
from benchmarks.workloads import gated_network, of_equations, of_logic, of_sentences

Steps = dict[str, Callable[[], object]]
WORKLOADS = (
    *(of_equations(8, 13, size, share_subtrees=True) for size in (256, 1024, 4096)),
    of_logic("tree-cell hidden 200", gated_network, share_subtrees=True),
    of_sentences(256),
    *(replace(of_sentences(size), name=f"sst hidden {size} batch 1024", batch_size=1024) for size in (256, 512)),
)
OPERATIONS = tuple(each for each in (*ENCODERS, *MEMORIES) if "sharp" not in each.name)


def workloads(named: str) -> Iterator[tuple[str, Steps]]:
    """The steps of the workloads whose names contain ``named``, on the measured device."""
    for workload in WORKLOADS:
        if named in workload.name:
            ours = by_engine(workload.problem(0))
            yield workload.name, {"training": ours.train, "inference": ours.score}
    for operation in OPERATIONS:
        if named in operation.name:
            batch = operation.make(False, torch.float32)
            yield (
                operation.name,
                {"training": partial(batch.train, batch.ours), "inference": partial(batch.score, batch.ours)},
            )


def milliseconds(step: Callable[[], object], rounds: int = 5) -> float:
    """The median time of a step, after one that does not count."""
    times = []
    for _ in range(rounds + 1):
        synchronize()
        begin = time.perf_counter()
        step()
        synchronize()
        times.append(time.perf_counter() - begin)
    return 1000 * statistics.median(times[1:])


def busy_milliseconds(step: Callable[[], object]) -> float:
    """How long the kernels of a step take."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        step()
        synchronize()
    return sum(event.self_device_time_total for event in profiled.key_averages()) / 1000


def main() -> None:
    """Print the table; without a GPU, only the times on the CPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.devices", description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of torch on the CPU")
    parser.add_argument("--only", default="", metavar="NAME", help="workloads whose names contain it")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    devices = [CPU, *([torch.device("cuda")] if torch.cuda.is_available() else [])]
    found: dict[tuple[str, str], list[str]] = {}
    for device in devices:
        measure_on(device)
        for name, steps in workloads(options.only):
            for mode, step in steps.items():
                row = found.setdefault((name, mode), [])
                row.append(f"{milliseconds(step):.1f}")
                row += [f"{busy_milliseconds(step):.1f}"] if device.type == "cuda" else []
    print(environment())
    columns = ["CPU", "GPU", "GPU busy"][: 1 if len(devices) == 1 else 3]
    print(f"\n| workload | step | {' | '.join(columns)} |\n|---|---|{'---:|' * len(columns)}")
    for (name, mode), row in found.items():
        print(f"| {name} | {mode} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
