"""Step cells, alone and as controllers of memories: torch's cells, the ON-LSTM, and their runs in C++ against steps."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from treemem.errors import GraphError, RecipeError
from treemem.native import compile_mode
from treemem.native.threads import torch_threads
from treemem.networks.memories.attention.layer import ReadOnlyState
from treemem.networks.memories.controllers import run
from treemem.networks.memories.controllers.cells import run_cell
from treemem.networks.memories.neural_stack.equations import StrengthState
from treemem.networks.memories.registers.layer import RegisterState
from treemem.nn import (
    ONLSTM,
    DoublyLinkedList,
    GRUCell,
    LSTMCell,
    Memory,
    MemoryCell,
    NeuralDeque,
    NeuralQueue,
    NeuralStack,
    NondeterministicStack,
    ONLSTMCell,
    ReadOnlyMemory,
    RegisterMemory,
    StackedCells,
    StepCell,
    SuperpositionStack,
    VanillaCell,
)
from treemem.ops import compile_steps
from treemem.trees.vocabulary import Vocabulary

Make = Callable[[int, int], StepCell]
LENGTHS = torch.tensor([4, 9, 3, 0, 9, 1, 6])
IN_CPP: list[Make] = [VanillaCell, LSTMCell, GRUCell]
CELLS: list[Make] = [*IN_CPP, lambda inputs, size: ONLSTMCell(inputs, size, 1)]
BY_STEPS: list[Make] = [
    *CELLS,
    lambda inputs, size: VanillaCell(inputs, size, "relu"),
    lambda inputs, size: StackedCells([LSTMCell(inputs, size), GRUCell(size, size)]),
]
MEMORIES: dict[str, Callable[[], Memory] | None] = {
    "none": None,
    "attention, bilinear": lambda: ReadOnlyMemory(5, "bilinear"),
    "attention, dot": lambda: ReadOnlyMemory(5, "dot"),
    "attention, additive": lambda: ReadOnlyMemory(5, "additive"),
    "stack that overflows": lambda: SuperpositionStack(4),
    "stack, top_k": lambda: SuperpositionStack(12, top_k=3, empty=0.5),
    "stack of one row": lambda: SuperpositionStack(1, no_op=False),
    "stack that is read whole": lambda: SuperpositionStack(20, top_k=20, no_op=False, empty=0.0),
    "neural stack": NeuralStack,
    "neural queue": NeuralQueue,
    "neural stack, read deeper": lambda: NeuralStack(2.5),
    "neural deque": NeuralDeque,
    "registers": lambda: RegisterMemory(4),
    "registers of the paper": lambda: RegisterMemory(3, similarity="cosine", write="erase-and-add", max_shift=2),
    "registers with keys": lambda: RegisterMemory(4, key_size=3, similarity="cosine", write="erase-and-add"),
    "one register by content": lambda: RegisterMemory(1, key_size=1, location=False),
    "chosen registers": lambda: RegisterMemory(3, addressing="straight-through"),
}
OTHERS: list[Callable[[], Memory]] = [
    NeuralStack,
    NeuralQueue,
    NeuralDeque,
    lambda: SuperpositionStack(6, top_k=2),
    lambda: SuperpositionStack(6, no_op=False, empty=0.0),
    lambda: DoublyLinkedList(7),
    lambda: NondeterministicStack(2, 2),
    lambda: NondeterministicStack(2, 2, normalized=True, vectors=True),
]
needs_compiler = pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")
every_cell = pytest.mark.parametrize("make", IN_CPP)
every_memory = pytest.mark.parametrize("memory", MEMORIES)
PAIRS = [(IN_CPP[place % 3], memory) for place, memory in enumerate(MEMORIES)]
"""Every memory with a cell; each pair is a library of its own, and no memory knows its controller."""
FEW = [pair for pair in PAIRS if pair[1] in ("none", "attention, bilinear", "neural stack", "registers of the paper")]


@pytest.fixture
def every_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little there is to do, all threads do it."""
    monkeypatch.setattr(run, "_LEAST_WORK", 1)


