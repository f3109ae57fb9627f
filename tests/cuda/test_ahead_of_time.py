"""Kernels compile for GPUs that are not there, and their values fit into registers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from treemem.engines.cuda.launcher import has_triton

TESTS = Path(__file__).parents[1]


@pytest.mark.skipif(not has_triton(), reason="Triton is not installed")
@pytest.mark.parametrize(
    "cases",
    [
        [
            "Tree-LSTM:60:fp32:90",
            "Tree-LSTM:150:fp32:90",
            "plain:64:fp32:90",
            "LSTM step:1150:fp32:90",
            "ON-LSTM:1150:fp32:90",
            "Ordered Memory:200:fp32:90",
        ],
        [
            "Tree-RNN:60:fp32:80",
            "Tree-RNN:20:fp64:80",
            "Gumbel Tree-LSTM:300:fp32:80",
            "EBT-GRC:64:fp32:80",
            "CRvNN:64:fp32:80",
        ],
        ["LSTM with a neural stack:64:fp32:90"],
        pytest.param(["Tree-LSTM+stack:60:fp32:90", "Tree-LSTM:60:fp32:80"], marks=pytest.mark.slow),
        pytest.param(["TreeCell:200:fp32:90", "Tree-LSTM+stack:150:fp32:90"], marks=pytest.mark.slow),
        pytest.param(["PRPN:64:fp32:80", "SPINN:64:fp32:90", "gated step:300:fp32:80"], marks=pytest.mark.slow),
        pytest.param(
            [
                *("RNN with a neural stack:128:fp32:90", "RNN with a neural deque:128:fp32:80"),
                *("LSTM with registers:64:fp32:90", "LSTM with a superposition stack:64:fp32:80"),
                *("GRU with attention:128:fp32:90", "LSTM with registers:64:fp32:80"),
                *("LSTM cell:128:fp32:90", "GRU cell:128:fp32:80"),
            ],
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda cases: cases[0],
)
def test_kernels_compile_without_a_gpu_and_spill_no_registers(cases: list[str], tmp_path: Path) -> None:
    """In a process of its own, since this one may have Triton's interpreter."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    command = [sys.executable, str(TESTS / "cuda/ahead_of_time.py"), *cases]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) >= 2 * len(cases)
    for kernel, (registers, spilled, shared) in found.items():
        assert spilled == 0, f"{kernel} spills {spilled} bytes"
        assert 0 < registers <= 255
        assert shared <= 100 * 1024  # what a program may have on any GPU since sm_80
