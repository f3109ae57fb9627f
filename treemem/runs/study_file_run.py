"""Run a study that a file describes, and the measurements of its runs."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treemem.errors import RecipeError
from treemem.runs.data_sets import DataSets, StudyPlaces
from treemem.runs.run import StudyRun
from treemem.runs.study import run_study
from treemem.runs.study_file import Study
from treemem.runs.study_records import add_records, read_study
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

    def unmeasured(self, before: Sequence[Mapping[str, Any]]) -> Iterator[tuple[StudyRun, dict[str, Any]]]:
        """Yield each run without a record of its weights, and the first fields of its record.

        These are ``run``, ``row``, ``training`` with the seed, and ``weights``, their hash.

        Args:
            before: the records of a measurement so far.
        """
        known = {record["run"]: record["weights"] for record in before}
        for run, record in zip(self.runs, self.records, strict=True):
            if known.get(run.name) != record["weights"]:
                first = {"run": run.name, "row": run.row, "training": {"seed": run.training.seed}}
                yield run, {**first, "weights": record["weights"]}


def run_study_file(
    study: Study, places: StudyPlaces, *, processes: int = 1, only: Collection[str] | None = None
) -> list[dict[str, Any]]:
    """Run everything of a study that is not recorded yet. Return all records of its runs.

    Args:
        study: what to run.
        places: of its data, runs and results. A folder of the task's name is made in that for runs. The folder of the
            records gets ``STUDY.jsonl``, and a file for each measurement.
        processes: runs at a time.
        only: names of the runs to do now, with those measurements of them that are made ``by_run``. None: all.

    Raises:
        RecipeError: as :func:`treemem.runs.run_study`; a data set needs a file or folder that is not given.
    """
    planned, folder = study.runs(places.data), places.runs / study.folder.task.name
    results = places.results / f"{study.name}.jsonl"
    known = {entry["file"] for entry in study.folder.shared.get("data", {}).values() if "file" in entry}
    unknown = [name for name in places.files if name not in known]
    if unknown:
        raise RecipeError(f"no file is called {unknown[0]!r}; there are {', '.join(sorted(known)) or 'none'}")
    asked = [run.name for run in planned if only is None or run.name in only]
    if asked:
        recorded = {record["run"] for record in read_study(results)}
        _logger.info(
            "%s: %d of %d runs have a record; first come the data, to see whether they are those of the records",
            study.name, len(recorded.intersection(asked)), len(asked),
        )  # fmt: skip
    sets = places.data_sets(study)
    further = {name: forest for name in study.files if (forest := sets.find(name)) is not None}
    records: list[dict[str, Any]] = []
    if planned:
        task = planned[0].task or study.folder.task()
        forests = {name: sets[name] for name in {run.data: None for run in planned}}
        records = run_study(
            task,
            planned,
            forests,
            folder=folder,
            results=results,
            files=further,
            splits=study.splits,
            processes=processes,
            only=only,
        )
    if only is not None:
        by_name = {record["run"]: record for record in records}
        chosen = [run for run in planned if run.name in only and run.name in by_name]
        done = StudyResults(
            study, chosen, [by_name[run.name] for run in chosen], sets, further, folder, places.results, places.page
        )
        for name, fields in study.measurements.items():
            if fields.get("by_run"):
                _measure(done, places.results / f"{name}.jsonl", fields)
        return records
    done = StudyResults(study, planned, records, sets, further, folder, places.results, places.page)
    for name, fields in study.measurements.items():
        _measure(done, places.results / f"{name}.jsonl", fields)
    return records


def _measure(done: StudyResults, path: Path, fields: Mapping[str, Any]) -> None:
    """Write the records of a measurement as they come."""
    arguments = {key: value for key, value in fields.items() if key not in ("function", "by_run")}
    measure = done.study.folder.function(fields["function"])
    for record in measure(done, read_study(path), **arguments):
        add_records(path, [record], by=[next(iter(record))])
