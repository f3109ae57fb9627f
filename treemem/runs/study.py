"""Many training runs of one task, several at a time. Finished runs are recorded and not run again."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from treemem import checkpoint
from treemem.data_parallel import launched_processes
from treemem.errors import RecipeError, TreememError
from treemem.metrics.score import score_columns
from treemem.model import Model
from treemem.model_digest import weights_digest
from treemem.networks import NETWORKS
from treemem.records import locked, writing
from treemem.runs.environment import environment
from treemem.runs.run import CompletedRun, StudyRun, completed_run
from treemem.runs.same_run import as_recorded
from treemem.runs.study_records import add_records, read_study
from treemem.runs.training_loop import FitResult
from treemem.task import Task
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import SPLITS

_TREES = "trees"  # folder of the forests and files within a study's
_logger = logging.getLogger(__name__)


def run_study(
    task: Task,
    runs: Sequence[StudyRun],
    forests: Mapping[str, Forest],
    *,
    folder: str | Path,
    results: str | Path,
    files: Mapping[str, Forest] | None = None,
    splits: Sequence[str] = SPLITS,
    processes: int = 1,
    only: Collection[str] | None = None,
) -> list[dict[str, Any]]:
    """Run everything that is not recorded yet. Return all records, in the order of ``runs``.

    A run is recorded when it is done. The same call after an interruption continues, and an interrupted run resumes. A
    run whose record lacks a split or file, or has another file of that name, is scored again, or trained again if its
    folder is gone.

    A record has the fields ``run``, ``row``, ``task`` (its options), ``network`` (name and options), ``training``,
    ``data`` (name and hash), ``files`` (hashes by name), ``weights`` (a hash), ``parameters``, ``best_epoch``,
    ``epochs``, ``examples`` (of all training steps), ``seconds`` (of training and validation), ``compute_seconds`` (of
    training alone, as in ``budget`` of :class:`TrainingOptions`), ``curve`` (with a budget: the seconds and the
    monitored metric of each evaluation), ``trees_per_second``, ``environment`` (see
    :func:`treemem.runs.environment.environment`), and by split or file ``scores`` (see :func:`recorded_scores`) and
    ``right`` (which examples are correct, :func:`right_answers`; not for ``train``). Fields that are newer than a
    record are None.

    Args:
        task: what to learn.
        runs: what to run.
        forests: labelled trees with splits, by name.
        folder: of the runs. Studies can share it if their runs have different names and equal names mean equal trees.
        results: the JSONL file of the records. Studies can share it.
        files: further labelled trees to score, by name.
        splits: the splits to score. Leave the test split out while you make choices.
        processes: runs at a time, each with the ``threads`` of its training.
        only: names of the runs to do now; the records of the others are not returned. None: all.

    Raises:
        RecipeError: two runs with one name, or an invalid name; a record of a run with other options; trees that
            another study replaced; a killed process; a call from processes of ``torchrun``.
        ParseError: ``results`` holds no records of a study.
        TreememError: an error of a run, after all other runs are done. Any other error stops the study at once.

    With several processes, a script needs the guard ``if __name__ == "__main__"``.
    """
    names = [run.name for run in runs]
    folder, results, files = Path(folder), Path(results), files or {}
    _check_names(runs, forests, files, splits)
    if launched_processes().count > 1:
        raise RecipeError("a study runs without torchrun; ask for more processes instead (--processes)")
    if processes < 1:
        raise RecipeError(f"processes must be at least 1, not {processes}")
    fields = ["run", "network", "training", "data", "scores"]
    records = {record["run"]: record for record in read_study(results, fields)}
    trees, parts = {**forests, **files}, [*splits, *files]
    digests = {name: task.examples(forest).digest() for name, forest in trees.items()}
    for run in runs:
        record = records.get(run.name)
        different = {} if record is None else run.differences(record, task, digests[run.data])
        if different:
            raise RecipeError(
                f"{results} has another run {run.name!r}: {'; '.join(different.values())}. Remove that line and the "
                f"run's folder, {folder / run.name}, to run it again, or write to another file and folder"
            )
    whole = {run.name for run in runs if is_complete(records.get(run.name), run, task, parts, digests.get)}
    chosen = set(names if only is None else only)
    waiting = [run for run in runs if run.name in chosen and run.name not in whole]
    _tell_plan(results, len(chosen), [run.name for run in waiting])
    study = _Study(task, folder, digests, tuple(splits), tuple(files))
    if waiting:
        study.save(trees)
    failed: list[TreememError] = []
    for run, done in _done(study, waiting, processes):
        if isinstance(done, TreememError):
            _logger.error("%s failed: %s", run.name, done)
            failed.append(done)
            continue
        added = add_records(results, [done], ["run"], merged=_merged, order=names)
        records |= {record["run"]: record for record in added}
        whole.add(run.name)
        _logger.info("%s: done, %.0f s of training (%d of %d)", run.name, done["seconds"], len(whole), len(runs))
    if failed:
        raise failed[0]
    return [records[name] for name in names if name in chosen]


def _tell_plan(results: Path, count: int, waiting: Sequence[str]) -> None:
    """Log how many of so many runs are recorded, and what is to be done."""
    remaining = f"{len(waiting)} to run, first {waiting[0]}" if waiting else "--again FOLDER trains them anew"
    _logger.info("%s: %d of %d runs are recorded; %s", results, count - len(waiting), count, remaining)


def is_complete(
    record: Mapping[str, Any] | None,
    run: StudyRun,
    task: Task,
    parts: Collection[str],
    hash_of: Callable[[str], str | None],
) -> bool:
    """Return whether a record is of a run and has all scores.

    Args:
        record: None if there is none.
        run: that is planned.
        task: if the run has none of its own.
        parts: names of the splits and files to score.
        hash_of: returns the hash of the data to train on, or of a file; None for a split, and for data of any hash.
    """
    if record is None or record["run"] != run.name or not {*parts} <= record["scores"].keys():
        return False
    recorded = {**(record.get("files") or {}), run.data: record["data"]["hash"]}
    if run.differences(record, task, recorded[run.data]):
        return False
    return all(hash_of(name) in (None, recorded.get(name)) for name in (run.data, *parts))


def _merged(before: Mapping[str, Any], done: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a new record with the other splits and files of an earlier record of the same weights."""
    if before.get("weights") != done["weights"]:
        return done
    by_part = ("files", "scores", "right")
    return {**done, **{name: {**(before.get(name) or {}), **done[name]} for name in by_part}}


