"""One step of a neural stack or queue.

If each step had a tensor of its items, autograd would keep all of them: 3 times the memory of 300 steps, width 64.
Here all steps share one buffer: an item is written once and never changed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from treemem.networks.memories.strength.ends import End, popped, read_weights


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
        strength = torch.cat([popped(state.strength, pop, end), push[:, None]], 1)
        weight = read_weights(strength, end, read_strength)
        items, read = _Read.apply(state.items, value, weight, buffer)
    return StrengthState(strength, items, buffer), read


class _Read(torch.autograd.Function):
    """Writes an item into the buffer; returns all items, and their sum by weights."""

    @staticmethod
    def forward(
        ctx: Any, old_items: torch.Tensor, value: torch.Tensor, weight: torch.Tensor, buffer: _Buffer
    ) -> tuple[torch.Tensor, torch.Tensor]:
        count = buffer.filled
        buffer.data[:, count] = value
        buffer.filled = count + 1
        items = buffer.data.data[:, : count + 1]  # items that come later do not count as changes of these
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(items, weight)
        return items, torch.bmm(weight[:, None], items).squeeze(1)

    @staticmethod
    def backward(
        ctx: Any, of_items: torch.Tensor | None, of_read: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        items, weight = ctx.saved_tensors
        of_weight = None
        if of_read is not None:
            of_weight = torch.bmm(items, of_read[:, :, None]).squeeze(2)
            own = of_read[:, None]
            of_items = weight[:, :, None] * own if of_items is None else of_items.baddbmm(weight[:, :, None], own)
        if of_items is None:
            return None, None, None, None
        return of_items[:, :-1], of_items[:, -1], of_weight, None
