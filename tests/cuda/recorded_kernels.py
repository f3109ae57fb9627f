"""Kernels as training steps launch them, compiled with the types of their arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import torch
from fake_device import DEVICE, DeviceTensor, FakeDevice, FakeLauncher, fake_device
from sequence_networks import results
from tree_strategies import VOCABULARY
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import create_function_from_signature

from treemem.engines.cuda.launcher import COMPILER_OPTIONS
from treemem.networks import NetworkConfig
from treemem.networks.memories.controllers.cells import run_cell
from treemem.nn import (
    ChildSumTreeLSTM,
    GRUCell,
    LSTMCell,
    Memory,
    MemoryCell,
    NeuralDeque,
    NeuralStack,
    ReadOnlyMemory,
    RegisterMemory,
    StackTreeLSTM,
    StackTreeRNN,
    StepCell,
    SuperpositionStack,
    TreeCell,
    TreeLayer,
    TreeLSTM,
    TreeRNN,
    VanillaCell,
)
from treemem.ops import cuda_kernels
from treemem.schedule.tree_batch import TreeBatch


def _tree_step(make: Callable[..., TreeLayer], size: int, dtype: torch.dtype) -> None:
    """Nodes of one and two children."""
    layer = make(size, VOCABULARY).to(DEVICE, dtype)
    states = layer(TreeBatch.from_trees(["(add (g x) y)"], VOCABULARY).to(DEVICE)).rows
    torch.stack([state.sum() for state in states.values()]).sum().backward()


def _cell_step(
    make: Callable[[int, int], StepCell], memory: Memory | None, value_size: int, size: int, dtype: torch.dtype
) -> None:
    """80 steps."""
    cell = make(16, size) if memory is None else MemoryCell(lambda width: make(width, size), memory, 16, value_size)
    run_cell(cell.to(DEVICE, dtype), torch.zeros(2, 80, 16, dtype=dtype).to(DEVICE))[0].sum().backward()


def _sequence_step(name: str, longest: int, options: dict[str, Any], size: int, dtype: torch.dtype) -> None:
    """Two sequences, of ``longest`` and of two tokens."""
    network = NetworkConfig(name, {"hidden_size": size, **options}).build(VOCABULARY).to(DEVICE, dtype)
    results(network, (longest, 2), "auto", DEVICE)


STEPS: dict[str, Callable[[int, torch.dtype], None]] = {
    "Tree-RNN": partial(_tree_step, TreeRNN),
    "Tree-LSTM": partial(_tree_step, TreeLSTM),
    "Child-Sum Tree-LSTM": partial(_tree_step, ChildSumTreeLSTM),
    "TreeCell": partial(_tree_step, TreeCell),
    "Tree-RNN+stack": partial(_tree_step, partial(StackTreeRNN, stack_size=3)),
    "Tree-LSTM+stack": partial(_tree_step, partial(StackTreeLSTM, stack_size=5, normalize=True, no_op=True)),
    "RNN with a neural stack": partial(_cell_step, VanillaCell, NeuralStack(), 32),
    "RNN with a neural deque": partial(_cell_step, VanillaCell, NeuralDeque(), 32),
    "LSTM with a neural stack": partial(_cell_step, LSTMCell, NeuralStack(), 32),
    "LSTM with registers": partial(
        _cell_step, LSTMCell, RegisterMemory(24, similarity="cosine", write="erase-and-add"), 16
    ),
    "LSTM with a superposition stack": partial(_cell_step, LSTMCell, SuperpositionStack(150), 8),
    "GRU with attention": partial(_cell_step, GRUCell, ReadOnlyMemory(256, "bilinear"), 256),
    "LSTM cell": partial(_cell_step, LSTMCell, None, 0),
    "GRU cell": partial(_cell_step, GRUCell, None, 0),
    "ON-LSTM": partial(_sequence_step, "ONLSTM", 3, {"chunk_size": 10}),
    "PRPN": partial(_sequence_step, "PRPN", 3, {"slots": 15}),
    "SPINN": partial(_sequence_step, "SPINN", 3, {"transitions": "reinforced", "tracker_size": 64}),
    "Gumbel Tree-LSTM": partial(_sequence_step, "GumbelTreeLSTM", 64, {}),
    "EBT-GRC": partial(_sequence_step, "EfficientBeamTreeGRC", 64, {"beam_size": 5}),
    "Ordered Memory": partial(_sequence_step, "OrderedMemory", 3, {"slots": 21, "dropout": 0.1}),
    "Ordered Memory, Tree-RNN cell": partial(_sequence_step, "OrderedMemory", 3, {"slots": 21, "cell": "rnn"}),
    "CRvNN, 30 tokens": partial(_sequence_step, "CRvNN", 30, {}),
    "CRvNN, 62 tokens": partial(_sequence_step, "CRvNN", 62, {}),
}
"""Training steps by name, each of a width."""


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


class _Recorder(FakeLauncher):
    def __init__(self, device: FakeDevice) -> None:
        super().__init__(device, runs=False)
        self.kinds: dict[Any, Recorded] = {}

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
        """Record the first launch with these constants and these arguments that are not there."""
        kind = kernel, tuple(argument is None for argument in arguments), str(options)
        self.kinds.setdefault(kind, Recorded(kernel, _on_host(arguments), COMPILER_OPTIONS | options))


def _on_host(argument: Any) -> Any:
    if isinstance(argument, tuple):
        return tuple(map(_on_host, argument))
    return argument.numbers if isinstance(argument, DeviceTensor) else argument


def launches_of(name: str, size: int, dtype: torch.dtype) -> list[Recorded]:
    """Return what a training step launches, each kernel once for all that it is compiled for."""
    with cuda_kernels(True), fake_device(runs_kernels=False) as device:
        recorder = _Recorder(device)
        with mock.patch("treemem.engines.cuda.launcher._launcher", recorder):
            STEPS[name](size, dtype)
    return [*recorder.kinds.values()]
