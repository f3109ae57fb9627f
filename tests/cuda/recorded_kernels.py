"""Kernels of whole runs, as a training step would launch them, compiled with the types of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import create_function_from_signature

from treemem.engines.cuda.launcher import Launcher
from treemem.networks.memories.controllers.cells import run_cell
from treemem.nn import (
    GRUCell,
    LSTMCell,
    Memory,
    MemoryCell,
    NeuralDeque,
    NeuralStack,
    ReadOnlyMemory,
    RegisterMemory,
    StepCell,
    SuperpositionStack,
    VanillaCell,
)
from treemem.ops import cuda_kernels


def _cell(make: Callable[[int, int], StepCell], memory: Memory | None, value_size: int, size: int) -> StepCell:
    if memory is None:
        return make(16, size)
    return MemoryCell(lambda width: make(width, size), memory, 16, value_size)


RUNS: dict[str, Callable[[int], StepCell]] = {
    "RNN with a neural stack": partial(_cell, VanillaCell, NeuralStack(), 32),
    "RNN with a neural deque": partial(_cell, VanillaCell, NeuralDeque(), 32),
    "LSTM with a neural stack": partial(_cell, LSTMCell, NeuralStack(), 32),
    "LSTM with registers": partial(_cell, LSTMCell, RegisterMemory(24, similarity="cosine", write="erase-and-add"), 16),
    "LSTM with a superposition stack": partial(_cell, LSTMCell, SuperpositionStack(150), 8),
    "GRU with attention": partial(_cell, GRUCell, ReadOnlyMemory(256, "bilinear"), 256),
    "LSTM cell": partial(_cell, LSTMCell, None, 0),
    "GRU cell": partial(_cell, GRUCell, None, 0),
}
"""Cells by width."""


class Recorded(NamedTuple):
    """A launch.

    Attributes:
        kernel: the function.
        arguments: which it got.
        options: constants, and options of the compiler.
    """

    kernel: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def source(self, arch: int) -> tuple[ASTSource, dict[str, Any]]:
        """What Triton would compile for ``sm_{arch}``, and the options of the compiler."""
        backend = make_backend(GPUTarget("cuda", arch, 32))
        bind = create_function_from_signature(self.kernel.signature, self.kernel.params, backend)
        bound, specialization, options = bind(*self.arguments, **self.options)
        _, *described = self.kernel._pack_args(backend, options, bound, specialization, options)
        return ASTSource(self.kernel, *described), options


class _Recorder(Launcher):
    device_type = "cpu"

    def __init__(self) -> None:
        self.launches: list[Recorded] = []

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
        """Record it."""
        self.launches.append(Recorded(kernel, arguments, options))


def launches_of(name: str, size: int, dtype: torch.dtype, steps: int = 80) -> list[Recorded]:
    """Return what a training step of a run launches."""
    recorder = _Recorder()
    with cuda_kernels(True), mock.patch("treemem.engines.cuda.launcher._launcher", recorder):
        cell = RUNS[name](size).to(dtype)
        run_cell(cell, torch.zeros(2, steps, cell.input_size, dtype=dtype))[0].sum().backward()
    return recorder.launches
