"""Kernels of whole runs, as a training step would launch them, compiled with the types of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import torch
from triton.compiler import ASTSource

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
"""Cells by width, which run over sequences of 80 steps."""

_TYPES = {torch.float32: "*fp32", torch.float64: "*fp64", torch.int64: "*i64"}


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

    def source(self) -> tuple[ASTSource, dict[str, Any]]:
        """What the compiler takes, and its options."""
        names, constants, aligned = self.kernel.arg_names, {}, {}
        signature = {name: _type_of(argument) for name, argument in zip(names, self.arguments, strict=False)}
        for at, argument in enumerate(self.arguments):
            _note(argument, (at,), constants, aligned)
        for name in names[len(self.arguments) :]:
            signature[name], constants[(names.index(name),)] = "constexpr", self.options[name]
        options = {name: value for name, value in self.options.items() if name not in names}
        return ASTSource(self.kernel, signature, constants, aligned), options


def _type_of(argument: Any) -> Any:
    if isinstance(argument, tuple):
        return tuple(map(_type_of, argument))
    if isinstance(argument, torch.Tensor):
        return _TYPES[argument.dtype]
    return "constexpr" if argument is None else "i32"


def _note(argument: Any, path: tuple[int, ...], constants: dict[Any, Any], aligned: dict[Any, Any]) -> None:
    """Note an argument that is a constant, or aligned."""
    if isinstance(argument, tuple):
        for at, part in enumerate(argument):
            _note(part, (*path, at), constants, aligned)
    elif argument is None:
        constants[path] = None
    elif isinstance(argument, torch.Tensor) and argument.storage_offset() * argument.element_size() % 16 == 0:
        aligned[path] = [["tt.divisibility", 16]]


class _Recorder(Launcher):
    device_type = "cpu"

    def __init__(self) -> None:
        self.launches: list[Recorded] = []

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
        """Record it."""
        self.launches.append(Recorded(kernel, arguments, options))


def launches_of(name: str, size: int, dtype: torch.dtype) -> list[Recorded]:
    """Return what a training step of a run launches."""
    recorder = _Recorder()
    with cuda_kernels(True), mock.patch("treemem.engines.cuda.launcher._launcher", recorder):
        cell = RUNS[name](size).to(dtype)
        run_cell(cell, torch.zeros(2, 80, cell.input_size, dtype=dtype))[0].sum().backward()
    return recorder.launches
