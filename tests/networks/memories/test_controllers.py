"""Step cells: those of torch, the ON-LSTM and the controllers of memories."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from treemem.errors import GraphError, RecipeError
from treemem.networks.cell_states import where
from treemem.networks.memories.controllers.cells import run_cell
from treemem.networks.sequences.recurrent.lstm_stack import LSTMStack
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
    StackedCells,
    StepCell,
    SuperpositionStack,
    VanillaCell,
)
from treemem.trees.vocabulary import Vocabulary

CELLS = [VanillaCell, GRUCell, LSTMCell, lambda inputs, size: ONLSTMCell(inputs, size, 4)]
MEMORIES = [
    NeuralStack,
    NeuralQueue,
    NeuralDeque,
    lambda: SuperpositionStack(6, top_k=2),
    lambda: SuperpositionStack(6, no_op=False, empty=0.0),
    lambda: DoublyLinkedList(7),
    lambda: NondeterministicStack(2, 2),
    lambda: NondeterministicStack(2, 2, normalized=True, vectors=True),
]


@pytest.mark.parametrize("make", CELLS[:3])
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


@pytest.mark.parametrize("make", CELLS[:3])
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


@pytest.mark.parametrize(
    "make",
    [
        CELLS[3],
        lambda inputs, size: VanillaCell(inputs, size, "relu"),
        lambda inputs, size: StackedCells([LSTMCell(inputs, size), GRUCell(size, size)]),
    ],
)
def test_a_run_is_its_steps_with_their_gradients(make: Callable[[int, int], StepCell]) -> None:
    torch.manual_seed(0)
    cell = make(3, 4).double()
    assert_a_run_is_its_steps(cell, cell.initial(4))


@pytest.mark.parametrize("form", ["dot", "bilinear", "additive"])
@pytest.mark.parametrize("make", CELLS[1:3])
def test_a_run_of_a_cell_that_attends_is_its_steps(make: Callable[[int, int], StepCell], form: Any) -> None:
    torch.manual_seed(0)
    memory = ReadOnlyMemory(5, form)
    cell = MemoryCell(lambda width: make(width, 5), memory, input_size=3, memory_size=2).double()
    rows, lengths = torch.randn(4, 7, 5, dtype=torch.float64), torch.tensor([7, 1, 5, 0])
    read = torch.randn(4, 5, dtype=torch.float64)
    assert_a_run_is_its_steps(cell, cell.initial(4)._replace(memories=(memory.filled(rows, lengths),), read=read))


def assert_a_run_is_its_steps(cell: StepCell, initial: Any) -> None:
    inputs, lengths = torch.randn(4, 9, 3, dtype=torch.float64), torch.tensor([4, 9, 3, 0])
    exists = (torch.arange(9) < lengths[:, None])[..., None]

    def flat(state: Any) -> list[torch.Tensor]:
        return [state] if torch.is_tensor(state) else [part for each in state for part in flat(each)]

    def by_steps() -> tuple[torch.Tensor, Any]:
        state, outputs = initial, []
        for step in range(9):
            output, after = cell(inputs[:, step], state)
            state = where(step < lengths, after, state)
            outputs.append(output)
        return torch.stack(outputs, 1), state

    found = []
    for outputs, state in (run_cell(cell, inputs, initial, lengths), by_steps()):
        outputs = torch.where(exists, outputs, 0)
        loss = outputs.square().sum() + sum(each.sin().sum() for each in flat(state))
        found.append([outputs, *flat(state), *torch.autograd.grad(loss, [*cell.parameters()], retain_graph=True)])
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", CELLS)
def test_sequences_of_several_lengths_run_within_transforms(make: Callable[[int, int], StepCell]) -> None:
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


@pytest.mark.parametrize("memory", MEMORIES)
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


@pytest.mark.parametrize("memory", MEMORIES)
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


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.uint16])
def test_lengths_may_be_whole_numbers_of_any_type_and_nothing_else(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    inputs, lengths = torch.randn(3, 4, 2), torch.tensor([4, 0, 2])
    cell, stack, memory = MemoryCell(lambda width: GRUCell(width, 4), [NeuralStack()], 2, 3), LSTMStack(2, [3]), 2

    def results(lengths: torch.Tensor) -> list[Any]:
        run, stacked = run_cell(cell, inputs, lengths=lengths)[1], stack(inputs, lengths)
        filled = ReadOnlyMemory(memory, "dot").filled(inputs, lengths)
        return [run.controller, *stacked[:1], filled.present]

    torch.testing.assert_close(results(lengths.to(dtype)), results(lengths), rtol=0, atol=0)
    for door in (lambda wrong: run_cell(cell, inputs, lengths=wrong), lambda wrong: stack(inputs, wrong)):
        for wrong in (lengths.float(), lengths > 0):
            with pytest.raises(GraphError, match="lengths must be whole numbers"):
                door(wrong)


def attending_gru(inputs: int, size: int) -> MemoryCell:
    return MemoryCell(lambda width: GRUCell(width, size), ReadOnlyMemory(5, "bilinear"), inputs, 2)


@pytest.mark.parametrize(
    "make",
    [
        *(lambda inputs, size, each=each: MemoryCell(lambda width: VanillaCell(width, size), each(), inputs, 3)
          for each in MEMORIES),
        *CELLS,
        attending_gru,
    ],
)  # fmt: skip
def test_nothing_of_a_run_stays_when_it_is_done(make: Callable[[int, int], StepCell]) -> None:
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
