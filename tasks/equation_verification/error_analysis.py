"""Groups of equations: by the edit that made them false, by function, by number of variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treemem.runs.study_file_run import StudyResults
from treemem.runs.study_records import packed_answers
from treemem.tasks.equation_verification.generation.expressions import TRIGONOMETRIC_FUNCTIONS
from treemem.tasks.equation_verification.generation.mistakes import EDIT_NAMES
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.labels import BINARY_FUNCTIONS

Groups = dict[str, NDArray[np.bool_]]


def equation_groups(equations: Forest) -> dict[str, Groups]:
    """Return groups of equations by label and edit, by function and by number of variables.

    Args:
        equations: trees with root ``Equality``, with ``label`` and ``edit`` in their ``tree_data``.

    Returns:
        ``"label and edit"``, ``"function"`` (an equation is in the group of each of its functions) and
        ``"variables"``: each a dict of masks, bool ``[equations]``, without empty groups.
    """
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
            **{f"false by {name}": ~true & (edit == code) for code, name in EDIT_NAMES.items()},
        },
        "function": {name: holds[:, column[name]] for name in functions},
        "variables": {str(count): variables == count for count in range(int(variables.max(initial=0)) + 1)},
    }
    return {
        way: {name: members for name, members in groups_of_way.items() if members.any()}
        for way, groups_of_way in groups.items()
    }


def kind_records(done: StudyResults, before: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a record for each group of equations with its members, so that a page can count errors by group.

    The equations are those for the test of the data set of the study.
    """
    equations = done.data[done.study.data]
    digest = done.task.examples(equations).digest()
    if before and before[0]["data"]["hash"] == digest:
        return
    for way, groups in equation_groups(equations[equations.tree_data["split"] == "test"]).items():
        for group, members in groups.items():
            yield {
                "kind": f"{way}: {group}",
                "way": way,
                "group": group,
                "data": {"name": done.study.data, "hash": digest},
                "members": packed_answers(members),
            }


def depth_records(
    done: StudyResults, before: Sequence[dict[str, Any]], *, sets: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield for each data set how many of its equations of each depth are true, and how many are false."""
    for name in sets:
        forest = done.data[name]
        digest = done.task.examples(forest).digest()
        if any(record["set"] == name and record["hash"] == digest for record in before):
            continue
        depth, label = forest.height()[forest.begin[1:] - 1], forest.tree_data["label"]
        counts = {
            str(level): [int(((depth == level) & (label == value)).sum()) for value in (1, 0)]
            for level in np.unique(depth)
        }
        yield {"set": name, "hash": digest, "true_and_false": counts}
