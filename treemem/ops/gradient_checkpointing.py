"""Gradient checkpointing of a function that reads learned tensors besides its inputs.

The reentrant form of ``torch.utils.checkpoint`` refuses ``torch.autograd.grad``; the other form does not notice weights
that were changed before the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from treemem.ops.cell import has_gradients
from treemem.ops.second_derivative import once_differentiable, save_for_backward

Function = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]


def checkpointed(
    function: Function, inputs: Sequence[torch.Tensor], parameters: Callable[[], Sequence[torch.Tensor]]
) -> Sequence[torch.Tensor]:
    """Return ``function(inputs)``; the backward pass runs ``function`` again, with the same random numbers.

    Args:
        function: whatever is differentiable in ``inputs`` and ``parameters``.
        inputs: its arguments.
        parameters: gives the learned tensors that it reads besides; they must be the same ones both times.

    Returns:
        What ``function`` returns, differentiable once.
    """
    learned = [parameter for parameter in parameters() if parameter.requires_grad]
    if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in (*inputs, *learned)):
        return function(inputs)
    return _Again.apply(function, parameters, len(inputs), *inputs, *learned)


class _Again(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        function: Function,
        parameters: Callable[[], Sequence[torch.Tensor]],
        num_inputs: int,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        device = tensors[0].device
        ctx.function, ctx.parameters, ctx.num_inputs = function, parameters, num_inputs
        ctx.learned = [id(parameter) for parameter in parameters() if parameter.requires_grad]
        ctx.random = _random_state(device)
        ctx.autocast = device.type, torch.get_autocast_dtype(device.type), torch.is_autocast_enabled(device.type)
        ctx.set_materialize_grads(False)
        save_for_backward(ctx, *tensors)
        outputs = tuple(function(tensors[:num_inputs]))
        ctx.mark_non_differentiable(*(output for output in outputs if not has_gradients(output)))
        return outputs

    @staticmethod
    @once_differentiable("a layer that runs part by part", "call it without keep and with layer.engine = 'autograd'")
    def backward(
        ctx: Any, tensors: tuple[torch.Tensor, ...], *gradients: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        learned = [parameter for parameter in ctx.parameters() if parameter.requires_grad]
        if [id(parameter) for parameter in learned] != ctx.learned:
            raise RuntimeError("the parameters are other tensors now than when the rows were run; keep them in place")
        inputs = [
            tensor.detach().requires_grad_(wanted)
            for tensor, wanted in zip(tensors[: ctx.num_inputs], ctx.needs_input_grad[3:], strict=False)
        ]
        device, dtype, enabled = ctx.autocast
        with torch.enable_grad(), _drawn_again(ctx.random), torch.autocast(device, dtype, enabled=enabled):
            outputs = ctx.function(inputs)
        reached = [
            (output, gradient)
            for output, gradient in zip(outputs, gradients, strict=True)
            if gradient is not None and output.requires_grad
        ]
        wanted = [tensor for tensor in (*inputs, *learned) if tensor.requires_grad]
        found: list[torch.Tensor | None] = [None] * len(wanted)
        if reached:
            of_outputs, own_gradients = zip(*reached, strict=True)
            found = list(torch.autograd.grad(of_outputs, wanted, own_gradients, allow_unused=True))
        by_tensor = iter(found)
        return None, None, None, *(next(by_tensor) if each.requires_grad else None for each in (*inputs, *learned))


def _random_state(device: torch.device) -> tuple[torch.Tensor, torch.device, torch.Tensor | None]:
    of_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return torch.get_rng_state(), device, of_device


@contextmanager
def _drawn_again(memo: tuple[torch.Tensor, torch.device, torch.Tensor | None] | None) -> Iterator[None]:
    """Draw the random numbers that followed the state ``memo`` again; restore the generator afterwards."""
    if memo is None:
        yield
        return
    state, device, of_device = memo
    with torch.random.fork_rng(devices=[] if of_device is None else [device]):
        torch.set_rng_state(state)
        if of_device is not None:
            torch.cuda.set_rng_state(of_device, device)
        yield
