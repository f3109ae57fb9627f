"""Nodes of programs as lines of Triton, for the rows of a tile."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from treemem.engines.printer.operations import OPERATIONS
from treemem.engines.printer.program import Node, Place, in_order
from treemem.engines.printer.symbolic import StepError

HEAD = """\
import triton
import triton.language as tl

from treemem.engines.cuda.functions import hyperbolic_tangent, running_sums, sign
"""
"""What comes before the kernels of a module."""


class Values:
    """Lines that compute nodes.

    Args:
        lines: get what is needed, in order.
        prefix: of the names of values.
        load: what a place holds, as an expression.
        D: width of a vector; None: it is the constant ``D`` of the kernel.

    In the lines, ``wide`` are the positions of a vector that there are, and ``T`` is the type of all numbers.
    """

    def __init__(self, lines: list[str], prefix: str, load: Callable[[Place], str], D: int | None) -> None:
        self._lines, self._prefix, self._load, self._D = lines, prefix, load, D
        self._text: dict[Node, str] = {}

    def of(self, node: Node) -> str:
        """Return the name of a value, or a number."""
        for needed in in_order([node], stop=self._text):
            if needed not in self._text:
                self._text[needed] = self._value(needed)
        return self._text[node]

    def _value(self, node: Node) -> str:
        if node.op == "D" and self._D is None:
            return "tl.full([1, 1], D, T)"
        if not node.operands and node.op != "load":
            return _number(float(self._D or 0) if node.value is None else node.value)
        text = self._load(node.args[0]) if node.op == "load" else self._expression(node)
        if text.isidentifier():
            return text
        self._lines.append(f"{self._prefix}{node.number} = {text}")
        return f"{self._prefix}{node.number}"

    def _expression(self, node: Node) -> str:
        operands = [self._text[operand] for operand in node.operands]
        if node.op == "sum":
            return f"tl.sum(tl.where(wide, {operands[0]}, 0.0), 1, keep_dims=True)"
        if node.op == "largest":
            return f'tl.max(tl.where(wide, {operands[0]}, float("-inf")), 1, keep_dims=True)'
        if node.op in ("running sum", "running sum backwards"):
            return f"running_sums(tl.where(wide, {operands[0]}, 0.0), 1, {node.op.endswith('backwards')})"
        if node.op == "power":
            return _power(operands[0], node.operands[1].value)
        expression = OPERATIONS[node.op].triton
        assert expression is not None
        return expression.format(*operands)


def _number(value: float) -> str:
    if not np.isfinite(value):
        return f'float("{value}")'
    if float(np.float32(value)) == value:
        return repr(value)
    return f"tl.full([1, 1], {value!r}, T)"  # which a choice between numbers does not round to float32


def _power(base: str, exponent: float | None) -> str:
    """Return a power as products and a root.

    Raises:
        StepError: the exponent is not a number of halves.
    """
    if exponent is None or not 0 < abs(exponent) <= 8 or (2 * exponent) % 1:
        raise StepError("Triton has powers of multiples of a half only, up to 8")
    factors = [base] * int(abs(exponent)) + [f"tl.sqrt({base})"] * bool(exponent % 1)
    product = " * ".join(factors)
    return f"({product})" if exponent > 0 else f"(1 / ({product}))"
