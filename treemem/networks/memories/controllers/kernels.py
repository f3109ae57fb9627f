"""A recurrent cell, a controller, and the memory that it controls, in Triton: all steps of a run in one launch.

A program takes a sequence from its first step to its last, with all that it needs in the caches of its multiprocessor.
What a step leaves for the next one goes through memory, because a thread reads what others have written; barriers
separate the two. At each step a controller has some blocks, each as wide as its state: the input is multiplied before,
and the state and what was read before are multiplied here. A map of the new state controls the memory.

``STEP`` and ``MEMORY`` are functions. Those of a step are printed from its formula (``engines/cuda/row_steps.py``). A
memory has ::

    forward(memory, before, after, control, readout, sequence, step, SIZES, IS_CONTROLLED)
    backward(memory, d_memory, before, after, control, d_before, d_after, d_readout, d_control, sequence, step, SIZES,
             IS_CONTROLLED)

``memory`` and ``d_memory`` are what it has of all sequences; ``before`` and ``after`` point to the sequence's states,
``d_before``, which it sets, and ``d_after`` to their gradients, and the others to its numbers at this step. If
``IS_CONTROLLED``, a control holds what comes before tanh, sigmoid and the like, and its gradient is that of these
numbers. Known actions are controls as they are.
"""

from __future__ import annotations

import triton
import triton.language as tl

BLOCK = tl.constexpr(1024)  # numbers that are copied together
TILE = tl.constexpr(8192)  # numbers of a weight that are multiplied together
MOST_CONTROLS = tl.constexpr(64)  # that are computed together


