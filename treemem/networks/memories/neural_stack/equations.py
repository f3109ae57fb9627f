"""Neural stacks and queues: the equations as in the paper, popping and reading for all items at once, a step, and a
sequence of known actions.

If each step had a tensor of its items, autograd would keep all of them: 3 times the memory of 300 steps, width 64.
Here all steps share one buffer: an item is written once and never changed.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch.nn import functional

from treemem.errors import GraphError

End = Literal["top", "bottom"]
"""The end of a memory: ``"top"``: the newest item, last in its tensors; ``"bottom"``: the oldest, first in them."""


def nearer_strength(strength: torch.Tensor, end: End) -> torch.Tensor:
    """Return the strength of all items that are nearer to an end than each item, ``[..., items]``, at least one.

    A difference of sums would round it: items beyond a strength of 1 would weigh 1e-16, and have a gradient.
    """
    if end == "bottom":
        return functional.pad(strength[..., :-1], (1, 0)).cumsum(-1)
    return functional.pad(strength[..., 1:], (0, 1)).flip(-1).cumsum(-1).flip(-1)


def popped(strength: torch.Tensor, pop: torch.Tensor, end: End) -> torch.Tensor:
    """Return the strengths after popping (Grefenstette et al. 2015, eq. 2): ``max(0, s - max(0, u - nearer))``.

    For the nearest item ``max(0, u)`` is ``u`` itself, as in the published code, so that it has a gradient at 0.

    Args:
        strength: ``[batch, items]``.
        pop: how much to take away, ``[batch]``.
        end: where.
    """
    if not strength.shape[1]:
        return strength
    pop = pop[:, None]
    if end == "bottom":
        left = torch.cat([pop, torch.relu(pop - strength[:, :-1].cumsum(1))], 1)
    else:
        left = torch.cat([torch.relu(pop - strength[:, 1:].flip(1).cumsum(1).flip(1)), pop], 1)
    return torch.relu(strength - left)


def read_weights(strength: torch.Tensor, end: End, read_strength: float = 1.0) -> torch.Tensor:
    """Return the weight of each item in what is read (eq. 3): ``min(s, max(0, read_strength - nearer))``."""
    return torch.minimum(strength, torch.relu(read_strength - nearer_strength(strength, end)))


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
        return cls(like.new_empty(batch, 0), like.new_empty(batch, 0, size))

    def check(self) -> None:
        """Raise :class:`GraphError` if there are not as many strengths as items."""
        if self.strength.shape != self.items.shape[:2]:
            raise GraphError(f"strengths {[*self.strength.shape]} do not fit items {[*self.items.shape]}")

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
    value, push, pop = (tensor.to(state.items.dtype) for tensor in (value, push, pop))
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
            d_read = of_read[:, None]
            of_items = weight[:, :, None] * d_read if of_items is None else of_items.baddbmm(weight[:, :, None], d_read)
        if of_items is None:
            return None, None, None, None
        return of_items[:, :-1], of_items[:, -1], of_weight, None


def run_sequence(
    value: torch.Tensor, push: torch.Tensor, pop: torch.Tensor, end: End, read_strength: float = 1.0
) -> torch.Tensor:
    """Return what is read at each step, ``[batch, time, size]``; arguments as :func:`naive_run`.

    What is read at all steps is one product with the values. It takes memory for ``time * time * batch`` numbers.
    """
    time = value.shape[1]
    history = []
    strength = push[:, :0]  # nearest first
    for step in range(time):
        strength = popped(strength, pop[:, step], "bottom")
        new = push[:, step, None]
        strength = torch.cat([new, strength] if end == "top" else [strength, new], 1)
        oldest_first = strength.flip(1) if end == "top" else strength
        history.append(functional.pad(oldest_first, (0, time - step - 1)))
    if not history:
        return torch.zeros_like(value)
    weight = read_weights(torch.stack(history, 1), end, read_strength)
    return torch.bmm(weight.to(value.dtype), value)


def naive_run(
    value: torch.Tensor, push: torch.Tensor, pop: torch.Tensor, end: End, read_strength: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what is read and the strengths after every step (Grefenstette et al. 2015, eq. 1-3 and 6-7).

    At each step the memory pops, then pushes ``value`` with strength ``push``, then is read.

    Args:
        value: ``[batch, time, size]``.
        push, pop: strengths, ``[batch, time]``, not negative.
        end: ``"top"`` for a stack, ``"bottom"`` for a queue: where it pops and is read.
        read_strength: how much strength is read; 1 in the paper.

    Returns:
        ``[batch, time, size]``, and ``[batch, time, items]``, 0 for items that are pushed later.
    """
    batch, time, _ = value.shape
    nothing = value.new_zeros(batch)
    strengths: list[torch.Tensor] = []  # oldest first
    readouts, history = [], []
    for step in range(time):
        before = strengths
        strengths = []
        for place, strength in enumerate(before):
            nearer = before[place + 1 :] if end == "top" else before[:place]
            left_to_pop = torch.relu(pop[:, step] - sum(nearer, nothing)) if nearer else pop[:, step]
            strengths.append(torch.relu(strength - left_to_pop))
        strengths.append(push[:, step])
        readout = torch.zeros_like(value[:, step])
        for place, strength in enumerate(strengths):
            nearer = strengths[place + 1 :] if end == "top" else strengths[:place]
            left_to_read = torch.relu(read_strength - sum(nearer, nothing))
            readout = readout + torch.minimum(strength, left_to_read)[:, None] * value[:, place]
        readouts.append(readout)
        history.append(torch.stack([*strengths, *[nothing] * (time - step - 1)], 1))
    if not time:
        return torch.zeros_like(value), value.new_zeros(batch, 0, 0)
    return torch.stack(readouts, 1), torch.stack(history, 1)
