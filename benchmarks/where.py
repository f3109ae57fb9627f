"""Where the time of a step goes."""

from __future__ import annotations

import time
from collections.abc import Sequence

from torch.profiler import ProfilerActivity, profile

from benchmarks.measure import MODES
from benchmarks.timing import Arm
from benchmarks.ways import by_engine
from benchmarks.workloads import Workload

_PARTS = {
    "matrix products": ("aten::mm", "aten::addmm", "aten::addmm_", "aten::linear"),
    "levels in C++ (with their products)": ("_Native",),
    "gathering and adding rows": ("aten::index_select", "aten::index_add_", "aten::scatter_add_", "aten::index"),
    "filling and copying": ("aten::copy_", "aten::fill_", "aten::zero_", "aten::cat"),
}
_REST = "Python, dispatch, and everything else"
_SECONDS = 2.0


def where_time_goes(workload: Workload, examples: int) -> str:
    """A Markdown table of the milliseconds of a step by what they are spent on.

    The parts are what the profiler counts for the operations named, and the row before the last is what is left of the
    time of the same steps, the profiler's own included.
    """
    problem = workload.problem(examples)
    way = by_engine(problem)
    columns = [_parts(way.train if mode == "training" else way.score) for mode in MODES]
    lines = [
        f"{workload.name}, milliseconds a batch:",
        "",
        f"| | {' | '.join(MODES)} |",
        "|---|" + "---:|" * len(MODES),
    ]
    for part in columns[0]:
        lines.append(f"| {part} | {' | '.join(_shown(column, part) for column in columns)} |")
    return "\n".join(lines)


def _parts(step: Arm) -> dict[str, float]:
    for _ in range(3):
        step()
    steps = 0
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        begin = time.perf_counter()
        while (seconds := time.perf_counter() - begin) < _SECONDS:
            step()
            steps += 1
    whole = 1000 * seconds / steps
    found = dict.fromkeys([*_PARTS, _REST, "all"], 0.0)
    for event in profiled.key_averages():
        for part, names in _PARTS.items():
            if _is_one_of(event.key, names):
                found[part] += event.self_cpu_time_total / 1000 / steps
    found["all"] = whole
    found[_REST] = whole - sum(found[part] for part in _PARTS)
    return found


def _is_one_of(name: str, names: Sequence[str]) -> bool:
    return name in names or any(each in name for each in names if not each.startswith("aten::"))


def _shown(column: dict[str, float], part: str) -> str:
    return f"{column[part]:.1f} ({100 * column[part] / column['all']:.0f} %)"
