"""Recognises equations of the held-out half of the textbook equations.

``python -m treemem.tasks.equation_verification.generation.heldout FILE`` looks for them in a file of equations.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations

from treemem.errors import TreememError, for_commands
from treemem.tasks.equation_verification.generation.expressions import VARIABLES, ExpressionTable
from treemem.tasks.equation_verification.generation.textbook import textbook_equations
from treemem.tasks.equation_verification.readers import read_equations
from treemem.trees.formats.equations.format import format_equation
from treemem.trees.formats.equations.parser import parse_equation

_COMMUTATIVE = ("Equality", "Add", "Mul")
_Counts = frozenset[tuple[str, int]]


class HeldOut:
    """The held-out equations, up to renaming, swapping of sides, and the order of terms and factors."""

    def __init__(self) -> None:
        table = ExpressionTable()
        equations = [table.from_tree(parse_equation(entry.equation)) for entry in textbook_equations("heldout")]
        self._sizes = {table.size[equation] for equation in equations}
        self._counts = {_counts(table, equation) for equation in equations}
        self._forms = {form for equation in equations for form in _forms(table, equation)}

    def has(self, table: ExpressionTable, equation: int) -> bool:
        """Return whether ``equation`` is one of them."""
        if table.size[equation] not in self._sizes or _counts(table, equation) not in self._counts:
            return False
        return not self._forms.isdisjoint(_forms(table, equation))


@lru_cache
def held_out() -> HeldOut:
    """Return the held-out equations."""
    return HeldOut()


def _counts(table: ExpressionTable, equation: int) -> _Counts:
    labels = [table.label[node] for node in table.postorder(equation)]
    return frozenset(Counter("x" if label in VARIABLES else label for label in labels).items())


def _forms(table: ExpressionTable, equation: int) -> set[str]:
    """Return the equation as text with sorted operands, for each order of its variables."""
    present = [VARIABLES[index] for index in table.variable_indexes(equation)]
    return {sorted_text(table, equation, dict(zip(order, VARIABLES, strict=False))) for order in permutations(present)}


def sorted_text(table: ExpressionTable, node: int, names: dict[str, str]) -> str:
    """Return an expression as text, the terms of sums and the factors of products sorted, with ``names`` replaced."""
    label = table.label[node]
    parts = _operands(table, node, label) if label in ("Add", "Mul") else table.children[node]
    texts = [sorted_text(table, part, names) for part in parts]
    if label in _COMMUTATIVE:
        texts.sort()
    return f"({' '.join([names.get(label, label), *texts])})"


def _operands(table: ExpressionTable, node: int, label: str) -> list[int]:
    """Return the terms of a sum of sums, or the factors of a product of products."""
    if table.label[node] != label:
        return [node]
    return [part for child in table.children[node] for part in _operands(table, child, label)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Look through all equations of a file. Return 1 if one is held out, 2 if the file cannot be read."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}.heldout", description="Look for held-out textbook equations in a file."
    )
    parser.add_argument("file", metavar="FILE", help="equations")
    try:
        forest = read_equations(parser.parse_args(arguments).file, strict=True).forest
    except TreememError as error:
        print(f"error: {for_commands(error)}", file=sys.stderr)
        return 2
    table, known = ExpressionTable(), held_out()
    equations = table.from_forest(forest)
    overlap = [tree for tree, equation in enumerate(equations) if known.has(table, equation)]
    for tree in overlap[:20]:
        print(f"held out: {format_equation(forest[tree])}")
    print(f"{len(overlap)} of {len(forest)} equations are held out")
    return 1 if overlap else 0


if __name__ == "__main__":
    sys.exit(main())
