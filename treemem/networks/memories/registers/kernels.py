"""A step of registers in Triton: Graves et al. 2014, eq. 1-9.

A control has the value that is written; what addresses rows for reading and for writing, see :func:`_address`; the key
that is written; and what is erased. The state has the rows that are written, then the weights of reading all rows and
of writing. Rows that are only read come first.
"""

from __future__ import annotations

import triton
import triton.language as tl

from treemem.engines.cuda.functions import hyperbolic_tangent, softplus


@triton.jit
def forward(memory, before, after, control, readout, sequence, step, SIZES: tl.constexpr, IS_CONTROLLED: tl.constexpr):
    """Address, read the rows of the step before, then write; see ``controllers/kernels.py``.

    Args:
        memory: rows that are only read, ``[sequences, prefix, width]``.
        SIZES: :class:`treemem.networks.memories.registers.native.RegisterForm`, and blocks of a row, of all rows, of
            those that are written, and of shifts.
    """
    V: tl.constexpr = SIZES[0]
    KEY: tl.constexpr = SIZES[1]
    PREFIX: tl.constexpr = SIZES[2]
    N: tl.constexpr = SIZES[3]
    HARD: tl.constexpr = SIZES[8]
    W: tl.constexpr = KEY + V
    ALL: tl.constexpr = PREFIX + N
    ADDRESS: tl.constexpr = _address_size(SIZES)
    column, place, place_of_all = tl.arange(0, SIZES[9]), tl.arange(0, SIZES[11]), tl.arange(0, SIZES[10])
    prefix = memory[0] + sequence * PREFIX * W
    rows = _all_rows(prefix, before, place_of_all, column, PREFIX, N, W)
    last = tl.load(before + N * W + place_of_all, place_of_all < ALL, 0.0)
    read = _weights(control + V, rows, last, place_of_all, column, ALL, SIZES, IS_CONTROLLED)[0]
    if HARD:
        read = _hard(read, place_of_all)
    readable = tl.sum(read[:, None] * rows, 0)
    tl.store(readout + column - KEY, readable, (column >= KEY) & (column < W))
    written_rows = _rows(before, place, column, N, W)
    last_written = tl.load(before + N * W + ALL + place, place < N, 0.0)
    write = _weights(control + V + ADDRESS, written_rows, last_written, place, column, N, SIZES, IS_CONTROLLED)[0]
    if HARD:
        write = _hard(write, place)
    written, erased = _written(control, column, SIZES, IS_CONTROLLED)
    written_rows = written_rows * (1 - write[:, None] * erased[None, :]) + write[:, None] * written[None, :]
    tl.store(after + place[:, None] * W + column[None, :], written_rows, (place < N)[:, None] & (column < W)[None, :])
    tl.store(after + N * W + place_of_all, read, place_of_all < ALL)
    tl.store(after + N * W + ALL + place, write, place < N)


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
    """The gradients; adds to those of rows that are only read. Arguments are those of :func:`forward`."""
    V: tl.constexpr = SIZES[0]
    KEY: tl.constexpr = SIZES[1]
    PREFIX: tl.constexpr = SIZES[2]
    N: tl.constexpr = SIZES[3]
    ERASES: tl.constexpr = SIZES[7]
    W: tl.constexpr = KEY + V
    ALL: tl.constexpr = PREFIX + N
    ADDRESS: tl.constexpr = _address_size(SIZES)
    column, place, place_of_all = tl.arange(0, SIZES[9]), tl.arange(0, SIZES[11]), tl.arange(0, SIZES[10])
    prefix, d_prefix = memory[0] + sequence * PREFIX * W, d_memory[0] + sequence * PREFIX * W
    # What is written.
    rows = _rows(before, place, column, N, W)
    d_rows = _rows(d_after, place, column, N, W)
    write = tl.load(after + N * W + ALL + place, place < N, 0.0)
    written, erased = _written(control, column, SIZES, IS_CONTROLLED)
    d_written, d_erased = tl.sum(write[:, None] * d_rows, 0), -tl.sum(write[:, None] * rows * d_rows, 0)
    d_write = tl.load(d_after + N * W + ALL + place, place < N, 0.0)
    d_write += tl.sum(d_rows * (written[None, :] - rows * erased[None, :]), 1)
    d_rows *= 1 - write[:, None] * erased[None, :]
    if IS_CONTROLLED:
        d_written *= 1 - written * written
    tl.store(d_control + column - KEY, d_written, (column >= KEY) & (column < W))
    tl.store(d_control + V + 2 * ADDRESS + column, d_written, column < KEY)
    if ERASES:
        if IS_CONTROLLED:
            d_erased *= erased * (1 - erased)
        tl.store(d_control + V + 2 * ADDRESS + KEY + column, d_erased, column < W)
    last = tl.load(before + N * W + ALL + place, place < N, 0.0)
    at = V + ADDRESS
    d_last, d_keys = _address_backward(
        control + at, d_control + at, rows, last, d_write, place, column, N, SIZES, IS_CONTROLLED
    )
    tl.store(d_before + N * W + ALL + place, d_last, place < N)
    target, there = place[:, None] * W + column[None, :], (place < N)[:, None] & (column < W)[None, :]
    tl.store(d_before + target, d_rows + d_keys, there)
    # What is read.
    rows = _all_rows(prefix, before, place_of_all, column, PREFIX, N, W)
    read = tl.load(after + N * W + place_of_all, place_of_all < ALL, 0.0)
    d_read = tl.load(d_readout + column - KEY, (column >= KEY) & (column < W), 0.0)
    d_weights = tl.load(d_after + N * W + place_of_all, place_of_all < ALL, 0.0) + tl.sum(rows * d_read[None, :], 1)
    last = tl.load(before + N * W + place_of_all, place_of_all < ALL, 0.0)
    d_last, d_keys = _address_backward(
        control + V, d_control + V, rows, last, d_weights, place_of_all, column, ALL, SIZES, IS_CONTROLLED
    )
    tl.store(d_before + N * W + place_of_all, d_last, place_of_all < ALL)
    d_keys += read[:, None] * d_read[None, :]
    tl.debug_barrier()
    target = (place_of_all - PREFIX)[:, None] * W + column[None, :]
    there = ((place_of_all >= PREFIX) & (place_of_all < ALL))[:, None] & (column < W)[None, :]
    tl.store(d_before + target, tl.load(d_before + target, there, 0.0) + d_keys, there)
    if PREFIX:
        target = place_of_all[:, None] * W + column[None, :]
        there = (place_of_all < PREFIX)[:, None] & (column < W)[None, :]
        tl.store(d_prefix + target, tl.load(d_prefix + target, there, 0.0) + d_keys, there)


