"""Many training runs of one task, several at a time. Finished runs are recorded and not run again."""

from __future__ import annotations

import inspect
import json
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
from treemem.metrics.odds_count import OddsCount
from treemem.metrics.score import score_columns
from treemem.model import Model
from treemem.model_digest import weights_digest
from treemem.networks import NETWORKS, NetworkConfig
from treemem.records import check_writable, locked, write_records, writing
from treemem.runs.environment import environment
from treemem.runs.evaluate import evaluate
from treemem.runs.fit import fit
from treemem.runs.options import TrainingOptions
from treemem.runs.study_records import of_one_form, packed_answers, read_study
from treemem.runs.training_loop import FitResult
from treemem.task import Task
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import SPLITS

_TREES = "trees"  # folder of the forests and files within a study's
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StudyRun:
    """One training run of a study.

    Attributes:
        name: of the run and its folder.
        row: of a table; the runs of a row differ only in their seeds.
        network: the network and its options.
        training: options of the training, with the seed.
        data: name of the data to train on.
        task: instead of the study's task, if the study varies an option of the task.
    """

    name: str
    row: str
    network: NetworkConfig
    training: TrainingOptions
    data: str = "data"
    task: Task | None = None


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
    :func:`treemem.runs.environment.environment`), and by split or file ``scores`` (see :func:`recorded_scores`),
    ``right`` (which examples are correct, :func:`right_answers`; not for ``train``) and, for binary tasks, ``odds`` (a
    histogram of the log odds, :class:`OddsCount`). Fields that are newer than a record are None.

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
    records = _recorded(results)
    hashes = {name: task.examples(forest).digest() for name, forest in forests.items()}
    for run in runs:
        if run.name in records:
            check_same(run, run.task or task, hashes[run.data], records[run.name], results, folder)
    file_hashes = {name: task.examples(forest).digest() for name, forest in files.items()}
    whole = {run.name for run in runs if _is_whole(records.get(run.name), splits, file_hashes)}
    chosen = set(names if only is None else only)
    waiting = [run for run in runs if run.name in chosen and run.name not in whole]
    digests = {**hashes, **file_hashes}
    if waiting:
        with writing(results.parent):
            results.parent.mkdir(parents=True, exist_ok=True)
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder / _TREES):
                for name, forest in {**forests, **files}.items():
                    if not _holds(folder / _TREES / name, task, digests[name]):
                        forest.save(folder / _TREES / name)
    jobs = [_Job(task, run, folder, hashes[run.data], file_hashes, tuple(splits)) for run in waiting]
    failed: list[TreememError] = []
    for job, done in _done(jobs, processes):
        if isinstance(done, TreememError):
            _logger.error("%s failed: %s", job.run.name, done)
            failed.append(done)
            continue
        records |= _with_record(results, done, names)
        whole.add(job.run.name)
        _logger.info("%s: done, %.0f s of training (%d of %d)", job.run.name, done["seconds"], len(whole), len(runs))
    if failed:
        raise failed[0]
    return [records[name] for name in names if name in chosen]


def _holds(path: Path, task: Task, digest: str) -> bool:
    """Return whether trees with this hash are saved there."""
    try:
        return task.examples(Forest.load(path)).digest() == digest
    except TreememError:  # not there, or torn
        return False


def _recorded(results: Path) -> dict[str, dict[str, Any]]:
    """Return the records of a study by the names of their runs."""
    return {row["run"]: row for row in read_study(results, ["run", "network", "training", "data", "scores"])}


