"""Backward passes that are written by hand: what they are given, and an error if their gradients are differentiated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from threading import Lock
from typing import Any

import torch
from torch.autograd import forward_ad

Gradients = Sequence[torch.Tensor | None]


class _Refusal(torch.autograd.Function):
    """Passes gradients on, after ``count`` tensors that they depend on; ``backward`` is the missing derivative.

    Autograd leaves out a node from which no path leads to what is asked for, so the node has paths to all of them.
    """

    @staticmethod
    def forward(ctx: Any, message: str, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.message = message
        return tuple(gradient.view_as(gradient) for gradient in tensors[count:])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        raise RuntimeError(ctx.message)


def save_for_backward(ctx: Any, *tensors: torch.Tensor | None) -> None:
    """Save tensors for a ``backward`` that :func:`once_differentiable` decorates."""
    ctx.as_saved = [None if tensor is None else (tensor.shape, tensor.device, tensor.dtype) for tensor in tensors]
    ctx.lock = Lock()
    ctx.save_for_backward(*tensors)


_REFUSAL = "this engine", "set the layer's engine to 'autograd', or to 'naive' if it has no engine 'autograd'"


def once_differentiable(backward: Callable[..., Gradients]) -> Callable[..., Gradients]:
    """Decorate the ``backward`` of an autograd function, ``(ctx, saved, *gradients)``.

    ``saved`` are the tensors that ``forward`` gave to :func:`save_for_backward`. They are unpacked once, since gradient
    checkpointing refuses to do it again, and have the shapes, devices and types that they had then, whatever hooks made
    of them. They may lie elsewhere than before, and need not be contiguous.

    ``backward`` may overwrite ``saved``, unless :func:`graph_is_retained`. Autograd keeps what was saved if it raises
    an error, so another backward pass then raises RuntimeError.

    Threads may run the same graph backwards at the same time: each waits for the other here, as in torch's own nodes.

    The gradients are right; differentiating them raises RuntimeError. For this ``forward`` saves an output that has a
    gradient, or all inputs that may have one. torch's own ``once_differentiable`` gives 0 in silence if the incoming
    gradients do not require gradients. ``ctx.refusal`` may say what has no second derivative, and what to do instead.
    """

    @wraps(backward)
    def run(ctx: Any, *gradients: torch.Tensor | None) -> Gradients:
        if getattr(ctx, "failed", False):
            raise RuntimeError("a backward pass failed here and overwrote what it read; run the forward pass again")
        saved = ctx.saved_tensors
        try:
            with ctx.lock, torch.no_grad():
                saved_again = tuple(map(_as_saved, saved, ctx.as_saved))
                results = backward(ctx, saved_again, *gradients)
        except BaseException:
            ctx.failed = not graph_is_retained()
            raise
        if not torch.is_grad_enabled():
            return results
        known = [tensor for tensor in (*saved, *gradients) if tensor is not None and tensor.requires_grad]
        present = [tensor for tensor in results if tensor is not None]
        what, remedy = getattr(ctx, "refusal", None) or _REFUSAL
        refusing = iter(_Refusal.apply(f"{what} has no second derivative; {remedy}", len(known), *known, *present))
        return tuple(None if tensor is None else next(refusing) for tensor in results)

    return run


def _as_saved(tensor: torch.Tensor | None, saved: tuple[torch.Size, torch.device, torch.dtype] | None) -> Any:
    """Return a tensor on the device and of the type that it had when it was saved."""
    if tensor is None or saved is None:
        return tensor
    shape, device, dtype = saved
    if tensor.shape != shape:
        raise RuntimeError(
            f"a hook unpacked a saved tensor of shape {list(shape)} as {list(tensor.shape)}; keep the shape"
        )
    return tensor.to(device, dtype)


def graph_is_retained() -> bool:
    """Return whether the backward pass that runs now may run again; where nobody can tell, it may."""
    retained = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return True if retained is None else bool(retained())


def active_transforms() -> set[str]:
    """Return the names of the transforms of ``torch.func`` that are active, such as ``"Vmap"`` and ``"Grad"``.

    Forward-mode AD outside of them counts as ``"Jvp"``.
    """
    active = getattr(torch._C, "_are_functorch_transforms_active", None)
    if active is None or not active():
        return {"Jvp"} if forward_ad._current_level >= 0 else set()
    return {interpreter.key().name for interpreter in torch._C._functorch.get_interpreter_stack() or ()}


def refuse_transforms(what: str = "this engine", remedy: str = "; set layer.engine to 'naive'") -> None:
    """Raise RuntimeError within a transform of ``torch.func``, which ``what`` does not support."""
    if active_transforms():
        raise RuntimeError(f"{what} does not run within torch.func transforms and forward-mode AD{remedy}")


def refuse_transforms_unless_naive(engine: str) -> None:
    """Raise RuntimeError within ``vmap``, and within other transforms of ``torch.func`` with other engines than naive.

    This is for networks that choose their trees: what they compute depends on the numbers, which ``vmap`` hides.
    """
    if "Vmap" in active_transforms():
        raise RuntimeError("a layer that chooses its trees does not run within vmap, on any engine; use a loop")
    if engine != "naive":
        refuse_transforms()
