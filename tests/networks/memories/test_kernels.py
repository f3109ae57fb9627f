"""Runs of controllers and memories in Triton, in its interpreter on the CPU, against their steps in torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from fake_device import HAS_INTERPRETER

from treemem.engines.cuda.launcher import Launcher
from treemem.engines.level_library import NotNative
from treemem.errors import GraphError
from treemem.networks.memories.attention.layer import ReadOnlyState
from treemem.networks.memories.controllers.cells import run_cell
from treemem.networks.memories.controllers.cuda import run_in_kernels
from treemem.networks.memories.controllers.run import ControllerState, ControllerWeights
from treemem.networks.memories.neural_stack.equations import StrengthState, naive_run
from treemem.networks.memories.registers.layer import RegisterState
from treemem.nn import (
    GRUCell,
    LSTMCell,
    Memory,
    MemoryCell,
    NeuralDeque,
    NeuralQueue,
    NeuralStack,
    ReadOnlyMemory,
    RegisterMemory,
    StepCell,
    SuperpositionStack,
    VanillaCell,
)
from treemem.ops import cuda_kernels

pytestmark = [
    pytest.mark.usefixtures("unset_memory_is_nan", "kernels"),
    pytest.mark.skipif(not HAS_INTERPRETER, reason="Triton is not installed, or there is a GPU"),
]

Make = Callable[[int, int], StepCell]
LENGTHS = torch.tensor([1, 0, 3])
MEMORIES: dict[str, tuple[Make, Callable[[], Memory] | None]] = {
    "none": (GRUCell, None),
    "neural stack": (VanillaCell, NeuralStack),
    "neural queue, read deeper": (LSTMCell, lambda: NeuralQueue(2.3)),
    "neural deque": (GRUCell, NeuralDeque),
    "superposition stack": (LSTMCell, lambda: SuperpositionStack(3, top_k=2)),
    "attention": (VanillaCell, lambda: ReadOnlyMemory(5, "bilinear")),
    "registers": (GRUCell, lambda: RegisterMemory(4)),
    "registers of the paper": (
        VanillaCell,
        lambda: RegisterMemory(3, similarity="cosine", write="erase-and-add", max_shift=2),
    ),
    "registers with keys": (
        LSTMCell,
        lambda: RegisterMemory(4, key_size=3, similarity="cosine", write="erase-and-add"),
    ),
    "one register by content": (VanillaCell, lambda: RegisterMemory(1, key_size=1, location=False)),
    "chosen registers": (VanillaCell, lambda: RegisterMemory(3, addressing="straight-through")),
    "superposition stack of one row": (VanillaCell, lambda: SuperpositionStack(1, no_op=False)),
}
"""Memories, each with a controller; no memory knows its controller."""
SLOW = (
    *("neural queue, read deeper", "superposition stack of one row"),
    *("registers", "registers of the paper", "one register by content"),
)


class CountingLauncher(Launcher):
    """Runs kernels in the interpreter on the CPU.

    Attributes:
        launches: of each kernel.
    """

    device_type = "cpu"

    def __init__(self) -> None:
        self.launches: Counter[str] = Counter()

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
        """Run a kernel."""
        self.launches[kernel.__name__] += 1
        with np.errstate(all="ignore"):
            kernel[grid](*arguments, **options)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingLauncher]:
    """Kernels run on the CPU."""
    launcher = CountingLauncher()
    monkeypatch.setattr("treemem.engines.cuda.launcher._launcher", launcher)
    with cuda_kernels(True):
        yield launcher


def drawn(state: Any) -> Any:
    """A state of the same shape with other numbers, and three items for a neural stack; they require gradients."""
    if torch.is_tensor(state):
        return torch.randn_like(state).requires_grad_()
    if isinstance(state, ReadOnlyState):
        rows = torch.randn(3, 17, state.rows.shape[2], dtype=state.rows.dtype).requires_grad_()
        present = torch.arange(17) < torch.tensor([17, 3, 0])[:, None]
        return ReadOnlyState(rows, rows, present, torch.zeros(3, 17, dtype=rows.dtype))
    if isinstance(state, RegisterState):  # with two more rows, which are only read
        rows = torch.randn(3, 2 + state.rows.shape[1], state.rows.shape[2], dtype=state.rows.dtype).requires_grad_()
        read, write = (torch.randn_like(part).softmax(1).requires_grad_() for part in (rows[:, :, 0], rows[:, 2:, 0]))
        return RegisterState(rows, read, write, state.log_probability)
    if isinstance(state, StrengthState):
        items = torch.randn(len(state.items), 3, state.items.shape[2], dtype=state.items.dtype).requires_grad_()
        return StrengthState((items[:, :, 0].detach().abs() / 2).requires_grad_(), items)
    parts = [drawn(part) for part in state]
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)


def tensors_of(state: Any) -> list[torch.Tensor]:
    """Floating-point tensors of a state. Items without strength mean nothing."""
    if isinstance(state, StrengthState):
        used = (state.strength > 0).any(0)
        strength = state.strength[:, used]
        return [strength, (strength > 0)[..., None] * state.items[:, used]]
    if torch.is_tensor(state):
        return [state] if state.is_floating_point() else []
    return [tensor for part in state for tensor in tensors_of(part)] if isinstance(state, tuple) else []


def cell_with(memory: str, hidden_size: int = 5) -> StepCell:
    make, kind = MEMORIES[memory]
    if kind is None:
        return make(3, hidden_size).double()
    return MemoryCell(lambda width: make(width, hidden_size), kind(), input_size=3, memory_size=2).double()


def everything(
    run: Callable[..., Any], cell: StepCell, inputs: torch.Tensor, initial: Any, lengths: torch.Tensor | None
) -> list[torch.Tensor]:
    """Outputs, last states, and gradients of every tensor."""
    outputs, state = run(cell, inputs, initial, lengths)
    if lengths is not None:
        outputs = torch.where((torch.arange(inputs.shape[1]) < lengths[:, None])[..., None], outputs, 0)
    last = tensors_of(state)
    loss = (outputs * outputs.detach().cos()).sum() + sum(tensor.sin().sum() for tensor in last)
    wanted = [inputs, *cell.parameters(), *(leaf for leaf in leaves(initial) if leaf.requires_grad)]
    return [outputs, *last, *torch.autograd.grad(loss, wanted, materialize_grads=True)]


def leaves(state: Any) -> list[torch.Tensor]:
    if torch.is_tensor(state):
        return [state]
    return [leaf for part in state for leaf in leaves(part)] if isinstance(state, tuple) else []


@pytest.mark.parametrize(
    "memory", [pytest.param(memory, marks=[pytest.mark.slow] * (memory in SLOW)) for memory in MEMORIES]
)
def test_a_run_is_its_steps_with_their_gradients(memory: str, kernels: CountingLauncher) -> None:
    torch.manual_seed(0)
    cell, inputs = cell_with(memory), torch.randn(3, 3, 3, dtype=torch.float64).requires_grad_()
    initial = drawn(cell.initial(3))
    expected = everything(StepCell.run, cell, inputs, initial, LENGTHS)
    found = everything(run_cell, cell, inputs, initial, LENGTHS)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert kernels.launches == {"forward": 1, "backward": 1}


def test_without_gradients_two_states_are_kept(kernels: CountingLauncher) -> None:
    torch.manual_seed(0)
    cell, inputs = cell_with("superposition stack"), torch.randn(3, 3, 3, dtype=torch.float64)
    initial = drawn(cell.initial(3))
    with torch.no_grad():
        (outputs, state), (expected, last) = (run(cell, inputs, initial, LENGTHS) for run in (run_cell, StepCell.run))
    torch.testing.assert_close(outputs[2], expected[2], rtol=0, atol=1e-12)
    torch.testing.assert_close(tensors_of(state), tensors_of(last), rtol=0, atol=1e-12)
    assert kernels.launches == {"forward": 1}


def test_no_length_reaches_beyond_the_inputs() -> None:
    torch.manual_seed(0)
    cell, inputs = cell_with("none"), torch.randn(2, 2, 3).double()
    found, expected = (run_cell(cell, inputs, None, torch.tensor([last, 1])) for last in (9, 2))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_one_sequence_begins_empty_and_has_all_steps(kernels: CountingLauncher) -> None:
    torch.manual_seed(0)
    cell, inputs = cell_with("neural stack", 17), torch.randn(1, 3, 3, dtype=torch.float64).requires_grad_()
    expected = everything(StepCell.run, cell, inputs, cell.initial(1), None)
    torch.testing.assert_close(everything(run_cell, cell, inputs, cell.initial(1), None), expected, rtol=0, atol=1e-12)
    assert kernels.launches == {"forward": 1, "backward": 1}


@pytest.mark.parametrize(
    ("memory", "value_size"), [(NeuralStack(), 9), (SuperpositionStack(350), 3)], ids=["neural stack", "superposition"]
)
def test_what_does_not_fit_into_a_block_is_taken_in_parts(
    memory: Memory, value_size: int, kernels: CountingLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    from treemem.networks.memories.controllers import kernels as driver

    for name, numbers in (("BLOCK", 128), ("TILE", 256), ("MOST_CONTROLS", 8)):
        monkeypatch.setattr(driver, name, type(driver.BLOCK)(numbers))
    torch.manual_seed(0)
    cell = MemoryCell(lambda width: LSTMCell(width, 17), memory, input_size=3, memory_size=value_size).double()
    inputs, initial = torch.randn(1, 2, 3, dtype=torch.float64).requires_grad_(), cell.initial(1)
    if isinstance(memory, NeuralStack):
        items = torch.randn(1, 20, value_size, dtype=torch.float64).requires_grad_()
        held = StrengthState(torch.full((1, 20), 0.01, dtype=torch.float64).requires_grad_(), items)
        initial = initial._replace(memories=(held,))
    expected = everything(StepCell.run, cell, inputs, initial, None)
    torch.testing.assert_close(everything(run_cell, cell, inputs, initial, None), expected, rtol=0, atol=1e-12)
    assert kernels.launches == {"forward": 1, "backward": 1}


@pytest.mark.parametrize("end", ["top", "bottom"])
def test_known_actions_of_whole_and_no_strength_have_the_subgradients_of_the_definition(
    end: Any, kernels: CountingLauncher
) -> None:
    torch.manual_seed(0)
    value = torch.randn(2, 5, 3, dtype=torch.float64).requires_grad_()
    push = torch.tensor([[0.36, 0.0, 1.0, 1.0, 0.6], [1.0, 0.63, 0.0, 0.5, 1.0]], dtype=torch.float64).requires_grad_()
    pop = torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.2], [0.0, 0.0, 0.3, 0.0, 0.0]], dtype=torch.float64).requires_grad_()
    weight = torch.randn_like(value)
    memory = NeuralStack() if end == "top" else NeuralQueue()
    expected = naive_run(value, push, pop, end)[0]
    gradients = torch.autograd.grad((expected * weight).sum(), (value, push, pop))
    for in_kernels in (True, False):
        with cuda_kernels(in_kernels):
            found = memory(value, push, pop)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        of_found = torch.autograd.grad((found * weight).sum(), (value, push, pop))
        torch.testing.assert_close(of_found, gradients, rtol=0, atol=1e-12)
    assert kernels.launches == {"forward": 1, "backward": 1}


@pytest.mark.slow
def test_a_deque_of_known_actions_is_its_steps() -> None:
    torch.manual_seed(0)
    given = [torch.randn(2, 3, 2, 2), torch.rand(2, 3, 2), torch.rand(2, 3, 2)]
    actions = [action.double().requires_grad_() for action in given]
    memory = NeuralDeque()
    found, expected = memory(*actions), memory._by_steps(memory.initial(2, 2, actions[0]), *actions)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad(reads.sin().sum(), actions) for reads in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


def test_weights_that_are_too_large_are_refused_and_run_step_by_step(
    kernels: CountingLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treemem.networks.memories.controllers.cuda._LARGEST", 0)
    cell, inputs = LSTMCell(20, 20), torch.randn(2, 2, 20)
    weights = ControllerWeights.of([*cell.parameters()])
    with pytest.raises(NotNative, match="read all weights at each step, up to 0 KiB, and these have 12 KiB"):
        run_in_kernels("LSTM", inputs, None, ControllerState.of(*cell.initial(2)), weights, None)
    expected = StepCell.run(cell, inputs, cell.initial(2))
    torch.testing.assert_close(run_cell(cell, inputs), expected)
    assert not kernels.launches


def test_memories_that_are_too_large_are_refused(kernels: CountingLauncher) -> None:
    state = StrengthState.empty(1, 3, torch.empty(0))
    with pytest.raises(NotNative, match="up to 8192 items of 512 numbers, and this memory gets 10000 of 3"):
        NeuralDeque().kernels(state, 5000)
    assert not kernels.launches


def test_states_that_do_not_fit_are_refused(kernels: CountingLauncher) -> None:
    cell, inputs = cell_with("neural stack"), torch.randn(3, 2, 3).double()
    initial = cell.initial(3)
    for held, problem in (
        (StrengthState(torch.ones(3, 2).double(), torch.ones(3, 4, 2).double()), r"\[3, 2\] do not fit items"),
        (StrengthState(torch.ones(2, 4).double(), torch.ones(2, 4, 2).double()), "a memory of 3 sequences"),
        (StrengthState(torch.ones(3, 4).double(), torch.ones(3, 4, 1).double()), "controls for a memory"),
    ):
        with pytest.raises(GraphError, match=problem):
            run_cell(cell, inputs, initial._replace(memories=(held,)))
    with pytest.raises(GraphError, match=r"h must be \[3, 5\], not \[2, 5\]"):
        run_cell(cell, inputs, initial._replace(controller=cell.initial(2).controller))
    assert not kernels.launches


def test_a_second_backward_pass_gives_the_same() -> None:
    cell, inputs = cell_with("neural stack"), torch.randn(2, 2, 3).double().requires_grad_()
    outputs, _ = run_cell(cell, inputs)
    first, second = (torch.autograd.grad(outputs.sum(), [*cell.parameters()], retain_graph=True) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_there_is_no_second_derivative() -> None:
    cell, inputs = cell_with("none"), torch.randn(2, 2, 3).double().requires_grad_()
    (gradient,) = torch.autograd.grad(run_cell(cell, inputs)[0].sum(), inputs, create_graph=True)
    with pytest.raises(RuntimeError, match=r"in Triton .*cuda_kernels\(False\)"):
        gradient.sum().backward()


def test_a_superposition_stack_of_known_actions_is_its_steps(kernels: CountingLauncher) -> None:
    torch.manual_seed(0)
    memory = SuperpositionStack(3, top_k=2, empty=-0.1)
    given = [torch.randn(2, 4, 3), torch.rand(2, 4), torch.rand(2, 4)]
    actions = [action.double().requires_grad_() for action in given]
    found = memory(*actions)
    expected = memory._by_steps(memory.initial(2, 3, actions[0]), *actions)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad(reads.sin().sum(), actions) for reads in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)
    assert kernels.launches == {"forward": 1, "backward": 1}


def test_under_autocast_a_run_stays_in_the_precision_of_the_weights(kernels: CountingLauncher) -> None:
    torch.manual_seed(0)
    cell, inputs = LSTMCell(3, 5), torch.randn(2, 3, 3)
    expected = torch.autograd.grad(run_cell(cell, inputs)[0].sum(), [*cell.parameters()])
    with torch.autocast("cpu", torch.bfloat16):
        outputs, _ = run_cell(cell, inputs.bfloat16().float())
        found = torch.autograd.grad(run_cell(cell, inputs)[0].sum(), [*cell.parameters()])
    assert outputs.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert kernels.launches == {"forward": 3, "backward": 2}


@pytest.mark.slow
def test_weights_of_registers_may_vanish(kernels: CountingLauncher) -> None:
    torch.manual_seed(0)
    cell, inputs = cell_with("registers"), torch.randn(3, 2, 3, dtype=torch.float64).requires_grad_()
    assert isinstance(cell, MemoryCell)
    assert isinstance(cell.controls, torch.nn.Linear)
    with torch.no_grad():  # of each head the key, the gate and three shifts
        for head in (2, 9):
            cell.controls.bias[head : head + 6] = torch.tensor([400.0, 400.0, -700.0, -700.0, 700.0, -700.0])
    initial = cell.initial(3)
    (held,) = initial.memories
    rows = held.rows - 1
    rows[:, 0] = 1
    first = initial._replace(memories=(held._replace(rows=rows),))
    found = everything(run_cell, cell, inputs, first, None)
    torch.testing.assert_close(found, everything(StepCell.run, cell, inputs, first, None), rtol=0, atol=1e-12)
    assert kernels.launches == {"forward": 1, "backward": 1}
