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


FEW = [
    ["Tree-LSTM:60:fp32:90", "ON-LSTM:1150:fp32:90", "Ordered Memory:200:fp32:90"],
    ["TreeCell:60:fp32:80", "Tree-RNN:20:fp64:80", "CRvNN, 62 tokens:64:fp32:80"],
    ["Gumbel Tree-LSTM:300:fp32:80", "EBT-GRC:64:fp32:80", "LSTM with a neural stack:64:fp32:90"],
]
"""Cases of the ordinary suite, by process."""
SIZES = {
    "Tree-RNN": (60, 200),
    "Tree-LSTM": (60, 150),
    "Child-Sum Tree-LSTM": (60, 150),
    "TreeCell": (60, 200),
    "Tree-RNN+stack": (60, 150),
    "Tree-LSTM+stack": (60, 150),
    "RNN with a neural stack": (128,),
    "RNN with a neural deque": (128,),
    "LSTM with a neural stack": (64,),
    "LSTM with registers": (64,),
    "LSTM with a superposition stack": (64,),
    "GRU with attention": (128,),
    "LSTM cell": (128,),
    "GRU cell": (128,),
    "ON-LSTM": (400,),
    "PRPN": (64,),
    "SPINN": (64,),
    "Gumbel Tree-LSTM": (300,),
    "EBT-GRC": (64,),
    "Ordered Memory": (128,),
    "Ordered Memory, Tree-RNN cell": (128,),
    "CRvNN, 30 tokens": (64,),
}
"""Published widths, and those of the benchmarks; the other tests compile all kernels for them."""
OTHERS = [
    [f"{name}:{size}:{target}" for size in sizes for target in ("fp32:80", "fp32:90", "fp64:90")]
    for name, sizes in SIZES.items()
]


@pytest.mark.skipif(not has_triton(), reason="Triton is not installed")
@pytest.mark.parametrize(
    "cases",
    [*FEW, *(pytest.param(cases, marks=pytest.mark.slow) for cases in OTHERS)],
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