def made(make: Make, memory: str, dtype: torch.dtype = torch.float64) -> tuple[StepCell, torch.Tensor, Any]:
    """A cell, inputs, and an initial state; what is attended to has from 0 to 6 rows."""
    torch.manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_()

    inputs, kind = random(7, 9, 3), MEMORIES[memory]
    if kind is None:
        cell = make(3, 5).to(dtype)
        return cell, inputs, cell.initial(7)
    held = kind()
    controlling = MemoryCell(lambda width: make(width, 5), held, input_size=3, memory_size=2).to(dtype)
    initial = controlling.initial(7)
    if isinstance(held, ReadOnlyMemory):
        initial = initial._replace(memories=(held.filled(random(7, 6, 5), torch.tensor([6, 3, 1, 0, 2, 6, 4])),))
    return controlling, inputs, initial


def flat(state: Any) -> list[torch.Tensor]:
    if isinstance(state, StrengthState):  # items without strength mean nothing
        strength, items = state.strength, state.items
        used = (strength > 0).any(0)
        return [strength[:, used], (strength[:, used] > 0)[..., None] * items[:, used]]
    return [state] if torch.is_tensor(state) else [part for each in state for part in flat(each)]


def leaves(state: Any) -> list[torch.Tensor]:
    """The tensors of a state."""
    if torch.is_tensor(state):
        return [state]
    return [part for each in state for part in leaves(each)] if isinstance(state, tuple) else []


def drawn(state: Any) -> Any:
    """A state of the same shape with other numbers, which require gradients."""
    if torch.is_tensor(state):
        return torch.randn_like(state).requires_grad_()
    if isinstance(state, ReadOnlyState):
        rows = drawn(state.rows)
        return state._replace(rows=rows, keys=rows)
    if isinstance(state, StrengthState):
        items = torch.randn(7, 3, 2, dtype=state.items.dtype).requires_grad_()
        return StrengthState((items[:, :, 0].detach().abs() / 2).requires_grad_(), items)
    if isinstance(state, RegisterState):  # with two more rows, which are only read
        rows = torch.randn(7, 2 + state.rows.shape[1], state.rows.shape[2], dtype=state.rows.dtype).requires_grad_()
        read, write = (torch.randn_like(each).softmax(1).requires_grad_() for each in (rows[:, :, 0], rows[:, 2:, 0]))
        return RegisterState(rows, read, write, state.log_probability)
    parts = [drawn(each) for each in state]
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)


def everything(
    cell: StepCell, inputs: torch.Tensor, initial: Any, lengths: torch.Tensor | None = LENGTHS
) -> list[torch.Tensor]:
    """Last states, outputs, and gradients of every tensor."""
    outputs, state = run_cell(cell, inputs, initial, lengths)
    if lengths is not None:
        outputs = torch.where(torch.arange(9) < lengths[:, None], outputs.movedim(2, 0), 0)
    last = [each for each in flat(state) if each.is_floating_point()]
    loss = (outputs * outputs.detach().cos()).sum() + sum(each.sin().sum() for each in last)
    tensors = [inputs, *cell.parameters(), *(each for each in leaves(initial) if each.requires_grad)]
    return [*last, outputs, *torch.autograd.grad(loss, tensors, retain_graph=True, materialize_grads=True)]


def by_steps(cell: StepCell, *arguments: Any) -> list[torch.Tensor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(cell), "run", StepCell.run)
        return everything(cell, *arguments)


@pytest.mark.usefixtures("every_thread")
@pytest.mark.parametrize(
    ("make", "memory"),
    [*PAIRS, *((each, "none") for each in BY_STEPS[1:]), *((each, "neural stack") for each in IN_CPP)],
)
def test_a_run_is_its_steps_with_their_gradients(make: Make, memory: str) -> None:
    cell, inputs, initial = made(make, memory)
    for first in (initial, drawn(initial)):
        for lengths in (LENGTHS, None):
            expected = by_steps(cell, inputs, first, lengths)
            for threads in (1, 3):
                with torch_threads(threads):
                    found = everything(cell, inputs, first, lengths)
                    with torch.no_grad():
                        _, state = run_cell(cell, inputs, first, lengths)
                torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
                last = [each for each in flat(state) if each.is_floating_point()]
                torch.testing.assert_close(last, expected[: len(last)], rtol=0, atol=1e-12)


