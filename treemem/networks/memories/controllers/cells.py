"""Recurrent networks as one step: an input and the previous state to an output and the next state.

All cells have this interface, whatever their state is, so that one can stand where another does: on top of another
(:class:`StackedCells`), or as the controller of a memory (:class:`MemoryCell`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from treemem.checked_options import checked_choice, checked_count
from treemem.data.token_batch import whole_numbers
from treemem.device_copy import to_device
from treemem.engines.sequence_lengths import Kernel, run_packed
from treemem.errors import GraphError, RecipeError
from treemem.native.second_derivative import active_transforms
from treemem.networks.cell_states import where
from treemem.networks.memories.controllers.run import (
    ControllerName,
    ControllerState,
    ControllerWeights,
    run_controller,
    runs_in_cpp,
)
from treemem.networks.memories.memory import CompiledMemory, Control, Memory
from treemem.networks.parsers.on_lstm.equations import on_lstm_gates, on_lstm_step
from treemem.networks.resettable import Resettable


class StepCell(Resettable, ABC):
    """One step of a recurrent network.

    Attributes:
        input_size, output_size: widths of the input and the output.
    """

    input_size: int
    output_size: int

    @abstractmethod
    def initial(self, batch_size: int) -> Any:
        """Return the state before the first step."""

    @abstractmethod
    def forward(self, x: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        """Return the output ``[batch, output_size]`` and the next state, for an input ``[batch, input_size]``."""

    def run(self, inputs: torch.Tensor, state: Any, lengths: torch.Tensor | None = None) -> tuple[torch.Tensor, Any]:
        """Return the outputs over sequences, and the state after the last input of each; see :func:`run_cell`.

        A subclass that can do several steps at once overrides it.

        Args:
            inputs: ``[batch, time, input_size]``, at least one step.
            state: where to begin.
            lengths: of the sequences, on the CPU, ``[batch]``; by default each has all steps.
        """
        shortest = inputs.shape[1] if lengths is None or not len(lengths) else int(lengths.min())
        there = None if lengths is None else to_device(lengths, inputs.device)
        outputs = []
        for step, x in enumerate(inputs.unbind(1)):
            output, after = self(x, state)
            state = after if there is None or step < shortest else where(step < there, after, state)
            outputs.append(output)
        return torch.stack(outputs, 1), state

    def _zeros(self, batch_size: int) -> torch.Tensor:
        return next(self.parameters()).new_zeros(batch_size, self.output_size)


class _TorchCell(StepCell):
    """One of torch's cells: the output is ``h``."""

    def __init__(self, cell: nn.RNNCellBase) -> None:
        super().__init__()
        self.input_size, self.output_size = cell.input_size, cell.hidden_size
        self.cell = cell

    def initial(self, batch_size: int) -> Any:
        """Zeros, ``[batch, hidden_size]``."""
        return self._zeros(batch_size)

    def forward(self, x: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        """``h``, and the state."""
        state = self.cell(x, state)
        return (state[0] if isinstance(state, tuple) else state), state

    def run(self, inputs: torch.Tensor, state: Any, lengths: torch.Tensor | None = None) -> tuple[torch.Tensor, Any]:
        """In C++ where it can be, and elsewhere by torch's kernel."""
        found = _run_in_cpp(self, inputs, state, lengths)
        return _run_kernel(self.cell, inputs, state, lengths) if found is None else found[:2]


class VanillaCell(_TorchCell):
    """The plain recurrent cell: ``h = tanh(W x + U h + b)``, or with a rectifier; the output is ``h``.

    Args:
        input_size, hidden_size: widths of ``x`` and ``h``.
        activation: ``"tanh"`` or ``"relu"``.

    Example:
        >>> cell = VanillaCell(3, 4)
        >>> output, state = cell(torch.zeros(2, 3), cell.initial(2))
        >>> output.shape
        torch.Size([2, 4])
    """

    def __init__(self, input_size: int, hidden_size: int, activation: Literal["tanh", "relu"] = "tanh") -> None:
        checked_choice("activation", activation, ("tanh", "relu"))
        super().__init__(nn.RNNCell(input_size, hidden_size, nonlinearity=activation))


class GRUCell(_TorchCell):
    """The gated recurrent unit (Cho et al. 2014), torch's own; the output is ``h``.

    Example:
        >>> cell = GRUCell(3, 4)
        >>> cell(torch.zeros(2, 3), cell.initial(2))[0].shape
        torch.Size([2, 4])
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(nn.GRUCell(input_size, hidden_size))


class LSTMCell(_TorchCell):
    """The LSTM, torch's own; the output is ``h``, the state ``(h, c)``.

    Example:
        >>> cell = LSTMCell(3, 4)
        >>> output, (hidden, state) = cell(torch.zeros(2, 3), cell.initial(2))
        >>> state.shape
        torch.Size([2, 4])
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(nn.LSTMCell(input_size, hidden_size))

    def initial(self, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Zeros, ``[batch, hidden_size]`` each."""
        return self._zeros(batch_size), self._zeros(batch_size)


class ONLSTMCell(StepCell):
    """The ON-LSTM (Shen et al. 2018, eq. 1-3 and 9-13); the output is ``h``, the state ``(h, c)``.

    Args:
        input_size, hidden_size: widths of ``x`` and ``h``.
        chunk_size: adjacent units that share a master gate; it divides ``hidden_size``.

    Example:
        >>> cell = ONLSTMCell(3, 8, chunk_size=4)
        >>> cell(torch.zeros(2, 3), cell.initial(2))[0].shape
        torch.Size([2, 8])
    """

    def __init__(self, input_size: int, hidden_size: int, chunk_size: int = 8) -> None:
        super().__init__()
        checked_count("chunk_size", chunk_size)
        if hidden_size % chunk_size:
            raise RecipeError(f"chunk_size {chunk_size} must divide hidden_size {hidden_size}")
        self.input_size, self.output_size, self.chunk_size = input_size, hidden_size, chunk_size
        outputs = 2 * (hidden_size // chunk_size) + 4 * hidden_size
        self.of_input, self.of_hidden = nn.Linear(input_size, outputs), nn.Linear(hidden_size, outputs)

    def initial(self, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Zeros, ``[batch, hidden_size]`` each."""
        return self._zeros(batch_size), self._zeros(batch_size)

    def forward(
        self, x: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """``h``, and ``(h, c)``."""
        hidden, cell = state
        gates = on_lstm_gates(self.of_input(x) + self.of_hidden(hidden), self.chunk_size)
        hidden, cell = on_lstm_step(gates, cell)
        return hidden, (hidden, cell)


class StackedCells(StepCell):
    """Cells on top of each other: each reads the output of the one below.

    Args:
        cells: from the lowest; sizes must fit.

    Example:
        >>> cell = StackedCells([LSTMCell(3, 4), GRUCell(4, 5)])
        >>> cell(torch.zeros(2, 3), cell.initial(2))[0].shape
        torch.Size([2, 5])
    """

    def __init__(self, cells: Sequence[StepCell]) -> None:
        super().__init__()
        for below, above in pairwise(cells):
            if below.output_size != above.input_size:
                raise RecipeError(
                    f"a cell gives {below.output_size} numbers, and the next one reads {above.input_size}"
                )
        self.cells = nn.ModuleList(cells)
        self.input_size, self.output_size = cells[0].input_size, cells[-1].output_size

    def initial(self, batch_size: int) -> tuple[Any, ...]:
        """The state of each cell."""
        return tuple(cell.initial(batch_size) for cell in self._all())

    def forward(self, x: torch.Tensor, state: tuple[Any, ...]) -> tuple[torch.Tensor, tuple[Any, ...]]:
        """The output of the topmost cell, and the states of all."""
        following = []
        for cell, before in zip(self._all(), state, strict=True):
            x, after = cell(x, before)
            following.append(after)
        return x, tuple(following)

    def run(
        self, inputs: torch.Tensor, state: tuple[Any, ...], lengths: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, tuple[Any, ...]]:
        """Each cell over the whole sequences, from the lowest."""
        following = []
        for cell, before in zip(self._all(), state, strict=True):
            inputs, after = cell.run(inputs, before, lengths)
            following.append(after)
        return inputs, tuple(following)

    def _all(self) -> list[StepCell]:
        return list(self.cells)  # type: ignore[arg-type]


class MemoryCell(StepCell):
    """A controller with memories (Grefenstette et al. 2015, section 3.4).

    ``(o', h_t) = controller([x_t; r_{t-1}], h_{t-1})``. The inputs of each memory are linear maps of ``o'``: values
    through tanh, strengths through a sigmoid, weights of actions through a softmax. ``r_t`` is the readout, with
    ``r_0 = 0``, and the output is ``tanh(W_o o' + b_o)``. This is early fusion. In late fusion the controller reads
    only ``x_t``, and the output is ``tanh(W_o [o'; r_t] + b_o)``.

    Args:
        controller: a cell that reads ``input_size + readouts`` numbers (of late fusion ``input_size``), or a function
            that makes one of that width.
        memories: one or several.
        input_size: width of ``x``.
        memory_size: width of the values.
        output_size: width of the output; that of the controller by default.
        fusion: ``"early"`` or ``"late"``.

    Raises:
        RecipeError: sizes that do not fit.

    Example:
        >>> from treemem.nn import NeuralStack
        >>> cell = MemoryCell(lambda width: LSTMCell(width, 16), [NeuralStack()], input_size=4, memory_size=8)
        >>> output, state = cell(torch.zeros(3, 4), cell.initial(3))
        >>> output.shape
        torch.Size([3, 16])
    """

    def __init__(
        self,
        controller: Any,
        memories: Memory | Sequence[Memory],
        input_size: int,
        memory_size: int,
        output_size: int | None = None,
        fusion: Literal["early", "late"] = "early",
    ) -> None:
        super().__init__()
        checked_choice("fusion", fusion, ("early", "late"))
        memories = [memories] if isinstance(memories, Memory) else memories
        self.input_size, self.memory_size = input_size, checked_count("memory_size", memory_size)
        self.fusion = fusion
        readouts = sum(memory.readout_size(memory_size) for memory in memories)
        width = input_size + (readouts if fusion == "early" else 0)
        self.controller: StepCell = controller if isinstance(controller, StepCell) else controller(width)
        if self.controller.input_size != width:
            raise RecipeError(
                f"the controller reads {self.controller.input_size} numbers and must read {width}: {input_size} of the "
                f"input and {width - input_size} of the memories"
            )
        self.memories = nn.ModuleList(memories)
        size = self.controller.output_size
        self.output_size = size if output_size is None else output_size
        mapped = [control for control in self._controls() if control.form != "output"]
        for control in self._controls():
            if control.form == "output" and control.size != size:
                raise RecipeError(
                    f"the controller gives {size} numbers, and a memory compares them with rows of {control.size}; "
                    "give both the same width, or take bilinear attention"
                )
        self.controls = nn.Linear(size, sum(map(_width, mapped))) if mapped else None
        self.output = nn.Linear(size + (readouts if fusion == "late" else 0), self.output_size)
        self.set_biases()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        super().reset_parameters()
        self.set_biases()

    def set_biases(self) -> None:
        """Give the maps to the memories the initial biases that ``Control`` names."""
        mapped = [control for control in self._controls() if control.form != "output"]
        biases = self.controls.bias.data.split([*map(_width, mapped)]) if self.controls else ()
        for control, bias in zip(mapped, biases, strict=True):
            if control.bias is not None:
                bias.fill_(control.bias)

    def all_memories(self) -> list[Memory]:
        """Return the memories."""
        return list(self.memories)  # type: ignore[arg-type]

    def _controls(self) -> list[Control]:
        return [control for memory in self.all_memories() for control in memory.controls(self.memory_size)]

    def initial(self, batch_size: int) -> MemoryCellState:
        """The controller's state, that of each memory, and zeros for what was read."""
        like = self.output.weight
        empty = tuple(memory.initial(batch_size, self.memory_size, like) for memory in self.all_memories())
        readouts = sum(memory.readout_size(self.memory_size) for memory in self.all_memories())
        return MemoryCellState(self.controller.initial(batch_size), empty, like.new_zeros(batch_size, readouts))

    def forward(self, x: torch.Tensor, state: MemoryCellState) -> tuple[torch.Tensor, MemoryCellState]:
        """The output, and the state as :meth:`initial` returns it."""
        raw, hidden = self.controlled(x, state)
        arguments = iter(self.arguments(raw))
        following, readouts = [], []
        for memory, before in zip(self.all_memories(), state.memories, strict=True):
            after, readout = memory.step(before, *next(arguments))
            following.append(after)
            readouts.append(readout)
        read = torch.cat(readouts, 1)
        output = self.output(raw if self.fusion == "early" else torch.cat([raw, read], 1))
        return torch.tanh(output), MemoryCellState(hidden, tuple(following), read)

    def run(
        self, inputs: torch.Tensor, state: MemoryCellState, lengths: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, MemoryCellState]:
        """Return the outputs over sequences, and the state after the last input of each; see :meth:`StepCell.run`.

        With early fusion and one memory that runs in C++, a plain cell, an LSTM or a GRU takes all steps at once there.
        """
        memory, held = self.all_memories()[0], state.memories[0]
        alone = type(self) is MemoryCell and self.fusion == "early" and len(self.memories) == 1
        compiled = (
            memory.compiled(held, inputs.shape[1]) if alone and not _has_hooks(self.controller, self.controls) else None
        )
        if compiled is None or not isinstance(self.controls, nn.Linear):
            return super().run(inputs, state, lengths)
        found = _run_in_cpp(self.controller, inputs, state.controller, lengths, state.read, self.controls, compiled)
        if found is None:
            return super().run(inputs, state, lengths)
        outputs, hidden, read, become = found
        if compiled.after:
            after = MemoryCellState(hidden, (compiled.after(*become),), read)
        else:  # it does not change, and what is read last is not computed
            output = hidden[0] if isinstance(hidden, tuple) else hidden
            held, read = memory.step(held, *self.arguments(output)[0])
            after = MemoryCellState(hidden, (held,), read)
            if lengths is not None:
                after = where(to_device(lengths > 0, inputs.device), after, state)
        return torch.tanh(self.output(outputs)), after

    def controlled(self, x: torch.Tensor, state: MemoryCellState) -> tuple[torch.Tensor, Any]:
        """Return the controller's output, ``[batch, size]``, and its next state."""
        given = torch.cat([x, state.read], 1) if self.fusion == "early" else x
        output, hidden = self.controller(given, state.controller)
        return output, hidden

    def arguments(self, raw: torch.Tensor) -> list[list[torch.Tensor]]:
        """Return what each memory's step takes after its state, for outputs of the controller, ``[batch, size]``."""
        widths = [_width(control) for control in self._controls() if control.form != "output"]
        parts = iter(self.controls(raw).split(widths, 1) if self.controls else ())
        found = []
        for memory in self.all_memories():
            arguments: list[torch.Tensor] = []
            for control in memory.controls(self.memory_size):
                part = raw if control.form == "output" else next(parts)
                if control.form == "softmax":
                    arguments += part.softmax(1).unbind(1)
                else:
                    part = getattr(torch, control.form)(part) if control.form in ("tanh", "sigmoid") else part
                    arguments.append(part if control.size else part.squeeze(1))
            found.append(arguments)
        return found


def _width(control: Control) -> int:
    return len(control.names) * max(1, control.size)


class MemoryCellState(NamedTuple):
    """The state of a :class:`MemoryCell`.

    Attributes:
        controller: its state.
        memories: the state of each memory.
        read: what was read last, of all memories, ``[batch, readouts]``.
    """

    controller: Any
    memories: tuple[Any, ...]
    read: torch.Tensor


def run_cell(
    cell: StepCell, inputs: torch.Tensor, state: Any = None, lengths: torch.Tensor | None = None
) -> tuple[torch.Tensor, Any]:
    """Return the outputs of a cell over sequences, ``[batch, time, output_size]``, and its last state.

    Args:
        cell: the cell.
        inputs: ``[batch, time, input_size]``.
        state: where to begin; by default the initial one.
        lengths: of the sequences, whole numbers ``[batch]``; best on the CPU, where they are read. The last state is
            that after the last input of each; outputs at later places mean nothing.

    Raises:
        GraphError: the lengths are not whole numbers.
    """
    state = cell.initial(len(inputs)) if state is None else state
    lengths = None if lengths is None else whole_numbers("lengths", lengths)
    if 0 in inputs.shape[:2]:
        return inputs.new_zeros(*inputs.shape[:2], cell.output_size), state
    if active_transforms():  # kernels for packed sequences do not run within them
        return StepCell.run(cell, inputs, state, lengths)
    lengths = None if lengths is None or bool((lengths == inputs.shape[1]).all()) else lengths.cpu()
    return cell.run(inputs, state, lengths)


_CONTROLLERS: Mapping[type[StepCell], ControllerName] = {VanillaCell: "RNN", LSTMCell: "LSTM", GRUCell: "GRU"}


def _run_in_cpp(
    controller: StepCell,
    inputs: torch.Tensor,
    state: Any,
    lengths: torch.Tensor | None,
    read: torch.Tensor | None = None,
    controls: nn.Linear | None = None,
    memory: CompiledMemory | None = None,
) -> tuple[torch.Tensor, Any, torch.Tensor, tuple[torch.Tensor, ...]] | None:
    """Run a controller, and the memory if there is one, in C++; None if that is not possible.

    Returns:
        The outputs at every step, ``[batch, time, output_size]``; after the last input of each sequence the state of
        the controller and what was read; what the memory has become, empty if it does not change.
    """
    name = _CONTROLLERS.get(type(controller))
    if name is None or (lengths is not None and not bool(lengths.any())):
        return None
    cell: nn.RNNCellBase = controller.cell  # type: ignore[assignment]
    if _has_hooks(cell) or (isinstance(cell, nn.RNNCell) and cell.nonlinearity != "tanh"):
        return None
    weights = ControllerWeights.of(_weights(cell), [controls.weight, controls.bias] if controls else None)
    hidden = state if name == "LSTM" else (state,)
    of_each = [*hidden, inputs.new_empty(len(inputs), 0, dtype=weights[0].dtype) if read is None else read]
    of_memory = memory.of_each if memory else ()
    count, sources = len(of_each), () if memory is None else (memory.source,)
    numbers = [*of_each, *weights, *filter(torch.is_floating_point, of_memory)]
    tokens = inputs.shape[0] * inputs.shape[1]
    if inputs.device.type != "cpu" or not runs_in_cpp(name, tokens, numbers, *sources):
        return None

    def run(inputs: torch.Tensor, sizes: list[int], of_each: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        hidden, *cells, read = of_each[:count]
        first = ControllerState.of(hidden, *cells)._replace(read=read)
        found = run_controller(name, inputs, sizes, first, weights, memory.make(*of_each[count:]) if memory else None)
        return found.states, *[found.last.hidden, found.last.cell][: 1 + len(cells)], found.last.read, *found.memory

    outputs, ends = _run_packed(run, weights.input_weight.dtype, inputs, [*of_each, *of_memory], lengths)
    *last, read = ends[:count]
    return outputs, tuple(last) if name == "LSTM" else last[0], read, tuple(ends[count:])


def _has_hooks(*modules: nn.Module | None) -> bool:
    return any(each is not None and (each._forward_hooks or each._forward_pre_hooks) for each in modules)


def _run_packed(
    kernel: Kernel,
    dtype: torch.dtype,
    inputs: torch.Tensor,
    of_each: list[torch.Tensor],
    lengths: torch.Tensor | None,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """:func:`run_packed` without autocast, in the precision of the weights; without lengths each has all steps.

    Raises:
        GraphError: states of another number of sequences.
    """
    batch, time = inputs.shape[:2]
    if any(len(each) != batch for each in of_each):
        raise GraphError(f"{batch} sequences need as many states, not {[len(each) for each in of_each]}")
    inputs, *of_each = (inputs.to(dtype), *(each.to(dtype) if each.is_floating_point() else each for each in of_each))
    with torch.autocast(inputs.device.type, enabled=False):
        if lengths is not None:
            return run_packed(kernel, inputs, lengths, of_each)
        outputs, *last = kernel(inputs.transpose(0, 1).flatten(0, 1), [batch] * time, of_each)
        return outputs.unflatten(0, (time, batch)).transpose(0, 1), last


def _weights(cell: nn.RNNCellBase) -> list[torch.Tensor]:
    return [cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh]


def _run_kernel(
    cell: nn.RNNCellBase, inputs: torch.Tensor, state: Any, lengths: torch.Tensor | None
) -> tuple[torch.Tensor, Any]:
    """Run torch's kernel for a cell, with its weights.

    cuDNN is off: it copies weights that it did not lay out itself at each call, and warns of it.
    """
    of_rnn = torch.rnn_relu if getattr(cell, "nonlinearity", "tanh") == "relu" else torch.rnn_tanh
    kernel: Any = {nn.LSTMCell: torch.lstm, nn.GRUCell: torch.gru}.get(type(cell), of_rnn)
    first = list(state) if isinstance(state, tuple) else [state]

    def run(inputs: torch.Tensor, sizes: Any, state: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        given = [each[None] for each in state]
        options = (given if len(given) > 1 else given[0], _weights(cell), True, 1, 0.0, True, False)
        with torch.backends.cudnn.flags(enabled=False):
            outputs, *last = (
                kernel(inputs, *options, True) if sizes is None else kernel(inputs, torch.tensor(sizes), *options)
            )
        return outputs, *(each[0] for each in last)

    if lengths is not None:
        outputs, last = _run_packed(run, cell.weight_ih.dtype, inputs, first, lengths)
    else:
        inputs, *first = (each.to(cell.weight_ih.dtype) for each in (inputs, *first))
        with torch.autocast(inputs.device.type, enabled=False):
            outputs, *last = run(inputs, None, first)
    return outputs, tuple(last) if isinstance(state, tuple) else last[0]


__all__ = [
    "GRUCell",
    "LSTMCell",
    "MemoryCell",
    "MemoryCellState",
    "ONLSTMCell",
    "StackedCells",
    "StepCell",
    "VanillaCell",
    "run_cell",
]
