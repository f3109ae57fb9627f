from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_checkout_is_compared_with_itself() -> None:
    command = [sys.executable, "-m", "benchmarks.pairs", ".", ".", "--only", "tree-rnn", "--rounds", "1"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        [*command, "--seconds", "0.01"], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    *_, heading, _, row = found.stdout.splitlines()
    assert heading.startswith("| workload | training | inference | peak memory |")
    name, training, inference, memory, _, same = row.strip("| ").split(" | ")
    assert (name, memory, same) == ("logic tree-rnn 200", "1.00", "yes")
    assert float(training.split()[0]) > 0
    assert float(inference.split()[0]) > 0