@triton.constexpr_function
def _address_size(sizes):
    """How many numbers address rows."""
    value, key, _, _, cosine, location, max_shift = sizes[:7]
    return (key or value) + cosine + location * (2 * max_shift + 3)


@triton.jit
def _rows(pointer, place, column, COUNT: tl.constexpr, W: tl.constexpr):
    there = (place < COUNT)[:, None] & (column < W)[None, :]
    return tl.load(pointer + place[:, None] * W + column[None, :], there, 0.0)


@triton.jit
def _all_rows(prefix, state, place, column, PREFIX: tl.constexpr, N: tl.constexpr, W: tl.constexpr):
    """Rows that are only read, then the others."""
    there = ((place >= PREFIX) & (place < PREFIX + N))[:, None] & (column < W)[None, :]
    rows = tl.load(state + (place - PREFIX)[:, None] * W + column[None, :], there, 0.0)
    if PREFIX:
        rows += _rows(prefix, place, column, PREFIX, W)
    return rows


@triton.jit
def _written(control, column, SIZES: tl.constexpr, IS_CONTROLLED: tl.constexpr):
    """What is written, and how much of a row is erased for it."""
    V: tl.constexpr = SIZES[0]
    KEY: tl.constexpr = SIZES[1]
    W: tl.constexpr = KEY + V
    AT: tl.constexpr = V + 2 * _address_size(SIZES)
    written = tl.load(control + column - KEY, (column >= KEY) & (column < W), 0.0)
    if KEY:
        written += tl.load(control + AT + column, column < KEY, 0.0)
    erased = tl.where(column < W, 1.0, 0 * written)
    if SIZES[7]:
        erased = tl.load(control + AT + KEY + column, column < W, 0.0)
        erased = tl.where(column < W, tl.sigmoid(erased), 0.0) if IS_CONTROLLED else erased
    return hyperbolic_tangent(written) if IS_CONTROLLED else written, erased