@needs_compiler
@pytest.mark.parametrize("memory", [name for name in MEMORIES if name.startswith("neural")])
@pytest.mark.parametrize(("push", "pop"), [(-700.0, 700.0), (700.0, 700.0)])
def test_the_subgradients_of_whole_strengths_are_those_of_the_steps(memory: str, push: float, pop: float) -> None:
    cell, inputs, initial = made(LSTMCell, memory)
    assert isinstance(cell, MemoryCell)
    assert isinstance(cell.controls, torch.nn.Linear)
    ends = cell.controls.out_features // 4
    with torch.no_grad():
        cell.controls.weight[2 * ends :] = 0
        cell.controls.bias[2 * ends : 3 * ends] = push
        cell.controls.bias[3 * ends :] = pop
    for count in (0, 2):
        strength = torch.ones(7, count, dtype=torch.float64).requires_grad_()
        held = StrengthState(strength, torch.randn(7, count, 2, dtype=torch.float64).requires_grad_())
        first = initial._replace(memories=(held,))
        torch.testing.assert_close(everything(cell, inputs, first), by_steps(cell, inputs, first), rtol=0, atol=1e-12)


@needs_compiler
def test_weights_of_registers_may_vanish() -> None:
    cell, inputs, initial = made(LSTMCell, "registers")
    assert isinstance(cell, MemoryCell)
    assert isinstance(cell.controls, torch.nn.Linear)
    with torch.no_grad():  # of each head the key, the gate and three shifts
        for head in (2, 9):
            cell.controls.bias[head : head + 6] = torch.tensor([400.0, 400.0, -700.0, -700.0, 700.0, -700.0])
    (held,) = initial.memories
    rows = held.rows - 1
    rows[:, 0] = 1
    first = initial._replace(memories=(held._replace(rows=rows),))
    found = everything(cell, inputs, first)
    assert not any(each.isnan().any() for each in found)
    torch.testing.assert_close(found, by_steps(cell, inputs, first), rtol=0, atol=1e-12)


@needs_compiler
@pytest.mark.parametrize(("make", "memory"), FEW)
def test_in_single_precision_it_is_as_exact_as_that(make: Make, memory: str) -> None:
    expected = [each.float() for each in by_steps(*made(make, memory))]
    torch.testing.assert_close(everything(*made(make, memory, torch.float32)), expected, rtol=1e-4, atol=1e-4)


@needs_compiler
@every_cell
@pytest.mark.parametrize("memory", ["none", "stack that overflows"])
def test_a_backward_pass_changes_nothing_of_the_callers(make: Make, memory: str) -> None:
    cell, inputs, initial = made(make, memory)
    outputs, state = run_cell(cell, inputs, initial)
    results, weights = [outputs, *flat(state)], [*cell.parameters()]
    incoming = [torch.randn_like(each) for each in results]
    before = [each.clone() for each in incoming]
    once, twice = (torch.autograd.grad(results, weights, incoming, retain_graph=True) for _ in range(2))
    torch.testing.assert_close([once, incoming], [twice, before], rtol=0, atol=0)
    with compile_steps(False), torch.no_grad():
        for each in flat(state):
            each.mul_(2)  # a last state is not needed
        torch.testing.assert_close(torch.autograd.grad(results, weights, incoming), once, rtol=0, atol=0)


@needs_compiler
@every_cell
def test_outputs_that_were_changed_are_noticed(make: Make) -> None:
    cell, inputs, initial = made(make, "none")
    outputs, state = run_cell(cell, inputs, initial)
    outputs.detach().mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        flat(state)[0].sum().backward()


