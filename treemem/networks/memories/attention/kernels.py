"""Attention of a controller in Triton: it reads ``sum_i softmax(q . m_i) m_i`` (Luong et al. 2015).

The control is the query ``q``, and the state is the weight of each row.
"""

from __future__ import annotations

import triton
import triton.language as tl

DEPTH = tl.constexpr(16)  # rows that are read together


@triton.jit
def forward(memory, before, after, control, readout, sequence, step, SIZES: tl.constexpr, IS_CONTROLLED: tl.constexpr):
    """Attend to the rows; see ``controllers/kernels.py``.

    Args:
        memory: rows ``[sequences, most, width]``, how many each sequence has, and ``most``.
        SIZES: width of the rows, and of a block of it and of the weights.
    """
    rows, lengths, most = memory
    S: tl.constexpr = SIZES[0]
    column, place = tl.arange(0, SIZES[1]), tl.arange(0, SIZES[2])
    rows += sequence * most * S
    count = tl.minimum(tl.load(lengths + sequence).to(tl.int32), most)
    query = tl.load(control + column, column < S, 0.0)
    scores = _products(rows, query, count, column, place, S)
    scores = tl.where(place < count, scores, float("-inf"))
    exponentials = tl.exp(scores - tl.where(count > 0, tl.max(scores, 0), 0.0))
    weights = exponentials / tl.where(count > 0, tl.sum(exponentials, 0), 1.0)
    tl.store(after + place, weights, place < most)
    total = tl.zeros([column.shape[0]], query.dtype)
    for first in range(0, count, DEPTH):
        row = first + tl.arange(0, DEPTH)
        there = row < count
        of_rows = tl.where(there, tl.gather(weights, tl.where(there, row, 0), 0), 0.0)
        total += tl.sum(of_rows[:, None] * _rows(rows, row, count, column, S), 0)
    tl.store(readout + column, total, column < S)


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
    """The gradients; adds to those of the rows. Arguments are those of :func:`forward`."""
    rows, lengths, most = memory
    S: tl.constexpr = SIZES[0]
    column, place = tl.arange(0, SIZES[1]), tl.arange(0, SIZES[2])
    rows += sequence * most * S
    d_rows = d_memory[0] + sequence * most * S
    count = tl.minimum(tl.load(lengths + sequence).to(tl.int32), most)
    query, d_read = tl.load(control + column, column < S, 0.0), tl.load(d_readout + column, column < S, 0.0)
    weights = tl.load(after + place, place < count, 0.0)
    d = _products(rows, d_read, count, column, place, S) + tl.load(d_after + place, place < count, 0.0)
    d_scores = weights * (d - tl.sum(weights * d, 0))
    d_query = tl.zeros([column.shape[0]], query.dtype)
    for first in range(0, count, DEPTH):
        row = first + tl.arange(0, DEPTH)
        there = row < count
        at = tl.where(there, row, 0)
        of_scores, of_rows = tl.where(there, tl.gather(d_scores, at, 0), 0.0), tl.gather(weights, at, 0)
        d_query += tl.sum(of_scores[:, None] * _rows(rows, row, count, column, S), 0)
        added = of_scores[:, None] * query[None, :] + of_rows[:, None] * d_read[None, :]
        target = d_rows + row[:, None] * S + column[None, :]
        tl.store(target, _rows(d_rows, row, count, column, S) + added, there[:, None] & (column < S)[None, :])
    tl.store(d_control + column, d_query, column < S)
    tl.store(d_before + place, tl.zeros([place.shape[0]], query.dtype), place < most)


@triton.jit
def _rows(rows, row, count, column, S: tl.constexpr):
    there = (row < count)[:, None] & (column < S)[None, :]
    return tl.load(rows + row[:, None] * S + column[None, :], there, 0.0)


@triton.jit
def _products(rows, vector, count, column, place, S: tl.constexpr):
    """The product of each row with a vector."""
    products = tl.zeros([place.shape[0]], vector.dtype)
    for first in range(0, count, DEPTH):
        row = first + tl.arange(0, DEPTH)
        of_rows = tl.sum(_rows(rows, row, count, column, S) * vector[None, :], 1)
        is_here = (place >= first) & (place < first + DEPTH)
        products = tl.where(is_here, tl.gather(of_rows, tl.where(is_here, place - first, 0), 0), products)
    return products