@triton.jit
def _hard(weights, place):
    """1 at the first of the largest weights, else 0. What is not a number stays so."""
    first = tl.argmax(weights, 0, tie_break_left=True)
    return tl.where(weights != weights, weights, tl.where(place == first, 1.0, 0 * weights))


@triton.jit
def _softmax(scores, there):
    scores = tl.where(there, scores, float("-inf"))
    exponentials = tl.exp(scores - tl.max(scores, 0))
    return exponentials / tl.sum(exponentials, 0)


@triton.jit
def _moved(values, place, shift, COUNT: tl.constexpr):
    """Values moved along the rows, around the end."""
    source = (place - shift + COUNT * (1 + tl.abs(shift) // COUNT)) % COUNT
    return tl.where(place < COUNT, tl.gather(values, source, 0), 0.0)


@triton.jit
def _entry(vector, index, AT: tl.constexpr):
    return tl.sum(tl.where(index == AT, vector, 0.0), 0)


@triton.jit
def _weights(control, rows, last, place, column, COUNT: tl.constexpr, SIZES: tl.constexpr, IS_CONTROLLED: tl.constexpr):
    """Weights of rows, and what they come from; eq. 5-9.

    A key addresses rows; with the cosine its strength, which softplus makes positive; with a location the gate, shifts,
    of which it takes the softmax, and the exponent, to whose softplus it adds 1.
    """
    COSINE: tl.constexpr = SIZES[4]
    LOCATION: tl.constexpr = SIZES[5]
    FARTHEST: tl.constexpr = SIZES[6]
    K: tl.constexpr = SIZES[1] if SIZES[1] else SIZES[0]
    key = tl.load(control + column, column < K, 0.0)
    similarity = tl.sum(rows * key[None, :], 1)
    length, strength, content = similarity, tl.sum(key, 0), similarity
    if COSINE:
        keys = tl.where((column < K)[None, :], rows, 0.0)
        length = tl.sqrt((tl.sum(key * key, 0) + 1e-6) * (tl.sum(keys * keys, 1) + 1e-6))
        similarity = similarity / length
        strength = softplus(tl.load(control + K))
        content = strength * similarity
    content = _softmax(content, place < COUNT)
    weights, moved, mixed, powers, total, largest, gate, power = (
        content,
        content,
        content,
        content,
        strength,
        strength,
        strength,
        strength,
    )
    index = tl.arange(0, SIZES[12])
    shifts = 0.0 * index
    if LOCATION:
        AT: tl.constexpr = K + COSINE
        gate = tl.load(control + AT)
        gate = tl.sigmoid(gate) if IS_CONTROLLED else gate
        shifts = _softmax(tl.load(control + AT + 1 + index, index < 2 * FARTHEST + 1, 0.0), index < 2 * FARTHEST + 1)
        power = 1 + softplus(tl.load(control + AT + 2 * FARTHEST + 2))
        mixed = gate * content + (1 - gate) * last
        moved = 0 * content
        for at in tl.static_range(2 * FARTHEST + 1):
            moved += _entry(shifts, index, at) * _moved(mixed, place, at - FARTHEST, COUNT)
        largest = tl.max(tl.where(place < COUNT, moved, float("-inf")), 0)
        powers = tl.where(place < COUNT, _power(moved / largest, power), 0.0)
        total = tl.sum(powers, 0)
        weights = powers / total
    return weights, similarity, length, strength, content, gate, shifts, mixed, moved, largest, powers, total, power


@triton.jit
def _power(base, exponent):
    """``base ** exponent``, for a base from 0 to 1."""
    at_0 = tl.where(exponent == 0, 1.0, 0 * base)
    return tl.where(base == 0, at_0, tl.exp(exponent * tl.log(tl.where(base == 0, 1.0, base))))


@triton.jit
def _address_backward(
    control,
    d_control,
    rows,
    last,
    d,
    place,
    column,
    COUNT: tl.constexpr,
    SIZES: tl.constexpr,
    IS_CONTROLLED: tl.constexpr,
):
    """The gradients of the weights before and of the rows, from that of the weights; sets that of the control."""
    COSINE: tl.constexpr = SIZES[4]
    LOCATION: tl.constexpr = SIZES[5]
    FARTHEST: tl.constexpr = SIZES[6]
    K: tl.constexpr = SIZES[1] if SIZES[1] else SIZES[0]
    (weights, similarity, length, strength, content, gate, shifts, mixed, moved, largest, powers, total, power) = (
        _weights(control, rows, last, place, column, COUNT, SIZES, IS_CONTROLLED)
    )
    d_last = 0 * d
    if LOCATION:
        AT: tl.constexpr = K + COSINE
        index = tl.arange(0, SIZES[12])
        base = tl.where(place < COUNT, moved / largest, 0.0)
        d_powers = (d - tl.sum(d * weights, 0)) / total
        d_moved = tl.where(place < COUNT, d_powers * power * _power(base, power - 1) / largest, 0.0)
        logarithm = tl.log(tl.where(base > 0, base, 1.0))
        d_power = tl.sum(tl.where(place < COUNT, d_powers * powers * logarithm, 0.0), 0)
        d_mixed, d_shifts = 0 * d, 0 * shifts
        for at in tl.static_range(2 * FARTHEST + 1):
            d_mixed += _entry(shifts, index, at) * _moved(d_moved, place, FARTHEST - at, COUNT)
            of_shift = tl.sum(d_moved * _moved(mixed, place, at - FARTHEST, COUNT), 0)
            d_shifts = tl.where(index == at, of_shift, d_shifts)
        d_shifts = shifts * (d_shifts - tl.sum(shifts * d_shifts, 0))
        d_gate = tl.sum(d_mixed * (content - last), 0)
        if IS_CONTROLLED:
            d_gate *= gate * (1 - gate)
        tl.store(d_control + AT, d_gate)
        tl.store(d_control + AT + 1 + index, d_shifts, index < 2 * FARTHEST + 1)
        tl.store(d_control + AT + 2 * FARTHEST + 2, d_power * _softplus_slope(power - 1))
        d, d_last = gate * d_mixed, (1 - gate) * d_mixed
    d_scores = content * (d - tl.sum(d * content, 0))
    key = tl.load(control + column, column < K, 0.0)
    keys = tl.where((column < K)[None, :], rows, 0.0)
    d_key, d_keys = 0 * key, 0 * rows
    if COSINE:
        tl.store(d_control + K, tl.sum(d_scores * similarity, 0) * _softplus_slope(strength))
        d_scores = strength * d_scores
        squares = tl.sum(key * key, 0) + 1e-6
        d_key = -key * tl.sum(d_scores * similarity, 0) / squares
        d_keys = -(d_scores * similarity * squares / (length * length))[:, None] * keys
        d_scores = d_scores / length
    tl.store(d_control + column, d_key + tl.sum(d_scores[:, None] * keys, 0), column < K)
    return d_last, d_keys + d_scores[:, None] * key[None, :]


@triton.jit
def _softplus_slope(value):
    """The slope of softplus where it has this value."""
    return tl.where(value > 20, 1.0, 1 - tl.exp(-value))
