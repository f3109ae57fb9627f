"""What continuous recursion computes between products, in Triton, with the neighbours of equation 5; and its gradients.

A program takes a sequence. Its positions are those of the longest one: START, the tokens, END and padding. Tensors hold
a row for each position of each sequence; those of several steps hold these rows step by step. ``now``, ``then`` and
``kept`` say which steps are meant: the one before, the one after, and where what is made of a step is kept. The steps
of a score and of the cell are printed from formulas in torch.
"""

from __future__ import annotations

import triton
import triton.language as tl

_NUMBERS = ["now", "then", "kept", "sequences", "size", "step"]


@triton.jit
def _shifted(matrix, BY: tl.constexpr, P: tl.constexpr):
    """Give each column what the column before it has, and the first one 0; ``BY`` is -1 for the column after it."""
    column = tl.arange(0, P)[None, :] - BY + tl.zeros([P, P], tl.int32)
    there = (column >= 0) & (column < P)
    return tl.where(there, tl.gather(matrix, tl.where(there, column, 0), 1), 0.0)


@triton.jit
def _neighbors(existence, SIDE: tl.constexpr, P: tl.constexpr):
    """How far each position is the next one on a side of another, ``[P, P]``, and the sums of existence on the way.

    ``existence`` is ``[1, P]``; ``SIDE`` is 1 for the right and -1 for the left.
    """
    place = tl.arange(0, P)
    there = (place[None, :] - place[:, None]) * SIDE > 0
    sums = tl.cumsum(tl.where(there, existence, 0.0), 1, reverse=SIDE < 0)
    capped = tl.minimum(sums, 1.0)
    return capped - _shifted(capped, SIDE, P), sums


@triton.jit
def _neighbors_backward(d_neighbors, sums, SIDE: tl.constexpr, P: tl.constexpr):
    """The gradient of the existence, ``[1, P]``."""
    place = tl.arange(0, P)
    there = (place[None, :] - place[:, None]) * SIDE > 0
    d_sums = tl.where(sums <= 1, d_neighbors - _shifted(d_neighbors, -SIDE, P), 0.0)
    d_existence = tl.cumsum(d_sums, 1, reverse=SIDE > 0)
    return tl.sum(tl.where(there, d_existence, 0.0), 0, keep_dims=True)


