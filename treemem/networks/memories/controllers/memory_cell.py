"""A recurrent cell that controls memories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from treemem.checked_options import checked_choice, checked_count
from treemem.device_copy import to_device
from treemem.errors import RecipeError
from treemem.networks.cell_states import where
from treemem.networks.memories.controllers.cells import StepCell, has_hooks, run_in_cpp, run_in_triton
from treemem.networks.memories.memory import Control, Memory


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
        >>> from treemem.nn import LSTMCell, NeuralStack
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

        With early fusion and one memory that runs in C++ or Triton, a plain cell, an LSTM or a GRU takes all steps at
        once there.
        """
        memory, stored, steps = self.all_memories()[0], state.memories[0], inputs.shape[1]
        if (
            type(self) is not MemoryCell
            or self.fusion != "early"
            or len(self.memories) > 1
            or not isinstance(self.controls, nn.Linear)
            or has_hooks(self.controller, self.controls)
        ):
            return super().run(inputs, state, lengths)
        in_triton = run_in_triton(
            *(self.controller, inputs, state.controller, lengths, state.read, self.controls),
            lambda: memory.kernels(stored, steps),
        )
        if in_triton is not None:
            outputs, hidden, read, stored = in_triton
            return torch.tanh(self.output(outputs)), MemoryCellState(hidden, (stored,), read)
        compiled = memory.compiled(stored, steps)
        if compiled is None:
            return super().run(inputs, state, lengths)
        ran = run_in_cpp(self.controller, inputs, state.controller, lengths, state.read, self.controls, compiled)
        if ran is None:
            return super().run(inputs, state, lengths)
        outputs, hidden, read, become = ran
        if compiled.after:
            after = MemoryCellState(hidden, (compiled.after(*become),), read)
        else:  # it does not change, and what is read last is not computed
            output = hidden[0] if isinstance(hidden, tuple) else hidden
            stored, read = memory.step(stored, *self.arguments(output)[0])
            after = MemoryCellState(hidden, (stored,), read)
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
        of_memories = []
        for memory in self.all_memories():
            arguments: list[torch.Tensor] = []
            for control in memory.controls(self.memory_size):
                part = raw if control.form == "output" else next(parts)
                if control.form == "softmax":
                    arguments += part.softmax(1).unbind(1)
                else:
                    part = getattr(torch, control.form)(part) if control.form in ("tanh", "sigmoid") else part
                    arguments.append(part if control.size else part.squeeze(1))
            of_memories.append(arguments)
        return of_memories


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
