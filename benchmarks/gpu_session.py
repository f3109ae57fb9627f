"""What ``benchmarks/gpu_session.sh`` asks for: the machine, times whatever fails, and one file of all results."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.devices import read, table
from treemem.runs.environment import environment

_ROOT = Path(__file__).parents[1]
_OF_GPU = (
    *("name", "driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem"),
    *("power.draw", "power.limit", "temperature.gpu"),
)
_MOST_TRIES = 6
_TRAININGS = ("training", "graphs")
"""Parts that train, and the folders of their runs: as usual, and with CUDA graphs."""


def gpus() -> list[dict[str, str]]:
    """The clocks and the load of each GPU."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_OF_GPU)}", "--format=csv,noheader"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.splitlines()
    return [dict(zip(_OF_GPU, line.split(", "), strict=True)) for line in answer]


def machine() -> dict[str, Any]:
    """The commit, versions, processors and clocks."""

    found: dict[str, Any] = {**environment(), "python": platform.python_version(), "cpus": os.cpu_count()}
    for package in ("triton", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return {**found, "gpus": gpus()}


def compile_kernels(devices: list[str], workloads: list[str], options: list[str]) -> int:
    """Compile the kernels of all workloads in processes side by side; how many have failed.

    Args:
        devices: the command that measures workloads.
        workloads: parts of their names.
        options: of the command.
    """
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for number, workload in enumerate(workloads):
            chosen = ["--only", workload, "--ways", "kernels", "--json", f"{folder}/{number}", "--rounds", "0"]
            started.append(subprocess.Popen([*devices, "--threads", "1", *options, *chosen]))
        return sum(process.wait() != 0 for process in started)


def measure(devices: list[str], workloads: list[str], options: list[str]) -> int:
    """Measure workloads. What ends the process, by a failure of the GPU or by its limit, is not tried again."""
    command = [*devices, "--only", *workloads, *options]
    return next((0 for _ in range(_MOST_TRIES) if subprocess.run(command, check=False).returncode == 0), 1)


def rehearse(arguments: list[str]) -> None:
    """Run :mod:`benchmarks.devices` on the device of the tests, where kernels are launched and compute nothing."""
    os.environ["TRITON_INTERPRET"] = "1"
    sys.path.insert(0, str(_ROOT / "tests"))
    sys.argv[1:] = arguments
    device: Any = importlib.import_module("fake_device")
    devices = importlib.import_module("benchmarks.devices")
    with device.fake_device(runs_kernels=False):
        devices.main(device.DEVICE)


def summary(out: Path) -> dict[str, Any]:
    """All results of a folder, as far as they are there."""
    found: dict[str, Any] = {name: read(out / f"{name}.jsonl") for name in ("parts", "times", "cpu")}
    for name in ("machine", "clocks"):
        file = out / f"{name}.json"
        found[name] = json.loads(file.read_text("utf-8")) if file.exists() else None
    suites = ElementTree.parse(out / "tests.xml").getroot().iter("testsuite") if (out / "tests.xml").exists() else ()
    found["tests"] = [dict(suite.attrib) for suite in suites]
    for way in _TRAININGS:
        epochs = [record for file in sorted(out.glob(f"{way}/*/seed-*/metrics.jsonl")) for record in read(file)]
        found[way] = {"epochs": epochs, "test": read(out / way / "results.jsonl")}
    return found


def main() -> None:
    """Do one of these."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_session", description=__doc__)
    parser.add_argument("part", choices=("machine", "clocks", "compile", "measure", "rehearse", "summary"))
    parser.add_argument("--workloads", nargs="+", default=[])
    parser.add_argument("--rehearse", action="store_true")
    chosen, rest = parser.parse_known_args()
    devices = [sys.executable, "-m", "benchmarks.devices"]
    if chosen.rehearse:
        devices = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu_session", "rehearse"]
    if chosen.part in ("machine", "clocks"):
        text = json.dumps(machine() if chosen.part == "machine" else gpus(), indent=1)
        Path(rest[0]).write_text(f"{text}\n", encoding="utf-8")
    elif chosen.part == "compile":
        sys.exit(compile_kernels(devices, chosen.workloads, rest))
    elif chosen.part == "measure":
        sys.exit(measure(devices, chosen.workloads, rest))
    elif chosen.part == "rehearse":
        rehearse(rest)
    else:
        out = Path(rest[0])
        found = summary(out)
        (out / "results.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(json.dumps({name: found[name] for name in ("machine", "clocks", "tests")}, indent=1))
        print(f"\n{table(found['times'] + found['cpu'])}\n")
        for way in _TRAININGS:
            for record in found[way]["epochs"] + found[way]["test"]:
                print(way, json.dumps({name: value for name, value in record.items() if name != "validation"}))


if __name__ == "__main__":
    main()
