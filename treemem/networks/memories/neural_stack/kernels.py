"""A step of a neural stack, queue or deque in Triton: Grefenstette et al. 2015, eq. 1-3 and 6-7, and section 3.3.

A memory with one end pops and reads there and pushes at the top; one with two ends pushes at both. A control has the
value of each end, then the strengths of pushes, then of pops, the top first. Items lie in places: those before the
first step from ``begin`` on, pushed ones beside them. The state is the strength of each place.
"""

from __future__ import annotations

import triton
import triton.language as tl

from treemem.engines.cuda.functions import hyperbolic_tangent


@triton.jit
def forward(memory, before, after, control, readout, sequence, step, SIZES: tl.constexpr, IS_CONTROLLED: tl.constexpr):
    """Pop, push, then read; see ``controllers/kernels.py``.

    Args:
        memory: the items ``[sequences, room, value_size]``, ``room``, ``begin``, and how many items were there.
        before, after: strengths, ``[room]``.
        SIZES: of :class:`treemem.networks.memories.neural_stack.cuda.StrengthKernel`.
    """
    items, room, begin, filled = memory
    V: tl.constexpr = SIZES[0]
    WIDTH: tl.constexpr = SIZES[1]
    ROOM: tl.constexpr = SIZES[2]
    TOP: tl.constexpr = SIZES[3]
    BOTTOM: tl.constexpr = SIZES[4]
    READ: tl.constexpr = SIZES[5]
    ENDS: tl.constexpr = TOP + BOTTOM
    items += sequence * room * V
    first, last = begin - (ENDS - 1) * step, begin + filled + step
    place, column = tl.arange(0, ROOM), tl.arange(0, WIDTH)
    inside = (place >= first) & (place < last)
    strength = tl.load(before + place, place < room, 0.0)
    if TOP:
        amount = _strength(control + ENDS * (V + 1), IS_CONTROLLED)
        strength = _popped(strength, amount, place, last - 1, inside, True)
    if BOTTOM:
        amount = _strength(control + ENDS * (V + 2) - 1, IS_CONTROLLED)
        strength = _popped(strength, amount, place, first, inside, False)
    for end in tl.static_range(ENDS):
        pushed = first - 1 if end else last
        value = tl.load(control + end * V + column, column < V, 0.0)
        value = hyperbolic_tangent(value) if IS_CONTROLLED else value
        strength = tl.where(place == pushed, _strength(control + ENDS * V + end, IS_CONTROLLED), strength)
        tl.store(items + pushed * V + column, value, column < V)
    tl.store(after + place, strength, place < room)
    tl.debug_barrier()
    inside = (place >= first - (ENDS - 1)) & (place <= last)
    if TOP:
        _read(strength, items, readout, place, inside, column, V, READ, True)
    if BOTTOM:
        _read(strength, items, readout + (ENDS - 1) * V, place, inside, column, V, READ, False)


@triton.jit
def backward(
    memory,
    d_memory,
    before,
    after,
    control,
    d_before,
    d_after,
    d_readout,
    d_control,
    sequence,
    step,
    SIZES: tl.constexpr,
    IS_CONTROLLED: tl.constexpr,
):
    """The gradients; arguments as those of :func:`forward`. Those of the items become earlier ones."""
    items, room, begin, filled = memory
    d_items = d_memory[0]
    V: tl.constexpr = SIZES[0]
    WIDTH: tl.constexpr = SIZES[1]
    ROOM: tl.constexpr = SIZES[2]
    TOP: tl.constexpr = SIZES[3]
    BOTTOM: tl.constexpr = SIZES[4]
    READ: tl.constexpr = SIZES[5]
    ENDS: tl.constexpr = TOP + BOTTOM
    items += sequence * room * V
    d_items += sequence * room * V
    first, last = begin - (ENDS - 1) * step, begin + filled + step
    place, column = tl.arange(0, ROOM), tl.arange(0, WIDTH)
    inside = (place >= first - (ENDS - 1)) & (place <= last)
    strength = tl.load(after + place, place < room, 0.0)
    d = tl.load(d_after + place, place < room, 0.0)
    is_new = (place == last) | (place == first - (ENDS - 1)) & (ENDS == 2)
    if TOP:
        d += _read_backward(strength, items, d_items, d_readout, place, inside, is_new, column, V, READ, True)
        tl.debug_barrier()
    if BOTTOM:
        d_bottom = d_readout + (ENDS - 1) * V
        d += _read_backward(strength, items, d_items, d_bottom, place, inside, is_new, column, V, READ, False)
        tl.debug_barrier()
    for end in tl.static_range(ENDS):
        pushed = first - 1 if end else last
        d_value = tl.load(d_items + pushed * V + column, column < V, 0.0)
        value = tl.load(items + pushed * V + column, column < V, 0.0)
        d_value = d_value * (1 - value * value) if IS_CONTROLLED else d_value
        tl.store(d_control + end * V + column, d_value, column < V)
        _store_of_strength(d_control, control, ENDS * V + end, tl.sum(tl.where(place == pushed, d, 0.0)), IS_CONTROLLED)
    inside = (place >= first) & (place < last)
    d, strength = tl.where(inside, d, 0.0), tl.where(inside, strength, 0.0)
    full = tl.load(before + place, inside, 0.0)
    between = full
    if BOTTOM:
        amount = _strength(control + ENDS * (V + 2) - 1, IS_CONTROLLED)
        if TOP:
            between = _popped(full, _strength(control + ENDS * (V + 1), IS_CONTROLLED), place, last - 1, inside, True)
        d, d_amount = _pop_backward(between, strength, amount, d, place, first, False)
        _store_of_strength(d_control, control, ENDS * (V + 2) - 1, d_amount, IS_CONTROLLED)
        strength = between
    if TOP:
        amount = _strength(control + ENDS * (V + 1), IS_CONTROLLED)
        d, d_amount = _pop_backward(full, strength, amount, d, place, last - 1, True)
        _store_of_strength(d_control, control, ENDS * (V + 1), d_amount, IS_CONTROLLED)
    tl.store(d_before + place, d, place < room)


