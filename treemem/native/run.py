"""An operation in C++ from its forward to its backward pass."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch

from treemem.native.second_derivative import once_differentiable, save_for_backward
from treemem.native.structures import Filled

Tensors = Sequence[torch.Tensor | None]
"""Contiguous tensors, or None where there is none."""


class NativeRun(ABC):
    """One run of an operation.

    Attributes:
        refusal: what has no second derivative, and what to do instead; None: as of any engine.
    """

    refusal: tuple[str, str] | None = ("this engine", "set layer.engine to 'naive'")

    @abstractmethod
    def forward(self, tensors: Any) -> tuple[Sequence[torch.Tensor], Tensors]:
        """Return the outputs, and what is kept for the backward pass, such as an output with a gradient."""

    @abstractmethod
    def backward(self, kept: Any, gradients: Tensors, wanted: Sequence[bool]) -> Tensors:
        """Return the gradients of the tensors, from those of the outputs; those that are not wanted may be any.

        Autocast is off.
        """


def run_native(run: NativeRun, *tensors: torch.Tensor | None) -> tuple[Any, ...]:
    """Return the outputs of a run, under autograd."""
    return _Native.apply(run, *tensors)


def own_gradient(gradient: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    """Return a gradient, of the shape of ``like``, that may be overwritten: 0 if there is none."""
    return torch.zeros_like(like) if gradient is None else gradient.clone(memory_format=torch.contiguous_format)


class KeptRun(NativeRun):
    """A run whose forward pass leaves a state in the memory of C++ if there will be a backward pass.

    A backward pass overwrites the state, so a second one runs forward again, with the same dropout.

    Args:
        library: the compiled functions ``forward``, ``backward`` and ``release``.
        tensors: what has gradients.

    Attributes:
        train: whether there will be a backward pass.
        succeeded: whether the forward pass found results.
    """

    def __init__(self, library: ctypes.CDLL, tensors: Tensors) -> None:
        self._library = library
        self.train = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)
        self.succeeded = False
        self._state: int | None = None

    @abstractmethod
    def outputs(self, tensors: Any) -> Sequence[torch.Tensor]:
        """Return new outputs, which C++ fills in."""

    @abstractmethod
    def problem(self, tensors: Any, outputs: Any) -> Filled:
        """Return what C++ reads."""

    @abstractmethod
    def gradients(self, tensors: Any, incoming: Tensors) -> tuple[Filled, Tensors, Tensors]:
        """Return what C++ fills in: gradients of the first tensors, and of the others with a first axis of parts."""

    def forward(self, tensors: Any) -> tuple[Sequence[torch.Tensor], Tensors]:
        outputs = self._run(tensors)
        self.succeeded = self._state is not None
        if not self.train:
            self._forget()
        return outputs, [*outputs, *tensors]

    def backward(self, kept: Any, gradients: Tensors, wanted: Sequence[bool]) -> Tensors:
        outputs, tensors = kept[: len(gradients)], kept[len(gradients) :]
        if self._state is None:
            outputs = self._run(tensors)
        filled, first, in_parts = self.gradients(tensors, gradients)
        try:
            self._library.backward(ctypes.c_void_p(self._state), self.problem(tensors, outputs), filled)
        finally:
            self._forget()
        return [*first, *(None if parts is None else parts.sum(0) for parts in in_parts)]

    def _run(self, tensors: Any) -> Sequence[torch.Tensor]:
        outputs, state = self.outputs(tensors), ctypes.c_void_p()
        self._library.forward(self.problem(tensors, outputs), ctypes.byref(state))
        self._state = state.value
        return outputs

    def _forget(self) -> None:
        if self._state is not None:
            self._library.release(ctypes.c_void_p(self._state))
            self._state = None

    def __del__(self) -> None:
        self._forget()


class _Native(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: NativeRun, *tensors: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        contiguous = [None if tensor is None else tensor.contiguous() for tensor in tensors]
        outputs, kept = run.forward(contiguous)
        ctx.run, ctx.refusal = run, run.refusal
        ctx.set_materialize_grads(False)
        save_for_backward(ctx, *kept)
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, saved: tuple[torch.Tensor | None, ...], *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        contiguous = [None if tensor is None else tensor.contiguous() for tensor in saved]
        wanted = ctx.needs_input_grad[1:]
        device = next(tensor.device for tensor in saved if tensor is not None)
        with torch.autocast(device.type, enabled=False):
            d_tensors = ctx.run.backward(contiguous, gradients, wanted)
        return None, *(gradient if is_wanted else None for gradient, is_wanted in zip(d_tensors, wanted, strict=True))
