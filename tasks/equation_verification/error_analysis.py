"""Which equations are judged wrongly: by the edit that made them false, by function, by number of variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from treemem.errors import RecipeError
from treemem.tasks.equation_verification.generation.editing import EDIT_NAMES, TRIGONOMETRIC_FUNCTIONS
from treemem.trees.equation_labels import BINARY_FUNCTIONS
from treemem.trees.forest import Forest

Groups = dict[str, NDArray[np.bool_]]


def equation_groups(equations: Forest) -> dict[str, Groups]:
    """Equations told apart in three ways.

    Args:
        equations: trees with root ``Equality``; ``tree_data`` as in
            :class:`treemem.tasks.equation_verification.EquationData`.

    Returns:
        ``"label and edit"``, ``"function"`` (an equation is in the group of every function that it holds) and
        ``"variables"`` (how many there are): each a dict of groups, bool ``[equations]``, those without members left
        out.

    Raises:
        RecipeError: ``tree_data`` does not say which edits made the false equations.
    """
    absent = [name for name in ("label", "edit") if name not in equations.tree_data]
    if absent:
        raise RecipeError(f'equations are told apart by tree_data["label"] and ["edit"]; there is no {absent[0]!r}')
    true, edit = equations.tree_data["label"] == 1, equations.tree_data["edit"]
    holds = np.zeros((len(equations), len(equations.labels)), bool)
    holds[np.repeat(np.arange(len(equations)), np.diff(equations.begin)), equations.label] = True
    column = {label: number for number, label in enumerate(equations.labels)}
    functions = [name for name in (*BINARY_FUNCTIONS, *TRIGONOMETRIC_FUNCTIONS) if name in column]
    is_variable = np.array([label.startswith("Symbol:") for label in equations.labels], bool)
    variables = (holds & is_variable).sum(1)
    groups: dict[str, Groups] = {
        "label and edit": {
            "true": true,
            **{f"false by {name}": ~true & (edit == code) for code, name in enumerate(EDIT_NAMES)},
        },
        "function": {name: holds[:, column[name]] for name in functions},
        "variables": {str(count): variables == count for count in range(int(variables.max(initial=0)) + 1)},
    }
    return {way: {name: members for name, members in found.items() if members.any()} for way, found in groups.items()}


def error_rates(groups: Mapping[str, NDArray[np.bool_]], right: Sequence[NDArray[np.bool_]]) -> dict[str, list[float]]:
    """The fraction of each group that is judged wrongly, one number for each of several runs.

    Args:
        groups: bool ``[equations]`` each.
        right: which equations each run judged rightly, bool ``[equations]`` each.
    """
    return {name: [float(1 - answers[members].mean()) for answers in right] for name, members in groups.items()}
