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


@triton.jit
def multiply(inputs, weight, bias, results, rows, OUTPUTS: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr):
    """Results of a product, ``W x + b`` of each row, by one program.

    Args:
        inputs: ``[rows, WIDTH]``.
        weight, bias: ``[OUTPUTS, WIDTH]`` and ``[OUTPUTS]``.
        results: gets ``[rows, OUTPUTS]``.
    """
    T: tl.constexpr = results.dtype.element_ty
    for first in range(0, rows, 16):
        row = first + tl.arange(0, 16)[:, None]
        for of_block in range(0, OUTPUTS, 64):
            output = of_block + tl.arange(0, 64)[None, :]
            total = tl.zeros([16, 64], T) + tl.load(bias + output, output < OUTPUTS, 0.0)
            for begin in range(0, WIDTH, 32):
                source, column = begin + tl.arange(0, 32)[None, :], begin + tl.arange(0, 32)[:, None]
                value = tl.load(inputs + row * WIDTH + source, (row < rows) & (source < WIDTH), 0.0)
                factor = tl.load(weight + output * WIDTH + column, (output < OUTPUTS) & (column < WIDTH), 0.0)
                total = tl.dot(value, factor, total, input_precision=PRECISION, out_dtype=T)
            tl.store(results + row * OUTPUTS + output, total, (row < rows) & (output < OUTPUTS))


@triton.jit
def multiply_backward(
    d_results, weight, d_inputs, rows, OUTPUTS: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr
):
    """Gradients of the inputs of :func:`multiply`, from those of its results."""
    T: tl.constexpr = d_inputs.dtype.element_ty
    for first in range(0, rows, 16):
        row = first + tl.arange(0, 16)[:, None]
        for of_block in range(0, WIDTH, 64):
            column = of_block + tl.arange(0, 64)[None, :]
            total = tl.zeros([16, 64], T)
            for begin in range(0, OUTPUTS, 32):
                source, output = begin + tl.arange(0, 32)[None, :], begin + tl.arange(0, 32)[:, None]
                value = tl.load(d_results + row * OUTPUTS + source, (row < rows) & (source < OUTPUTS), 0.0)
                factor = tl.load(weight + output * WIDTH + column, (output < OUTPUTS) & (column < WIDTH), 0.0)
                total = tl.dot(value, factor, total, input_precision=PRECISION, out_dtype=T)
            tl.store(d_inputs + row * WIDTH + column, total, (row < rows) & (column < WIDTH))


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
