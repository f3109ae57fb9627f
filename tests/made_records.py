"""Records of runs that nobody trained, to see what a page makes of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from treemem.runs.run import StudyRun
from treemem.runs.study_records import packed_answers

Groups = Mapping[int, tuple[int, int]]
"""Group to the number of examples, and of those that are correct."""


def made_record(run: StudyRun, groups: Mapping[str, Groups], *, group: str, **changes: Any) -> dict[str, Any]:
    """Return the record of a run with some scores.

    Args:
        run: of a study.
        groups: of each split and file.
        group: what the task calls a group.
        changes: other fields.
    """
    assert run.task is not None
    return {
        "run": run.name,
        "row": run.row,
        "task": run.task.options,
        "network": dataclasses.asdict(run.network),
        "training": dataclasses.asdict(run.training),
        "data": {"name": run.data, "hash": f"{run.data:x<64}"},
        "files": dict.fromkeys(groups, "f" * 64),
        "weights": f"weights of {run.name}",
        "parameters": 12_345,
        "best_epoch": 3,
        "epochs": 4,
        "seconds": 1800.0,
        "scores": {part: _scores(own, group) for part, own in groups.items()},
        "right": {part: packed_answers(_right(own)) for part, own in groups.items()},
        **changes,
    }


def _scores(own: Groups, group: str) -> dict[str, list[Any]]:
    examples, correct = (list(values) for values in zip(*own.values(), strict=True))
    shares = [c / e for c, e in zip([*correct, sum(correct)], [*examples, sum(examples)], strict=True)]
    columns: dict[str, list[Any]] = {group: [*own, "all"], "examples": [*examples, sum(examples)], "accuracy": shares}
    return {**columns, **dict.fromkeys(("precision", "recall", "f1"), shares), "majority": [0.5] * len(shares)}


def _right(own: Groups) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.concatenate([np.arange(examples) < correct for examples, correct in own.values()])
