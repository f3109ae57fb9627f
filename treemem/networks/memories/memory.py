"""Memories for controllers: the base class.

A memory has no parameters. A step takes a state, a value and actions, and returns the next state and the readout.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import torch

from treemem.errors import GraphError
from treemem.networks.layer_type import LayerType
from treemem.networks.memories.controllers.cuda import KernelMemory, known_in_kernels
from treemem.networks.memories.controllers.run import ControlledMemory, MemorySource
from treemem.networks.memories.neural_stack.equations import StrengthState

_ACTIONS = ("push", "pop", "no_op", "insert", "left", "right")
Form = Literal["tanh", "sigmoid", "softmax", "linear", "output"]


class Control(NamedTuple):
    """Arguments of a memory's step that a controller computes together.

    Attributes:
        names: the names of the arguments.
        size: their width: ``[batch, size]`` each, or ``[batch]`` if it is 0.
        form: the function after the controller's linear map. ``"softmax"`` is over the arguments of width 0.
            ``"output"`` is the controller's output itself, without a linear map.
        bias: the initial bias of the linear map; None for torch's default.
    """

    names: tuple[str, ...]
    size: int
    form: Form
    bias: float | None = None


class CompiledMemory(NamedTuple):
    """How a memory runs in C++ with the cell that controls it.

    Attributes:
        source: its C++.
        of_each: what the memory has of each sequence, ``[batch, ...]``.
        make: makes the memory in C++ of these tensors, with the sequences in another order.
        after: makes the next state of what the memory in C++ has become; None if steps do not change the memory.
    """

    source: MemorySource
    of_each: tuple[torch.Tensor, ...]
    make: Callable[..., ControlledMemory]
    after: Callable[..., Any] | None


class Memory(torch.nn.Module, metaclass=LayerType):
    """A differentiable data structure, batch first, for any controller.

    A subclass defines :meth:`initial`, :meth:`step` and :meth:`controls`, and ``readout_size`` if the readout is not
    as wide as the values.
    """

    @abstractmethod
    def initial(self, batch_size: int, size: int, like: torch.Tensor | None = None) -> Any:
        """Return the empty memory.

        Args:
            batch_size: number of memories.
            size: width of the values.
            like: a tensor with the device and type of the values; torch's defaults without it.
        """

    @abstractmethod
    def step(self, state: Any, value: torch.Tensor, *actions: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """Return the next state and its readout, ``[batch, readout_size]``."""

    @abstractmethod
    def controls(self, size: int) -> tuple[Control, ...]:
        """Return the arguments of :meth:`step` after the state, in order, for values of width ``size``."""

    def readout_size(self, size: int) -> int:
        """Return the width of the readout for values of width ``size``."""
        return size

    def compiled(self, state: Any, steps: int) -> CompiledMemory | None:
        """Return how the memory runs in C++ from a state; None if it runs step by step, as it does by default.

        Args:
            state: of the memory.
            steps: how many there will be at most.
        """
        return None

    def kernels(self, state: Any, steps: int) -> KernelMemory | None:
        """Return how the memory runs in Triton from a state; None if it runs step by step, as it does by default.

        Args:
            state: of the memory.
            steps: how many there will be at most.

        Raises:
            NotNative: it is too large.
        """
        return None

    def trace(
        self, size: int, given: Mapping[str, torch.Tensor], state: Any, readout: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return what a step did, for someone to look at: tensors ``[1, ...]`` by their name in ``TRACE_AXES``.

        Args:
            size: width of the values.
            given: the arguments of :meth:`step` by name, of one example.
            state: after the step.
            readout: of the step, ``[1, readout_size]``.
        """
        traced = {name: argument.reshape(1, -1) for name, argument in given.items() if name in _ACTIONS}
        traced |= {"readout": readout.reshape(1, -1, size), "value": given["value"].reshape(1, -1, size)}
        if isinstance(state, StrengthState):
            traced["strength"] = state.strength
        elif isinstance(state, torch.Tensor):
            traced["memory"] = state
        return traced

    def forward(self, value: torch.Tensor, *actions: torch.Tensor) -> torch.Tensor:
        """Return the readout after each step of sequences of known actions, ``[batch, time, readout_size]``.

        Args:
            value: ``[batch, time, size]``; of a memory that takes no value its first action.
            actions: those of :meth:`step`, with time as the second axis.

        Raises:
            GraphError: an action of the wrong shape.
        """
        self._check(value, actions)
        state = self.initial(len(value), value.shape[-1], value)
        in_kernels = known_in_kernels(lambda: self.kernels(state, value.shape[1]), value, *actions)
        return self._by_steps(state, value, *actions) if in_kernels is None else in_kernels

    def _by_steps(self, state: Any, value: torch.Tensor, *actions: torch.Tensor) -> torch.Tensor:
        """The readouts of known actions, step by step."""
        readouts = []
        for step in range(value.shape[1]):
            state, readout = self.step(state, value[:, step], *(action[:, step] for action in actions))
            readouts.append(readout)
        return (
            torch.stack(readouts, 1) if readouts else value.new_zeros(len(value), 0, self.readout_size(value.shape[-1]))
        )

    def _check(self, value: torch.Tensor, actions: tuple[torch.Tensor, ...]) -> None:
        for action in actions:
            if action.shape[:2] != value.shape[:2]:
                raise GraphError(
                    f"values {[*value.shape]} need actions [{value.shape[0]}, {value.shape[1]}, ...], "
                    f"not {[*action.shape]}"
                )


def check_step(stored: torch.Tensor, value: torch.Tensor, *actions: torch.Tensor) -> None:
    """Refuse shapes that would be broadcast over the batch."""
    batch, size = stored.shape[0], stored.shape[-1]
    if value.shape != (batch, size):
        raise GraphError(f"this memory takes values of the shape [{batch}, {size}], not {[*value.shape]}")
    for action in actions:
        if action.shape != (batch,):
            raise GraphError(f"this memory takes actions of the shape [{batch}], not {[*action.shape]}")


def like_or_default(like: torch.Tensor | None) -> torch.Tensor:
    """Return a tensor with the device and type of new ones: ``like``, or torch's defaults."""
    return torch.empty(0) if like is None else like
