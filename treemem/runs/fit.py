"""Train a network on a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import nn

from treemem.checkpoint.run_folder import RunFolder
from treemem.data.examples import DataSet
from treemem.data_parallel import joined_processes
from treemem.errors import RecipeError
from treemem.native.matmul_precision import matmul_precision
from treemem.native.threads import torch_threads
from treemem.networks import NetworkConfig
from treemem.records import write_records, writing
from treemem.runs.loggers import Logger
from treemem.runs.options import TrainingOptions
from treemem.runs.same_run import check_same_training
from treemem.runs.training_loop import FitResult, Trainer
from treemem.task import Task
from treemem.trees.forest import Forest

BAD_ROWS = "bad_rows.jsonl"
"""The file of a run's folder with the rows of a table that were left out, and their errors."""


class FitOptions(TypedDict, total=False):
    """How :func:`fit` treats the folder of a run, shows and logs its progress, and finds networks."""

    resume: bool
    overwrite: bool
    progress: bool | None
    networks: Mapping[str, Callable[..., nn.Module]] | None
    loggers: Sequence[Logger]


def fit(
    task: Task,
    network: NetworkConfig,
    data: Forest | DataSet,
    options: TrainingOptions | None = None,
    *,
    output: str | Path,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool | None = None,
    networks: Mapping[str, Callable[..., nn.Module]] | None = None,
    loggers: Sequence[Logger] = (),
) -> FitResult:
    """Train a network on the split ``train``, and keep the epoch that is best on the split ``validation``.

    The task's monitor, by default the accuracy, decides which epoch is best. ``output`` receives ``metrics.jsonl`` and
    numbered checkpoints (:class:`treemem.checkpoint.RunFolder`), and ``bad_rows.jsonl`` if the data left out bad rows.
    With an EMA, checkpoints hold the averaged weights. The best checkpoint is temperature-scaled
    (:mod:`treemem.metrics.calibration`). The same seed on the same machine gives the same numbers, also after
    ``kill -9`` and resuming. The caller's random generators do not change.

    Under ``torchrun`` all processes call this with the same arguments. They divide every batch; results are those of
    one process, except for rounding and dropout. The first process writes ``output``. All processes return the same
    result, and an error in one is raised in all.

    Args:
        task: the task.
        network: the network and its options.
        data: labelled examples of the task. Without splits, all are for training.
        options: the training options.
        output: folder of the run.
        resume: continue from the last complete checkpoint in ``output``, if there is one.
        overwrite: delete an earlier run in ``output``.
        progress: show a progress bar; None: only on a terminal.
        networks: your own network classes by name.
        loggers: called with the record of each epoch after its checkpoint is written. An exception in one becomes a
            warning in the log, and the training goes on. A resumed run calls them for the remaining epochs.

    Raises:
        RecipeError: there is no training example; an option is unknown; the run to resume has other options or data;
            ``output`` holds a run and neither ``resume`` nor ``overwrite`` is given; the folder cannot be written, or
            another process trains in it; an option makes results depend on the batch, and there are several processes.
            ``DivergedError``, a subclass: the loss is not finite.
        CheckpointError: no checkpoint of the run to resume is complete, or one cannot be written.
        VocabularyError: the task does not have a label.
        CellError: the network's outputs are not finite.
        ProcessLostError: another process of the same run ended.
    """
    if not isinstance(task, Task) or not isinstance(network, NetworkConfig):
        raise RecipeError(
            "fit takes a task and one of its networks, such as task = ListOps(); fit(task, task.networks['Tree-LSTM'], "
            f"...), not {task!r:.60} and {network!r:.60}"
        )
    options = TrainingOptions() if options is None else options
    if not isinstance(options, TrainingOptions):
        raise RecipeError(f"options must be TrainingOptions(epochs=..., ...), not {options!r:.60}")
    folder = RunFolder(output)
    if resume and overwrite:
        raise RecipeError("resume and overwrite contradict each other; choose one")
    processes = joined_processes()
    with ExitStack() as holding:

        def hold() -> None:
            holding.enter_context(folder.locked())
            if folder.has_run() and not (resume or overwrite):
                raise RecipeError(
                    f"{folder.path} holds a run; choose another folder, continue it with resume=True, or replace "
                    "it with overwrite=True"
                )

        processes.in_first(hold)
        with processes.agreeing():
            run = Trainer(task, network, data, options, folder, progress, networks, loggers)
        check_same_training(processes.gathered(run.terms))
        processes.in_first(partial(folder.clear, overwrite=overwrite))
        processes.in_first(partial(_write_bad_rows, folder.path / BAD_ROWS, getattr(data, "bad_rows", ())))
        alone = torch.random.fork_rng(devices=run.cuda_devices)
        with alone, torch_threads(options.threads), matmul_precision(options.matmul_precision):
            run.begin()
            with nullcontext() if run.log is None else closing(run.log):
                while not run.progress.finished(options):
                    run.train_epoch()
                    run.end_epoch()
        return run.result()


def _write_bad_rows(path: Path, bad_rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows of a table that were left out; without any, delete the file of an earlier run."""
    if bad_rows:
        write_records(path, bad_rows)
    else:
        with writing(path):
            path.unlink(missing_ok=True)


def check_fit(
    task: Task, network: NetworkConfig, data: Forest | DataSet, options: TrainingOptions, *, output: str | Path
) -> None:
    """Raise what :func:`fit` would raise for its arguments, without regard to ``output``. Nothing is written.

    Raises:
        RecipeError, VocabularyError: as in ``fit``.
    """
    with joined_processes().agreeing():
        Trainer(task, network, data, options, RunFolder(output), shown=None, networks=None)
