"""A step of a superposition stack in Triton: Joulin & Mikolov 2015, section 3.

A control has the value, then the weights of push, pop and perhaps no_op. The state is the stack, its top first.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def forward(memory, before, after, control, readout, sequence, step, SIZES: tl.constexpr, IS_CONTROLLED: tl.constexpr):
    """Mix what the actions make of the stack; see ``controllers/kernels.py``.

    Args:
        before, after: the stack, ``[depth * value_size]``.
        SIZES: width of a value, depth, rows that are read, number of actions, and what an empty row holds.
    """
    V: tl.constexpr = SIZES[0]
    NUMBERS: tl.constexpr = V * SIZES[1]
    READ: tl.constexpr = V * SIZES[2]
    EMPTY: tl.constexpr = SIZES[4]
    BLOCK: tl.constexpr = _block(NUMBERS)
    push, pop, no_op = _actions(control + V, SIZES[3], IS_CONTROLLED)
    for first in range(0, NUMBERS, BLOCK):
        at = first + tl.arange(0, BLOCK)
        pushed, same, popped = _entries(before, control, at, V, NUMBERS, EMPTY, IS_CONTROLLED)
        mixed = push * pushed + pop * popped + no_op * same
        tl.store(after + at, mixed, at < NUMBERS)
        tl.store(readout + at, mixed, at < READ)


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
    """The gradients; arguments as those of :func:`forward`."""
    V: tl.constexpr = SIZES[0]
    NUMBERS: tl.constexpr = V * SIZES[1]
    READ: tl.constexpr = V * SIZES[2]
    ACTIONS: tl.constexpr = SIZES[3]
    EMPTY: tl.constexpr = SIZES[4]
    BLOCK: tl.constexpr = _block(NUMBERS)
    push, pop, no_op = _actions(control + V, ACTIONS, IS_CONTROLLED)
    of_push, of_pop, of_no_op = 0.0 * push, 0.0 * push, 0.0 * push
    for first in range(0, NUMBERS, BLOCK):
        at = first + tl.arange(0, BLOCK)
        pushed, same, popped = _entries(before, control, at, V, NUMBERS, EMPTY, IS_CONTROLLED)
        d = _gradient(d_after, d_readout, at, NUMBERS, READ)
        of_push += tl.sum(d * pushed)
        of_pop += tl.sum(d * popped)
        of_no_op += tl.sum(d * same)
        d_value = push * d
        if IS_CONTROLLED:
            d_value *= pushed * (1 - pushed)
        tl.store(d_control + at, d_value, at < V)
        below = _gradient(d_after, d_readout, at + V, NUMBERS, READ)
        above = _gradient(d_after, d_readout, at - V, NUMBERS, READ)
        tl.store(d_before + at, push * below + pop * above + no_op * d, at < NUMBERS)
    if IS_CONTROLLED:
        mean = push * of_push + pop * of_pop
        if ACTIONS == 3:
            mean += no_op * of_no_op
        of_push, of_pop, of_no_op = push * (of_push - mean), pop * (of_pop - mean), no_op * (of_no_op - mean)
    tl.store(d_control + V, of_push)
    tl.store(d_control + V + 1, of_pop)
    if ACTIONS == 3:
        tl.store(d_control + V + 2, of_no_op)


@triton.constexpr_function
def _block(numbers):
    return min(triton.next_power_of_2(numbers), 1024)


@triton.jit
def _actions(control, ACTIONS: tl.constexpr, IS_CONTROLLED: tl.constexpr):
    """The weights of push, pop and no_op."""
    push, pop = tl.load(control), tl.load(control + 1)
    no_op = 0 * push
    if ACTIONS == 3:
        no_op = tl.load(control + 2)
    if IS_CONTROLLED:
        largest = tl.maximum(push, pop, tl.PropagateNan.ALL)
        if ACTIONS == 3:
            largest = tl.maximum(largest, no_op, tl.PropagateNan.ALL)
            no_op = tl.exp(no_op - largest)
        push, pop = tl.exp(push - largest), tl.exp(pop - largest)
        total = push + pop + no_op
        push, pop, no_op = push / total, pop / total, no_op / total
    return push, pop, no_op


@triton.jit
def _entries(
    before,
    control,
    at,
    V: tl.constexpr,
    NUMBERS: tl.constexpr,
    EMPTY: tl.constexpr,
    IS_CONTROLLED: tl.constexpr,
):
    """Of each number of the next stack those that a push, no_op and a pop put there."""
    value = tl.load(control + at, at < V, 0.0)
    value = tl.sigmoid(value) if IS_CONTROLLED else value
    pushed = tl.where(at < V, value, tl.load(before + at - V, (at >= V) & (at < NUMBERS), 0.0))
    same = tl.load(before + at, at < NUMBERS, 0.0)
    popped = tl.load(before + at + V, at + V < NUMBERS, 0.0)
    empty = tl.full([at.shape[0]], EMPTY, popped.dtype)  # a plain number would be rounded to float32
    return pushed, same, tl.where(at + V < NUMBERS, popped, empty)


@triton.jit
def _gradient(d_after, d_readout, at, NUMBERS: tl.constexpr, READ: tl.constexpr):
    """The gradient of numbers of the next stack; 0 above and below it."""
    d = tl.load(d_after + at, (at >= 0) & (at < NUMBERS), 0.0)
    return d + tl.load(d_readout + at, (at >= 0) & (at < READ), 0.0)
