"""How well trained networks know the values of numeric equations, such as ``sin(2.5) = 0.6``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from treemem.heads import NumberDecoder
from treemem.model import Model
from treemem.runs.recipe import load_recipe
from treemem.runs.study_file_run import StudyResults
from treemem.tasks.equation_verification.generation.numeric import KINDS, SYMBOLIC, exact_value, generate_numeric
from treemem.tasks.equation_verification.task import EquationVerification, decoded_values
from treemem.tasks.measured_models import unmeasured_models
from treemem.trees.forest import Forest

_ALL = "all"


def numeric_errors(model: Model, equations: Forest) -> list[dict[str, Any]]:
    """Compare decoded values with the numbers of numeric equations.

    Args:
        model: of a numeric task.
        equations: as of :func:`~treemem.tasks.equation_verification.generation.numeric.generate_numeric`.

    Returns:
        A row for each kind of equation, and for all: ``kind``; ``examples``; ``accuracy`` as published (a true equation
        is correct if the value is within a thousandth of the number, a false one if it is not); ``error``, the mean
        absolute error in true equations; ``separated``, the share of pairs of a true and a false equation in which the
        true one has the smaller error (ties count half).
    """
    task = model.task
    assert isinstance(task, EquationVerification)
    examples = task.examples(equations)
    outputs = model.outputs(examples)
    true = examples.targets["label"] == 1
    correct = task.correct(outputs, examples.targets)
    error = np.abs(decoded_values(outputs, examples.targets) - examples.targets["value"])
    kind = equations.tree_data["kind"]
    rows = []
    for number, name in enumerate((*KINDS, _ALL)):
        here = (kind == number) | (name == _ALL)
        of_true, of_false = error[here & true], error[here & ~true]
        smaller = (of_true[:, None] < of_false).mean() + 0.5 * (of_true[:, None] == of_false).mean()
        rows.append(
            {
                "kind": name,
                "examples": int(here.sum()),
                "accuracy": float(correct[here].mean()),
                "error": float(of_true.mean()),
                "separated": float(smaller),
            }
        )
    return rows


def reference_scores() -> dict[str, dict[str, float]]:
    """Return what accuracies on the numeric test equations of the recipe mean, for each kind and all, as fractions.

    ``majority``: the share of the majority class. ``calculator``: the accuracy, as published, of exact values. It is
    below 1, because numbers have two decimals.
    """
    data = load_recipe("equation_verification/numeric").data
    equations = generate_numeric(data.numeric, seed=data.seed)
    equations = equations[equations.tree_data["split"] == "test"]
    true, kind = equations.tree_data["label"] == 1, equations.tree_data["kind"]
    sides = torch.tensor([[exact_value(side) for side in tree.children] for tree in equations], dtype=torch.float64)
    correct = NumberDecoder.correct(*sides.T).numpy() == true
    chosen = {name: (kind == number) | (name == _ALL) for number, name in enumerate((*KINDS, _ALL))}
    return {
        name: {"majority": max(true[here].mean(), 1 - true[here].mean()), "calculator": correct[here].mean()}
        for name, here in chosen.items()
    }


def error_records(done: StudyResults, before: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a record for each run, with its ``errors`` in the numeric test equations; see :func:`unmeasured_models`."""
    for run, model, first in unmeasured_models(done, before):
        data = done.data[run.data]
        tested = data[(data.tree_data["split"] == "test") & (data.tree_data["kind"] != SYMBOLIC)]
        yield {**first, "errors": numeric_errors(model, tested)}