@needs_compiler
def test_what_is_not_a_number_stays_so() -> None:
    cell, inputs, initial = made(GRUCell, "neural stack")
    unknown = StrengthState(torch.tensor([[torch.nan]] + 6 * [[0.5]]).double(), torch.ones(7, 1, 2).double())
    outputs, _ = run_cell(cell, inputs, initial._replace(memories=(unknown,)))
    assert outputs[0, 1:].isnan().all()
    assert not outputs[1:].isnan().any()
    cell, inputs, initial = made(GRUCell, "chosen registers")
    (held,) = initial.memories
    rows = held.rows.clone()
    rows[0, 0] = torch.inf
    outputs, state = run_cell(cell, inputs, initial._replace(memories=(held._replace(rows=rows),)))
    (after,) = state.memories
    assert outputs[0, 1:].isnan().all()
    assert after.read_weights[0].isnan().all()
    assert not outputs[1:].isnan().any()


@every_memory
def test_a_memory_of_a_users_own_has_a_state_of_its_own(memory: str) -> None:
    kind = MEMORIES[memory]
    if kind is not None:
        held = kind()
        held.__class__ = type("Own", (type(held),), {})
        assert held.compiled({"anything": 1}, 3) is None


@pytest.mark.parametrize("memory", ["none", "attention, dot", "neural stack", "registers"])
def test_tensors_without_memory_are_not_given_to_cpp(memory: str) -> None:
    cell, inputs, _ = made(LSTMCell, memory)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert run_cell(cell, inputs)[0].shape == (7, 9, 5)


@every_cell
def test_a_traced_run_computes_the_same(make: Make) -> None:
    cell, inputs, _ = made(make, "none")
    numbers = inputs.detach()
    with torch.no_grad():
        traced = make_fx(lambda x: run_cell(cell, x)[0])(numbers)
        torch.testing.assert_close(traced(numbers + 1), run_cell(cell, numbers + 1)[0], rtol=0, atol=1e-12)


