"""Printed steps within loops that are written by hand, such as a loop over time, in C++ or in Triton."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from treemem.engines.printer.cpp import cpp_macro
from treemem.engines.printer.trace import Step, StepProgram, StepShape, trace_step
from treemem.engines.printer.triton_rows import row_source


class DrivenStep:
    """A step of a row that a driver calls, printed when it is first compiled.

    The C++ says ``namespace lstm { LSTM_STEP }``, and calls ``lstm::forward_step`` and ``lstm::backward_step`` with a
    ``StepRow`` of ``native/step.h``. It lists the step among its structures. ``RowStep`` in ``engines/cuda`` has the
    same step in Triton.

    Args:
        macro: its name in C++.
        step: see :func:`treemem.engines.printer.trace.trace_step`.
        products: how many vectors each product has, by name; 0: it is one number.
        states: names of vectors.
        arity: number of children.
        learned: how many vectors it reads that are the same for all rows.
        numbers: names of further states, ``[rows, 1]``. A step that has them has no children.
        width: of vectors in the trace. What is printed takes any, unless the formula has other numbers that depend on
            the width than how many entries vectors have.
    """

    def __init__(
        self,
        macro: str,
        step: Step,
        products: Mapping[str, int],
        states: Sequence[str],
        arity: int,
        learned: int = 0,
        numbers: Sequence[str] = (),
        width: int = 5,
    ) -> None:
        self.step, self._macro = step, macro
        parts = {name: (1, (width,) * count or (1,)) for name, count in products.items()}
        vectors = dict.fromkeys(states, (width,)) | dict.fromkeys(numbers, (1,))
        self._shape = StepShape(arity, width, parts, vectors, [(width,)] * learned)

    @cached_property
    def program(self) -> StepProgram:
        """What is printed."""
        return trace_step(self.step, self._shape)

    @cached_property
    def definition(self) -> str:
        """The macro for the compiler."""
        return cpp_macro(self._macro, self.program)

    @cached_property
    def triton(self) -> str:
        """A module in Triton; see :func:`treemem.engines.printer.triton_rows.row_source`."""
        return row_source(self.program)
