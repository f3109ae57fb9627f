"""One step of a neural stack or queue, with its backward pass written by hand.

Autograd would keep a copy of all items for each step that reads them, which takes memory in the square of the time.
Here all steps share one buffer: an item is written once and never changed. A step keeps a few numbers for each item.
The gradients are those of :mod:`treemem.ops.strength_memory.sequence`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from treemem.ops.strength_memory.ends import End, farther_sum, nearer_strength, read_weights


class _Buffer:
    """Storage ``[batch, capacity, size]`` of which the first ``filled`` items are written."""

    def __init__(self, data: torch.Tensor, filled: int) -> None:
        self.data, self.filled = data, filled


class StrengthState(NamedTuple):
    """The state of a memory whose items have strengths.

    Attributes:
        strength: ``[batch, items]``, oldest first.
        items: their values, ``[batch, items, size]``.
        buffer: where the values are kept; states that began as one share it. None if they are kept nowhere else.
        below: how many items were pushed at the bottom.
    """

    strength: torch.Tensor
    items: torch.Tensor
    buffer: Any = None
    below: int = 0

    @classmethod
    def empty(cls, batch: int, size: int, like: torch.Tensor) -> StrengthState:
        """Return a memory without items, with the device and type of ``like``."""
        return cls(like.new_zeros(batch, 0), like.new_zeros(batch, 0, size))

    def where(self, going: torch.Tensor, before: StrengthState) -> StrengthState:
        """Return this state where ``going [batch]`` is true, and the earlier state ``before`` elsewhere.

        Items that are newer than ``before`` have a strength of 0 there.
        """
        below = self.below - before.below
        above = self.strength.shape[1] - before.strength.shape[1] - below
        padded = torch.nn.functional.pad(before.strength, (below, above))
        return self._replace(strength=torch.where(going[:, None], self.strength, padded))

    def take(self, rows: torch.Tensor) -> StrengthState:
        """Return a copy of the memories of these rows of the batch."""
        return self._replace(strength=self.strength[rows], items=self.items[rows], buffer=None)


def strength_step(
    state: StrengthState, value: torch.Tensor, push: torch.Tensor, pop: torch.Tensor, end: End, read_strength: float
) -> tuple[StrengthState, torch.Tensor]:
    """Return the next state and what is read: :func:`popped` with the new item, and its :func:`read_weights`.

    They have the precision of the state, under autocast too.

    Args:
        state: of the step before; it stays as it is.
        value: ``[batch, size]``.
        push, pop: strengths, ``[batch]``.
        end: where the memory pops and is read.
        read_strength: how much strength is read.
    """
    value, push, pop = (each.to(state.items.dtype) for each in (value, push, pop))
    count, buffer = state.items.shape[1], state.buffer
    if buffer is None or buffer.filled != count or count == buffer.data.shape[1]:
        data = value.new_empty(len(value), max(8, 2 * count), value.shape[1])  # or another state has gone on from here
        data[:, :count] = state.items.detach()
        buffer = _Buffer(data, count)
    with torch.autocast(value.device.type, enabled=False):
        strength, items, read = _Step.apply(state.strength, state.items, value, push, pop, buffer, end, read_strength)
    return StrengthState(strength, items, buffer), read


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        before: torch.Tensor,
        old_items: torch.Tensor,
        value: torch.Tensor,
        push: torch.Tensor,
        pop: torch.Tensor,
        buffer: _Buffer,
        end: End,
        read_strength: float,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        count = buffer.filled
        buffer.data[:, count] = value
        buffer.filled = count + 1
        items = buffer.data.data[:, : count + 1]  # items that come later do not count as changes of these
        strength = before.new_empty(len(before), count + 1)
        strength[:, count] = push
        after, pop = strength[:, :count], pop[:, None]
        nearest = count - 1 if end == "top" else 0
        nearer = nearer_strength(before, end)
        if count:
            left_to_pop = (pop - nearer).clamp_(min=0)
            left_to_pop[:, nearest] = pop[:, 0]
            torch.sub(before, left_to_pop, out=after).clamp_(min=0)
        left = (read_strength - nearer_strength(strength, end)).clamp_(min=0)
        weight = torch.minimum(strength, left)
        ctx.set_materialize_grads(False)
        if any(ctx.needs_input_grad):
            dtype = weight.dtype
            kept = after > 0
            reached = pop > nearer
            if count:
                reached[:, nearest] = True
            boundary = (kept & reached).to(dtype)
            by_nearer = (strength > left).to(dtype).add_((strength == left).to(dtype), alpha=0.5)
            masks = kept.to(dtype), boundary, farther_sum(boundary, end), by_nearer, (left > 0).to(dtype)
            ctx.end, ctx.read_strength = end, read_strength
            ctx.save_for_backward(strength, items, weight, *masks)
        return strength, items, torch.bmm(weight[:, None], items).squeeze(1)

    @staticmethod
    def backward(
        ctx: Any, of_strength: torch.Tensor | None, of_items: torch.Tensor | None, of_read: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        strength, items, weight, kept, boundary, replaced, by_nearer, is_read = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative; all else is linear, by parts
            weight = read_weights(strength, ctx.end, ctx.read_strength)
        if of_read is None:
            of_read = torch.zeros_like(items[:, 0])
        of_weight = torch.bmm(items, of_read[:, :, None]).squeeze(2)
        if of_items is None:
            of_items = weight[:, :, None] * of_read[:, None]
        else:
            of_items = torch.baddbmm(of_items, weight[:, :, None], of_read[:, None])
        by_nearer = by_nearer * of_weight
        total = of_weight - by_nearer - farther_sum(by_nearer * is_read, ctx.end)
        if of_strength is not None:
            total = total + of_strength
        old = total[:, :-1]
        of_boundary = (old * boundary).sum(1)
        before = torch.addcmul(old * kept, replaced, of_boundary[:, None])
        return before, of_items[:, :-1], of_items[:, -1], total[:, -1], -of_boundary, None, None, None
