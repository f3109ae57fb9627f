"""The verdict of the numerical test on equations: true, false with a point where it fails, or undecided."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from treemem.errors import RecipeError
from treemem.records import check_writable, write_records
from treemem.task import Verdict
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.infinity import INFINITE_LABELS, holds
from treemem.tasks.equation_verification.generation.real_verification import (
    NUM_REAL,
    POINTS,
    exact_comparison,
    verify_real,
)
from treemem.tasks.equation_verification.generation.verification import DIFFERENT, TRUE
from treemem.tasks.equation_verification.readers import read_equations
from treemem.trees.equation_format import format_equation
from treemem.trees.equation_labels import NUM_VARIABLES
from treemem.trees.equation_names import variable_name
from treemem.trees.forest import Forest

FIELDS = ("id", "equation", "label", "verdict", "witness")
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)
_SIMPLE_POINTS = (
    [float(prime) for prime in _PRIMES],
    [1.0 / prime for prime in _PRIMES],
    [-float(prime) for prime in _PRIMES],
    [0.1 * (place + 1) * (-1) ** place for place in range(NUM_VARIABLES)],
)


def verdicts(forest: Forest) -> list[Verdict]:
    """Return the verdict of the numerical test on each equation.

    Functions are real functions. A true equation holds at all points of the test where both sides are defined. For a
    false one, the witness is a point where the sides differ, confirmed with 50 digits.
    """
    table = ExpressionTable()
    equations = table.from_forest(forest)
    results = verify_real(table, equations, branches=True)
    return [_verdict(table, equation, result == TRUE) for equation, result in zip(equations, results, strict=True)]


def _verdict(table: ExpressionTable, equation: int, is_true: bool) -> Verdict:
    labels = {table.label[node] for node in table.postorder(equation)}
    if not labels.isdisjoint(INFINITE_LABELS):
        return Verdict("true" if holds(table, equation) else "false")
    if is_true:
        return Verdict("true")
    witness = _witness(table, equation)
    return Verdict("undecided") if witness is None else Verdict("false", witness)


def _witness(table: ExpressionTable, equation: int) -> dict[str, float] | None:
    """Return values of the variables for which the sides differ; None if none is found."""
    indexes = table.variable_indexes(equation)
    for point in (*_SIMPLE_POINTS, *POINTS[:, :NUM_REAL].real.T.tolist()):
        if exact_comparison(table, equation, [complex(value) for value in point], real=True) == DIFFERENT:
            return {variable_name(index): point[index] for index in indexes}
    return None


def label_file(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    format: str | None = None,
    output_format: str | None = None,
    overwrite: bool = False,
) -> Counter[str]:
    """Write the equations of a file with the verdicts of the numerical test.

    Records have ``id``, ``equation``, ``label`` (1, 0, or None if undecided), ``verdict`` and ``witness``. Records that
    are no equations are left out, with a warning.

    Args:
        source: a file of equations, or ``"-"``.
        target: a file, or ``"-"``.
        format: format of ``source``; see :func:`~treemem.tasks.equation_verification.read_equations`.
        output_format: text, csv, jsonl or parquet; by default the ending of the name decides.
        overwrite: whether to replace an existing file.

    Returns:
        The number of equations by verdict.

    Raises:
        RecipeError: a file cannot be read or written, a format is unknown, or there is no equation.
        ParseError: the file as a whole is damaged.
    """
    if os.fspath(target) != "-":
        check_writable(target, overwrite=overwrite)
    file = read_equations(source, format=format)
    if not len(file.forest):
        raise RecipeError(f"there is no equation in {os.fspath(source)}; give one on each line, such as x + y = y + x")
    found = verdicts(file.forest)
    write_records(target, _records(file.forest, file.ids, found), format=output_format, fields=FIELDS)
    return Counter(each.verdict for each in found)


def _records(forest: Forest, ids: list[Any], found: list[Verdict]) -> Iterator[dict[str, Any]]:
    for tree, identity, each in zip(forest, ids, found, strict=True):
        yield {
            "id": identity,
            "equation": format_equation(tree),
            "label": each.label,
            "verdict": each.verdict,
            "witness": each.point,
        }
