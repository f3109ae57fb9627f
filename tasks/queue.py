"""The queue of long studies: what is done of each, what remains, and workers that run it, one thread each.

``queue.yaml`` lists the studies in order. A job is a run of a study, the measurements of a study whose runs are all
recorded, or a row of the comparison ``learned``. Studies that are ``first``, and the rows that the comparison names
first, come before all other jobs. A worker takes the first job that is neither done nor taken. It holds the job's lock
while it runs it. So workers of several processes and machines can share a folder of runs, and a job of a killed worker
is free again and resumes from its last checkpoint.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from treemem.errors import RecipeError, TreememError, near_names
from treemem.networks import NETWORKS
from treemem.plain_yaml import load_yaml
from treemem.records import write_text, writing
from treemem.runs.data_sets import StudyPlaces, hashes_at_hand
from treemem.runs.results_page import write_page
from treemem.runs.study import begin_worker, is_complete
from treemem.runs.study_file import Study, StudyFolder
from treemem.runs.study_file_run import run_study_file
from treemem.runs.study_records import read_study
from treemem.tasks.comparison.comparison import FOLDER, STUDY, Part, comparison_parts, hashes_of, run_row

QUEUE = Path(__file__).with_name("queue.yaml")
_LOCKS = "queue"
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Places:
    """Where things are.

    Attributes:
        runs: folder of the runs.
        results: folder of the records of all tasks, such as ``docs/results``.
        data: the user's folder of published files.
        comparison: folder of the records of the comparison, if it is not ``comparison`` in ``results``.
    """

    runs: Path
    results: Path
    data: Path | None = None
    comparison: Path | None = None

    def of(self, entry: Entry) -> StudyPlaces:
        """Return the places of a study."""
        page = entry.folder.page
        results = self.results / page if entry.folder is not FOLDER or self.comparison is None else self.comparison
        base = Path() if self.data is None else self.data
        files = {
            name: base / path for name, path in entry.files.items() if self.data is not None or Path(path).is_absolute()
        }
        folder = None if entry.data is None or self.data is None else self.data / entry.data
        data = folder if folder is not None and folder.is_dir() else None  # without it, runs say what they need
        return StudyPlaces(self.runs, results, self.results / f"{page}.md", data, files)


@dataclass(frozen=True)
class Entry:
    """A study in the queue.

    Attributes:
        study: ``TASK/STUDY``, or ``comparison/learned-PART``.
        hours: of one core, estimated.
        data: the folder within that of the published files that the study calls ``{data}``.
        files: names of further files of the study to their places within the folder of the published files, or
            anywhere.
        first: whether its jobs come before those of other studies.
        rows: of the comparison to run; empty: all.
        networks: names of registered networks that take part in the comparison.
    """

    study: str
    hours: float
    data: str | None = None
    files: Mapping[str, str | Path] = field(default_factory=dict)
    first: bool = False
    rows: Sequence[str] = ()
    networks: Sequence[str] = ()

    def jobs(self, places: Places) -> list[Job]:
        """Return the jobs of the study in their order."""
        name = self.study.rpartition("/")[2]
        if self.folder is FOLDER:
            return _rows(name, self, places.of(self))
        return [replace(job, is_first=self.first) for job in _runs(self.folder.study(name), places.of(self))]

    @property
    def folder(self) -> StudyFolder:
        """The folder of the study."""
        task = self.study.rpartition("/")[0]
        return FOLDER if task == FOLDER.name else StudyFolder.find(task)


@dataclass(frozen=True)
class Job:
    """Something to run that a worker takes as a whole.

    Attributes:
        name: names its lock too.
        is_done: whether its records are there.
        is_ready: whether what it needs is there.
        run: runs or resumes it.
        is_first: whether it comes before jobs of all studies that are not.
    """

    name: str
    is_done: Callable[[], bool]
    run: Callable[[], object]
    is_ready: Callable[[], bool] = lambda: True
    is_first: bool = False


def read_queue(path: Path = QUEUE) -> list[Entry]:
    """Return the studies of a queue.

    Raises:
        RecipeError: the file is not a list of entries.
    """
    try:
        entries = load_yaml(path.read_text(encoding="utf-8"))
        return [Entry(**entry) for entry in entries]
    except (OSError, UnicodeDecodeError, TypeError) as error:
        raise RecipeError(f"cannot read the queue {path}: {error}; write a list of studies with their hours") from error


def chosen_entries(entries: Sequence[Entry], studies: Sequence[str]) -> list[Entry]:
    """Return the entries of some studies, in the order of the queue; all of them if no study is named.

    Raises:
        RecipeError: a study is not in the queue.
    """
    known = [entry.study for entry in entries]
    for study in studies:
        if study not in known:
            raise RecipeError(f"the queue has no study {study!r}{near_names(study, known)}; it has {', '.join(known)}")
    return [entry for entry in entries if not studies or entry.study in studies]


def entries_of_rows(
    entries: Sequence[Entry], parts: Sequence[Part], networks: Sequence[str], files: Mapping[str, Path]
) -> list[Entry]:
    """Return the entries of parts of the comparison.

    Args:
        entries: of the queue.
        parts: of the comparison ``learned``.
        networks: names of rows, or of networks, whose rows run; empty: all.
        files: places of further files, instead of those of the entries.

    Raises:
        RecipeError: no part has such a row or such a file.
    """
    rows = {part.title: part.rows_of(networks) if networks else [] for part in parts}
    for name in networks:
        if not any(part.rows_of([name]) for part in parts):
            known = list(dict.fromkeys(row for part in parts for row in part.order))
            raise RecipeError(f"{STUDY} has no network {name!r}{near_names(name, known)}; it has {'; '.join(known)}")
    chosen = [entry for entry in entries if entry.study.removeprefix(f"{FOLDER.name}/") in rows]
    known_files = {name for entry in chosen for name in entry.files}
    for name in files:
        if name not in known_files:
            there = ", ".join(sorted(known_files)) or "none"
            raise RecipeError(f"no file of these studies is called {name!r}; there are {there}")
    of_rows = []
    for entry in chosen:
        places = {name: files[name].resolve() if name in files else path for name, path in entry.files.items()}
        wanted = rows[entry.study.removeprefix(f"{FOLDER.name}/")]
        if wanted or not networks:
            of_rows.append(replace(entry, files=places, rows=wanted, networks=networks))
    return of_rows


def _rows(title: str, entry: Entry, places: StudyPlaces) -> list[Job]:
    parts = {part.title: part for part in comparison_parts(entry.networks).values()}
    if title not in parts:
        raise RecipeError(f"{FOLDER.name} has no part {title!r} of {STUDY}; there are {', '.join(parts)}")
    part = parts[title]
    hash_of = hashes_of(part, places)

    def job(row: str) -> Job:
        return Job(
            f"{FOLDER.name}/{title}/{row}",
            lambda: part.is_done(row, places, hash_of),
            lambda: run_row(part, row, places),
            is_first=row in part.first,
        )

    return [job(row) for row in entry.rows or part.order]


def _runs(study: Study, places: StudyPlaces) -> list[Job]:
    name = study.folder.task.name
    file, marker = places.results / f"{study.name}.jsonl", places.runs / _LOCKS / f"{name} {study.name} measured"
    sets, runs = places.data_sets(study), {run.name: run for run in study.runs(places.data)}
    parts = [*study.splits, *(file_name for file_name in study.files if sets.has(file_name))]
    task = next((run.task for run in runs.values()), None) or study.folder.task()
    hash_of = hashes_at_hand(task, sets.at_hand)

    def recorded() -> set[str]:
        known = {record["run"]: record for record in read_study(file) if record["run"] in runs}
        return {run for run, record in known.items() if is_complete(record, runs[run], task, parts, hash_of)}

    def digest() -> str:
        return hashlib.sha256(file.read_bytes()).hexdigest()

    def measure() -> None:
        run_study_file(study, places)
        write_text(marker, digest())

    def job(run: str) -> Job:
        return Job(
            f"{name}/{study.name}: {run}",
            lambda: run in recorded(),
            lambda: run_study_file(study, places, only=[run]),
        )

    jobs = [job(run) for run in runs]
    if study.measurements:
        jobs.append(
            Job(
                f"{name}/{study.name}: measurements",
                lambda: marker.exists() and file.exists() and marker.read_text(encoding="utf-8") == digest(),
                measure,
                lambda: recorded().issuperset(runs),
            )
        )
    return jobs


@dataclass(frozen=True)
class Remaining:
    """How far a study of the queue is: the number of its jobs, of those done, and the estimated hours that are left."""

    study: str
    jobs: int
    done: int
    hours: float


def remaining(entries: Sequence[Entry], places: Places) -> Iterator[Remaining]:
    """Yield how far each study is."""
    for entry in entries:
        done = [job.is_done() for job in entry.jobs(places)]
        yield Remaining(entry.study, len(done), sum(done), entry.hours * (1 - sum(done) / max(1, len(done))))


def jobs_of(entries: Sequence[Entry], places: Places) -> list[Job]:
    """Return all jobs of the queue in the order in which they run."""
    return sorted((job for entry in entries for job in entry.jobs(places)), key=lambda job: not job.is_first)


def run_queue(entries: Sequence[Entry], places: Places, processes: int) -> dict[str, str]:
    """Run everything that is not done, with ``processes`` jobs at a time. Return the errors of failed jobs by name.

    A failed job does not stop the others. The same call tries it again.
    """
    with writing(places.runs):
        (places.runs / _LOCKS).mkdir(parents=True, exist_ok=True)
    if processes == 1:
        return _work(entries, places)
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in range(processes)]
    to_send = NETWORKS.importable()
    workers = [context.Process(target=_work_beside, args=(entries, places, to_send, errors)) for _, errors in pipes]
    for worker, (_, errors) in zip(workers, pipes, strict=True):
        worker.start()
        errors.close()  # so that a worker that dies ends its pipe
    failed: dict[str, str] = {}
    try:
        for worker, (received, _) in zip(workers, pipes, strict=True):
            with contextlib.suppress(EOFError):
                failed |= received.recv()
            worker.join()
    except BaseException:  # Ctrl-C
        for worker in workers:
            worker.terminate()  # a run may be ended at any moment; its last checkpoint is whole
        raise
    if any(worker.exitcode for worker in workers):
        raise RecipeError("a worker of the queue ended before its time; the same command goes on where it stopped")
    return failed


def _work_beside(entries: Sequence[Entry], places: Places, networks: Mapping[str, Any], errors: Connection) -> None:
    """Work in a process of its own, and send the errors."""
    begin_worker(networks)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    errors.send(_work(entries, places))


def _work(entries: Sequence[Entry], places: Places) -> dict[str, str]:
    """Do one job after the other until none is left that could be taken. Return the errors."""
    jobs = jobs_of(entries, places)
    tried: set[str] = set()
    failed: dict[str, str] = {}
    while name := next((job.name for job in jobs if job.name not in tried and _taken(job, places, failed)), None):
        tried.add(name)
    return failed


def _taken(job: Job, places: Places, failed: dict[str, str]) -> bool:
    """Do a job if it is open and no other worker has it; return whether it was done or failed here."""
    if job.is_done() or not job.is_ready():
        return False
    try:
        held = FileLock(places.runs / _LOCKS / f"{job.name.replace('/', ' ')}.lock", timeout=0).acquire()
    except Timeout:
        return False
    with held:
        if job.is_done():
            return False
        _logger.info("%s: begins", job.name)
        try:
            job.run()
        except TreememError as error:
            failed[job.name] = str(error)
            _logger.error("%s: failed: %s", job.name, error)
        return True


def write_pages(entries: Sequence[Entry], places: Places) -> list[Path]:
    """Write the pages of the tasks of some studies. Return their places."""
    folders = {entry.folder.page: entry.folder for entry in entries}
    pages = []
    for name, folder in folders.items():
        page = places.results / f"{name}.md"
        if any((places.results / name).rglob("*.jsonl")):
            write_page(folder, places.results / name, page)
            pages.append(page)
    return pages
