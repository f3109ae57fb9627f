"""The rows of a step of an ON-LSTM in Triton, forward and backward; each program takes one.

The master gates are a block ``[1, masters]``, and the units ``[masters, units of a master]``. The steps of both are
printed from ``equations.py``.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(
    do_not_specialize=["going_on"],
    do_not_specialize_on_alignment=["blocks", "before", "gates", "hidden", "cell"],  # rows from any on
)
def step(
    blocks, before, gates, hidden, cell, last_hidden, last_cell, going_on,
    M: tl.constexpr, CHUNK: tl.constexpr, MASTERS: tl.constexpr, UNITS: tl.constexpr,
    OF_MASTERS: tl.constexpr, OF_UNITS: tl.constexpr,
):  # fmt: skip
    """Take a step.

    Args:
        blocks: preactivations, ``[rows, 2 * M + 4 * H]`` with ``H = M * CHUNK``.
        before: ``c`` of the step before, ``[rows, H]``.
        gates: gets the master gates, ``[rows, 2, M]``.
        hidden, cell: get ``h`` and ``c``, ``[rows, H]``.
        last_hidden, last_cell: get those of rows that end here, ``[rows, H]``.
        going_on: how many rows go on.
        M, CHUNK: number of masters, and of units that share one.
        MASTERS, UNITS: the same, as powers of 2.
        OF_MASTERS, OF_UNITS: the steps.
    """
    row, H = tl.program_id(0).to(tl.int64), M * CHUNK
    block, row_gates = blocks + row * (2 * M + 4 * H), gates + row * 2 * M
    master = tl.arange(0, MASTERS)[None, :]
    there = master < M
    of_input, of_forget = tl.load(block + master, there, 0.0), tl.load(block + M + master, there, 0.0)
    enter, forget = OF_MASTERS((of_input, of_forget), (), (), (), there, M)
    tl.store(row_gates + master, enter, there)
    tl.store(row_gates + M + master, forget, there)
    unit = tl.trans(master) * CHUNK + tl.arange(0, UNITS)[None, :]
    units = tl.trans(there) & (tl.arange(0, UNITS)[None, :] < CHUNK)
    of_units = block + 2 * M + unit
    output, update = tl.load(of_units, units, 0.0), tl.load(of_units + H, units, 0.0)
    unit_input, unit_forget = tl.load(of_units + 2 * H, units, 0.0), tl.load(of_units + 3 * H, units, 0.0)
    products = output, update, unit_input, unit_forget, tl.trans(enter), tl.trans(forget)
    h, c = OF_UNITS(products, (0.0, tl.load(before + row * H + unit, units, 0.0)), (), (), units, H)
    tl.store(hidden + row * H + unit, h, units)
    tl.store(cell + row * H + unit, c, units)
    ends = units & (row >= going_on)
    tl.store(last_hidden + row * H + unit, h, ends)
    tl.store(last_cell + row * H + unit, c, ends)


@triton.jit(do_not_specialize_on_alignment=["blocks", "before", "gates", "cell", "d_hidden", "d_blocks"])
def step_backward(
    blocks, before, gates, cell, d_hidden, d_recurrent, d_cell, d_blocks,
    M: tl.constexpr, CHUNK: tl.constexpr, MASTERS: tl.constexpr, UNITS: tl.constexpr,
    OF_MASTERS: tl.constexpr, OF_UNITS: tl.constexpr,
):  # fmt: skip
    """Take a step backwards.

    Args:
        blocks, before, gates, cell: as in the forward pass.
        d_hidden: gradients of ``h`` from outside, ``[rows, H]``; or None.
        d_recurrent: and from the step after, ``[rows, H]``.
        d_cell: gradients of ``c``, ``[rows, H]``, become those of ``before``.
        d_blocks: gets those of the preactivations.
        M, CHUNK, MASTERS, UNITS: as in the forward pass.
        OF_MASTERS, OF_UNITS: the steps' backward passes.
    """
    row, H = tl.program_id(0).to(tl.int64), M * CHUNK
    columns = row * (2 * M + 4 * H)
    master = tl.arange(0, MASTERS)[None, :]
    there = master < M
    enter = tl.load(gates + row * 2 * M + master, there, 0.0)
    forget = tl.load(gates + row * 2 * M + M + master, there, 0.0)
    unit = tl.trans(master) * CHUNK + tl.arange(0, UNITS)[None, :]
    units = tl.trans(there) & (tl.arange(0, UNITS)[None, :] < CHUNK)
    of_unit = row * H + unit
    of_units = blocks + columns + 2 * M + unit
    output, update = tl.load(of_units, units, 0.0), tl.load(of_units + H, units, 0.0)
    unit_input, unit_forget = tl.load(of_units + 2 * H, units, 0.0), tl.load(of_units + 3 * H, units, 0.0)
    products = output, update, unit_input, unit_forget, tl.trans(enter), tl.trans(forget)
    d_h = tl.load(d_recurrent + of_unit, units, 0.0)
    if d_hidden is not None:
        d_h += tl.load(d_hidden + of_unit, units, 0.0)
    states = 0.0, tl.load(cell + of_unit, units, 0.0)
    children = 0.0, tl.load(before + of_unit, units, 0.0)
    d_states = d_h, tl.load(d_cell + of_unit, units, 0.0)
    d_output, d_update, d_input, d_forget, d_enter, d_leave, _, d_before = OF_UNITS(
        products, children, (), (), states, d_states, units, H
    )
    tl.debug_barrier()  # every thread has read the gradients of ``c``
    d_units = d_blocks + columns + 2 * M + unit
    tl.store(d_units, d_output, units)
    tl.store(d_units + H, d_update, units)
    tl.store(d_units + 2 * H, d_input, units)
    tl.store(d_units + 3 * H, d_forget, units)
    tl.store(d_cell + of_unit, d_before, units)
    d_enter = tl.trans(tl.sum(tl.where(units, d_enter, 0.0), 1, keep_dims=True))
    d_leave = tl.trans(tl.sum(tl.where(units, d_leave, 0.0), 1, keep_dims=True))
    of_input = tl.load(blocks + columns + master, there, 0.0)
    of_forget = tl.load(blocks + columns + M + master, there, 0.0)
    d_of_input, d_of_forget = OF_MASTERS(
        (of_input, of_forget), (), (), (), (enter, forget), (d_enter, d_leave), there, M
    )
    tl.store(d_blocks + columns + master, d_of_input, there)
    tl.store(d_blocks + columns + M + master, d_of_forget, there)
