"""Compiles kernels for GPUs without one, and reads what the assembler says of them."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from typing import Any, NamedTuple

import torch
import triton
from cuda.recorded_kernels import launches_of
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


class Resources(NamedTuple):
    """What a kernel takes: registers of a thread, bytes that it spills to memory, bytes of shared memory."""

    registers: int
    spilled: int
    shared: int


def assembled(source: ASTSource, options: Any, arch: int) -> Resources:
    """Compile a kernel for ``sm_{arch}``."""
    printed = io.StringIO()
    with triton.knobs.nvidia.scope(), triton.knobs.compilation.scope(), contextlib.redirect_stdout(printed):
        triton.knobs.nvidia.dump_ptxas_log = triton.knobs.compilation.always_compile = True
        made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    log = printed.getvalue()
    registers, spilled = (re.findall(text, log) for text in (r"Used (\d+) registers", r"(\d+) bytes spill"))
    return Resources(max(map(int, registers)), sum(map(int, spilled)), made.metadata.shared)


def main() -> None:
    """Print the resources of kernels as JSON; an argument is a name, a width, a type and an architecture."""
    resources = {}
    for case in sys.argv[1:]:
        name, size, dtype, arch = case.split(":")
        launches = launches_of(name, int(size), {"fp32": torch.float32, "fp64": torch.float64}[dtype])
        for number, launch in enumerate(launches):
            kernel = f"{case}:{launch.kernel.__name__}, {number}"
            resources[kernel] = assembled(*launch.source(int(arch)), int(arch))
    print(json.dumps(resources))


if __name__ == "__main__":
    main()
