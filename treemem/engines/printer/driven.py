"""Printed steps within C++ that is written by hand, such as a loop over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from treemem.engines.printer.cpp import cpp_macro
from treemem.engines.printer.trace import Step, StepShape, trace_step

_WIDTH = 5  # of vectors in the trace; what is printed takes any


class DrivenStep:
    """A step of a row that a driver calls, printed when it is first compiled.

    The C++ says ``namespace lstm { LSTM_STEP }``, and calls ``lstm::forward_step`` and ``lstm::backward_step`` with a
    ``StepRow`` of ``native/step.h``. It lists the step among its structures.

    Args:
        macro: its name in C++.
        step: see :func:`treemem.engines.printer.trace.trace_step`.
        products: how many vectors each product has, by name; 0: it is one number.
        states: names of vectors.
        arity: number of children.
        learned: how many vectors it reads that are the same for all rows.
        numbers: names of further states, ``[rows, 1]``. A step that has them has no children.
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
    ) -> None:
        self._macro, self._step = macro, step
        parts = {name: (1, (_WIDTH,) * count or (1,)) for name, count in products.items()}
        vectors = dict.fromkeys(states, (_WIDTH,)) | dict.fromkeys(numbers, (1,))
        self._shape = StepShape(arity, _WIDTH, parts, vectors, [(_WIDTH,)] * learned)

    @cached_property
    def definition(self) -> str:
        """The macro for the compiler."""
        return cpp_macro(self._macro, trace_step(self._step, self._shape))
