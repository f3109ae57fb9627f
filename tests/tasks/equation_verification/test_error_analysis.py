from __future__ import annotations

import numpy as np
import pytest

from treemem.errors import RecipeError
from treemem.tasks.equation_verification.error_analysis import equation_groups, error_rates
from treemem.trees.equation_parser import parse_equation
from treemem.trees.forest import Forest

TEXTS = ["sin(x) = sin(x)", "x + y = y", "x*1 = x", "sin(x*y) = 2"]
TREES = [parse_equation(text) for text in TEXTS]


def test_equations_are_told_apart_by_edit_function_and_variables() -> None:
    forest = Forest.from_trees(TREES, tree_data={"label": [1, 0, 1, 0], "edit": [-1, 0, -1, 2]})
    groups = equation_groups(forest)
    found = {
        way: {name: np.flatnonzero(group).tolist() for name, group in kinds.items()} for way, kinds in groups.items()
    }
    assert found == {
        "label and edit": {"true": [0, 2], "false by grow": [1], "false by replace": [3]},
        "function": {"Add": [1], "Mul": [2, 3], "sin": [0, 3]},
        "variables": {"1": [0, 2], "2": [1, 3]},
    }
    first, second = np.array([1, 1, 0, 0], bool), np.array([1, 0, 1, 1], bool)
    assert error_rates(groups["function"], [first, second]) == {"Add": [0, 1], "Mul": [1, 0], "sin": [0.5, 0]}


def test_edits_must_be_known() -> None:
    with pytest.raises(RecipeError, match="there is no 'edit'"):
        equation_groups(Forest.from_trees(TREES, tree_data={"label": [1, 0, 1, 0]}))
