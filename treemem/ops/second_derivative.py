"""Gradients that cannot be differentiated again, and raise an error if they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class _Refusal(torch.autograd.Function):
    """Passes gradients on; ``backward`` is the second derivative that there is none of."""

    @staticmethod
    def forward(ctx: Any, message: str, anchor: torch.Tensor, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.message = message
        return tuple(gradient.view_as(gradient) for gradient in gradients)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        raise RuntimeError(ctx.message)


def active_transforms() -> set[str]:
    """Return the names of the transforms of ``torch.func`` that are active, such as ``"Vmap"`` and ``"Grad"``."""
    active = getattr(torch._C, "_are_functorch_transforms_active", None)
    if active is None or not active():
        return set()
    return {each.key().name for each in torch._C._functorch.get_interpreter_stack() or ()}


def refuse_transforms(what: str = "the fused engine", remedy: str = "; set layer.engine to 'recursive'") -> None:
    """Raise RuntimeError within a transform of ``torch.func``, which ``what`` does not support."""
    if active_transforms():
        raise RuntimeError(f"{what} does not run within torch.func transforms{remedy}")


def refuse_transforms_unless_naive(engine: str) -> None:
    """Raise RuntimeError within ``vmap``, or with a fused engine within another transform of ``torch.func``.

    This is for networks that choose their trees: what they compute depends on the numbers, which ``vmap`` hides.
    """
    if "Vmap" in active_transforms():
        raise RuntimeError("a layer that chooses its trees does not run within vmap, on any engine; use a loop")
    if engine != "naive":
        refuse_transforms(remedy="; set layer.engine to 'naive'")


def without_second_derivative(
    gradients: Sequence[torch.Tensor | None],
    what: str = "the fused engine",
    remedy: str = "set layer.engine to another one, such as 'naive', which has one",
) -> list[torch.Tensor | None]:
    """Return the gradients of a hand-written backward pass; differentiating them raises an error that has a remedy.

    ``torch.autograd.function.once_differentiable`` refuses only where the incoming gradients require gradients;
    otherwise the second derivative would be missing in silence.
    """
    if not torch.is_grad_enabled():
        return list(gradients)
    present = [gradient for gradient in gradients if gradient is not None]
    if not present:
        return list(gradients)
    guarded = iter(
        _Refusal.apply(f"{what} has no second derivative; {remedy}", torch.zeros((), requires_grad=True), *present)
    )
    return [None if gradient is None else next(guarded) for gradient in gradients]
