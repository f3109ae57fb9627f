"""The training loop."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from treemem import checkpoint
from treemem.checkpoint.run_folder import RunFolder
from treemem.data.examples import DataSet, forest_of
from treemem.data.loader import Batch, BatchOptions, Loader
from treemem.data.sum_count import SumCount, mean_of
from treemem.data_parallel import joined_processes
from treemem.errors import RecipeError
from treemem.metrics.score import Score
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.progress_bar import progress_bar
from treemem.runs.accelerator import fabric_of_process
from treemem.runs.best_epoch import check_defined, check_training_threshold, chosen_monitor, warn_of_few_answers
from treemem.runs.loggers import Logger, Loggers, check_loggers
from treemem.runs.optimisation import average_is_due, plateau_scheduler, rate_factor, rate_scheduler
from treemem.runs.options import TrainingOptions
from treemem.runs.progress import RunLog, epoch_line
from treemem.runs.same_run import fingerprint
from treemem.runs.state import RunState
from treemem.runs.training_examples import (
    check_lengths,
    examples_of_epoch,
    merged_outputs,
    split_examples,
    unseen_labels,
)
from treemem.runs.training_step import MAIN_LOSS, check_training_graphs
from treemem.task import Task
from treemem.trees.forest import Forest

_logger = logging.getLogger(__name__)
_POSTFIX_SECONDS = 0.5
_CLOCK_STEPS = 16
_PARTS = 1_000_000  # of a budget, each of which has a learning rate


class DivergedError(RecipeError):
    """The loss of a training run is not finite."""


@dataclass(frozen=True, eq=False)
class FitResult:
    """A finished training run.

    Attributes:
        model: of the best epoch, in evaluation mode; with an EMA, its weights are the average.
        folder: of log and checkpoints; ``treemem.load(folder)`` gives the same model.
        best_epoch: the epoch with the best monitored metric; the last epoch without validation examples.
        validation: the scores of that epoch by group, last for all; empty without validation examples.
        records: the log, one record an epoch.
    """

    model: Model
    folder: Path
    best_epoch: int
    validation: list[Score]
    records: list[dict[str, Any]]

    @property
    def best_record(self) -> dict[str, Any]:
        """The record of the best epoch."""
        return self.records[self.best_epoch - 1]

    @property
    def trees_per_second(self) -> float:
        """Training speed over all epochs."""
        return sum(record["trees"] for record in self.records) / sum(record["seconds"] for record in self.records)


class Trainer:
    """One training run.

    Args:
        task, network, data, options, networks, loggers: as of :func:`treemem.runs.fit`.
        folder: of the run.
        shown: whether to show a progress bar; None: only on a terminal.
    """

    def __init__(
        self,
        task: Task,
        network: NetworkConfig,
        data: Forest | DataSet,
        options: TrainingOptions,
        folder: RunFolder,
        shown: bool | None,
        networks: Mapping[str, Callable[..., nn.Module]] | None,
        loggers: Sequence[Logger] = (),
    ) -> None:
        self.processes = joined_processes()
        self.options, self.folder, self.shown, self.networks = options, folder, shown, networks
        self.fabric = fabric_of_process(self.processes, options.accelerator, options.precision)
        self.device = self.fabric.device
        self.cuda_devices = [self.device] if self.device.type == "cuda" else []
        self.compute_clock = time.process_time if self.device.type == "cpu" else time.perf_counter
        self.examples = task.examples(forest_of(data))
        self.train_ids, self.validation_ids = split_examples(self.examples)
        if options.schedule == "plateau" and not len(self.validation_ids):
            raise RecipeError('schedule "plateau" needs validation examples, and these data have none')
        check_training_threshold(task, options, len(self.validation_ids))
        examples_of_epoch(self.train_ids, self.examples, 0, options.curriculum)  # the stage with the fewest
        self.given_loggers = loggers
        if self.processes.is_first:
            check_loggers(loggers, options)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            self.model = Model(task, network, networks=networks)
        self.model.unseen, self.model.unseen_kinds = unseen_labels(self.model.vocabulary, self.examples, self.train_ids)
        checkpoint.check_options(self.model)
        whole_batch = self.model.needs_whole_batch
        if whole_batch is not None and self.processes.count > 1:
            raise RecipeError(
                f"{whole_batch} makes an example depend on the others of its batch, which several processes would "
                "divide; train it in one process"
            )
        if options.budget is not None and self.processes.count > 1:
            raise RecipeError(
                "a budget of seconds is for one process; train without torchrun, or for a number of epochs"
            )
        check_training_graphs(self.model, self.examples, options, self.device, self.processes)
        self.examples.loader(self.model.vocabulary)  # refuses unknown labels before anything is written
        check_lengths(self.model, self.examples)
        self.fingerprint = fingerprint(self.model, self.examples, options)
        self.terms = {**self.fingerprint, **dataclasses.asdict(options), "device": self.device.type}
        self.monitor = chosen_monitor(self.model, self.examples, self.train_ids, self.validation_ids, options)
        self.monitored = f"validation_{self.monitor.metric}"
        self.validated: tuple[Any, Mapping[str, Any]] | None = None  # outputs and targets of the last evaluation

    def loader_of(self, epoch: int) -> Loader:
        """Return the batches of an epoch, counted from 0, in its order."""
        options = self.options
        return self.examples.loader(
            self.model.vocabulary,
            examples_of_epoch(self.train_ids, self.examples, epoch, options.curriculum),
            BatchOptions(
                options.batch_size,
                options.nodes_per_batch,
                shuffle=True,
                sort_by_height=options.sort_by_height,
                sort_by_length=options.sort_by_length,
                seed=options.seed,
                epoch=epoch,
                share_subtrees=options.share_subtrees,
                prefetch=options.prefetch,
            ),
        )

    def begin(self) -> None:
        """Seed everything, or restore the last checkpoint."""
        options = self.options
        self.state = RunState(
            self.model, options, self.processes, self.fabric, self.folder, self.fingerprint, self.monitored
        )
        self.progress, self.learner = self.state.progress, self.state.learner
        if options.cuda_graphs:
            self.learner.capture(self.examples)
        if isinstance(options.threshold, str) and self.processes.is_first:
            warn_of_few_answers(self.model.task, self.examples.targets_of(self.validation_ids)["label"])
        self.start_clocks()
        self.judge_if_due()
        self.state.say_progress()
        by_step = options.rate_varies and options.budget is None
        steps = [len(self.loader_of(epoch)) for epoch in range(options.epochs)] if by_step else []
        done = sum(steps[: self.progress.epoch]) + self.progress.step
        values = [record[self.monitored] for record in self.progress.records if self.monitored in record]
        self.schedulers: list[LambdaLR] = []
        self.plateaus: list[ReduceLROnPlateau] = []
        for optimizer, learning_rate in zip(self.learner.optimizers, self.learner.learning_rates, strict=True):
            if options.rate_varies:
                factor = (
                    self.budget_factor
                    if options.budget is not None
                    else partial(rate_factor, steps=sum(steps), schedule=options.schedule, warmup=options.warmup)
                )
                self.schedulers.append(rate_scheduler(optimizer, learning_rate, factor, done=done))
            elif options.schedule == "plateau":
                plateau = plateau_scheduler(
                    optimizer,
                    learning_rate,
                    options.plateau_factor,
                    options.plateau_patience,
                    mode=self.monitor.mode,
                    values=values,
                )
                self.plateaus.append(plateau)
        self.log: Loggers | None = None
        with self.processes.agreeing():
            if self.processes.is_first:
                log = RunLog(self.folder.path / "metrics.jsonl", self.progress.records)
                self.log = Loggers(log, self.given_loggers, options, self.progress.records, self.terms)

    def judge_if_due(self) -> None:
        """Evaluate a finished run if its last epoch was not evaluated or its best checkpoint is lost."""
        progress = self.progress
        is_due = len(self.validation_ids) and progress.is_at_end(self.options)
        is_judged = progress.best_epoch and not (is_due and self.monitored not in progress.records[-1])
        if not progress.finished(self.options) or is_judged:
            return
        if progress.step:
            raise RecipeError(
                f"{self.folder.path} holds a run within its epoch {progress.epoch + 1}, and no model of epoch "
                f"{progress.epoch} that could be evaluated; resume it with epochs of at least {progress.epoch + 1}"
            )
        value = self.evaluate(progress.records[-1]) if len(self.validation_ids) else None
        is_best = value is None or not progress.best_epoch or self.is_better(value, progress.records[-1])
        if is_best:
            progress.best_epoch, progress.best_value = progress.epoch, value
        self.save(best=is_best)

    def save(self, *, best: bool) -> None:
        """Write a checkpoint."""
        task, asked = self.model.task, self.options.threshold
        temperature, threshold = 1.0, None if asked is None or isinstance(asked, str) else float(asked)
        if best and self.validated is not None:
            fitted = task.fitted_temperature(*self.validated)
            temperature = 1.0 if fitted is None else fitted
            if isinstance(asked, str):
                threshold = task.best_threshold(*self.validated, asked, temperature=temperature)
        self.state.save(best=best, temperature=temperature, threshold=threshold)

    def train_epoch(self) -> None:
        """Do the epoch's remaining steps: a pass over the examples, or until its part of the budget is spent."""
        progress, options = self.progress, self.options
        if options.average_again == progress.epoch and not progress.step and self.state.average is not None:
            self.state.begin_average()
        self.learner.network.train()
        self.start_clocks()
        if options.budget is None:
            self.train_pass(progress.epoch, progress.step, None)
            return
        end = min(progress.epoch + 1, options.epochs) * options.budget / options.epochs
        while not self.train_pass(progress.passes, progress.pass_step, end):
            progress.passes, progress.pass_step = progress.passes + 1, 0

    def train_pass(self, number: int, done: int, end: float | None) -> bool:
        """Do the remaining steps of a pass.

        Args:
            number: of the pass, from 0.
            done: its finished steps.
            end: the spent part of the budget at which the epoch ends, after at least one step; None: with the pass.

        Returns:
            Whether the epoch ended before the pass did.
        """
        progress, options = self.progress, self.options
        self.loader = self.loader_of(number)
        plan = self.loader.plan()
        left = plan[done:]
        batches = self.loader.batches(self.own_parts(left))
        sums: dict[str, tuple[Any, Any]] = {name: (total, count) for name, (total, count) in progress.losses.items()}
        shown_at = time.perf_counter()
        title = f"seed {options.seed}, epoch {progress.epoch + 1}/{options.epochs}"
        with closing(batches), progress_bar(sum(map(len, plan)), title, self.shown) as bar:
            bar.update(sum(map(len, plan[:done])))
            for places, batch in zip(left, batches, strict=True):
                for name, loss in self.step(batch).items():
                    total, count = sums.get(name, (0.0, 0.0))
                    sums[name] = total + loss.sum.detach().double(), count + loss.count
                progress.items += len(places)
                progress.step += 1
                progress.pass_step += end is not None
                now = time.perf_counter()
                if not bar.disable and now - shown_at > _POSTFIX_SECONDS:
                    total, count = sums[MAIN_LOSS]
                    bar.set_postfix_str(f"loss {mean_of(total, count):.4f}", refresh=False)
                    shown_at = now
                bar.update(len(places))
                if end is not None and self.spent >= end:
                    self.account(sums)
                    return True
                if self.checkpoint_is_due(now):
                    self.account(sums)
                    self.save(best=False)
                    self.start_clocks()
        self.account(sums)
        return False

    def own_parts(self, plan: Sequence[NDArray[np.int64]]) -> Sequence[NDArray[np.int64]]:
        """Return the part of this process in each batch."""
        return plan if self.processes.count == 1 else self.loader.parts(plan, self.processes)

    def step(self, batch: Batch) -> Mapping[str, SumCount]:
        """Do one training step and return its losses, without waiting for the device."""
        there = self.learner.batch_device
        targets = self.examples.batch_targets(batch, there)
        losses = self.learner.training_step(batch.to(there), targets)
        for scheduler in self.schedulers:
            scheduler.step()
        if self.state.average is not None:
            self.state.average.update_parameters(self.model)
        return losses

    def start_clocks(self) -> None:
        """Measure the time of steps from now on."""
        self.began, self.compute_began = time.perf_counter(), self.compute_clock()

    @property
    def spent(self) -> float:
        """Seconds of computing of all steps so far, those since :meth:`account` included."""
        return self.progress.spent + self.compute_clock() - self.compute_began

    def budget_factor(self, _: int) -> float:
        """Return the fraction of the full learning rate at the spent part of the budget."""
        assert self.options.budget is not None
        done = min(int(self.spent / self.options.budget * _PARTS), _PARTS - 1)
        return rate_factor(done, _PARTS, self.options.schedule, self.options.warmup)

    def account(self, sums: Mapping[str, tuple[Any, Any]]) -> None:
        """Record the losses of the epoch so far and the time of the steps since the last call."""
        self.progress.losses = {name: [float(total), float(count)] for name, (total, count) in sums.items()}
        self.progress.seconds += time.perf_counter() - self.began
        self.progress.compute_seconds += self.compute_clock() - self.compute_began
        self.progress.loader_seconds += self.loader.seconds
        self.loader.seconds = 0.0
        self.start_clocks()

    def checkpoint_is_due(self, now: float) -> bool:
        """Return whether to write a checkpoint within the epoch."""
        seconds, steps = self.options.checkpoint_seconds, self.options.checkpoint_steps
        if steps is not None and self.progress.step % steps == 0:
            return True
        if seconds is None or (self.processes.count > 1 and self.progress.step % _CLOCK_STEPS):
            return False
        return self.processes.in_first(lambda: now - self.state.saved_at >= seconds)

    def end_epoch(self) -> None:
        """Close the epoch: evaluate, write the record and the checkpoint."""
        progress, options = self.progress, self.options
        progress.epoch += 1
        means = {name: mean_of(total, count) for name, (total, count) in progress.losses.items()}
        if not math.isfinite(means.get(MAIN_LOSS, 0.0)):
            raise DivergedError(f"the loss of epoch {progress.epoch} is not finite; lower learning_rate, or set clip")
        record: dict[str, Any] = {
            "epoch": progress.epoch,
            "loss": means.pop(MAIN_LOSS, 0.0),
            **{f"{name}_loss": mean for name, mean in means.items()},
            "examples": progress.items,
            "trees": progress.items * self.examples.trees_per_example,
            "seconds": progress.seconds,
            "compute_seconds": progress.compute_seconds,
            "loader_seconds": progress.loader_seconds,
            "examples_per_second": progress.items / progress.seconds,
        }
        is_last = progress.is_at_end(options)
        progress.begin_epoch()
        self.learner.state = None
        is_best = self.judge(record, is_last)
        if is_best:
            progress.best_epoch = progress.epoch
        progress.records.append(record)
        if options.keep_epochs:
            self.state.keep_epoch()
        self.save(best=is_best)
        with self.processes.agreeing():
            if self.log is not None:
                self.log(record)
        self.state.tell("%s", epoch_line(record, options, self.monitored, is_best))

    def judge(self, record: dict[str, Any], is_last: bool) -> bool:
        """Evaluate if it is due, as after the last epoch; return whether the model is the best so far."""
        progress, options = self.progress, self.options
        if not len(self.validation_ids):
            return True
        if progress.epoch % options.evaluate_every and not is_last:
            return False
        value = self.evaluate(record)
        for plateau in self.plateaus:
            plateau.step(value)
        before = [record[self.monitored] for record in progress.records if self.monitored in record]
        if self.state.average is None and average_is_due(value, before, options.average_after, self.monitor):
            self.state.begin_average()
            self.state.tell("averaging the weights from epoch %d on", progress.epoch + 1)
        if not self.is_better(value, record):
            progress.evaluations_since_best += 1
            return False
        progress.best_value, progress.evaluations_since_best = value, 0
        return True

    def evaluate(self, record: dict[str, Any]) -> float:
        """Score the validation examples, add the scores to the epoch's record, and return the monitored metric."""
        begin = time.perf_counter()
        model = self.state.kept_model
        loader = model.loader(
            self.examples, self.validation_ids, BatchOptions(self.options.evaluation_batch_size, epoch=0)
        )
        whole = loader.plan()
        with self.processes.agreeing():
            parts = [self.processes.part(places) for places in whole]
            outputs = model.outputs_of(self.examples, loader, plan=parts, run=self.state.graphs_of_kept)
        kept = merged_outputs(self.processes.gathered((parts, outputs)))
        targets = self.examples.targets_of(self.validation_ids)
        scores = model.task.scores(kept, targets, loader.group)
        self.validated = kept, targets
        record.update(model.task.validation_record(kept, targets))
        for metric in (model.task.monitor.metric, self.monitor.metric):
            if metric in scores[-1].metrics:
                record[f"validation_{metric}"] = scores[-1].metrics[metric]
        value = check_defined(self.monitor, record[self.monitored])
        record["validation_seconds"] = time.perf_counter() - begin
        record["validation"] = [dataclasses.asdict(score) for score in scores]
        return float(value)

    def is_better(self, value: float, record: Mapping[str, Any]) -> bool:
        """Return whether an evaluation, whose record is given, is better than the best one so far."""
        progress = self.progress
        best = progress.records[progress.best_epoch - 1] if progress.best_epoch else {}
        loss = "validation_loss"
        return self.monitor.is_better(value, progress.best_value, record.get(loss), best.get(loss))

    def result(self) -> FitResult:
        """Return the best model and the run's records."""
        best = self.state.best_model(self.networks)
        record = self.progress.records[self.progress.best_epoch - 1]
        validation = [Score(**score) for score in record.get("validation", [])]
        return FitResult(best, self.folder.path, self.progress.best_epoch, validation, self.progress.records)
