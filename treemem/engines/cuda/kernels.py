"""Kernels that do not depend on the cell: products of rows, sums of products, and sums of rows."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def weight_gradients(
    jobs, d_products, inputs, d_weights, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr
):
    """Gradients of weights and biases; each program does one job.

    Args:
        jobs: int64 ``[jobs, 9]``: where the gradients of a product's results and its inputs begin, how many rows, how
            many results and inputs a row, where the gradients of weight and bias begin, and which block.
        d_products, inputs: numbers of rows.
        d_weights: gets the gradients.
    """
    T: tl.constexpr = d_weights.dtype.element_ty
    job = jobs + tl.program_id(0) * 9
    product, source, rows = tl.load(job), tl.load(job + 1), tl.load(job + 2)
    outputs, width, weight, bias = tl.load(job + 3), tl.load(job + 4), tl.load(job + 5), tl.load(job + 6)
    output = tl.load(job + 7) * COLUMNS + tl.arange(0, COLUMNS)
    column = tl.load(job + 8) * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    total = tl.zeros([COLUMNS, COLUMNS], T)
    of_bias = tl.zeros([COLUMNS], T)
    for begin in range(0, rows, DEPTH):
        row = begin + depth
        gradient = tl.load(
            d_products + product + row[None, :] * outputs + output[:, None],
            (row < rows)[None, :] & (output < outputs)[:, None],
            0.0,
        )
        value = tl.load(
            inputs + source + row[:, None] * width + column[None, :],
            (row < rows)[:, None] & (column < width)[None, :],
            0.0,
        )
        total = tl.dot(gradient, value, total, input_precision=PRECISION, out_dtype=T)
        of_bias += tl.sum(gradient, 1)
    target = d_weights + weight + output[:, None] * width + column[None, :]
    tl.store(target, total, (output < outputs)[:, None] & (column < width)[None, :])
    if tl.load(job + 8) == 0:
        tl.store(d_weights + bias + output, of_bias, output < outputs)


@triton.jit(do_not_specialize=["first"])
def products(first, jobs, inputs, weights, results, BLOCK: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr):
    """Results of products, ``W x + b`` of each row; each program computes a block.

    Args:
        first: the job of the first program.
        jobs: as of :func:`weight_gradients`; of the blocks the one of results counts.
        inputs: numbers of rows.
        weights: with biases.
        results: gets the numbers of rows.
    """
    T: tl.constexpr = results.dtype.element_ty
    job = jobs + (first + tl.program_id(0)) * 9
    product, source, rows = tl.load(job), tl.load(job + 1), tl.load(job + 2)
    outputs, width, weight, bias = tl.load(job + 3), tl.load(job + 4), tl.load(job + 5), tl.load(job + 6)
    output = tl.load(job + 7) * BLOCK + tl.arange(0, BLOCK)
    row = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK, BLOCK], T) + tl.load(weights + bias + output, output < outputs, 0.0)[None, :]
    for begin in range(0, width, DEPTH):
        column = begin + tl.arange(0, DEPTH)
        value = tl.load(
            inputs + source + row[:, None] * width + column[None, :],
            (row < rows)[:, None] & (column < width)[None, :],
            0.0,
        )
        factor = tl.load(
            weights + weight + output[None, :] * width + column[:, None],
            (output < outputs)[None, :] & (column < width)[:, None],
            0.0,
        )
        total = tl.dot(value, factor, total, input_precision=PRECISION, out_dtype=T)
    target = results + product + row[:, None] * outputs + output[None, :]
    tl.store(target, total, (row < rows)[:, None] & (output < outputs)[None, :])


@triton.jit(do_not_specialize=["first"])
def input_gradients(
    first, jobs, d_products, weights, d_inputs, BLOCK: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr
):
    """Gradients of what products multiply; arguments are those of :func:`products`, with the blocks of inputs."""
    T: tl.constexpr = d_inputs.dtype.element_ty
    job = jobs + (first + tl.program_id(0)) * 9
    product, source, rows = tl.load(job), tl.load(job + 1), tl.load(job + 2)
    outputs, width, weight = tl.load(job + 3), tl.load(job + 4), tl.load(job + 5)
    column = tl.load(job + 8) * BLOCK + tl.arange(0, BLOCK)
    row = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK, BLOCK], T)
    for begin in range(0, outputs, DEPTH):
        output = begin + tl.arange(0, DEPTH)
        gradient = tl.load(
            d_products + product + row[:, None] * outputs + output[None, :],
            (row < rows)[:, None] & (output < outputs)[None, :],
            0.0,
        )
        factor = tl.load(
            weights + weight + output[:, None] * width + column[None, :],
            (output < outputs)[:, None] & (column < width)[None, :],
            0.0,
        )
        total = tl.dot(gradient, factor, total, input_precision=PRECISION, out_dtype=T)
    target = d_inputs + source + row[:, None] * width + column[None, :]
    tl.store(target, total, (row < rows)[:, None] & (column < width)[None, :])


@triton.jit
def segment_sums(
    begins, members, rows, start, sums, width, row_width, first_column, BLOCK: tl.constexpr, DEPTH: tl.constexpr
):
    """Sums of rows by segment, each in the order of its members.

    Args:
        begins: int64 ``[segments + 1]``, where the members of each segment begin.
        members: int64, numbers of rows; None: the rows follow each other.
        rows: ``[..., row_width]``, of which ``width`` columns from ``first_column`` on are summed.
        start: ``[segments, width]``, which is added; or None.
        sums: ``[segments, width]``.
    """
    T: tl.constexpr = sums.dtype.element_ty
    segment = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    begin, end = tl.load(begins + segment), tl.load(begins + segment + 1)
    total = tl.zeros([BLOCK], T)
    if start is not None:
        total += tl.load(start + segment * width + column, column < width, 0.0)
    for first in range(begin, end, DEPTH):
        place = first + tl.arange(0, DEPTH)
        row = place
        if members is not None:
            row = tl.load(members + place, place < end, 0)
        values = tl.load(
            rows + row[:, None] * row_width + first_column + column[None, :],
            (place < end)[:, None] & (column < width)[None, :],
            0.0,
        )
        total += tl.sum(values, 0)
    tl.store(sums + segment * width + column, total, column < width)
