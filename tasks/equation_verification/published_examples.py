"""The examples of table 1 of Arabshahi et al. 2020: do they hold numerically, and what do the packaged networks say?

The table was written down from memory, without the paper at hand: texts, labels and depths. The trees have these
depths, with one bracket around a part of a sum that the printed form of the last example does not show.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from treemem.checkpoint import load_pretrained, pretrained_names
from treemem.model_digest import weights_digest
from treemem.runs.study_file_run import StudyResults
from treemem.tasks.equation_verification.generation.evaluation import sides_agree
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.labelling import verdicts
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.labels import NUM_VARIABLES
from treemem.trees.tree import Tree

SOURCE = "Arabshahi et al. 2020, table 1"
_POINTS, _REACH = 400, 3.1


class PublishedExample(NamedTuple):
    """An equation of the table, in the syntax of the task, its published label and its depth."""

    equation: str
    label: int
    depth: int


EXAMPLES = (
    PublishedExample("1^(1/2)*1*y + x = 1*y + x", 1, 4),
    PublishedExample("sec(x + pi) = -1*sec(sec(x))", 0, 4),
    PublishedExample("y*(1^1*(3 + -1*4^(0*1)) + x^1) = y*2^0*(2 + x)", 1, 8),
    PublishedExample("(1 + -1*cos(y + x)^(csc(2)^(1/2)))^(1/2)*cos(y + x)^-1 = tan(y^1 + x)", 0, 8),
    PublishedExample("2^-1 + -1/2*(-1*(1 + -1*sin(4^(1/2)*(pi + x*-1))^2)^(1/2)) + cos(x)^(4^(1/2)) = 1", 1, 13),
    PublishedExample(
        "(cos(y^1 + x) + z)^w = (cos(x)*cos(0 + y) + -1*(1 + -1*cos(y + 2*pi)^2)^(1/2)*sin(x) + z)^w", 1, 13
    ),
    PublishedExample(
        "sin((4^(1/2))^-1*pi + -1*(sec((csc(x)^2)^-1 + sin((1 + -1*1) + (x + 2^-1*pi))^2)*x)) = cos(0 + x)", 0, 13
    ),
)


def share_of_points(equation: Tree, *, seed: int = 0) -> tuple[int, int]:
    """Return at how many random real points an equation holds, and at how many of 400 it is defined.

    Each variable is between -3.1 and 3.1. The equation holds if the sides, computed with 50 digits, agree to 40.
    """
    table, generator = ExpressionTable(), random.Random(f"published examples {seed}")
    number = table.from_tree(equation)
    points = ([generator.uniform(-_REACH, _REACH) for _ in range(NUM_VARIABLES)] for _ in range(_POINTS))
    agree = [sides_agree(table, number, point) for point in points]
    return agree.count(True), len(agree) - agree.count(None)


def example_records(done: StudyResults, before: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a record for each example: the verdict of the numerical test, and P(true) of each packaged network."""
    task = done.task
    models = {name: load_pretrained(name) for name in pretrained_names() if name.partition("/")[0] == task.name}
    weights = {name: weights_digest(model) for name, model in models.items()}
    known = {record["equation"] for record in before if record["weights"] == weights}
    if known == {example.equation for example in EXAMPLES}:
        return
    trees = [task.parse(example.equation) for example in EXAMPLES]
    test_verdicts = verdicts(Forest.from_trees(trees))
    answers = {
        name: np.asarray(model.predict([example.equation for example in EXAMPLES])) for name, model in models.items()
    }
    for place, (example, tree, verdict) in enumerate(zip(EXAMPLES, trees, test_verdicts, strict=True)):
        held, defined = share_of_points(tree)
        yield {
            **example._asdict(),
            "height": tree.height,
            "verdict": verdict.verdict,
            "witness": verdict.point,
            "held": held,
            "defined": defined,
            "probabilities": {name: round(float(values[place]), 4) for name, values in answers.items()},
            "weights": weights,
        }
