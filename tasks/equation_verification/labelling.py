"""The verdict of the numerical test on equations: true, false with a point where it fails, or undecided."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import mpmath

from treemem.errors import RecipeError
from treemem.records import check_writable, format_of, write_records
from treemem.task import Verdict
from treemem.tasks.equation_verification.generation.evaluation import AGREEMENT, UndefinedValueError, exact_difference
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.infinity import INFINITE_LABELS, NAN, side_values
from treemem.tasks.equation_verification.generation.verification import NUM_REAL, POINTS, TRUE, verify
from treemem.tasks.equation_verification.readers import EquationFile, read_equations
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.format import format_equation
from treemem.trees.formats.equations.labels import NUM_VARIABLES
from treemem.trees.formats.equations.names import variable_name

FIELDS = ("id", "equation", "label", "verdict", "witness", "error")
_MINUS_ONE = "NegativeOne:-1"
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)
_REAL_POINTS: list[list[float]] = [
    [float(prime) for prime in _PRIMES],
    [1.0 / prime for prime in _PRIMES],
    [-float(prime) for prime in _PRIMES],
    [0.1 * (place + 1) * (-1) ** place for place in range(NUM_VARIABLES)],
    *POINTS[:, :NUM_REAL].real.T.tolist(),
]
_DIGITS, _MORE_DIGITS = 200, 300  # numbers have at most 100 digits before the point
_CONFIRMING = 4
"""The number of points at which a true equation must hold to 40 digits."""


def verdicts(forest: Forest) -> list[Verdict]:
    """Return the verdict of the numerical test on each equation.

    Functions are real functions. A true equation holds at all points of the test where both sides are defined; at some,
    to 40 digits. A false one has a witness, a point where the sides differ, by as much with 300 digits as with 200.
    Other equations are undecided: no point is known where both sides are defined, or too few.

    Equations with infinity or nan are computed in floating-point arithmetic; without variables, one with a side that is
    nan is false.
    """
    whole = ExpressionTable()
    table, equations = _without_double_signs(whole, whole.from_forest(forest))
    results = verify(table, equations, branches=True)
    return [_verdict(table, equation, result == TRUE) for equation, result in zip(equations, results, strict=True)]


def _without_double_signs(table: ExpressionTable, expressions: list[int]) -> tuple[ExpressionTable, list[int]]:
    """Return a table where ``-(-x)`` is ``x``, which has the same value exactly, and the numbers of the expressions."""
    shorter = ExpressionTable()
    number: list[int] = []
    for label, children in zip(table.label, table.children, strict=True):
        operands = tuple(number[child] for child in children)
        negated = _negated(shorter, label, operands)
        twice = None if negated is None else _negated(shorter, shorter.label[negated], shorter.children[negated])
        number.append(shorter.make(label, operands) if twice is None else twice)
    return shorter, [number[expression] for expression in expressions]


def _negated(table: ExpressionTable, label: str, children: tuple[int, ...]) -> int | None:
    """Return ``x`` if the expression is ``-1*x``."""
    return children[1] if label == "Mul" and table.label[children[0]] == _MINUS_ONE else None


def _verdict(table: ExpressionTable, equation: int, is_true: bool) -> Verdict:
    labels = {table.label[node] for node in table.postorder(equation)}
    is_infinite = not labels.isdisjoint(INFINITE_LABELS)
    agree = _agree_with_infinity if is_infinite else _agree
    num_equal = 0
    for point in _REAL_POINTS:
        equal = agree(table, equation, point)
        if equal is False:
            return Verdict("false", {variable_name(index): point[index] for index in table.variable_indexes(equation)})
        num_equal += equal is True
        if is_true and num_equal == _CONFIRMING:
            break
    if not is_infinite:
        return Verdict("true" if is_true else "undecided")
    if num_equal:
        return Verdict("true")
    return Verdict("undecided" if table.variables[equation] and NAN not in labels else "false")


def _agree(table: ExpressionTable, equation: int, point: Sequence[float]) -> bool | None:
    """Return whether the sides are equal to 40 digits; None if one is undefined, or more digits are needed."""
    with mpmath.workdps(_MORE_DIGITS):
        try:
            gap, scale = exact_difference(table, equation, point, _DIGITS)
            if abs(gap) <= scale * AGREEMENT:
                return True
            exact, _ = exact_difference(table, equation, point, _MORE_DIGITS)
        except UndefinedValueError:
            return None
        return False if abs(gap - exact) <= abs(exact) / 100 else None


def _agree_with_infinity(table: ExpressionTable, equation: int, point: Sequence[float]) -> bool | None:
    """Return whether the sides are equal numbers or the same infinity, up to rounding; None if one is nan."""
    left, right = side_values(table, equation, point)
    if math.isnan(left) or math.isnan(right):
        return None
    most = 1e-9 * max(abs(left), abs(right)) + 1e-13
    return left == right or (math.isfinite(most) and abs(left - right) <= most)


def label_file(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    format: str | None = None,
    output_format: str | None = None,
    overwrite: bool = False,
) -> Counter[str]:
    """Write a record with the verdict of the numerical test for each record of a file, in the same order.

    Records have ``id``, ``equation``, ``label`` (1, 0, or None if undecided), ``verdict``, ``witness`` and ``error``.
    A record that is no equation has its ``id`` and ``error`` only. Other fields are left out. The equation is written
    anew: variables are ``x``, ``y``, ``z``, ... in order of appearance, and ``19`` is ``10 + 9``.

    Args:
        source: a file of equations, or ``"-"``.
        target: another file, or ``"-"``.
        format: format of ``source``; see :func:`~treemem.tasks.equation_verification.read_equations`.
        output_format: csv, jsonl or parquet; by default the ending of the name decides.
        overwrite: whether to replace an existing file.

    Returns:
        The number of records by verdict, and as ``"error"`` those that are no equations.

    Raises:
        RecipeError: a file cannot be read or written, both are the same, a format is unknown, or there is no record.
        ParseError: the file as a whole is damaged.
    """
    wanted = format_of(os.fspath(target), output_format)
    if wanted == "text":
        raise RecipeError("a text file has no place for a verdict; write csv, jsonl or parquet")
    if os.fspath(target) != "-":
        check_writable(target, overwrite=overwrite, source=source)
    file = read_equations(source, format=format)
    records = list(_records(file, verdicts(file.forest)))
    if not records:
        raise RecipeError(f"there is no equation in {os.fspath(source)}; give one on each line, such as x + y = y + x")
    if wanted == "parquet" and any(type(record["id"]) is not int for record in records):
        records = [{**record, "id": str(record["id"])} for record in records]
    write_records(target, records, format=wanted, fields=FIELDS, overwrite=overwrite)
    return Counter("error" if record["verdict"] is None else record["verdict"] for record in records)


def _records(file: EquationFile, judged: list[Verdict]) -> Iterator[dict[str, Any]]:
    """Yield a record for each one of the file, in order."""
    wrong = sorted([*file.bad, *file.left_out], key=lambda record: record.number, reverse=True)
    equations = zip(file.forest, file.ids, judged, strict=True)
    for number in range(len(file.ids) + len(wrong)):
        record: dict[str, Any] = dict.fromkeys(FIELDS)
        if wrong and wrong[-1].number == number:
            bad = wrong.pop()
            record |= {"id": bad.id, "error": " ".join(str(bad.error).partition("\n")[0].split())}
        else:
            tree, identity, verdict = next(equations)
            record |= {"id": identity, "equation": format_equation(tree), "label": verdict.label}
            record |= {"verdict": verdict.verdict, "witness": verdict.point}
        yield record
