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
_REGISTERS = 255  # of a thread; by itself the assembler saves some, so that several programs fit, and spills


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
    if memory and memory.read_size != first.read.shape[1]:
        raise GraphError(f"the cell reads {first.read.shape[1]} numbers of its memory, which gives {memory.read_size}")
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
    return run_native(_Run(controller, memory, lengths, tensors), *tensors)


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


class _Kept(NamedTuple):
    """What the backward pass reads of a run; see ``controllers/kernels.py``.

    Attributes:
        rows: what products multiply, ``[sequences, steps + 1, ...]``.
        blocks, cells, controls, states: of the steps. Without a controller there are no blocks.
        input_weight, state_weight, state_bias, control_weight, control_bias: of the controller.
    """

    rows: torch.Tensor
    blocks: torch.Tensor | None
    cells: torch.Tensor | None
    controls: torch.Tensor
    states: torch.Tensor
    input_weight: torch.Tensor | None = None
    state_weight: torch.Tensor | None = None
    state_bias: torch.Tensor | None = None
    control_weight: torch.Tensor | None = None
    control_bias: torch.Tensor | None = None


class _Run(NativeRun):
    """All steps, forwards and backwards.

    The tensors are, with a controller, the inputs, the weights, its states and what was read; without, the controls.
    Then come those of the memory.

    Args:
        controller: which cell it is; None: the controls are known.
        memory: what is controlled; None: nothing.
        lengths: of the sequences.
        tensors: which the run will get.
    """

    refusal = _WHAT, _REMEDY

    def __init__(
        self,
        controller: ControllerName | None,
        memory: KernelMemory | None,
        lengths: torch.Tensor | None,
        tensors: Sequence[torch.Tensor],
    ) -> None:
        step = STEPS[controller] if controller else None
        self._step = step and _row_step(step.printed)
        self._num_states = len(step.printed.program.shape.states) if step else 0
        self._steps, self._lengths = tensors[0].shape[1], lengths
        self._keeps = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        self._module, self._others = (memory.module, memory.others) if memory else ("", ())
        self._X, self._H = (tensors[0].shape[2], tensors[2].shape[1]) if step else (0, 0)
        self._R, self._C = (memory.read_size, memory.control_size) if memory else (0, 0)
        of_controller = [_Room((self._H,), (self._H,), 0)] * self._num_states + [_Room((self._R,), (self._R,), 0)]
        self._of_controller = of_controller if step else []
        self._of_memory = [*map(_Room.of, [memory.state, *memory.changed])] if memory else []
        self._products = step.products * self._H if step else 0
        self._first_of_state = self._products if step and step.blocks > step.products else 0
        self._constants: dict[str, Any] = {
            "X": self._X,
            "R": self._R,
            "H": self._H,
            "C": self._C,
            "SIZES": memory.sizes if memory else (),
            "NUM_BLOCKS": step.blocks if step else 0,
            "NUM_PRODUCTS": step.products if step else 0,
            "NUM_STATES": self._num_states,
        }

    @property
    def _rooms(self) -> list[_Room]:
        """What changes from step to step: states of the controller, what was read, state and tensors of the memory."""
        return [*self._of_controller, *self._of_memory]

    def forward(self, tensors: Any) -> tuple[Sequence[torch.Tensor], Tensors]:
        """Return the states of the controller at each step, or what was read; then what there is after the last."""
        inputs, *rest = tensors
        weights, rest = (rest[:6], rest[6:]) if self._step else ([], rest)
        firsts, fixed = rest[: len(self._rooms)], rest[len(self._rooms) :]
        steps, X, R, H = self._steps, self._X, self._R, self._H

        def new(*shape: int) -> torch.Tensor:
            return inputs.new_empty(len(inputs), *shape)

        rows, cells = new(steps + 1, X + R + H), new(steps + 1, H) if self._num_states == 2 else None
        changed = [new(*room.shape) for room in self._of_memory[1:]]
        states = new(steps + 1 if self._keeps else 2, self._state_size)
        targets: list[Any] = [states, *changed] if self._of_memory else []
        blocks: torch.Tensor | None = None
        outputs: torch.Tensor | None = None
        if self._step:
            input_weight, state_weight, input_bias, *others = weights
            blocks = torch.nn.functional.linear(inputs, input_weight[:, :X], input_bias)
            kept = _Kept(
                *(rows, new(steps, self._constants["NUM_BLOCKS"] * H), cells, new(steps, self._C), states),
                *(input_weight, state_weight, *others),
            )
            outputs, lasts = new(steps, H), [new(*room.shape) for room in (*self._of_controller, *self._of_memory[:1])]
            targets = [*[rows[:, 0, X + R :], cells][: self._num_states], rows[:, 0, X:], *targets]
        else:
            kept, lasts = _Kept(rows, None, None, inputs, states), []
        placed = [room.first(*pair) for room, *pair in zip(self._rooms, firsts, targets, strict=True)]
        self._launch("forward", inputs, blocks, kept, outputs, lasts, (*changed, *fixed, *self._others), placed)
        results: list[Any] = [outputs, *lasts, *changed] if self._step else [rows[:, 1:]]
        have_gradients = [outputs] if self._step else tensors
        return results, [*kept, *changed, *fixed, *have_gradients] if self._keeps else []

    def backward(self, kept: Any, gradients: Tensors, wanted: Sequence[bool]) -> Tensors:
        """Return the gradients of all tensors."""
        refuse_transforms(_WHAT, f"; {_REMEDY}")
        run, others = _Kept(*kept[: len(_Kept._fields)]), kept[len(_Kept._fields) :]
        of_memory = others[: len(others) - (1 if self._step else len(wanted))]
        d_outputs, *d_lasts = (None if gradient is None else gradient.contiguous() for gradient in gradients)
        rows, before_memory = run.rows, len(self._of_controller)

        def new(*shape: int) -> torch.Tensor:
            return rows.new_empty(len(rows), *shape)

        d_rows = new(self._steps + 1, self._first_of_state + self._products + self._C)
        d_state = new(2, self._state_size)  # steps do not write it in place
        d_firsts = [new(*room.shape) for room in self._rooms]
        d_lasts = d_lasts or [None] * len(d_firsts)
        d_changed, d_fixed = d_firsts[before_memory + 1 :], of_memory[len(self._of_memory[1:]) :]
        d_fixed = [*map(torch.empty_like, d_fixed)]
        ends = zip(self._rooms, d_lasts, d_firsts, strict=True)
        placed = [room.last(gradient, target) for room, gradient, target in ends]
        placed += [_Room(tensor.shape[1:], (), 0).last(None, tensor) for tensor in d_fixed]
        d_last = None
        if self._of_memory:
            d_last, _ = d_lasts[before_memory], placed.pop(before_memory)
            d_firsts[before_memory] = d_state[:, 0]
        d_read = d_firsts[:before_memory] or [new(self._R)]
        memory, d_memory = (*of_memory, *self._others), (*d_changed, *d_fixed)
        self._launch("backward", d_rows, d_outputs, run, d_read, memory, d_memory, d_last, d_state, placed)
        d_given = [room.of_given(gradient) for room, gradient in zip(self._rooms, d_firsts, strict=True)]
        of_products = self._of_products(run, d_rows, wanted[0]) if self._step else [d_rows[:, 1:]]
        return [*of_products, *d_given, *d_fixed]

    def _of_products(self, run: _Kept, d_rows: torch.Tensor, of_inputs: bool) -> list[torch.Tensor | None]:
        """The gradients of the inputs and of the weights, from those of what products give at each step."""
        assert run.input_weight is not None
        size, begin, given = self._products, self._first_of_state, self._X + self._R
        multiplied, gradients = run.rows.flatten(0, 1), d_rows.flatten(0, 1)
        d_bias, d_state_bias = gradients.expand(2, -1, -1).sum(1)  # gradients of two parameters do not share memory
        d_state_weight, d_control_weight = (gradients[:, begin:].t() @ multiplied[:, given:]).tensor_split([size])
        weight = run.input_weight[:, : self._X].expand(len(d_rows), -1, -1)
        return [
            d_rows[:, :-1, :size] @ weight if of_inputs else None,
            *(gradients[:, :size].t() @ multiplied[:, :given], d_state_weight),
            *(d_bias[:size], d_state_bias[begin : begin + size], d_control_weight, d_bias[begin + size :]),
        ]

    @property
    def _state_size(self) -> int:
        return prod(self._of_memory[0].shape) if self._of_memory else 0

    def _launch(self, name: str, first: torch.Tensor, *arguments: Any) -> None:
        from treemem.networks.memories.controllers import kernels

        constants = {
            **self._constants,
            "NUM_PLACED": len(arguments[-1]),
            "STEP": self._step and (self._step.step if name == "forward" else self._step.step_backward),
            "MEMORY": getattr(import_module(self._module), name) if self._module else None,
        }
        tuples = (tuple(argument) if isinstance(argument, Sequence) else argument for argument in arguments)
        numbers = self._lengths, self._steps, self._steps + 1 if self._keeps else 2, self._state_size
        options = constants | {"maxnreg": _REGISTERS}
        launcher().launch(getattr(kernels, name), (len(first),), first, *tuples, *numbers, **options)


@cache
def _row_step(printed: DrivenStep) -> RowStep:
    return RowStep(printed)
