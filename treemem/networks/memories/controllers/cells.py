"""Recurrent networks as one step: an input and the previous state to an output and the next state.

All cells have this interface, whatever their state is, so that one can stand where another does: on top of another
(:class:`StackedCells`), or as the controller of a memory (:class:`treemem.nn.MemoryCell`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional

from treemem.checked_options import checked_choice, checked_count
from treemem.data.token_batch import whole_numbers
from treemem.device_copy import to_device
from treemem.engines.cuda.choice import kernels_wanted
from treemem.engines.level_library import NotNative
from treemem.engines.sequence_lengths import Kernel, run_packed
from treemem.errors import GraphError, RecipeError
from treemem.native.second_derivative import active_transforms
from treemem.networks.cell_states import where
from treemem.networks.memories.controllers.cuda import KernelMemory, run_in_kernels
from treemem.networks.memories.controllers.run import (
    ControllerName,
    ControllerState,
    ControllerWeights,
    run_controller,
    runs_in_cpp,
)
from treemem.networks.memories.memory import CompiledMemory
from treemem.networks.parsers.on_lstm.equations import on_lstm_gates, on_lstm_step
from treemem.networks.resettable import Resettable


class StepCell(Resettable):
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

    def _two_zeros(self, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, cell = next(self.parameters()).new_zeros(2, batch_size, self.output_size)
        return hidden, cell


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
        """In C++ or Triton where it can be, and elsewhere by torch's kernel."""
        results = run_in_triton(self, inputs, state, lengths) or run_in_cpp(self, inputs, state, lengths)
        return _run_kernel(self.cell, inputs, state, lengths) if results is None else results[:2]


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
        return self._two_zeros(batch_size)


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
        return self._two_zeros(batch_size)

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
        dropout: probability that an entry of what a cell hands to the next one is dropped in training.

    Example:
        >>> cell = StackedCells([LSTMCell(3, 4), GRUCell(4, 5)])
        >>> cell(torch.zeros(2, 3), cell.initial(2))[0].shape
        torch.Size([2, 5])
    """

    def __init__(self, cells: Sequence[StepCell], dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
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
        for place, (cell, before) in enumerate(zip(self._all(), state, strict=True)):
            x, after = cell(self._dropped(x, place), before)
            following.append(after)
        return x, tuple(following)

    def run(
        self, inputs: torch.Tensor, state: tuple[Any, ...], lengths: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, tuple[Any, ...]]:
        """Each cell over the whole sequences, from the lowest."""
        following = []
        for place, (cell, before) in enumerate(zip(self._all(), state, strict=True)):
            inputs, after = cell.run(self._dropped(inputs, place), before, lengths)
            following.append(after)
        return inputs, tuple(following)

    def _dropped(self, inputs: torch.Tensor, place: int) -> torch.Tensor:
        """Return what the cell of this place reads; the lowest one reads everything."""
        return functional.dropout(inputs, self.dropout, self.training) if place else inputs

    def _all(self) -> list[StepCell]:
        return list(self.cells)  # type: ignore[arg-type]


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


def run_in_cpp(
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
    name = _name_of(controller)
    if name is None or (lengths is not None and not bool(lengths.any())):
        return None
    weights = _weights_of(controller, controls)
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
        ran = run_controller(name, inputs, sizes, first, weights, memory.make(*of_each[count:]) if memory else None)
        return ran.states, *[ran.last.hidden, ran.last.cell][: 1 + len(cells)], ran.last.read, *ran.memory

    outputs, ends = _run_packed(run, weights.input_weight.dtype, inputs, [*of_each, *of_memory], lengths)
    *last, read = ends[:count]
    return outputs, tuple(last) if name == "LSTM" else last[0], read, tuple(ends[count:])


def run_in_triton(
    controller: StepCell,
    inputs: torch.Tensor,
    state: Any,
    lengths: torch.Tensor | None,
    read: torch.Tensor | None = None,
    controls: nn.Linear | None = None,
    memory: Callable[[], KernelMemory | None] | None = None,
) -> tuple[torch.Tensor, Any, torch.Tensor, Any] | None:
    """Run a controller, and the memory if there is one, in one launch; None if that is not possible.

    Returns:
        As :func:`run_in_cpp`, with the next state of the memory.
    """
    name = _name_of(controller)
    if name is None or not kernels_wanted():
        return None
    weights = _weights_of(controller, controls)
    parts = [*(state if name == "LSTM" else (state,)), inputs.new_empty(len(inputs), 0) if read is None else read]
    inputs, hidden, *cells, read = (tensor.to(weights.hidden_weight.dtype) for tensor in (inputs, *parts))
    first = ControllerState.of(hidden, *cells)._replace(read=read)
    there = None if lengths is None else to_device(lengths, inputs.device)
    try:
        with torch.autocast(inputs.device.type, enabled=False):
            controlled = memory() if memory else None
            if memory and controlled is None:
                return None
            ran = run_in_kernels(name, inputs, there, first, weights, controlled)
    except NotNative:
        return None
    after = controlled.after(*ran.memory) if controlled else None
    return ran.states, (ran.last.hidden, ran.last.cell) if name == "LSTM" else ran.last.hidden, ran.last.read, after


def _name_of(controller: StepCell) -> ControllerName | None:
    """The name of a cell whose runs have a fast form."""
    name = _CONTROLLERS.get(type(controller))
    cell: Any = getattr(controller, "cell", None)
    return None if name is None or has_hooks(cell) or getattr(cell, "nonlinearity", "tanh") != "tanh" else name


def _weights_of(controller: StepCell, controls: nn.Linear | None) -> ControllerWeights:
    return ControllerWeights.of(
        _weights(controller.cell),  # type: ignore[arg-type]
        [controls.weight, controls.bias] if controls else None,
    )


def has_hooks(*modules: nn.Module | None) -> bool:
    """Return whether a module has hooks, which nothing but its own call runs."""
    return any(module is not None and (module._forward_hooks or module._forward_pre_hooks) for module in modules)


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
    if any(len(rows) != batch for rows in of_each):
        raise GraphError(f"{batch} sequences need as many states, not {[len(rows) for rows in of_each]}")
    inputs, *of_each = (inputs.to(dtype), *(rows.to(dtype) if rows.is_floating_point() else rows for rows in of_each))
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
        given = [tensor[None] for tensor in state]
        options = (given if len(given) > 1 else given[0], _weights(cell), True, 1, 0.0, True, False)
        with torch.backends.cudnn.flags(enabled=False):
            outputs, *last = (
                kernel(inputs, *options, True) if sizes is None else kernel(inputs, torch.tensor(sizes), *options)
            )
        return outputs, *(tensor[0] for tensor in last)

    if lengths is not None:
        outputs, last = _run_packed(run, cell.weight_ih.dtype, inputs, first, lengths)
    else:
        inputs, *first = (tensor.to(cell.weight_ih.dtype) for tensor in (inputs, *first))
        with torch.autocast(inputs.device.type, enabled=False):
            outputs, *last = run(inputs, None, first)
    return outputs, tuple(last) if isinstance(state, tuple) else last[0]
