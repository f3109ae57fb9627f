"""A recurrent cell that may control a memory, over sequences on CUDA: all steps in one launch of a Triton kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from math import prod
from typing import Any, NamedTuple

import torch

from treemem.engines.cuda.choice import kernels_wanted
from treemem.engines.cuda.launcher import launcher
from treemem.engines.cuda.row_steps import RowStep
from treemem.engines.level_library import NotNative
from treemem.engines.printer.driven import DrivenStep
from treemem.errors import GraphError
from treemem.native.run import NativeRun, Tensors, run_native
from treemem.native.second_derivative import refuse_transforms
from treemem.networks.memories.controllers.equations import STEPS
from treemem.networks.memories.controllers.run import (
    ControllerName,
    ControllerRun,
    ControllerState,
    ControllerWeights,
    check_sizes,
)

_WHAT, _REMEDY = (
    "a run of a recurrent cell or of a memory in Triton",
    "run the forward pass within treemem.ops.cuda_kernels(False)",
)
_LARGEST = 2048
"""KiB of weights that a program may read at each step: from the cache of the device they take some 50 microseconds, in
which torch launches two operations."""
_WIDEST = 1024
_REGISTERS = (
    128  # of a thread; so two programs fit on a multiprocessor, and the assembler does not save more for a third
)


class Placed(NamedTuple):
    """A tensor that a memory changes.

    Attributes:
        given: what is there before the first step, ``[sequences, ...]``.
        shape: of what a sequence has there; 0 is around what is given.
        begin: how many numbers come before those that are given.
    """

    given: torch.Tensor
    shape: tuple[int, ...]
    begin: int = 0


class KernelMemory(NamedTuple):
    """A memory in Triton.

    Attributes:
        module: has the functions of a step; see ``controllers/kernels.py``.
        control_size, read_size: how many numbers control it, and how many are read.
        state: what a step makes anew.
        changed: what steps change in place.
        fixed: tensors that are only read, with gradients.
        others: tensors without gradients, and numbers.
        sizes: constants of its kernels.
        after: makes the memory's next state, of the last one and of what ``changed`` has become.
    """

    module: str
    control_size: int
    read_size: int
    state: Placed
    changed: tuple[Placed, ...]
    fixed: tuple[torch.Tensor, ...]
    others: tuple[Any, ...]
    sizes: tuple[Any, ...]
    after: Callable[..., Any]

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Those with gradients."""
        return [self.state.given, *(placed.given for placed in self.changed), *self.fixed]


def run_in_kernels(
    controller: ControllerName,
    inputs: torch.Tensor,
    lengths: torch.Tensor | None,
    first: ControllerState,
    weights: ControllerWeights,
    memory: KernelMemory | None,
) -> ControllerRun:
    """Run over padded sequences, as :func:`treemem.networks.memories.controllers.run.run_controller`.

    Args:
        controller: which cell it is.
        inputs: ``[sequences, steps, input_size]``.
        lengths: of the sequences, int64, where the inputs are; None if all have all steps.
        first: where each sequence begins.
        weights: of the cell, and of the map to what controls the memory.
        memory: what it controls.

    Returns:
        ``states`` are ``[sequences, steps, hidden_size]``, 0 at padding; ``reads`` are empty.

    Raises:
        NotNative: the kernels do not run here.
    """
    of_memory = memory.tensors if memory else []
    reason = launcher().why_not([*weights, first.hidden, first.read, *of_memory])
    if reason is not None:
        raise NotNative(reason)
    check_sizes(
        controller, len(inputs), inputs.shape[2], first, weights, memory.control_size if memory else 0, of_memory
    )
    used = weights.input_weight, weights.hidden_weight, weights.control_weight
    size = sum(weight.numel() for weight in used) * inputs.element_size() >> 10
    if size > _LARGEST:
        raise NotNative(f"its kernels read all weights at each step, up to {_LARGEST} KiB, and these have {size} KiB")
    widest = max(weights.hidden_weight.shape[1], weights.input_weight.shape[1] - inputs.shape[2])
    if widest > _WIDEST:
        raise NotNative(f"its kernels take states and readouts of up to {_WIDEST} numbers, and one has {widest}")
    states = [first.hidden, first.cell] if controller == "LSTM" else [first.hidden]
    outputs, *last = _run(controller, memory, lengths, [inputs, *weights, *states, first.read])
    hidden, cell = (*last[: len(states)], first.cell)[:2]
    read, *after = last[len(states) :]
    return ControllerRun(outputs, outputs[:0], ControllerState(hidden, cell, read), tuple(after))