@triton.constexpr_function
def _depth(size, others):
    """How many of ``size`` numbers fit into a tile with ``others`` others."""
    return min(triton.next_power_of_2(size), TILE.value // others)


@triton.jit(do_not_specialize=["steps", "slots", "state_size"])
def forward(
    inputs,
    blocks,
    kept,
    outputs,
    lasts,
    memory,
    placed,
    lengths,
    steps,
    slots,
    state_size,
    X: tl.constexpr,
    R: tl.constexpr,
    H: tl.constexpr,
    C: tl.constexpr,
    NUM_BLOCKS: tl.constexpr,
    NUM_PRODUCTS: tl.constexpr,
    NUM_STATES: tl.constexpr,
    NUM_PLACED: tl.constexpr,
    STEP: tl.constexpr,
    MEMORY: tl.constexpr,
    SIZES: tl.constexpr,
):
    """Run sequences forwards.

    Args:
        inputs: ``[sequences, steps, X]``.
        blocks: what inputs and their bias give, ``[sequences, steps, NUM_PRODUCTS * H]``.
        kept: what the steps leave for each other and for the backward pass: what products multiply, the input, what was
            read, and the state, ``[sequences, steps + 1, X + R + H]``; blocks, ``[sequences, steps, NUM_BLOCKS * H]``;
            the second states, if the controller has two, ``[sequences, steps + 1, H]``; controls,
            ``[sequences, steps, C]``; states of the memory, ``[sequences, slots, state_size]``. Then weights: of the
            input and of what was read, ``[NUM_PRODUCTS * H, X + R]``; of the state, and its bias; of the controls, and
            their bias.
        outputs: get the states of the controller, ``[sequences, steps, H]``.
        lasts: get what there is after the last step: the states of the controller, what was read, and the state of
            the memory.
        memory: tensors and numbers of the memory.
        placed: what is there before the first step, of all that changes: the given numbers or None for 0, what gets
            them, how far sequences are apart there, how many numbers a sequence has there, where those begin that are
            given, and how many these are.
        lengths: of the sequences; None if each has all steps.
        steps, slots, state_size: number of steps, and of the memory's states that are kept; their width.
        X, R, H, C: widths of the input, of what is read, of the controller's state, and of the controls.
        NUM_BLOCKS, NUM_PRODUCTS: blocks of the controller, and to how many of them the state adds, the last ones; the
            input and what was read add to as many, the first ones.
        NUM_STATES, NUM_PLACED: states of the controller, and entries of ``placed``.
    """
    ROW: tl.constexpr = X + R + H
    sequence = tl.program_id(0).to(tl.int64)
    length = steps
    if lengths is not None:
        length = tl.maximum(0, tl.minimum(tl.load(lengths + sequence).to(tl.int32), steps))
    rows, kept_blocks, cells, controls, states, _, _, _, _, _ = kept
    rows += sequence * (steps + 1) * ROW
    controls += sequence * steps * C
    states += sequence * slots * state_size
    for at in tl.static_range(NUM_PLACED):
        given, target, stride, size, begin, count = placed[at]
        _place(given, target + sequence * stride, sequence, size, begin, count)
    if NUM_BLOCKS:
        inputs += sequence * steps * X
        blocks += sequence * steps * NUM_PRODUCTS * H
        kept_blocks += sequence * steps * NUM_BLOCKS * H
        outputs += sequence * steps * H
    if NUM_STATES == 2:
        cells += sequence * (steps + 1) * H
    for step in range(length):
        tl.debug_barrier()
        row, control = rows + step * ROW, controls + step * C
        if NUM_BLOCKS:
            column = tl.arange(0, triton.next_power_of_2(H))
            wide, at_column = (column < H)[None, :], column[None, :]
            _copy(inputs, step * X, row, X)
            products = ()
            for at in tl.static_range(NUM_BLOCKS):
                block = blocks + step * NUM_PRODUCTS * H
                product = _block(row, block, kept, column, at, X, R, H, NUM_BLOCKS, NUM_PRODUCTS)
                products = products + (product[None, :],)
                tl.store(kept_blocks + (step * NUM_BLOCKS + at) * H + column, product, column < H)
            before = (tl.load(row + X + R + at_column, wide, 0.0),)
            if NUM_STATES == 2:
                before = before + (tl.load(cells + step * H + at_column, wide, 0.0),)
            after = STEP(products, before, (), (), wide, H)
            tl.store(row + ROW + X + R + at_column, after[0], wide)
            tl.store(outputs + step * H + at_column, after[0], wide)
            if NUM_STATES == 2:
                tl.store(cells + (step + 1) * H + at_column, after[1], wide)
            if C:
                tl.debug_barrier()
                _control(row + ROW + X + R, kept, control, H, C)
                tl.debug_barrier()
        if C:
            before_state = states + step % slots * state_size
            after_state = states + (step + 1) % slots * state_size
            MEMORY(memory, before_state, after_state, control, row + ROW + X, sequence, step, SIZES, NUM_BLOCKS > 0)
    tl.debug_barrier()
    if NUM_BLOCKS:
        _copy(rows, length * ROW + X + R, lasts[0] + sequence * H, H)
        if NUM_STATES == 2:
            _copy(cells, length * H, lasts[1] + sequence * H, H)
        _copy(rows, length * ROW + X, lasts[NUM_STATES] + sequence * R, R)
        if C:
            _copy(states, length % slots * state_size, lasts[NUM_STATES + 1] + sequence * state_size, state_size)
        _copy(None, 0, rows + length * ROW, X)
        _copy(None, 0, rows + (length + 1) * ROW, (steps - length) * ROW)
        _copy(None, 0, outputs + length * H, (steps - length) * H)


@triton.jit(do_not_specialize=["steps", "slots", "state_size"])
def backward(
    d_rows,
    d_outputs,
    kept,
    d_firsts,
    memory,
    d_memory,
    d_last,
    d_state,
    placed,
    lengths,
    steps,
    slots,
    state_size,
    X: tl.constexpr,
    R: tl.constexpr,
    H: tl.constexpr,
    C: tl.constexpr,
    NUM_BLOCKS: tl.constexpr,
    NUM_PRODUCTS: tl.constexpr,
    NUM_STATES: tl.constexpr,
    NUM_PLACED: tl.constexpr,
    STEP: tl.constexpr,
    MEMORY: tl.constexpr,
    SIZES: tl.constexpr,
):
    """Run sequences backwards; arguments as those of :func:`forward`.

    Args:
        d_rows: gets the gradients of the products, ``[sequences, steps + 1, products + C]``: of the blocks to which the
            input adds, and of those to which the state adds, if they are others, in the order of the weights; of the
            controls one place later, where the state is that they are made of.
        d_outputs: gradients of the controller's states at each step, or without a controller of what is read; None: 0.
        d_firsts: get those of the controller's states and of what was read, before the first step.
        d_memory: get those of the tensors of the memory.
        d_last: that of the memory's state after the last step; None: 0.
        d_state: ``[sequences, 2, state_size]``; gets that of the state before the first step, at 0.
        placed: gradients of what there is after the last step, into ``d_firsts`` and ``d_memory``.
    """
    ROW: tl.constexpr = X + R + H
    FREE: tl.constexpr = NUM_BLOCKS - NUM_PRODUCTS
    P: tl.constexpr = NUM_PRODUCTS * H
    OF_STATE: tl.constexpr = P if FREE else 0
    D_ROW: tl.constexpr = OF_STATE + P + C
    sequence = tl.program_id(0).to(tl.int64)
    length = steps
    if lengths is not None:
        length = tl.maximum(0, tl.minimum(tl.load(lengths + sequence).to(tl.int32), steps))
    rows, kept_blocks, cells, controls, states, weight, state_weight, _, control_weight, _ = kept
    rows += sequence * (steps + 1) * ROW
    controls += sequence * steps * C
    d_rows += sequence * (steps + 1) * D_ROW
    states += sequence * slots * state_size
    d_read = d_firsts[NUM_STATES] + sequence * R
    for at in tl.static_range(NUM_PLACED):
        given, target, stride, size, begin, count = placed[at]
        _place(given, target + sequence * stride, sequence, size, begin, count)
    if NUM_BLOCKS:
        kept_blocks += sequence * steps * NUM_BLOCKS * H
    if NUM_STATES == 2:
        cells += sequence * (steps + 1) * H
    if C:
        d_state += sequence * 2 * state_size
        _place(d_last, d_state + length % 2 * state_size, sequence, state_size, 0, state_size)
    for back in range(length):
        tl.debug_barrier()
        step = length - 1 - back
        row, control, d_row = rows + step * ROW, controls + step * C, d_rows + step * D_ROW
        d_control = d_row + D_ROW + OF_STATE + P
        d_output = d_outputs
        if d_outputs is not None:
            d_output = d_outputs + (sequence * steps + step) * (H if NUM_BLOCKS else R)
        if C:
            if NUM_BLOCKS == 0:
                _copy(d_output, 0, d_read, R)
                tl.debug_barrier()
            before_state = states + step % slots * state_size
            after_state = states + (step + 1) % slots * state_size
            d_before_state, d_after_state = d_state + step % 2 * state_size, d_state + (step + 1) % 2 * state_size
            MEMORY(
                memory, d_memory, before_state, after_state, control, d_before_state, d_after_state, d_read, d_control,
                sequence, step, SIZES, NUM_BLOCKS > 0,
            )  # fmt: skip
            tl.debug_barrier()
        if NUM_BLOCKS:
            column = tl.arange(0, triton.next_power_of_2(H))
            wide, at_column = (column < H)[None, :], column[None, :]
            d_hidden, d_cell = d_firsts[0] + sequence * H, d_firsts[NUM_STATES - 1] + sequence * H
            d = tl.load(d_hidden + column, column < H, 0.0)
            if d_outputs is not None:
                d += tl.load(d_output + column, column < H, 0.0)
            if C:
                d += _transposed(control_weight, d_control, column, C, H, H)
            products = ()
            for at in tl.static_range(NUM_BLOCKS):
                block = kept_blocks + (step * NUM_BLOCKS + at) * H
                products = products + (tl.load(block + at_column, wide, 0.0),)
            before = (tl.load(row + X + R + at_column, wide, 0.0),)
            after = (tl.load(row + ROW + X + R + at_column, wide, 0.0),)
            d_after = (d[None, :],)
            if NUM_STATES == 2:
                before = before + (tl.load(cells + step * H + at_column, wide, 0.0),)
                after = after + (tl.load(cells + (step + 1) * H + at_column, wide, 0.0),)
                d_after = d_after + (tl.load(d_cell + at_column, wide, 0.0),)
            gradients = STEP(products, before, (), (), after, d_after, wide, H)
            for at in tl.static_range(NUM_BLOCKS):
                if at < NUM_PRODUCTS:
                    of_block = d_row + (at - FREE + NUM_PRODUCTS) % NUM_PRODUCTS * H
                    tl.store(of_block + at_column, gradients[at], wide)
                if at >= FREE:
                    tl.store(d_row + OF_STATE + (at - FREE) * H + at_column, gradients[at], wide)
            tl.debug_barrier()  # all have read the gradients of the states
            if NUM_STATES == 2:
                tl.store(d_cell + at_column, gradients[NUM_BLOCKS + 1], wide)
            tl.store(d_hidden + at_column, tl.zeros([1, column.shape[0]], d.dtype) + gradients[NUM_BLOCKS], wide)
            tl.debug_barrier()
            d = tl.load(d_hidden + column, column < H, 0.0) + _transposed(
                state_weight, d_row + OF_STATE, column, P, H, H
            )
            tl.store(d_hidden + column, d, column < H)
            if R:
                of_read = tl.arange(0, triton.next_power_of_2(R))
                tl.store(d_read + of_read, _transposed(weight + X, d_row, of_read, P, R, X + R), of_read < R)
    _copy(None, 0, d_rows + OF_STATE + P, C)
    _copy(None, 0, d_rows + length * D_ROW, OF_STATE + P)
    _copy(None, 0, d_rows + (length + 1) * D_ROW, (steps - length) * D_ROW)


@triton.jit
def _copy(source, begin, target, size):
    """Copy numbers; 0 without a source."""
    for first in range(0, size, BLOCK):
        at = first + tl.arange(0, BLOCK)
        value = tl.zeros([BLOCK], target.dtype.element_ty)
        if source is not None:
            value = tl.load(source + begin + at, at < size, 0.0)
        tl.store(target + at, value, at < size)


@triton.jit
def _place(given, target, sequence, size, begin, count):
    """Put the numbers of a sequence at their place in the target, with 0 around them."""
    for first in range(0, size, BLOCK):
        at = first + tl.arange(0, BLOCK)
        value = tl.zeros([BLOCK], target.dtype.element_ty)
        if given is not None:
            value = tl.load(given + sequence * count + at - begin, (at >= begin) & (at < begin + count), 0.0)
        tl.store(target + at, value, at < size)


@triton.jit
def _product(weight, vector, output, OUTPUTS, INPUTS: tl.constexpr, STRIDE: tl.constexpr):
    """``W x`` for some outputs, of which there are ``OUTPUTS``."""
    DEPTH: tl.constexpr = _depth(INPUTS, output.shape[0])
    total = tl.zeros([output.shape[0]], vector.dtype.element_ty)
    for first in range(0, INPUTS, DEPTH):
        at = first + tl.arange(0, DEPTH)
        value = tl.load(vector + at, at < INPUTS, 0.0)
        there = (output < OUTPUTS)[:, None] & (at < INPUTS)[None, :]
        total += tl.sum(tl.load(weight + output[:, None] * STRIDE + at[None, :], there, 0.0) * value[None, :], 1)
    return total


@triton.jit
def _transposed(weight, vector, column, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, STRIDE: tl.constexpr):
    """``W^T d``."""
    DEPTH: tl.constexpr = _depth(OUTPUTS, column.shape[0])
    total = tl.zeros([column.shape[0]], vector.dtype.element_ty)
    for first in range(0, OUTPUTS, DEPTH):
        at = first + tl.arange(0, DEPTH)
        value = tl.load(vector + at, at < OUTPUTS, 0.0)
        there = (at < OUTPUTS)[:, None] & (column < INPUTS)[None, :]
        total += tl.sum(tl.load(weight + at[:, None] * STRIDE + column[None, :], there, 0.0) * value[:, None], 0)
    return total


@triton.jit
def _block(
    row,
    blocks,
    kept,
    column,
    AT: tl.constexpr,
    X: tl.constexpr,
    R: tl.constexpr,
    H: tl.constexpr,
    NUM_BLOCKS: tl.constexpr,
    NUM_PRODUCTS: tl.constexpr,
):
    """A block of the controller. Of torch's GRU the input adds to ``r, z, n`` in this order, and ``n`` is the first."""
    FREE: tl.constexpr = NUM_BLOCKS - NUM_PRODUCTS
    _, _, _, _, _, weight, state_weight, state_bias, _, _ = kept
    total = tl.zeros([column.shape[0]], row.dtype.element_ty)
    if AT < NUM_PRODUCTS:
        place: tl.constexpr = (AT - FREE + NUM_PRODUCTS) % NUM_PRODUCTS * H
        total += tl.load(blocks + place + column, column < H, 0.0)
        if R:
            total += _product(weight + place * (X + R) + X, row + X, column, H, R, X + R)
    if AT >= FREE:
        of_state: tl.constexpr = (AT - FREE) * H
        total += tl.load(state_bias + of_state + column, column < H, 0.0)
        total += _product(state_weight + of_state * H, row + X + R, column, H, H, H)
    return total


@triton.jit
def _control(hidden, kept, control, H: tl.constexpr, C: tl.constexpr):
    """The controls of the memory."""
    SIZE: tl.constexpr = _depth(C, TILE // MOST_CONTROLS)
    for first in range(0, C, SIZE):
        output = first + tl.arange(0, SIZE)
        value = _product(kept[8], hidden, output, C, H, H) + tl.load(kept[9] + output, output < C, 0.0)
        tl.store(control + output, value, output < C)