@triton.jit(do_not_specialize=_NUMBERS)
def look(
    states, existence, read, now, kept, sequences, size,
    N: tl.constexpr, D: tl.constexpr, P: tl.constexpr, PART: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Read the neighbours. The programs of a sequence take ``PART`` positions of vectors each.

    Args:
        states, existence: of steps.
        read: gets of each position ``N`` neighbours on the left, the farthest first, its own state, and ``N`` on the
            right, ``[rows, (2 * N + 1) * D]``.
        sequences, size: number of sequences, and of positions of each.
        P: a power of 2 that is not less than ``size``.
    """
    begin = tl.program_id(0).to(tl.int64) * size
    place, d = tl.arange(0, P), tl.program_id(1) * PART + tl.arange(0, PART)[None, :]
    there = (place[:, None] < size) & (d < D)
    row = now.to(tl.int64) * sequences * size + begin
    e = tl.load(existence + row + place[None, :], place[None, :] < size, 0.0)
    seen = tl.load(states + (row + place[:, None]) * D + d, there, 0.0)
    target = read + (kept.to(tl.int64) * sequences * size + begin + place[:, None]) * (2 * N + 1) * D + d
    tl.store(target + N * D, seen, there)
    for side in tl.static_range(-1, 2, 2):
        neighbors, _ = _neighbors(e, side, P)
        values = seen
        for distance in tl.static_range(1, N + 1):
            values = tl.dot(neighbors, values, input_precision=PRECISION, out_dtype=values.dtype)
            tl.store(target + (N + side * distance) * D, values, there)


@triton.jit(do_not_specialize=_NUMBERS)
def look_backward(
    existence, read, d_read, d_left, d_choices, d_states, d_existence, now, kept, sequences, size,
    N: tl.constexpr, MODULATED: tl.constexpr,
    D: tl.constexpr, P: tl.constexpr, PART: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Take :func:`look` backwards; a program takes a sequence.

    Args:
        existence, read: as the forward pass left them.
        d_read: gradients of one step, but for what ``d_left`` adds to the nearest neighbour on the left; to each are
            added those of what was made of it.
        d_choices: of one step, what :func:`advance_backward` stores for the gradients of the neighbours.
        d_states, d_existence: of one step, are added to.
    """
    T: tl.constexpr = read.dtype.element_ty
    begin = tl.program_id(0).to(tl.int64) * size
    place = tl.arange(0, P)
    column, row = place[:, None] < size, place[None, :] < size
    of_step, of_row = sequences * size, begin + place[:, None]
    e = tl.load(existence + now.to(tl.int64) * of_step + begin + place[None, :], row, 0.0)
    values = read + (kept.to(tl.int64) * of_step + of_row) * (2 * N + 1) * D
    d_e = tl.load(d_existence + begin + place[None, :], row, 0.0)
    for side in tl.static_range(-1, 2, 2):
        neighbors, sums = _neighbors(e, side, P)
        for part in range(0, D, PART):
            d = part + tl.arange(0, PART)[None, :]
            there = column & (d < D)
            gradients = d_read + of_row * (2 * N + 1) * D + d
            d_values = tl.zeros([P, PART], T)
            for back in range(N):
                target = gradients + (N + side * (N - back)) * D
                d_values += tl.load(target, there, 0.0)
                if side < 0:
                    d_values += tl.load(d_left + of_row * D + d, there & (back == N - 1), 0.0)
                tl.store(target, d_values, there)
                d_values = tl.dot(tl.trans(neighbors), d_values, input_precision=PRECISION, out_dtype=T)
            if side < 0:
                d_values += tl.load(gradients + N * D, there, 0.0)
            state = d_states + of_row * D + d
            tl.store(state, tl.load(state, there, 0.0) + d_values, there)
        tl.debug_barrier()  # all threads may read the gradients of what was seen
        d_neighbors = tl.zeros([P, P], T)
        if MODULATED:
            d_among = tl.load(d_choices + of_step + of_row, column, 0.0)
            d_neighbors += d_among * tl.load(d_choices + 3 * of_step + begin + place[None, :], row, 0.0)
        if side < 0:
            d_taken = tl.load(d_choices + of_row, column, 0.0)
            d_neighbors += d_taken * tl.load(d_choices + 2 * of_step + begin + place[None, :], row, 0.0)
        for part in range(0, D, PART):
            d = part + tl.arange(0, PART)[None, :]
            there = column & (d < D)
            for back in range(N):
                of_side = N + side * (N - back)
                d_values = tl.load(d_read + (of_row * (2 * N + 1) + of_side) * D + d, there, 0.0)
                source = tl.load(values + (of_side - side) * D + d, there, 0.0)
                d_neighbors = tl.dot(d_values, tl.trans(source), d_neighbors, input_precision=PRECISION, out_dtype=T)
        d_e += _neighbors_backward(d_neighbors, sums, side, P)
    tl.store(d_existence + begin + place[None, :], d_e, row)


@triton.jit
def _choices(
    window, e, weight, bias, length, place, wide,
    EPSILON: tl.constexpr, MODULATED: tl.constexpr, D: tl.constexpr, P: tl.constexpr, SCORE: tl.constexpr,
):  # fmt: skip
    """Scores and their maximum, who moves among whom, and how far positions give way; columns but for ``e``."""
    (score,) = SCORE((window,), (), (), (weight,), wide, D)
    score += bias
    most = tl.max(tl.where(place <= length + 1, score, float("-inf")), 0, keep_dims=True)
    highest = tl.maximum(most, 0.0)
    moves = tl.where((place >= 1) & (place < length), tl.exp(score - highest), 0.0)
    among = moves + tl.exp(-highest) + tl.full([1, 1], EPSILON, window.dtype)
    left, _ = _neighbors(e, -1, P)
    if MODULATED:
        right, _ = _neighbors(e, 1, P)
        among += tl.sum((left + right) * tl.trans(moves), 1, keep_dims=True)
    return score, most, highest, moves, among, moves / among, left


@triton.jit
def _window(window, taken, absent, change, row, place, d, rows, wide, D: tl.constexpr):
    """The hidden layer of the scores, with what features add."""
    values = tl.load(window + (row + place) * D + d, rows & wide, 0.0)
    if change is not None:
        share = tl.load(taken, rows, 0.0)
        values += tl.load(absent + d, wide, 0.0) + share * tl.load(change + d, wide, 0.0)
    return values


@triton.jit
def _of_cell(gates, read, states, gain, shift, row, now_row, place, d, rows, wide, N: tl.constexpr, D: tl.constexpr):
    """What the step of the cell reads: products, children and learned vectors."""
    there = rows & wide
    products = gates + (row + place) * 4 * D + d
    return (
        (
            tl.load(products, there, 0.0),
            tl.load(products + D, there, 0.0),
            tl.load(products + 2 * D, there, 0.0),
            tl.load(products + 3 * D, there, 0.0),
        ),
        (
            tl.load(read + ((row + place) * (2 * N + 1) + N - 1) * D + d, there, 0.0),
            tl.load(states + (now_row + place) * D + d, there, 0.0),
        ),
        (tl.load(gain + d, wide, 0.0), tl.load(shift + d, wide, 0.0)),
    )


@triton.jit(do_not_specialize=_NUMBERS)
def advance(
    gates, window, read, states, existence, taken, going, total, ended_well, lengths,
    gain, shift, weight, bias, absent, change, now, then, kept, sequences, size, step,
    EPSILON: tl.constexpr, THRESHOLD: tl.constexpr, MODULATED: tl.constexpr, N: tl.constexpr,
    D: tl.constexpr, P: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    SCORE: tl.constexpr, CELL: tl.constexpr,
):  # fmt: skip
    """Choose who gives way, and take the step.

    Args:
        gates, window: what the products give to the cell and to the hidden layer of the scores.
        read: what :func:`look` gives.
        states, existence, taken, going: of steps; those of ``then`` are set. ``going`` has a number for each sequence.
        total: is added to.
        ended_well: of each sequence, is set to 1 if only the last token is left.
        lengths: number of tokens, int64.
        gain, shift: of the layer norm.
        weight, bias: of the scores.
        absent, change: of the features, or None.
        step: from 1.
    """
    sequence = tl.program_id(0).to(tl.int64)
    begin, of_step = sequence * size, sequences * size
    place, d = tl.arange(0, P)[:, None], tl.arange(0, BLOCK)[None, :]
    rows, wide = place < size, d < D
    now_row, then_row = now.to(tl.int64) * of_step + begin, then.to(tl.int64) * of_step + begin
    row = kept.to(tl.int64) * of_step + begin
    length = tl.load(lengths + sequence)
    e = tl.load(existence + now_row + place, rows, 0.0)
    hidden = _window(window, taken + now_row + place, absent, change, row, place, d, rows, wide, D)
    _, _, _, _, _, gives, left = _choices(
        hidden, tl.trans(e), tl.load(weight + d, wide, 0.0), tl.load(bias), length, place, wide,
        EPSILON, MODULATED, D, P, SCORE,
    )  # fmt: skip
    takes = tl.sum(left * tl.trans(gives), 1, keep_dims=True)
    takes = tl.where((place >= 1) & (place <= length), takes, 0.0)
    tl.store(taken + then_row + place, takes, rows)
    goes = tl.load(going + now.to(tl.int64) * sequences + sequence)
    after = tl.where(goes > 0, e * (1 - gives), e)
    tl.store(existence + then_row + place, after, rows)
    so_far = total + begin + place
    tl.store(so_far, tl.load(so_far, rows, 0.0) + e * goes, rows)
    remaining = tl.sum(tl.where(after > tl.full([1, 1], THRESHOLD, e.dtype), 1, 0)) - 2
    goes_on = (remaining > 1) & (length >= step + 1)
    tl.store(going + then.to(tl.int64) * sequences + sequence, goes_on.to(e.dtype))
    tl.store(ended_well + sequence, 1.0, remaining == 1)
    tl.debug_barrier()  # all threads may read who takes
    for first in range(0, P, ROWS):
        at = first + tl.arange(0, ROWS)[:, None]
        of_part = at < size
        products, children, learned = _of_cell(
            gates, read, states, gain, shift, row, now_row, at, d, of_part, wide, N, D
        )  # fmt: skip
        (composed,) = CELL(products, children, (), learned, wide, D)
        share = tl.load(taken + then_row + at, of_part, 0.0)
        state = tl.where(goes > 0, children[1] + share * (composed - children[1]), children[1])
        tl.store(states + (then_row + at) * D + d, state, of_part & wide)


@triton.jit(do_not_specialize=_NUMBERS)
def advance_backward(
    gates, window, read, states, existence, taken, going, lengths, gain, shift, weight, bias, absent, change,
    d_states, d_existence, d_taken, d_left, d_choices, d_learned, d_bias, now, kept, sequences, size,
    EPSILON: tl.constexpr, MODULATED: tl.constexpr, N: tl.constexpr,
    D: tl.constexpr, P: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    SCORE: tl.constexpr, SCORE_BACKWARD: tl.constexpr, CELL: tl.constexpr, CELL_BACKWARD: tl.constexpr,
):  # fmt: skip
    """Take :func:`advance` backwards.

    Args:
        gates, window: become their gradients.
        read, states, existence, taken, going, lengths, gain, shift, weight, bias, absent, change: as in the forward
            pass.
        d_states, d_existence, d_taken: gradients after the step; become those before it, but for what was read.
        d_left: gets the gradient of the nearest neighbour on the left, element by element.
        d_choices: gets four numbers of each position, from which those of the neighbours follow.
        d_learned: of each sequence, of ``weight``, ``gain`` and ``shift``, is added to, and so is ``d_bias``.
    """
    sequence = tl.program_id(0).to(tl.int64)
    begin, of_step = sequence * size, sequences * size
    place, d = tl.arange(0, P)[:, None], tl.arange(0, BLOCK)[None, :]
    rows, wide = place < size, d < D
    now_row, row = now.to(tl.int64) * of_step + begin, kept.to(tl.int64) * of_step + begin
    length = tl.load(lengths + sequence)
    goes = tl.load(going + now.to(tl.int64) * sequences + sequence)
    target = d_learned + sequence * 3 * D + d
    d_gain, d_shift = tl.load(target + D, wide, 0.0), tl.load(target + 2 * D, wide, 0.0)
    for first in range(0, P, ROWS):
        at = first + tl.arange(0, ROWS)[:, None]
        of_part = at < size
        there = of_part & wide
        products, children, learned = _of_cell(
            gates, read, states, gain, shift, row, now_row, at, d, of_part, wide, N, D
        )  # fmt: skip
        (composed,) = CELL(products, children, (), learned, wide, D)
        d_state = tl.load(d_states + (begin + at) * D + d, there, 0.0)
        d_takes = goes * tl.sum(tl.where(wide, d_state * (composed - children[1]), 0.0), 1, keep_dims=True)
        d_takes += tl.load(d_taken + begin + at, of_part, 0.0)
        tl.store(d_choices + begin + at, tl.where((at >= 1) & (at <= length), d_takes, 0.0), of_part)
        d_composed = goes * tl.load(taken + now_row + of_step + at, of_part, 0.0) * d_state
        of_cell = CELL_BACKWARD(products, children, (), learned, (0.0,), (d_composed,), wide, D)
        tl.debug_barrier()  # all threads have read what gradients may be stored over
        for block in tl.static_range(4):
            tl.store(gates + ((row + at) * 4 + block) * D + d, of_cell[block], there)
        tl.store(d_left + (begin + at) * D + d, of_cell[4], there)
        tl.store(d_states + (begin + at) * D + d, d_state - d_composed + of_cell[5], there)
        d_gain += _sum_of_rows(of_cell[6], there)
        d_shift += _sum_of_rows(of_cell[7], there)
    tl.store(target + D, d_gain, wide)
    tl.store(target + 2 * D, d_shift, wide)
    tl.debug_barrier()  # all threads may read the gradients of who takes

    of_row, there = begin + place, rows & wide
    e = tl.load(existence + now_row + place, rows, 0.0)
    hidden = _window(window, taken + now_row + place, absent, change, row, place, d, rows, wide, D)
    learned_score = tl.load(weight + d, wide, 0.0)
    score, most, highest, moves, among, gives, left = _choices(
        hidden, tl.trans(e), learned_score, tl.load(bias), length, place, wide, EPSILON, MODULATED, D, P, SCORE
    )
    d_takes = tl.load(d_choices + of_row, rows, 0.0)
    d_after = tl.load(d_existence + of_row, rows, 0.0)
    d_gives = tl.sum(tl.trans(left) * tl.trans(d_takes), 1, keep_dims=True) - goes * e * d_after
    d_among = -d_gives * gives / among
    d_moves = d_gives / among + d_among
    if MODULATED:
        right, _ = _neighbors(tl.trans(e), 1, P)
        d_moves += tl.sum(tl.trans(left + right) * tl.trans(d_among), 1, keep_dims=True)
    d_score = d_moves * moves
    d_highest = -tl.sum(d_score + d_among * tl.exp(-highest), 0, keep_dims=True)
    peak = tl.where((place <= length + 1) & (score == most) & (most >= 0), 1.0, 0.0)
    d_score += peak * d_highest / tl.maximum(tl.sum(peak, 0, keep_dims=True), 1.0)
    hidden = _window(window, taken + now_row + place, absent, change, row, place, d, rows, wide, D)
    d_window, d_weight = SCORE_BACKWARD((hidden,), (), (), (learned_score,), (0.0,), (d_score,), wide, D)
    tl.debug_barrier()
    tl.store(window + (row + place) * D + d, d_window, there)
    tl.store(target, tl.load(target, wide, 0.0) + _sum_of_rows(d_weight, there), wide)
    tl.store(d_bias + sequence, tl.load(d_bias + sequence) + tl.sum(d_score))
    tl.store(d_existence + of_row, d_after * (1 - goes * gives), rows)
    if change is not None:
        by_feature = tl.where(wide, d_window * tl.load(change + d, wide, 0.0), 0.0)
        tl.store(d_taken + of_row, tl.sum(by_feature, 1, keep_dims=True), rows)
    tl.store(d_choices + of_step + of_row, d_among, rows)
    tl.store(d_choices + 2 * of_step + of_row, gives, rows)
    tl.store(d_choices + 3 * of_step + of_row, moves, rows)


@triton.jit
def _sum_of_rows(values, there):
    return tl.sum(tl.where(there, values, 0.0), 0, keep_dims=True)
