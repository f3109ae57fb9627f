"""What the template of the page of claims reads beside records: published figures, and the queue of long studies.

Figures on the page come from records. Verdicts are words of the template: read them again when a figure changes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from treemem.errors import RecipeError
from treemem.runs.page_tables import Records, published_text, scores
from treemem.runs.study_file import StudyFolder
from treemem.task import TASKS, Task
from treemem.tasks.queue import chosen_entries, read_queue

FOLDER = StudyFolder("claims", Task, Path(__file__).parent, __package__ or "")  # type: ignore[type-abstract]
"""Of the template. It has no studies; the records are those of all tasks."""


def published(task: str, network: str, split: str, metric: str = "accuracy") -> str:
    """Return a published figure of a task in percent.

    Raises:
        RecipeError: the task has no such figure.
    """
    for figure in TASKS.find(task).published:
        if (figure.network, figure.split, figure.metric) == (network, split, metric):
            return published_text(figure)
    raise RecipeError(f"{task} has no published {metric} of {network} on {split}; name another figure")


def queued(page: Any, *studies: str) -> str:
    """Return the names of studies of the queue, with the number of runs that are recorded already.

    Raises:
        RecipeError: the queue has no such study.
    """
    chosen_entries(read_queue(), studies)
    runs = {study: len(page.records(study)) for study in studies}
    return " and ".join(f"`{study}`" + f" ({count} recorded)" * (count > 0) for study, count in runs.items())


def gaps(first: Records, second: Records, part: str) -> dict[int | str, float]:
    """Return the difference between the mean accuracies of two rows in points, by group and last for all."""
    ours, theirs = (scores({"": runs}, part)[""] for runs in (first, second))
    return {one.group: 100 * (one.accuracy - two.accuracy) for one, two in zip(ours, theirs, strict=True)}
