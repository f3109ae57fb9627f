"""Whether a record is of the run, and of the data, that a study has now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from treemem.runs.study import StudyRun, changed_parts
from treemem.task import Task
from treemem.trees.forest import Forest


class DataHashes:
    """The hashes of the data sets of a study that are at hand, each computed once, when it is first asked for.

    Args:
        task: of the study.
        find: returns a data set by its name; None if it would have to be generated first.
    """

    def __init__(self, task: Task, find: Callable[[str], Forest | None]) -> None:
        self._task, self._find = task, find
        self._known: dict[str, str | None] = {}

    def of(self, name: str) -> str | None:
        """Return the hash of a data set; None if it is not at hand."""
        if name not in self._known:
            forest = self._find(name)
            self._known[name] = None if forest is None else self._task.examples(forest).digest()
        return self._known[name]

    def are_recorded(self, record: Mapping[str, Any], run: StudyRun, scored: Iterable[str]) -> bool:
        """Return whether a record has the name and the options of a run, its data, and the scores of some data sets.

        Data that are not at hand are compared by name only.

        Args:
            record: of a run.
            run: that is planned.
            scored: names of further data sets.
        """
        names = [*scored]
        if record["run"] != run.name or not {*names} <= record["scores"].keys():
            return False
        recorded = {run.data: record["data"]["hash"], **(record.get("files") or {})}
        if changed_parts(run, run.task or self._task, recorded[run.data], record):
            return False
        return all(self.of(name) in (None, recorded.get(name)) for name in (run.data, *names))