def recorded_model(folder: Path, record: Mapping[str, Any]) -> Model:
    """Return the trained model of a record.

    Args:
        folder: of the runs.
        record: of one of them.

    Raises:
        RecipeError: the folder of the run is gone, or holds other weights.
    """
    place = folder / record["run"]
    if not place.exists():
        raise RecipeError(f"{place} is gone; remove the record of {record['run']!r} too, and run it again")
    model = checkpoint.load(place)
    if weights_digest(model) != record["weights"]:
        raise RecipeError(f"the weights in {place} are not those of its record; remove both, and run it again")
    return model


@dataclass(frozen=True)
class _Study:
    """What the runs of a study have in common.

    Attributes:
        task: of the study; it hashes the trees.
        folder: of the runs. It also keeps the trees, for the other processes.
        digests: hashes of the trees by name.
        splits, files: what to score.
    """

    task: Task
    folder: Path
    digests: Mapping[str, str]
    splits: tuple[str, ...]
    files: tuple[str, ...]

    def save(self, trees: Mapping[str, Forest]) -> None:
        """Save the trees that are not there."""
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder / _TREES):
                for name, forest in trees.items():
                    if self._saved(name) is None:
                        forest.save(self.folder / _TREES / name)

    def _saved(self, name: str) -> Forest | None:
        """Return trees that are saved; None if they are absent, torn or others."""
        try:
            forest = Forest.load(self.folder / _TREES / name)
        except TreememError:
            return None
        return forest if self.task.examples(forest).digest() == self.digests[name] else None

    def _trees(self, name: str) -> Forest:
        forest = self._saved(name)
        if forest is None:
            raise RecipeError(
                f"{self.folder / _TREES / name} holds other trees than this study has: another study in the same "
                "folder wrote them; use another folder (--runs)"
            )
        return forest

    def done(self, run: StudyRun) -> dict[str, Any] | TreememError:
        """Train and score a run. Return its record, or its error, so that the other runs go on."""
        try:
            forest = self._trees(run.data)
            parts: dict[str, tuple[Forest, str | None]] = {split: (forest, split) for split in self.splits}
            parts |= {name: (self._trees(name), None) for name in self.files}
            completed = completed_run(self.task, run, forest, parts, self.folder, resume=True, progress=False)
        except TreememError as error:
            return error
        return self._record(run, completed)

    def _record(self, run: StudyRun, completed: CompletedRun) -> dict[str, Any]:
        task, result, evaluations = run.task or self.task, completed.fit, completed.evaluations
        return {
            "run": run.name,
            "row": run.row,
            "task": task.options,
            "network": asdict(run.network),
            "training": as_recorded(asdict(run.training)),
            "data": {"name": run.data, "hash": self.digests[run.data]},
            "files": {name: self.digests[name] for name in self.files},
            "weights": completed.weights,
            "parameters": sum(parameter.numel() for parameter in result.model.parameters()),
            "best_epoch": result.best_epoch,
            "epochs": len(result.records),
            "seconds": sum(record["seconds"] + record.get("validation_seconds", 0.0) for record in result.records),
            "compute_seconds": sum(record["compute_seconds"] for record in result.records),
            "examples": sum(record["examples"] for record in result.records),
            "curve": _curve(result, task) if run.training.budget is not None else None,
            "trees_per_second": result.trees_per_second,
            "environment": environment(),
            "scores": {name: score_columns(scored.scores, task.group) for name, scored in evaluations.items()},
            "right": completed.right,
        }


