"""Run a study that a file describes, and the measurements of its runs."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treemem.errors import RecipeError
from treemem.records import locked, write_records, writing
from treemem.runs.data_sets import DataSets
from treemem.runs.study import StudyRun, run_study
from treemem.runs.study_file import Study
from treemem.runs.study_records import of_one_form, read_study
from treemem.task import Task
from treemem.trees.forest import Forest

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StudyResults:
    """What a measurement reads.

    Attributes:
        study: the study.
        runs: its runs.
        records: of the runs.
        data: its data sets.
        files: the further data sets that were scored.
        folder: of the runs.
        results: folder of the records.
        page: the page of results.
    """

    study: Study
    runs: Sequence[StudyRun]
    records: list[dict[str, Any]]
    data: DataSets
    files: Mapping[str, Forest]
    folder: Path
    results: Path
    page: Path

    @property
    def task(self) -> Task:
        """The task of the first run, or the task at its defaults."""
        return (self.runs[0].task if self.runs else None) or self.study.folder.task()


def run_study_file(
    study: Study,
    *,
    runs: Path,
    results: Path,
    page: Path,
    data: Path | None = None,
    files: Mapping[str, Path] | None = None,
    processes: int = 1,
    only: Collection[str] | None = None,
) -> list[dict[str, Any]]:
    """Run everything of a study that is not recorded yet. Return all records of its runs.

    Args:
        study: what to run.
        runs: folder for runs and data sets; a folder of the task's name is made in it.
        results: folder of the records: ``STUDY.jsonl``, and a file for each measurement.
        page: the page of results; measurements write figures beside it.
        data: the user's data folder.
        files: the user's files by name.
        processes: runs at a time.
        only: names of the runs to do now, without the measurements of the study. None: all.

    Raises:
        RecipeError: as :func:`treemem.runs.run_study`; a data set needs a file or folder that is not given.
    """
    planned, folder = study.runs(data), runs / study.folder.task.name
    known = {entry["file"] for entry in study.folder.shared.get("data", {}).values() if "file" in entry}
    unknown = [name for name in files or {} if name not in known]
    if unknown:
        raise RecipeError(f"no file is called {unknown[0]!r}; there are {', '.join(sorted(known)) or 'none'}")
    sets = DataSets(study, folder / "data", data, files)
    further = {name: forest for name in study.files if (forest := sets.find(name)) is not None}
    records: list[dict[str, Any]] = []
    if planned:
        task = planned[0].task or study.folder.task()
        forests = {name: sets[name] for name in {run.data: None for run in planned}}
        recorded = {record["run"]: record for record in read_study(results / f"{study.name}.jsonl", ["run"])}
        records = run_study(
            task,
            planned,
            forests,
            folder=folder,
            results=results / f"{study.name}.jsonl",
            files=further,
            splits=study.splits,
            processes=processes,
            only=only,
        )
    if only is not None:
        return records
    if all(recorded.get(record["run"]) == record for record in records):
        tell_nothing_trained(results / f"{study.name}.jsonl", len(records))
    done = StudyResults(study, planned, records, sets, further, folder, results, page)
    for name, fields in study.measurements.items():
        _measure(done, results / f"{name}.jsonl", fields)
    return records


def tell_nothing_trained(results: Path, count: int) -> None:
    """Log that all of so many runs were recorded before."""
    _logger.info(
        "%s: %d of %d runs are recorded, so nothing is trained. To train them again, give new folders by --results and "
        "--runs", results, count, count,
    )  # fmt: skip


def _measure(done: StudyResults, path: Path, fields: Mapping[str, Any]) -> None:
    """Write the records of a measurement as they come."""
    arguments = {key: value for key, value in fields.items() if key != "function"}
    before = read_study(path)
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    measured: Iterator[dict[str, Any]] = done.study.folder.function(fields["function"])(done, before, **arguments)
    for record in measured:
        with locked(path.with_suffix("")):  # the lock of the file itself is for its writer
            records = {next(iter(known.values())): known for known in [*read_study(path), record]}
            write_records(path, of_one_form(list(records.values())))
