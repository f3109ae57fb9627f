"""A neural stack or queue over a whole sequence of known actions.

Let ``C_t(i)`` be the strength at item ``i`` and nearer to the end that is popped, after step ``t``. Popping and pushing
are then elementwise: of a stack ``C_t(i) = max(0, C_{t-1}(i) - u_t) + d_t``; of a queue
``C_t(i) = max(0, C_{t-1}(i) - u_t)``, and the new item has that of the item before it and ``d_t``. The strength of an
item is the difference of two neighbours, and what is read at all steps is one product with the values.

The backward pass is that of :func:`treemem.ops.strength_memory.ends.popped` and ``read_weights`` with torch's
subgradients: 0 of ``max(0, x)`` at 0, a half for each side of a minimum of equals; the nearest item is always reached.
At a step at most one item, the boundary, is popped in part. The gradients of the items that are popped whole are that
of the boundary.
"""

from __future__ import annotations

from typing import Any

import torch

from treemem.ops.second_derivative import once_differentiable, save_for_backward
from treemem.ops.strength_memory.ends import End, farther_sum


def run_sequence(
    value: torch.Tensor, push: torch.Tensor, pop: torch.Tensor, end: End, read_strength: float = 1.0
) -> torch.Tensor:
    """Return what is read at each step, ``[batch, time, size]``; arguments as :func:`naive_run`.

    The strengths are computed in double precision. Between the passes only the arguments are kept; each pass takes
    memory for ``time * time * batch`` numbers.
    """
    found: torch.Tensor = _Sequence.apply(value, push, pop, end, read_strength)
    return found


class _Strengths:
    """The strengths of all items after all steps, ``[time, batch, items]`` in double precision.

    Attributes:
        own: of each item; 0 for those that are pushed later.
        nearer: of all items nearer to the end.
    """

    def __init__(self, push: torch.Tensor, pop: torch.Tensor, end: End) -> None:
        batch, time = push.shape
        push, pop = push.detach().double().t(), pop.detach().double().t()
        reach = push.new_zeros(time, batch, time)
        for step in range(time):
            if step:
                before = reach[step - 1][:, :step]
                torch.sub(before, pop[step][:, None], out=reach[step][:, :step]).clamp_(min=0)
            if end == "top":
                reach[step][:, : step + 1] += push[step][:, None]
            else:
                last = reach[step][:, step - 1] if step else 0.0
                reach[step][:, step] = last + push[step]
        self.nearer = torch.zeros_like(reach)
        if end == "top":
            self.nearer[:, :, :-1] = reach[:, :, 1:]
        else:
            self.nearer[:, :, 1:] = reach[:, :, :-1]
        self.own = (reach - self.nearer).mul_(_pushed(time, reach))
        self.pop = pop

    def weights(self, read_strength: float) -> torch.Tensor:
        """Return the weights of the items in what is read, ``[time, batch, items]``."""
        return torch.minimum(self.own, (read_strength - self.nearer).clamp_(min=0))


def _pushed(time: int, like: torch.Tensor) -> torch.Tensor:
    """Return 1 for the items that have been pushed at each step, ``[time, 1, items]``."""
    return like.new_ones(time, time).tril_()[:, None]


class _Sequence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, value: torch.Tensor, push: torch.Tensor, pop: torch.Tensor, end: End, read_strength: float
    ) -> torch.Tensor:
        save_for_backward(ctx, value, push, pop)
        ctx.end, ctx.read_strength = end, read_strength
        weight = _Strengths(push, pop, end).weights(read_strength).to(value.dtype)
        return torch.bmm(weight.transpose(0, 1), value)

    @staticmethod
    @once_differentiable("a neural stack or queue over known actions", "call its step() for each of them")
    def backward(ctx: Any, saved: tuple[torch.Tensor, ...], grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        value, push, pop = saved
        strengths = _Strengths(push, pop, ctx.end)
        weight = strengths.weights(ctx.read_strength).to(value.dtype)
        of_value = torch.bmm(weight.permute(1, 2, 0), grad)
        of_weight = torch.bmm(grad, value.transpose(1, 2)).transpose(0, 1).contiguous()
        of_push, of_pop = _gradients(strengths, of_weight, ctx.end, ctx.read_strength)
        return of_value, of_push.t().to(push.dtype), of_pop.t().to(pop.dtype), None, None


def _gradients(
    strengths: _Strengths, of_weight: torch.Tensor, end: End, read_strength: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of pushes and pops, ``[time, batch]``, from those of the weights."""
    own, nearer, pop = strengths.own, strengths.nearer, strengths.pop
    time, dtype = len(own), of_weight.dtype
    pushed = _pushed(time, of_weight)
    of_weight = of_weight.mul_(pushed)
    left = (read_strength - nearer).clamp_(min=0)
    by_nearer = (own > left).to(dtype).add_((own == left).to(dtype), alpha=0.5).mul_(of_weight)  # the rest is by own
    of_strength = of_weight.sub_(by_nearer).sub_(farther_sum(by_nearer.mul_(left > 0), end))

    kept = (own > 0).to(dtype)
    boundary = torch.zeros_like(kept)
    reached = pop[1:, :, None] > nearer[:-1]
    nearest = reached.diagonal(dim1=0, dim2=2) if end == "top" else reached[:, :, 0]
    nearest.fill_(True)
    torch.mul(kept[1:], reached, out=boundary[1:]).mul_(pushed[:-1])
    replaced = farther_sum(boundary, end)  # 1 for the items from which the boundary is farther

    of_push, of_pop = torch.zeros_like(pop, dtype=dtype), torch.zeros_like(pop, dtype=dtype)
    total = torch.zeros_like(kept[0])
    for step in range(time - 1, -1, -1):
        total += of_strength[step]
        of_push[step] = total[:, step]
        if step:
            of_boundary = (total * boundary[step]).sum(1)
            of_pop[step] = -of_boundary
            total.mul_(kept[step]).addcmul_(replaced[step], of_boundary[:, None])
            total[:, step] = 0
    return of_push, of_pop