def known_in_kernels(memory: Callable[[], KernelMemory | None], *actions: torch.Tensor) -> torch.Tensor | None:
    """Return what is read after each of some known actions, ``[sequences, steps, read_size]``.

    Args:
        memory: returns what is controlled.
        actions: ``[sequences, steps, ...]``, in the order of the memory's controls.

    Returns:
        None if no kernels are wanted, or if they do not run here.
    """
    if not kernels_wanted() or launcher().why_not(actions) is not None:
        return None
    try:
        controlled = memory()
    except NotNative:
        return None
    if controlled is None or launcher().why_not(controlled.tensors) is not None:
        return None
    controls = torch.cat([action.flatten(2) if action.dim() > 2 else action[:, :, None] for action in actions], 2)
    if controls.shape[2] != controlled.control_size:
        raise GraphError(f"the memory takes {controlled.control_size} numbers at each step, not {controls.shape[2]}")
    reads: torch.Tensor = _run(None, controlled, None, [controls])[0]
    return reads


def _run(
    controller: ControllerName | None,
    memory: KernelMemory | None,
    lengths: torch.Tensor | None,
    tensors: list[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    tensors = [*tensors, *(memory.tensors if memory else ())]
    keeps = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    return run_native(_Run(controller, memory, lengths, keeps), *tensors)


def power_of_2(number: int) -> int:
    """Return the next power of 2, at least 1: the size of a block of so many numbers."""
    return 1 << max(0, number - 1).bit_length()


class _Room(NamedTuple):
    """What a sequence has in a tensor that changes.

    Attributes:
        shape: of what it has there.
        given: shape of what is given before the first step.
        begin: how many numbers come before those that are given.
    """

    shape: tuple[int, ...]
    given: tuple[int, ...]
    begin: int

    @classmethod
    def of(cls, placed: Placed) -> _Room:
        return cls(placed.shape, tuple(placed.given.shape[1:]), placed.begin)

    def first(self, given: torch.Tensor, target: torch.Tensor) -> tuple[Any, ...]:
        """What kernels put into the target before the first step."""
        return given, target, target.stride(0), prod(self.shape), self.begin, prod(self.given)

    def last(self, given: torch.Tensor | None, target: torch.Tensor) -> tuple[Any, ...]:
        """What kernels put into the target, a gradient, before the last step."""
        return given, target, prod(self.shape), prod(self.shape), 0, prod(self.shape)

    def of_given(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient of what is given."""
        return gradient.flatten(1)[:, self.begin : self.begin + prod(self.given)].unflatten(1, self.given)


class _Run(NativeRun):
    """All steps, forwards and backwards.

    The tensors are, with a controller, the inputs, the weights, its states and what was read; without, the controls.
    Then come those of the memory.

    Args:
        controller: which cell it is; None: the controls are known.
        memory: what is controlled; None: nothing.
        lengths: of the sequences.
        keeps: whether there may be a backward pass.
    """

    refusal = _WHAT, _REMEDY

    def __init__(
        self, controller: ControllerName | None, memory: KernelMemory | None, lengths: torch.Tensor | None, keeps: bool
    ) -> None:
        self._step = STEPS[controller] if controller else None
        self._lengths, self._keeps = lengths, keeps
        self._num_states = len(self._step.printed.program.shape.states) if self._step else 0
        self._module = memory.module if memory else None
        self._others = memory.others if memory else ()
        placed = [memory.state, *memory.changed] if memory else []
        self._rooms = [*map(_Room.of, placed)]
        self._constants: dict[str, Any] = {
            "R": memory.read_size if memory else 0,
            "C": memory.control_size if memory else 0,
            "SIZES": memory.sizes if memory else (),
            "NUM_BLOCKS": self._step.blocks if self._step else 0,
            "NUM_PRODUCTS": self._step.products if self._step else 0,
            "NUM_STATES": self._num_states,
        }

    def forward(self, tensors: Any) -> tuple[Sequence[torch.Tensor], Tensors]:
        """Return the states of the controller at each step, or what was read; then what there is after the last."""
        inputs, *rest = tensors
        sequences, steps, width = inputs.shape
        R, C, num_blocks = (self._constants[name] for name in ("R", "C", "NUM_BLOCKS"))
        weights, rest = (rest[:6], rest[6:]) if self._step else ([], rest)
        X, H = (width, weights[1].shape[1]) if self._step else (0, 0)
        self._constants |= {"X": X, "H": H}
        of_controller = [_Room((H,), (H,), 0)] * self._num_states + [_Room((R,), (R,), 0)] * bool(self._step)
        rooms = self._rooms = [*of_controller, *self._rooms]
        firsts, fixed = rest[: len(rooms)], rest[len(rooms) :]

        def new(*shape: int) -> torch.Tensor:
            return inputs.new_empty(sequences, *shape)

        rows, cells = new(steps + 1, X + R + H), new(steps + 1, H) if self._num_states == 2 else None
        blocks = kept = outputs = None
        controls, maps = inputs, (None,) * 5
        if self._step:
            input_weight, hidden_weight, input_bias, hidden_bias, *of_control = weights
            blocks = torch.nn.functional.linear(inputs, input_weight[:, :X], input_bias)
            maps = input_weight, hidden_weight, hidden_bias, *of_control
            kept, outputs, controls = new(steps, num_blocks * H), new(steps, H), new(steps, C)
        of_memory = rooms[len(of_controller) :]
        slots, state_size = steps + 1 if self._keeps else 2, prod(of_memory[0].shape) if of_memory else 0
        states, changed = new(slots, state_size), [new(*room.shape) for room in of_memory[1:]]
        targets: list[Any] = [rows[:, 0, X + R :], cells][: self._num_states] + [rows[:, 0, X:]] * bool(self._step)
        targets += [states, *changed] if of_memory else []
        lasts = [new(*room.shape) for room in rooms[: len(rooms) - len(changed)]] if self._step else []
        self._numbers = self._lengths, steps, slots, state_size
        self._launch(
            "forward", rows, inputs, blocks, maps, (kept, outputs, cells, controls, states), tuple(lasts),
            (*changed, *fixed, *self._others),
            tuple(room.first(first, target) for room, first, target in zip(rooms, firsts, targets, strict=True)),
        )  # fmt: skip
        self._num_changed, self._num_memory = len(changed), len(changed) + len(fixed)
        results: list[Any] = [outputs, *lasts, *changed] if self._step else [rows[:, 1:]]
        saved = [rows, kept, cells, controls, states, *maps, *changed, *fixed]
        refused = [outputs] if self._step else tensors  # they have gradients
        return results, [*saved, *refused] if self._keeps else []

    def backward(self, kept: Any, gradients: Tensors, wanted: Sequence[bool]) -> Tensors:
        """Return the gradients of all tensors."""
        refuse_transforms(_WHAT, f"; {_REMEDY}")
        rows, blocks, cells, controls, states, *others = kept
        maps, of_memory = tuple(others[:5]), others[5 : 5 + self._num_memory]
        num_changed, num_states = self._num_changed, self._num_states
        num_controller = num_states + 1 if self._step else 0
        steps, X, H = self._numbers[1], self._constants["X"], self._constants["H"]
        width = self._constants["NUM_PRODUCTS"] * H

        def new(*shape: int) -> torch.Tensor:
            return rows.new_empty(len(rows), *shape)

        d_outputs, *d_lasts = (None if gradient is None else gradient.contiguous() for gradient in gradients)
        d_lasts = d_lasts or [None] * len(self._rooms)
        d_firsts = [new(*room.shape) for room in self._rooms]
        d_fixed = [*map(torch.empty_like, of_memory[num_changed:])]
        placed = [room.last(d, target) for room, d, target in zip(self._rooms, d_lasts, d_firsts, strict=True)]
        placed += [_Room(tensor.shape[1:], (), 0).last(None, tensor) for tensor in d_fixed]
        d_read = d_firsts[: num_states + 1] if self._step else [new(self._constants["R"])]
        d_changed = d_firsts[len(d_firsts) - num_changed :]
        d_last = d_state = None
        if self._module:  # steps do not write the gradient of its state in place
            d_last, _ = d_lasts[num_controller], placed.pop(num_controller)
            d_state = new(2, self._numbers[3])
            d_firsts[num_controller] = d_state[:, 0]
        of_state = width * (self._constants["NUM_BLOCKS"] > self._constants["NUM_PRODUCTS"])
        d_rows = new(steps + 1, of_state + width + self._constants["C"])
        self._launch(
            "backward", rows, maps, (blocks, None, cells, controls, states), (*of_memory, *self._others), d_outputs,
            tuple(d_read), d_rows, (*d_changed, *d_fixed), d_last, d_state, tuple(placed),
        )  # fmt: skip
        d_given = [room.of_given(gradient) for room, gradient in zip(self._rooms, d_firsts, strict=True)] + d_fixed
        if not self._step:
            return [d_rows[:, 1:], *d_given]
        given, to_all = rows.flatten(0, 1), d_rows.flatten(0, 1)
        to_input, of_input = to_all[:, :width], X + self._constants["R"]
        d_bias = to_all.sum(0)
        d_state_weight, d_control_weight = (to_all[:, of_state:].t() @ given[:, of_input:]).tensor_split([width])
        return [
            (to_input @ maps[0][:, :X]).unflatten(0, (len(rows), -1))[:, :-1] if wanted[0] else None,
            *(to_input.t() @ given[:, :of_input], d_state_weight),
            *(d_bias[:width], d_bias[of_state : of_state + width]),
            *(d_control_weight, d_bias[of_state + width :]),
            *d_given,
        ]

    def _launch(self, name: str, rows: torch.Tensor, *arguments: Any) -> None:
        from treemem.networks.memories.controllers import kernels

        step = None if self._step is None else _row_step(self._step.printed)
        functions = {
            "STEP": step and (step.step if name == "forward" else step.step_backward),
            "MEMORY": self._module and getattr(import_module(self._module), name),
        }
        constants = {**self._constants, **functions, "NUM_PLACED": len(arguments[-1])}
        function, arguments = getattr(kernels, name), (rows, *arguments, *self._numbers)
        launcher().launch(function, (len(rows),), *arguments, **constants, maxnreg=_REGISTERS)


@cache
def _row_step(printed: DrivenStep) -> RowStep:
    return RowStep(printed)