@triton.jit
def _strength(logit, IS_CONTROLLED: tl.constexpr):
    value = tl.load(logit)
    return tl.sigmoid(value) if IS_CONTROLLED else value


@triton.jit
def _store_of_strength(d_control, control, at, gradient, IS_CONTROLLED: tl.constexpr):
    strength = _strength(control + at, IS_CONTROLLED)
    tl.store(d_control + at, gradient * strength * (1 - strength) if IS_CONTROLLED else gradient)


@triton.jit
def _nearer(strength, place, IS_TOP: tl.constexpr):
    """The strength of all items that are nearer to an end than each; a difference of sums would round it."""
    beside = place + (1 if IS_TOP else -1)
    there = (beside >= 0) & (beside < place.shape[0])
    return tl.where(there, tl.gather(tl.cumsum(strength, 0, reverse=IS_TOP), tl.where(there, beside, 0), 0), 0.0)


@triton.jit
def _positive(x):
    return tl.maximum(x, 0.0, tl.PropagateNan.ALL)


@triton.jit
def _popped(strength, amount, place, nearest, inside, IS_TOP: tl.constexpr):
    """Eq. 2, where the nearest item pops ``amount`` itself, so that it has a gradient at 0."""
    left = tl.where(place == nearest, amount, _positive(amount - _nearer(strength, place, IS_TOP)))
    return tl.where(inside, _positive(strength - left), 0.0)


@triton.jit
def _pop_backward(full, popped, amount, d, place, nearest, IS_TOP: tl.constexpr):
    """The gradients of the full strengths and of the amount, from those of the popped ones."""
    d = tl.where(popped > 0, d, 0.0)
    is_nearest = place == nearest
    of_left = tl.where(is_nearest | (amount > _nearer(full, place, IS_TOP)), d, 0.0)  # with the other sign
    return d + _nearer(tl.where(is_nearest, 0.0, of_left), place, not IS_TOP), -tl.sum(of_left)


@triton.jit
def _range(chosen, place):
    """The first of the chosen places, and the one after the last."""
    return tl.min(tl.where(chosen, place, place.shape[0])), tl.max(tl.where(chosen, place, -1)) + 1


@triton.jit
def _read(strength, items, readout, place, inside, column, V: tl.constexpr, READ: tl.constexpr, IS_TOP: tl.constexpr):
    """Eq. 3: the sum of the items down to a strength of ``READ``."""
    DEPTH: tl.constexpr = 16
    nearer = _nearer(strength, place, IS_TOP)
    weight = tl.minimum(strength, _positive(READ - nearer), tl.PropagateNan.ALL)
    begin, end = _range(inside & ~(nearer >= READ), place)
    total = tl.zeros([column.shape[0]], strength.dtype)
    for nearest in range(begin, end, DEPTH):
        item = nearest + tl.arange(0, DEPTH)
        there = item < end
        rows = tl.load(items + item[:, None] * V + column[None, :], there[:, None] & (column < V)[None, :], 0.0)
        of_rows = tl.where(there, tl.gather(weight, tl.where(there, item, 0), 0), 0.0)
        total += tl.sum(of_rows[:, None] * rows, 0)
    tl.store(readout + column, total, column < V)


@triton.jit
def _read_backward(
    strength,
    items,
    d_items,
    d_readout,
    place,
    inside,
    is_new,
    column,
    V: tl.constexpr,
    READ: tl.constexpr,
    IS_TOP: tl.constexpr,
):
    """The gradient of the strengths; adds to those of the items.

    With torch's subgradients: a half for each side of a minimum of equals, 0 for ``max(0, x)`` at 0. Of items beyond
    what is read only new ones of strength 0 have a gradient: older ones of strength 0 were popped.
    """
    DEPTH: tl.constexpr = 16
    nearer = _nearer(strength, place, IS_TOP)
    left = _positive(READ - nearer)
    weight = tl.minimum(strength, left, tl.PropagateNan.ALL)
    begin, end = _range(inside & (~(nearer >= READ) | is_new & (strength == 0)), place)
    d_read = tl.load(d_readout + column, column < V, 0.0)
    of_weight = tl.zeros([place.shape[0]], strength.dtype)
    for nearest in range(begin, end, DEPTH):
        offset = tl.arange(0, DEPTH)
        there = nearest + offset < end
        at, mask = (nearest + offset)[:, None] * V + column[None, :], there[:, None] & (column < V)[None, :]
        rows = tl.load(items + at, mask, 0.0)
        of_rows = tl.gather(weight, tl.where(there, nearest + offset, 0), 0)
        tl.store(d_items + at, tl.load(d_items + at, mask, 0.0) + of_rows[:, None] * d_read[None, :], mask)
        products = tl.sum(rows * d_read[None, :], 1)
        is_here = (place >= nearest) & (place < nearest + DEPTH)
        of_weight = tl.where(is_here, tl.gather(products, tl.where(is_here, place - nearest, 0), 0), of_weight)
    of_strength = tl.where(strength < left, of_weight, tl.where(strength == left, 0.5 * of_weight, 0.0))
    of_left = tl.where(nearer < READ, of_weight - of_strength, 0.0)
    return of_strength - _nearer(of_left, place, not IS_TOP)