def _done(
    study: _Study, runs: Sequence[StudyRun], processes: int
) -> Iterator[tuple[StudyRun, dict[str, Any] | TreememError]]:
    """Yield each run with its record, or with its error, as soon as it is done."""
    if processes == 1 or len(runs) < 2:
        for run in runs:
            yield run, study.done(run)
        return
    others = set(multiprocessing.active_children())
    context, to_send = multiprocessing.get_context("spawn"), NETWORKS.importable()
    with ProcessPoolExecutor(processes, context, begin_worker, (to_send,)) as pool:
        futures = {pool.submit(study.done, run): run for run in runs}
        began = False
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
                began = True
        except BrokenProcessPool as error:
            raise RecipeError(
                "a process of the study was killed; the same command goes on where it stopped"
                if began or any((study.folder / run.name).exists() for run in runs)
                else 'the processes of the study could not start; has the script the guard if __name__ == "__main__"?'
            ) from error
        except BaseException:  # Ctrl-C, or a fault that no run may end with
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()  # a run may be ended at any moment; its last checkpoint is whole
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def begin_worker(networks: Mapping[str, Any]) -> None:
    """Ignore Ctrl-C, which the parent handles, end when the parent ends, and know its registered networks."""
    for name, network in networks.items():
        NETWORKS.register(name, network)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _curve(result: FitResult, task: Task) -> list[list[float]]:
    """Return the seconds of computing at each evaluation, and the monitored metric there."""
    seconds = np.cumsum([record["compute_seconds"] for record in result.records]).tolist()
    name = f"validation_{task.monitor.metric}"
    return [
        [round(spent, 1), round(record[name], 4)]
        for spent, record in zip(seconds, result.records, strict=True)
        if name in record
    ]


def _check_names(
    runs: Sequence[StudyRun], forests: Mapping[str, Forest], files: Mapping[str, Forest], splits: Sequence[str]
) -> None:
    """Check that no run or data set replaces another one."""
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        raise RecipeError(f"two runs of a study have one name: {sorted(names)}")
    for name in (*names, *forests, *files):
        parts = PurePosixPath(name).parts
        if not parts or ".." in parts or PurePosixPath(name).is_absolute() or (name in names and parts[0] == _TREES):
            raise RecipeError(f"{name!r} cannot name a run or trees: it must stay within the study's folder")
    for name in files:
        if name in forests or name in SPLITS:
            raise RecipeError(f"the file {name!r} has the name of a forest or of a split; give it another")
    for run in runs:
        if run.data not in forests:
            raise RecipeError(f"the run {run.name!r} needs the forest {run.data!r}; there are {', '.join(forests)}")
    unknown = [split for split in splits if split not in SPLITS]
    if unknown:
        raise RecipeError(f"no split is called {unknown[0]!r}; there are {', '.join(SPLITS)}")
