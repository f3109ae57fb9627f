"""Check the labels of equations with 50 digits.

``python -m treemem.tasks.equation_verification.generation.exactness FILE`` checks a file of labelled equations.

The points are others than those of the generator. A true equation must hold at each point where both sides are defined,
to 40 digits; a false one must fail at one of them. Equations with infinity or nan, or without a label, are left out.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence

from treemem.errors import RecipeError, TreememError, for_commands
from treemem.tasks.equation_verification.generation.evaluation import sides_agree
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.infinity import INFINITE_LABELS
from treemem.tasks.equation_verification.readers import read_equations
from treemem.trees.equation_format import format_equation
from treemem.trees.equation_labels import NUM_VARIABLES
from treemem.trees.forest import Forest

_TRIES = 24
_WANTED = 4
"""Number of points at which both sides are defined."""


def wrong_labels(
    forest: Forest, trees: Sequence[int] | None = None, *, seed: int = 0
) -> tuple[list[int], Counter[str]]:
    """Return which equations have a wrong label, and how many are ``correct``, ``wrong`` or ``undefined`` everywhere.

    Args:
        forest: equations with ``label`` in their ``tree_data``.
        trees: which of them; all by default.
        seed: of the points.
    """
    table, rng = ExpressionTable(), random.Random(f"exactness {seed}")
    label = forest.tree_data["label"]
    wrong, counts = [], Counter[str]()
    for tree in range(len(forest)) if trees is None else trees:
        equation = table.from_tree(forest[tree])
        if label[tree] < 0 or any(table.label[node] in INFINITE_LABELS for node in table.postorder(equation)):
            continue
        agreement = _agreement(table, equation, rng)
        if not agreement:
            counts["undefined"] += 1
        elif all(agreement) == bool(label[tree]):
            counts["correct"] += 1
        else:
            counts["wrong"] += 1
            wrong.append(tree)
    return wrong, counts


def _agreement(table: ExpressionTable, equation: int, rng: random.Random) -> list[bool]:
    """Return whether the sides agree at some real points where both are defined."""
    found: list[bool] = []
    for number in range(_TRIES):
        if len(found) == _WANTED:
            break
        low, high = ((0.1, 0.9), (1.1, 2.5), (-2.5, 2.5))[number % 3]
        agree = sides_agree(table, equation, [rng.uniform(low, high) for _ in range(NUM_VARIABLES)])
        if agree is not None:
            found.append(agree)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Check all equations of a file. Return 1 if a label is wrong, 2 if the file cannot be read or has none."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}.exactness", description="Check the labels of equations with 50 digits."
    )
    parser.add_argument("file", metavar="FILE", help="labelled equations")
    try:
        file = parser.parse_args(arguments).file
        forest = read_equations(file, strict=True).forest
        if not (forest.tree_data["label"] >= 0).any():
            raise RecipeError(f"{file} has no equation with a label; treemem label gives them labels")
    except TreememError as error:
        print(f"error: {for_commands(error)}", file=sys.stderr)
        return 2
    wrong, counts = wrong_labels(forest)
    for tree in wrong[:20]:
        print(f"label {forest.tree_data['label'][tree]}: {format_equation(forest[tree])}")
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
