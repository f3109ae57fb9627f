"""The models of a study that a measurement has no record of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from treemem.model import Model
from treemem.runs.run import StudyRun
from treemem.runs.study import recorded_model
from treemem.runs.study_file_run import StudyResults


def unmeasured_models(
    done: StudyResults, before: Sequence[dict[str, Any]]
) -> Iterator[tuple[StudyRun, Model, dict[str, Any]]]:
    """Yield what :meth:`StudyResults.unmeasured` yields, with the model of each run.

    Args:
        done: the study.
        before: the records so far.

    Raises:
        RecipeError: the folder of a run is gone, or has other weights than its record.
    """
    for run, first in done.unmeasured(before):
        yield run, recorded_model(done.folder, first), first
