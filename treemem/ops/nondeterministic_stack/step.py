"""One step of a nondeterministic stack, with its backward pass written by hand.

``weights[i -> t][a -> b]`` are the weights of runs, as in :mod:`treemem.ops.nondeterministic_stack.naive`; ``a`` and
``b`` are pairs of a state and a symbol. This module keeps the logarithm of the probability of each ``b`` at time ``t``,
and what is beneath, given ``b``: ``P(i, a | t, b) = alpha[i][a] weights[i -> t][a -> b] / alpha[t][b]``. These are
probabilities, so that sums over them are plain matrix products. The recurrences of the paper become::

    push:     joint[t - 1, a -> t, b] = P(t - 1, a) push[a -> b]
    replace:  joint[i, a -> t, b] = sum over s of P(i, a | t - 1, s) P(t - 1, s) replace[s -> b]
    pop:      left[k, (u, y) -> r] = sum over s of P(k, (u, y) | t - 1, s) P(t - 1, s) pop[s -> r]
              joint[i, a -> t, (r, y)] = sum over k and u of P(i, a | k, (u, y)) left[k, (u, y) -> r]

``P(t, b)`` is the sum of ``joint`` over ``i`` and ``a``, divided by the sum over all, and ``P(i, a | t, b)`` is
``joint`` divided by its sum. The largest term of each sum is taken out beforehand, so that no sum overflows. A vector
on each symbol adds rows to ``joint`` beside the weights: weights times vectors.

All steps share one buffer. A column of it is written once, and only read afterwards.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable


class _Buffer:
    """Storage ``[batch, symbols, capacity * rows, capacity * states]``, of which the columns of the first ``filled``
    times are written."""

    def __init__(self, data: torch.Tensor, filled: int) -> None:
        self.data, self.filled = data, filled


class AutomatonState(NamedTuple):
    """The state of a nondeterministic stack.

    Attributes:
        log_probability: of each state with each top symbol, ``[batch, states, symbols]``.
        beneath: what is beneath each of them at each time so far, ``[batch, symbols y, starts * (1 + size) * states *
            symbols, times * states]``, ``starts`` equal to ``times``.
        buffer: where that is kept.
    """

    log_probability: torch.Tensor
    beneath: torch.Tensor
    buffer: Any

    @classmethod
    def empty(cls, batch: int, states: int, symbols: int, bottom: torch.Tensor) -> AutomatonState:
        """Return stacks with the first symbol at the bottom, in the first state.

        Args:
            batch: number of stacks.
            states, symbols: their numbers.
            bottom: the vector at the bottom, ``[size]``.
        """
        start = bottom.new_full((batch, states, symbols), -torch.inf)
        start[:, 0, 0] = 0
        rows = (1 + len(bottom)) * states * symbols
        beneath = bottom.new_zeros(batch, symbols, rows, states)
        beneath[:, 0, 0, 0] = 1
        beneath[:, 0, states * symbols :: states * symbols, 0] = bottom
        return cls(start, beneath, None)

    def where(self, going: torch.Tensor, before: AutomatonState) -> AutomatonState:
        """Return this state where ``going [batch]`` is true, and elsewhere the state of the step before.

        There the last time is a copy of the time before it, as if the step had replaced each symbol by itself.
        """
        log_probability = torch.where(going[:, None, None], self.log_probability, before.log_probability)
        return AutomatonState(log_probability, _Hold.apply(self.beneath, before.beneath, going), self.buffer)

    def take(self, rows: torch.Tensor) -> AutomatonState:
        """Return a copy of the stacks of these rows of the batch."""
        return AutomatonState(self.log_probability[rows], self.beneath[rows], None)


def automaton_step(
    state: AutomatonState,
    push: torch.Tensor,
    replace: torch.Tensor,
    pop: torch.Tensor,
    value: torch.Tensor,
) -> tuple[AutomatonState, torch.Tensor]:
    """Return the next state, and the mean of the top vector in each state with each top symbol.

    Args:
        state: of the step before; it stays as it is.
        push: logarithms of weights, ``[batch, states, symbols, states, symbols]``: from a state and a top symbol to a
            state and the symbol that comes on top.
        replace: the same, for the symbol that takes the place of the top symbol.
        pop: ``[batch, states, symbols, states]``.
        value: the vector that is pushed with each symbol, ``[batch, size]``; size may be 0.

    Returns:
        The state, and ``[batch, states, symbols, size]``.
    """
    batch, states, symbols = state.log_probability.shape
    rows = (1 + value.shape[1]) * states * symbols
    times, buffer = state.beneath.shape[3] // states, state.buffer
    if buffer is None or buffer.filled != times or (times + 1) * states > buffer.data.shape[3]:
        capacity = max(8, 2 * times)  # or another state has gone on from here
        data = state.beneath.new_zeros(batch, symbols, capacity * rows, capacity * states)
        data[:, :, : times * rows, : times * states] = state.beneath.detach()
        buffer = _Buffer(data, times)
    before = state.log_probability.flatten(1)
    actions = push.flatten(3).flatten(1, 2), replace.flatten(3).flatten(1, 2), pop.flatten(1, 2), value
    with torch.autocast(before.device.type, enabled=False):
        log_probability, beneath, mean = _Step.apply(
            before, state.beneath, *(each.to(before.dtype) for each in actions), buffer, states
        )
    shape = (batch, states, symbols)
    return AutomatonState(log_probability.view(shape), beneath, buffer), mean.unflatten(1, (states, symbols))


class _Step(torch.autograd.Function):
    """In matrices ``a`` and ``b`` are one axis of ``states * symbols``; rows of the buffer are ``(i, 1 + size, a)``."""

    @staticmethod
    def forward(
        ctx: Any,
        before: torch.Tensor,
        old: torch.Tensor,
        push: torch.Tensor,
        replace: torch.Tensor,
        pop: torch.Tensor,
        value: torch.Tensor,
        buffer: _Buffer,
        states: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        batch, pairs = before.shape
        symbols, size = pairs // states, value.shape[1]
        rows, times = (1 + size) * pairs, buffer.filled
        table = buffer.data[:, :, : times * rows, : times * states]
        last = _by_pair(table[..., -states:])  # [batch, rows, b]
        logs = [before[:, :, None] + each for each in (push, replace, pop)]
        lowest = torch.finfo(before.dtype).min  # a weight may be 0
        highest = [each.amax(1).clamp(min=lowest) for each in logs]  # over a, for each b, or r
        popped_highest = highest[2][:, :, None].expand(-1, -1, symbols).flatten(1)
        scale = torch.stack([highest[0], highest[1], popped_highest]).amax(0)
        pushed, replaced = ((each - scale[:, None]).exp() for each in logs[:2])
        popped = (logs[2] - highest[2][:, None]).exp()
        rescale = (popped_highest - scale).exp()

        joint = before.new_empty(batch, (times + 1) * rows, pairs)
        torch.bmm(last, replaced, out=joint[:, : times * rows])
        left = before.new_zeros(batch, symbols, 0, states)
        if times > 1:
            started = last.view(batch, times, 1 + size, pairs, pairs)[:, 1:, 0].flatten(1, 2)  # [batch, (k, u, y), s]
            left = torch.bmm(started, popped).view(batch, times - 1, states, symbols, states)
            left = left.permute(0, 3, 1, 2, 4).flatten(2, 3)  # [batch, y, (k, u), r]
            gone = table[..., : (times - 1) * states] @ left  # [batch, y, rows, r]
            joint[:, : times * rows].addcmul_(_by_pair(gone), rescale[:, None])
        vectors = torch.cat([value.new_ones(batch, 1), value], 1)
        joint[:, times * rows :] = (vectors[:, :, None, None] * pushed[:, None]).flatten(1, 2)

        by_row = joint.view(batch, times + 1, 1 + size, pairs, pairs)
        total = by_row[:, :, 0].sum((1, 2))
        inverse = torch.where(total > 0, 1 / total, 0)
        joint *= inverse[:, None]
        after = (total.log() + scale).log_softmax(1)
        mean = by_row[:, :, 1:].sum((1, 3)).transpose(1, 2)  # [batch, b, size]
        column = _by_symbol(joint, states)
        buffer.data[:, :, : (times + 1) * rows, times * states : (times + 1) * states] = column
        buffer.filled = times + 1
        ctx.set_materialize_grads(False)
        if any(ctx.needs_input_grad):
            # Columns that come later do not change these. The output itself would keep this step alive for ever.
            ctx.saved = table, left, joint, inverse, after.detach(), pushed, replaced, popped, rescale, vectors
            ctx.states = states
        return after, buffer.data[:, :, : (times + 1) * rows, : (times + 1) * states].detach(), mean

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_after: torch.Tensor | None, of_beneath: torch.Tensor | None, of_mean: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        with torch.autocast(ctx.saved[0].device.type, enabled=False):
            return _gradients(ctx, of_after, of_beneath, of_mean)


def _gradients(
    ctx: Any, of_after: torch.Tensor | None, of_beneath: torch.Tensor | None, of_mean: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    table, left, joint, inverse, after, pushed, replaced, popped, rescale, vectors = ctx.saved
    states = ctx.states
    batch, pairs = after.shape
    symbols, size = pairs // states, vectors.shape[1] - 1
    rows = (1 + size) * pairs
    times = table.shape[3] // states
    if of_beneath is None:
        of_beneath = table.new_zeros(batch, symbols, (times + 1) * rows, (times + 1) * states)
    of_joint = _by_pair(of_beneath[..., times * states :]).clone()
    of_later = of_beneath[:, :, : times * rows, : times * states]
    of_table = torch.empty_like(of_later, memory_format=torch.contiguous_format)
    by_row = of_joint.view(batch, times + 1, 1 + size, pairs, pairs)
    if of_mean is not None:
        by_row[:, :, 1:] += of_mean.transpose(1, 2)[:, None, :, None]
    of_total = -(of_joint * joint).sum(1)
    if of_after is not None:
        of_total += of_after - after.exp() * of_after.sum(1, keepdim=True)
    by_row[:, :, 0] += of_total[:, None, None]
    of_joint *= inverse[:, None]

    of_new = by_row[:, -1]  # [batch, 1 + size, a, b]
    of_pushed = (of_new * vectors[:, :, None, None]).sum(1)
    of_value = (of_new[:, 1:] * pushed[:, None]).sum((2, 3))
    of_kept = of_joint[:, : times * rows]
    last = _by_pair(table[..., -states:])
    of_replaced = last.transpose(1, 2) @ of_kept
    of_last = of_kept @ replaced.transpose(1, 2)
    of_popped = torch.zeros_like(popped)
    if times > 1:
        of_gone = _by_symbol(of_kept * rescale[:, None], states)
        earlier = table[..., : (times - 1) * states]
        torch.baddbmm(
            of_later[..., : (times - 1) * states].flatten(0, 1),
            of_gone.flatten(0, 1),
            left.flatten(0, 1).transpose(1, 2),
            out=of_table.flatten(0, 1)[..., : (times - 1) * states],
        )
        of_left = (earlier.transpose(2, 3) @ of_gone).view(batch, symbols, times - 1, states, states)
        of_left = of_left.permute(0, 2, 3, 1, 4).flatten(1, 3)  # [batch, (k, u, y), r]
        started = last.view(batch, times, 1 + size, pairs, pairs)[:, 1:, 0].flatten(1, 2)
        of_popped = started.transpose(1, 2) @ of_left
        of_started = (of_left @ popped.transpose(1, 2)).view(batch, times - 1, pairs, pairs)
        of_last.view(batch, times, 1 + size, pairs, pairs)[:, 1:, 0] += of_started
    torch.add(of_later[..., -states:], _by_symbol(of_last, states), out=of_table[..., -states:])
    of_logs = [of_pushed * pushed, of_replaced * replaced, of_popped * popped]
    of_before = sum(each.sum(2) for each in of_logs)
    return of_before, of_table, *of_logs, of_value, None, None


class _Hold(torch.autograd.Function):
    """Copies the column of the time before into that of the last time, where a stack does not go on."""

    @staticmethod
    def forward(ctx: Any, after: torch.Tensor, before: torch.Tensor, going: torch.Tensor) -> torch.Tensor:
        rows, times = before.shape[2:]
        states = after.shape[3] - times
        held = ~going
        after[held, :, :rows, times:] = before[held, :, :, times - states :]
        after[held, :, rows:, times:] = 0
        ctx.going, ctx.sizes = going, (rows, times, states)
        return after.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        rows, times, states = ctx.sizes
        going = ctx.going[:, None, None, None]
        of_before = torch.zeros_like(gradient[:, :, :rows, :times])
        of_before[..., times - states :] = gradient[:, :, :rows, times:] * ~going
        of_after = gradient.clone()
        of_after[..., times:] *= going
        return of_after, of_before, None


def _by_pair(values: torch.Tensor) -> torch.Tensor:
    """``[batch, y, rows, r]`` to ``[batch, rows, (r, y)]``."""
    return values.permute(0, 2, 3, 1).flatten(2)


def _by_symbol(values: torch.Tensor, states: int) -> torch.Tensor:
    """``[batch, rows, (r, y)]`` to ``[batch, y, rows, r]``."""
    return values.unflatten(2, (states, values.shape[2] // states)).permute(0, 3, 1, 2)
