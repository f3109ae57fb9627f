"""The models of a study that a measurement has no record of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from treemem.model import Model
from treemem.runs.study import StudyRun, recorded_model
from treemem.runs.study_file_run import StudyResults


def unmeasured_models(
    done: StudyResults, before: Sequence[dict[str, Any]]
) -> Iterator[tuple[StudyRun, Model, dict[str, Any]]]:
    """Yield each run of a study that has no record with its weights, its model, and the first fields of its record.

    These are ``run``, ``row``, ``training`` with the seed, and ``weights``, their hash.

    Args:
        done: the study.
        before: the records so far.

    Raises:
        RecipeError: the folder of a run is gone, or has other weights than its record.
    """
    known = {record["run"]: record["weights"] for record in before}
    for run, record in zip(done.runs, done.records, strict=True):
        if known.get(run.name) != record["weights"]:
            first = {"run": run.name, "row": run.row, "training": {"seed": run.training.seed}}
            yield run, recorded_model(done.folder, record), {**first, "weights": record["weights"]}