def _with_record(results: Path, done: dict[str, Any], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Add a record to the file, in which another process may have recorded other runs."""
    place = check_writable(results, overwrite=True)
    with locked(place.with_suffix("")):  # the lock of the file itself is for its writer
        records = _recorded(results)
        records[done["run"]] = _merged(records.get(done["run"]), done)
        write_records(results, of_one_form(_in_order(records, names)))
    return records


def _is_whole(record: Mapping[str, Any] | None, splits: Sequence[str], file_hashes: Mapping[str, str]) -> bool:
    """Return whether a record has all scores."""
    if record is None or not {*splits, *file_hashes} <= record["scores"].keys():
        return False
    hashes = record.get("files") or {}
    return all(hashes.get(name) == digest for name, digest in file_hashes.items())


def _merged(before: Mapping[str, Any] | None, done: dict[str, Any]) -> dict[str, Any]:
    """Return a new record with the other splits and files of an earlier record of the same weights."""
    if before is None or before.get("weights") != done["weights"]:
        return done
    by_part = ("files", "scores", "right", "odds")
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
class _Job:
    """A run to do, with the study's task for its hashes."""

    task: Task
    run: StudyRun
    folder: Path
    hash: str
    files: Mapping[str, str]
    splits: tuple[str, ...]


def _done(jobs: Sequence[_Job], processes: int) -> Iterator[tuple[_Job, dict[str, Any] | TreememError]]:
    """Yield each job with its record, or with its error, as soon as it is done."""
    if processes == 1 or len(jobs) < 2:
        for job in jobs:
            yield job, _do(job)
        return
    others = set(multiprocessing.active_children())
    context, to_send = multiprocessing.get_context("spawn"), NETWORKS.importable()
    with ProcessPoolExecutor(processes, context, begin_worker, (to_send,)) as pool:
        futures = {pool.submit(_do, job): job for job in jobs}
        began = False
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
                began = True
        except BrokenProcessPool as error:
            raise RecipeError(
                "a process of the study was killed; the same command goes on where it stopped"
                if began or any(_has_begun(job) for job in jobs)
                else 'the processes of the study could not start; has the script the guard if __name__ == "__main__"?'
            ) from error
        except BaseException:  # Ctrl-C, or a fault that no run may end with
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()  # a run may be ended at any moment; its last checkpoint is whole
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _has_begun(job: _Job) -> bool:
    return (job.folder / job.run.name).exists()


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


def _do(job: _Job) -> dict[str, Any] | TreememError:
    """Train and score one run. Return its error, so that the other runs go on."""
    try:
        return _record(job)
    except TreememError as error:
        return error


def _record(job: _Job) -> dict[str, Any]:
    run, task = job.run, job.run.task or job.task
    forest = _trees(job, run.data, job.hash)
    files = {name: _trees(job, name, digest) for name, digest in job.files.items()}
    result = fit(task, run.network, forest, run.training, output=job.folder / run.name, resume=True, progress=False)
    scores: dict[str, dict[str, list[Any]]] = {}
    right: dict[str, list[Any]] = {}
    odds: dict[str, list[list[int]]] = {}
    parts: dict[str, tuple[Forest, str | None]] = {split: (forest, split) for split in job.splits}
    parts |= {name: (other, None) for name, other in files.items()}
    for name, (data, split) in parts.items():
        evaluation = evaluate(
            result.model,
            data,
            split=split,
            batch_size=run.training.evaluation_batch_size,
            threads=run.training.threads,
            progress=False,
        )
        scores[name] = score_columns(evaluation.scores, task.group)
        if name != "train" and evaluation.correct is not None:
            right[name] = packed_answers(evaluation.correct)
        if evaluation.labels is not None:
            odds[name] = OddsCount.of(evaluation.predicted, evaluation.labels).to_lists()
    return {
        "run": run.name,
        "row": run.row,
        "task": task.options,
        "network": asdict(run.network),
        "training": _as_recorded(asdict(run.training)),
        "data": {"name": run.data, "hash": job.hash},
        "files": dict(job.files),
        "weights": weights_digest(result.model),
        "parameters": sum(parameter.numel() for parameter in result.model.parameters()),
        "best_epoch": result.best_epoch,
        "epochs": len(result.records),
        "seconds": sum(record["seconds"] + record.get("validation_seconds", 0.0) for record in result.records),
        "compute_seconds": sum(record["compute_seconds"] for record in result.records),
        "examples": sum(record["examples"] for record in result.records),
        "curve": _curve(result, task) if run.training.budget is not None else None,
        "trees_per_second": result.trees_per_second,
        "environment": environment(),
        "scores": scores,
        "right": right,
        "odds": odds,
    }


def _curve(result: FitResult, task: Task) -> list[list[float]]:
    """Return the seconds of computing at each evaluation, and the monitored metric there."""
    seconds = np.cumsum([record["compute_seconds"] for record in result.records]).tolist()
    name = f"validation_{task.monitor.metric}"
    return [
        [round(spent, 1), round(record[name], 4)]
        for spent, record in zip(seconds, result.records, strict=True)
        if name in record
    ]


def _trees(job: _Job, name: str, digest: str) -> Forest:
    """Return trees that the study saved.

    Raises:
        RecipeError: another study replaced them.
    """
    path = job.folder / _TREES / name
    forest = Forest.load(path)
    if job.task.examples(forest).digest() != digest:
        raise RecipeError(
            f"{path} holds other trees than this study has: another study in the same folder wrote them; "
            "use another folder (--runs)"
        )
    return forest


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


def _as_recorded(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as they are read from a record, with lists instead of tuples."""
    as_read: dict[str, Any] = json.loads(json.dumps(options, default=repr))  # a default may be of any type
    return as_read


def check_same(
    run: StudyRun, task: Task, data_hash: str, record: Mapping[str, Any], results: Path, folder: Path
) -> None:
    """Check that a record is of this run.

    Raises:
        RecipeError: its run had other options.
    """
    changed = changed_parts(run, task, data_hash, record)
    if changed:
        raise RecipeError(
            f"{results} has a run {run.name!r} with other {' and '.join(changed)}; remove that line and the run's "
            f"folder, {folder / run.name}, to run it again, or write to another file and folder"
        )


def changed_parts(run: StudyRun, task: Task, data_hash: str, record: Mapping[str, Any]) -> list[str]:
    """Return which of task, network, training and data a record has others of than a run.

    Options that the record lacks were at their defaults.
    """
    defaults = _defaults_of(type(task))  # of arguments, too, that are no options, such as the place of a file
    now = {
        "task": {**defaults, **task.options},
        "network": network_options(asdict(run.network)),
        "training": asdict(run.training),
        "data": data_hash,
    }
    then = {
        "task": {**defaults, **(record.get("task") or {})},
        "network": network_options(record["network"]),
        "training": {**asdict(TrainingOptions()), **record["training"]},
        "data": record["data"]["hash"],
    }
    now, then = _as_recorded(now), _as_recorded(then)
    return [name for name, value in now.items() if value != then[name]]


def _defaults_of(made: Callable[..., Any]) -> dict[str, Any]:
    """Return the default values of the parameters of a class or function."""
    parameters = inspect.signature(made).parameters.items()
    return {name: part.default for name, part in parameters if part.default is not inspect.Parameter.empty}


def network_options(network: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name of a recorded network and all its options, defaults included."""
    config = NetworkConfig(**network)
    return {"network": config.network, **_defaults_of(config.constructor()), **config.options}


def _in_order(records: Mapping[str, dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the records of other calls first, then those of this call in its order."""
    others = [record for name, record in records.items() if name not in set(names)]
    return [*others, *(records[name] for name in names if name in records)]
