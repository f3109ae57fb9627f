"""Training a network on a task: the front door."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path

import torch
from torch import nn

from treemem.checkpoint.run_folder import RunFolder
from treemem.data.examples import DataSet
from treemem.data_parallel import joined_processes
from treemem.errors import RecipeError
from treemem.networks import NetworkConfig
from treemem.ops import announced_run
from treemem.ops.threads import torch_threads
from treemem.records import writing
from treemem.runs.options import TrainingOptions
from treemem.runs.same_run import check_same_training
from treemem.runs.trainer import FitResult, Trainer
from treemem.task import Task
from treemem.trees.forest import Forest


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
) -> FitResult:
    """Train a network on the ``train`` split and keep the epoch that does best on the ``validation`` split.

    The task's monitor says which metric is compared. The folder ``output`` receives ``metrics.jsonl`` and numbered
    checkpoints (:class:`treemem.checkpoint.RunFolder`); with an EMA of the weights they hold the average. The best one
    has the temperature that suits the validation split (:mod:`treemem.metrics.calibration`). The same seed on the same
    machine gives the same numbers, also if the run was killed in between and resumed. The caller's random generators
    are left as they were.

    In processes that ``torchrun`` launched, each of which calls this with the same arguments, the run is data-parallel:
    every batch is divided among them, and the numbers are those of one process except for rounding and dropout. Only
    the first one writes and reads ``output``; all of them return the same result, and an error in one is raised in all.

    Args:
        task: what to learn.
        network: which network, with its options.
        data: labelled examples of the task. If they are not divided into splits, all are trained on.
        options: how to train.
        output: folder of the run.
        resume: go on from the last whole checkpoint in ``output``; begin anew if there is none.
        overwrite: delete an earlier run in ``output`` and begin anew.
        progress: show a progress bar; by default on a terminal only.
        networks: own network classes by name, besides the registered ones.

    Raises:
        RecipeError: no example to train on; an option that the network does not have or a checkpoint cannot hold; a run
            to resume that was begun with other options or data, or has more epochs; an earlier run in ``output`` and
            neither ``resume`` nor ``overwrite``; a folder that cannot be written, or in which another process is
            training; in several processes an option that makes an example depend on the others of its batch.
            ``DivergedError``, which is one: the loss is not finite.
        CheckpointError: no checkpoint of the run to resume is whole, or one cannot be written, as on a full disk.
        VocabularyError: data with a label that the task does not know.
        CellError: the network's outputs are not numbers, as after a training that diverged.
        ProcessLostError: another process of the same run ended.
    """
    options = TrainingOptions() if options is None else options
    folder = RunFolder(output)
    if resume and overwrite:
        raise RecipeError("resume and overwrite contradict each other; choose one")
    processes = joined_processes()
    with ExitStack() as holding:
        with processes.agreeing():
            if processes.is_first:
                holding.enter_context(folder.locked())
                if folder.has_run() and not (resume or overwrite):
                    problem = f"{folder.path} holds a run"
                    raise RecipeError(f"{problem}; choose another folder, go on with it (resume) or overwrite it")
        with processes.agreeing():
            run = Trainer(task, network, data, options, folder, progress, networks)
        check_same_training(processes.gathered(run.terms))
        with processes.agreeing():
            if processes.is_first:
                with writing(folder.path):
                    folder.clear(overwrite=overwrite)
        nodes = run.train_nodes * options.epochs // processes.count
        alone = torch.random.fork_rng(devices=run.cuda_devices)
        with alone, torch_threads(options.threads), announced_run(nodes):
            run.begin()
            with run.log or nullcontext():
                while not run.progress.finished(options):
                    run.train_epoch()
                    run.end_epoch()
        return run.result()


def check_fit(
    task: Task, network: NetworkConfig, data: Forest | DataSet, options: TrainingOptions, *, output: str | Path
) -> None:
    """Refuse what :func:`fit` would refuse of its arguments, whatever is in ``output``; nothing is written.

    Raises:
        RecipeError, VocabularyError: as ``fit`` does.
    """
    with joined_processes().agreeing():
        Trainer(task, network, data, options, RunFolder(output), shown=None, networks=None)