@needs_compiler
def test_cells_and_memories_of_a_users_own_run_step_by_step() -> None:
    class Linear(SuperpositionStack):
        def step(self, state: torch.Tensor, value: torch.Tensor, *actions: Any) -> Any:
            return super().step(state, 2 * value, *actions)

    cell, inputs, _ = made(VanillaCell, "stack that overflows")
    assert isinstance(cell, MemoryCell)
    own = MemoryCell(cell.controller, Linear(4), input_size=3, memory_size=2).double()
    own.load_state_dict(cell.state_dict())

    class Doubled(MemoryCell):
        def forward(self, x: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
            output, after = super().forward(x, state)
            return 2 * output, after

    doubled, hooked = (
        kind(VanillaCell(5, 5), SuperpositionStack(4), input_size=3, memory_size=2).double()
        for kind in (Doubled, MemoryCell)
    )
    for each in (doubled, hooked):
        each.load_state_dict(cell.state_dict())
    hooked.controls.register_forward_hook(lambda module, given, output: 2 * output)  # type: ignore[union-attr]
    rectified = MemoryCell(
        lambda width: VanillaCell(width, 5, "relu"), SuperpositionStack(4), input_size=3, memory_size=2
    ).double()
    rectified.load_state_dict(cell.state_dict())
    for each in (own, rectified, doubled, hooked):
        found, state = run_cell(each, inputs)
        with compile_steps(False):
            expected, other = run_cell(each, inputs)
        torch.testing.assert_close([found, *flat(state)], [expected, *flat(other)], rtol=0, atol=1e-12)
        assert not torch.equal(found, run_cell(cell, inputs)[0])


@needs_compiler
@pytest.mark.parametrize(("empty", "has_no_op"), [(0.0, True), (0.5, False), (0.5, True)])
@pytest.mark.parametrize(("depth", "top_k"), [(1, 1), (4, 2), (12, 12)])
def test_known_actions_give_what_the_steps_give(
    depth: int, top_k: int, empty: float, has_no_op: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_LEAST_WORK", 1)
    torch.manual_seed(0)
    memory = SuperpositionStack(depth, top_k=top_k, empty=empty)
    shapes = ((6, 9, 2), *[(6, 9)] * (2 + has_no_op))
    tensors = [(torch.rand(shape, dtype=torch.float64) - 0.3).requires_grad_() for shape in shapes]

    def readouts_and_gradients() -> list[torch.Tensor]:
        readouts = memory(*tensors)
        return [readouts, *torch.autograd.grad(readouts.sin().sum(), tensors)]

    with compile_steps(False):
        expected = readouts_and_gradients()
    for threads in (1, 16):
        with torch_threads(threads):
            torch.testing.assert_close(readouts_and_gradients(), expected, rtol=0, atol=1e-12)
            with torch.no_grad():
                torch.testing.assert_close(memory(*tensors), expected[0], rtol=0, atol=1e-12)


@needs_compiler
def test_tensors_may_lie_in_memory_in_any_way() -> None:
    cell, inputs, initial = made(LSTMCell, "attention, bilinear")
    strided = inputs.detach().movedim(2, 0).contiguous().movedim(0, 2).requires_grad_()
    expected, found = (everything(cell, each, initial) for each in (inputs, strided))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@needs_compiler
def test_states_that_do_not_fit_are_refused() -> None:
    for memory in ("none", "attention, bilinear", "stack that overflows"):
        cell, inputs, _ = made(LSTMCell, memory)
        for sequences in (1, 9):
            for lengths in (None, LENGTHS):
                with pytest.raises(GraphError, match="7 sequences need as many states"):
                    run_cell(cell, inputs, cell.initial(sequences), lengths)
    with pytest.raises(GraphError, match=r"h must be \[7, 5\], not \[7, 6\]"):
        run_cell(made(LSTMCell, "none")[0], inputs, LSTMCell(3, 6).double().initial(7))
    (registers,) = made(VanillaCell, "registers")[2].memories
    for make, memory, held, problem in (
        (LSTMCell, "stack that overflows", torch.zeros(7, 4, 1).double(), r"\[7, 4, 1\]"),
        (LSTMCell, "neural stack", StrengthState(torch.ones(7, 3), torch.ones(7, 5, 2)), r"\[7, 3\] do not fit items"),
        (VanillaCell, "registers", registers._replace(write_weights=torch.zeros(7, 6)), r"\[7, 6\] of writing"),
    ):
        cell, inputs, initial = made(make, memory)
        with pytest.raises(GraphError, match=problem):
            run_cell(cell, inputs, initial._replace(memories=(held,)))


@pytest.mark.parametrize("make", IN_CPP)
def test_a_run_of_a_cell_is_torchs_own_network(make: type[StepCell]) -> None:
    torch.manual_seed(0)
    cell = make(3, 4).double()
    kind = {VanillaCell: torch.nn.RNN, GRUCell: torch.nn.GRU, LSTMCell: torch.nn.LSTM}[make]
    network = kind(3, 4, batch_first=True).double()
    network.load_state_dict({f"{name}_l0": weight for name, weight in cell.cell.state_dict().items()})
    inputs = torch.randn(2, 5, 3, dtype=torch.float64)
    outputs, state = run_cell(cell, inputs)
    expected, last = network(inputs)
    torch.testing.assert_close(outputs, expected)
    ours, theirs = (each if torch.is_tensor(each) else each[1] for each in (state, last))
    torch.testing.assert_close(ours, theirs[0])


@pytest.mark.parametrize("make", IN_CPP)
def test_under_autocast_a_run_stays_in_the_precision_of_the_weights(make: type[StepCell]) -> None:
    torch.manual_seed(0)
    cell, inputs = make(3, 4), torch.randn(2, 5, 3)
    expected, _ = run_cell(cell, inputs)
    _, state = run_cell(cell, inputs[:, :2])
    with torch.autocast("cpu", torch.bfloat16):
        outputs, _ = run_cell(cell, inputs.bfloat16())
        rest, _ = run_cell(cell, inputs[:, 2:], state)
    torch.testing.assert_close(outputs, expected, atol=0.02, rtol=0)
    torch.testing.assert_close(rest, expected[:, 2:])
    outputs.sum().backward()


@pytest.mark.parametrize("make", CELLS)
def test_sequences_of_several_lengths_run_within_transforms(make: Make) -> None:
    torch.manual_seed(0)
    cell, inputs, lengths = make(3, 4), torch.randn(4, 9, 3, requires_grad=True), torch.tensor([4, 9, 3, 0])

    def loss(given: torch.Tensor) -> torch.Tensor:
        outputs, _ = run_cell(cell, given, lengths=lengths)
        return torch.where(torch.arange(9)[:, None] < lengths[:, None, None], outputs, 0).square().sum()

    expected = torch.autograd.grad(loss(inputs), inputs)[0]
    torch.testing.assert_close(torch.func.grad(loss)(inputs.detach()), expected)


def test_a_run_of_the_on_lstm_cell_is_the_layer() -> None:
    torch.manual_seed(0)
    layer = ONLSTM(12, Vocabulary(["x"], []), chunk_size=4, num_layers=1, embedding_size=5).double()
    own = dict(layer.named_parameters())
    cell = ONLSTMCell(5, 12, 4).double()
    weights = {name.rpartition("layers.0.")[2]: weight for name, weight in own.items() if "layers.0." in name}
    cell.load_state_dict({name.removeprefix("cell."): weight for name, weight in weights.items()})
    inputs = torch.randn(2, 6, 5, dtype=torch.float64)
    torch.testing.assert_close(run_cell(cell, inputs)[0], layer.read(inputs, torch.tensor([6, 6])).outputs)


@pytest.mark.parametrize("memory", OTHERS)
@pytest.mark.parametrize("make", CELLS)
def test_every_cell_drives_every_memory_and_all_weights_learn(make: type[StepCell], memory: type[Memory]) -> None:
    torch.manual_seed(0)
    cell = MemoryCell(lambda width: make(width, 8), [memory()], input_size=3, memory_size=4)
    outputs, _ = run_cell(cell, torch.randn(2, 6, 3))
    assert outputs.shape == (2, 6, 8)
    outputs.square().sum().backward()
    assert [name for name, weight in cell.named_parameters() if weight.grad is None or not weight.grad.any()] == []


def test_a_controller_drives_several_memories_and_stands_on_other_cells() -> None:
    torch.manual_seed(0)
    inner = MemoryCell(lambda width: LSTMCell(width, 8), [NeuralStack(), NeuralQueue()], 6, 4, output_size=5)
    assert inner.controller.input_size == 6 + 4 + 4
    cell = StackedCells([GRUCell(3, 6), inner, VanillaCell(5, 7, "relu")])
    outputs, state = run_cell(cell, torch.randn(2, 4, 3))
    assert outputs.shape == (2, 4, 7)
    again, _ = run_cell(cell, torch.randn(2, 1, 3), state)
    assert again.shape == (2, 1, 7)


def test_what_a_controller_reads_is_what_was_read_before() -> None:
    """With an input that is 0, the controller tells steps apart by what its memory gave."""
    torch.manual_seed(0)
    cell = MemoryCell(lambda width: VanillaCell(width, 4), [NeuralStack()], 2, 3)
    state = cell.initial(1)
    _, (_, _, read) = cell(torch.ones(1, 2), state)
    hidden, _ = cell.controller(torch.cat([torch.zeros(1, 2), read], 1), torch.zeros(1, 4))
    output, _ = cell(torch.zeros(1, 2), cell.initial(1)._replace(read=read))
    torch.testing.assert_close(output, torch.tanh(cell.output(hidden)))


def test_late_fusion_reads_after_the_controller() -> None:
    torch.manual_seed(0)
    cell = MemoryCell(lambda width: VanillaCell(width, 4), [NeuralStack()], 2, 3, fusion="late")
    x = torch.randn(5, 2)
    hidden, _ = cell.controller(x, torch.zeros(5, 4))
    ((value, push, pop),) = cell.arguments(hidden)
    _, read = NeuralStack().step(cell.initial(5).memories[0], value, push, pop)
    torch.testing.assert_close(cell(x, cell.initial(5))[0], torch.tanh(cell.output(torch.cat([hidden, read], 1))))


@pytest.mark.parametrize("memory", OTHERS)
def test_the_state_at_the_end_of_each_sequence_is_that_of_the_sequence_alone(memory: type[Memory]) -> None:
    torch.manual_seed(0)
    cell = MemoryCell(lambda width: GRUCell(width, 4), [memory()], 2, 3).double()
    inputs, lengths = torch.randn(4, 6, 2, dtype=torch.float64), torch.tensor([2, 6, 1, 4])
    _, together = run_cell(cell, inputs, lengths=lengths)
    more = torch.randn(4, 3, 2, dtype=torch.float64, requires_grad=True)
    outputs, _ = run_cell(cell, more, together)
    (gradient,) = torch.autograd.grad(outputs.square().sum(), more)
    for row, length in enumerate(lengths.tolist()):
        _, alone = run_cell(cell, inputs[row : row + 1, :length])
        expected, _ = run_cell(cell, more[row : row + 1], alone)
        torch.testing.assert_close(outputs[row : row + 1], expected)
        torch.testing.assert_close(gradient[row], torch.autograd.grad(expected.square().sum(), more)[0][row])


@pytest.mark.parametrize(
    "make",
    [
        *(lambda inputs, size, each=each: MemoryCell(lambda width: VanillaCell(width, size), each(), inputs, 3)
          for each in OTHERS),
        *CELLS,
        lambda inputs, size: MemoryCell(lambda width: GRUCell(width, size), ReadOnlyMemory(5, "bilinear"), inputs, 2),
    ],
)  # fmt: skip
def test_nothing_of_a_run_stays_when_it_is_done(make: Make) -> None:
    """A graph that refers to itself is never let go: the collector of cycles does not see into it."""
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Seen(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, given: torch.Tensor) -> torch.Tensor:
            alive.add(ctx)
            return given * 1

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient

    outputs, state = run_cell(make(3, 4), Seen.apply(torch.randn(8, 5, 3, requires_grad=True)))
    assert len(alive) == 1
    outputs.sum().backward()
    del outputs, state
    assert len(alive) == 0


def test_strengths_begin_with_more_push_than_pop() -> None:
    cell = MemoryCell(lambda width: VanillaCell(width, 4), [NeuralStack()], 2, 3)
    assert cell.controls.bias[-2:].tolist() == [1.0, -1.0]


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RecipeError, match="compares them with rows of 6"):
        MemoryCell(lambda width: VanillaCell(width, 4), [ReadOnlyMemory(6, "dot")], 3, 4)
    with pytest.raises(RecipeError, match="a cell gives 4 numbers, and the next one reads 5"):
        StackedCells([VanillaCell(3, 4), VanillaCell(5, 4)])
    with pytest.raises(RecipeError, match="must read 7"):
        MemoryCell(VanillaCell(3, 4), [NeuralStack()], 3, 4)
    with pytest.raises(RecipeError, match="chunk_size 5 must divide hidden_size 8"):
        ONLSTMCell(3, 8, 5)


def test_dropout_between_cells_leaves_what_the_lowest_one_reads() -> None:
    torch.manual_seed(0)
    lowest, inputs, lengths = LSTMCell(3, 4), torch.randn(2, 5, 3), torch.tensor([5, 2])
    expected, _ = lowest.run(inputs, lowest.initial(2), lengths)
    alone = StackedCells([lowest], dropout=0.9)
    assert torch.equal(alone.run(inputs, alone.initial(2), lengths)[0], expected)
    both = StackedCells([lowest, LSTMCell(4, 4)], dropout=0.9)
    first, second = (both.run(inputs, both.initial(2), lengths)[0] for _ in range(2))
    assert not torch.equal(first, second)
