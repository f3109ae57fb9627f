"""Training a network on a task: the loop, its checkpoints, and going on after an interruption."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from treemem import checkpoint
from treemem.data.examples import DataSet, Examples, forest_of
from treemem.data_parallel import joined_processes
from treemem.errors import RecipeError
from treemem.metrics.calibration import fit_temperature
from treemem.metrics.score import Score
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.ops import announced_run
from treemem.ops.threads import torch_threads
from treemem.records import writing
from treemem.runs.accelerator import fabric_of_process
from treemem.runs.averaging import averaged_model
from treemem.runs.curriculum import examples_of_epoch
from treemem.runs.fit_result import FitResult
from treemem.runs.learning_rate import plateau_scheduler, rate_scheduler
from treemem.runs.options import TrainingOptions
from treemem.runs.progress import RunLog, epoch_line, progress_bar, summary_writer
from treemem.runs.resuming import (
    Saved,
    check_vacant,
    clear,
    forget_torn_last,
    reading,
    records_before_lost_best,
    saved_run,
)
from treemem.runs.run_folder import held
from treemem.runs.state import (
    Progress,
    check_epochs,
    check_same_run,
    check_same_training,
    fingerprint,
    option_defaults,
    random_state,
    seed_generators,
    set_random_state,
)
from treemem.schedule.loader import TreeLoader
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch
from treemem.task import Task
from treemem.trees.forest import Forest

_logger = logging.getLogger(__name__)
_POSTFIX_SECONDS = 0.5
_CLOCK_STEPS = 16
_OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


class DivergedError(RecipeError):
    """A training whose loss is no longer a number."""


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

    The folder ``output`` receives ``metrics.jsonl`` and the checkpoints ``best`` and ``last``; of averaged weights
    ``best`` holds the average, and ``last`` what to go on with. ``best`` has the temperature that suits the validation
    split (:mod:`treemem.metrics.calibration`). The same seed on the same machine gives the same numbers, also when the
    run was killed in between and resumed. The caller's random generators are left as they were.

    In processes that ``torchrun`` launched, each of which calls this with the same arguments, the run is data-parallel:
    every batch is divided among them, and the numbers are those of one process but for rounding and what dropout draws.
    The first one alone writes and reads ``output``; all of them return the same result, and an error that is raised in
    one is raised in all.

    Args:
        task: what to learn.
        network: which network, with its options.
        data: labelled trees of the task. Where they are not divided into splits, all are trained on.
        options: how to train.
        output: folder of the run.
        resume: go on from the last whole checkpoint in ``output``; begin anew where there is none.
        overwrite: delete an earlier run in ``output`` and begin anew.
        progress: show a progress bar; by default on a terminal only.
        networks: own network classes by name, besides the registered ones.

    Raises:
        RecipeError: no example to train on, an option that the network does not have, a run to resume that was
            begun with other options or data or has more epochs, or an earlier run in ``output`` and neither ``resume``
            nor ``overwrite``; a folder that cannot be written, or in which another process is training; a network
            option that a checkpoint cannot hold; in several processes an option that makes an example depend on the
            others of its batch. ``DivergedError``, which is one: the loss is not finite.
        CheckpointError: no checkpoint of the run to resume is whole, or one cannot be written, as where a disk is full;
            the one before it stays.
        VocabularyError: data with a label that the task does not know.
        CellError: the network's outputs are not numbers, as after a training that diverged.
        ProcessLostError: another process of the same run ended.
    """
    options = TrainingOptions() if options is None else options
    folder = Path(output)
    if resume and overwrite:
        raise RecipeError("resume and overwrite contradict each other; choose one")
    processes = joined_processes()
    with ExitStack() as holding:
        with processes.agreeing():
            if processes.is_first:
                holding.enter_context(held(folder))
                if not (resume or overwrite):
                    check_vacant(folder)
        with processes.agreeing():
            run = _Run(task, network, data, options, folder, progress, networks)
        check_same_training(processes.gathered(run.terms))
        with processes.agreeing():
            if processes.is_first:
                with writing(folder):
                    clear(folder, overwrite)
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
        _Run(task, network, data, options, Path(output), shown=None, networks=None)


class _Run:
    """One training run: the model and all that changes while it is trained."""

    def __init__(
        self,
        task: Task,
        network: NetworkConfig,
        data: Forest | DataSet,
        options: TrainingOptions,
        folder: Path,
        shown: bool | None,
        networks: Mapping[str, Callable[..., nn.Module]] | None,
    ) -> None:
        self.processes = joined_processes()
        self.options, self.folder, self.shown, self.networks = options, folder, shown, networks
        self.fabric = fabric_of_process(self.processes, options.accelerator, options.precision)
        self.device = self.fabric.device
        self.cuda_devices = [self.device] if self.device.type == "cuda" else []
        self.examples = task.examples(forest_of(data))
        self.train_ids, self.validation_ids = _parts(self.examples)
        if options.schedule == "plateau" and not len(self.validation_ids):
            raise RecipeError('schedule "plateau" needs validation examples, and these data have none')
        examples_of_epoch(self.train_ids, self.examples, 0, options.curriculum)  # the stage with the fewest
        if options.tensorboard and self.processes.is_first:
            summary_writer()
        self.train_nodes = self.examples.forest.num_nodes * len(self.train_ids) // max(1, len(self.examples))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            self.model = Model(task, network, networks=networks)
        checkpoint.check_options(self.model)
        whole_batch = self.model.needs_whole_batch
        if whole_batch is not None and self.processes.count > 1:
            raise RecipeError(
                f"{whole_batch} makes an example depend on the others of its batch, which several processes would "
                "divide; train it in one process"
            )
        self.index = SubtreeIndex(self.examples.forest, self.model.vocabulary)
        self.fingerprint = fingerprint(self.model, self.examples, options)
        self.terms = {**self.fingerprint, **dataclasses.asdict(options), "device": self.device.type}
        self.progress = Progress()
        self.targets = {name: torch.from_numpy(array).to(self.device) for name, array in self.examples.targets.items()}
        self.validated: tuple[Tensor, Mapping[str, Any]] | None = None  # outputs and targets of the last evaluation

    def loader_of(self, epoch: int) -> TreeLoader:
        """What goes through the examples of an epoch, counted from 0, in its order."""
        options = self.options
        loader = TreeLoader(
            self.index,
            examples_of_epoch(self.train_ids, self.examples, epoch, options.curriculum),
            options.batch_size,
            nodes_per_batch=options.nodes_per_batch,
            trees_per_example=self.examples.trees_per_example,
            shuffle=True,
            sort_by_height=options.sort_by_height,
            sort_by_length=options.sort_by_length,
            seed=options.seed,
            share_subtrees=options.share_subtrees,
            prefetch=options.prefetch,
        )
        loader.set_epoch(epoch)
        return loader

    def begin(self) -> None:
        """Seed everything, or take up the state of the last checkpoint."""
        options = self.options
        seed_generators(options.seed, self.processes.rank)
        optimizer = _OPTIMIZERS[options.optimizer](
            self.model.parameters(),
            lr=options.learning_rate,
            betas=(options.beta1, options.beta2),
            eps=options.epsilon,
            weight_decay=options.weight_decay,
            fused=True,
        )
        saved = self.processes.in_first(lambda: saved_run(self.folder))
        if saved is not None:
            self.take_up(saved)
        elif self.processes.count > 1:
            self.model.load_state_dict(self.processes.in_first(self.model.state_dict))
        self.network, self.optimizer = self.fabric.setup(self.model, optimizer)
        self.average = None if options.averaging is None else averaged_model(self.model, options.averaging)
        if saved is not None:
            with reading(saved.place):
                self.model.load_state_dict(saved.weights)
                self.optimizer.load_state_dict(saved.state["optimizer"])
                if self.average is not None:
                    self.average.load_state_dict(saved.state["average"])
                self.take_up_random_state(saved.state)
            self.recover_best()
        self.scheduler = self.scheduler_from_here(optimizer) if options.rate_varies else None
        self.plateau = self.plateau_from_here(optimizer) if options.schedule == "plateau" else None
        self.log: RunLog | None = None
        with self.processes.agreeing():
            if self.processes.is_first:
                path = self.folder / "metrics.jsonl"
                self.log = RunLog(path, self.progress.records, tensorboard=options.tensorboard)
        self.saved_at = time.perf_counter()

    def take_up(self, saved: Saved) -> None:
        """Go on where the saved run stands, if it is this one."""
        defaults = option_defaults(self.model.task, self.model.network.constructor(self.networks))
        with reading(saved.place):
            check_same_run(saved.state["fingerprint"], self.fingerprint, defaults, str(self.folder))
            self.progress = Progress.from_dict(saved.state["progress"], saved.records)
            check_epochs(self.progress, self.options, str(self.folder))
        if saved.problem:
            self.processes.in_first(lambda: forget_torn_last(self.folder, saved.problem))
        if self.progress.finished(self.options):
            self.tell("%s is finished: epoch %d was its last", self.folder, self.progress.epoch)
        else:
            step = f" after step {self.progress.step}" if self.progress.step else ""
            self.tell("resuming %s in epoch %d%s", self.folder, self.progress.epoch + 1, step)

    def take_up_random_state(self, state: Mapping[str, Any]) -> None:
        """Let dropout draw on; where there were fewer processes, let it begin in the new ones."""
        of_process = [state["random"], *state.get("random of others", [])]
        rank = self.processes.rank
        if len(of_process) != self.processes.count:
            self.tell("%d processes trained until here, %d go on", len(of_process), self.processes.count)
        if rank < len(of_process):
            set_random_state(of_process[rank], self.device)
        else:
            seed_generators(self.options.seed, rank, self.progress.epoch, self.progress.step)

    def tell(self, message: str, *values: object) -> None:
        """Log what all processes have done, once."""
        if self.processes.is_first:
            _logger.info(message, *values)

    def scheduler_from_here(self, optimizer: torch.optim.Optimizer) -> LambdaLR:
        """What sets the learning rate of the steps to come."""
        progress, options = self.progress, self.options
        steps = [len(self.loader_of(epoch)) for epoch in range(options.epochs)]
        done = sum(steps[: progress.epoch]) + progress.step
        return rate_scheduler(
            optimizer, options.learning_rate, options.schedule, options.warmup, steps=sum(steps), done=done
        )

    def plateau_from_here(self, optimizer: torch.optim.Optimizer) -> ReduceLROnPlateau:
        """What lowers the learning rate after evaluations that brought nothing."""
        options = self.options
        seen = [record["validation_accuracy"] for record in self.progress.records if "validation_accuracy" in record]
        return plateau_scheduler(
            optimizer, options.learning_rate, options.plateau_factor, options.plateau_patience, accuracies=seen
        )

    @property
    def kept_model(self) -> Model:
        """What is evaluated and kept as the best: the model, or the average of its weights."""
        return self.model if self.average is None else cast(Model, self.average.module)

    def recover_best(self) -> None:
        """On resuming, make a lost best checkpoint again from the last one, or make do with the best before it.

        Where no step is left to do, the last epoch is evaluated if it was not, and is the best if no other is.
        """
        progress = self.progress
        is_last = progress.best_epoch == progress.epoch and not progress.step
        records = None
        if progress.best_epoch:
            records = self.processes.in_first(
                lambda: records_before_lost_best(self.folder, progress.best_epoch, is_in_last=is_last)
            )
        if records is not None and is_last:
            if len(self.validation_ids):
                self.evaluate(dict(progress.records[-1]))
            self.save("best")
        elif records is not None:
            progress.best_epoch = len(records)
            progress.best_accuracy = records[-1].get("validation_accuracy", -1.0) if records else -1.0
        if progress.finished(self.options) and not (progress.best_epoch and self.last_is_seen):
            self.judge_last()

    @property
    def last_is_seen(self) -> bool:
        """Whether nothing is to be evaluated after the epochs that are done, as after the last one asked for."""
        progress = self.progress
        is_due = len(self.validation_ids) and progress.epoch == self.options.epochs
        return not is_due or "validation_accuracy" in progress.records[-1]

    def judge_last(self) -> None:
        """Evaluate the last epoch of a run that is asked for no more, and make it the best if no other is."""
        progress = self.progress
        if progress.step:
            raise RecipeError(
                f"{self.folder} holds a run within its epoch {progress.epoch + 1}, and no model of epoch "
                f"{progress.epoch} that could be evaluated; resume it with epochs of at least {progress.epoch + 1}"
            )
        accuracy = self.evaluate(progress.records[-1])[-1].accuracy if len(self.validation_ids) else -1.0
        if not progress.best_epoch or accuracy > progress.best_accuracy:
            progress.best_epoch, progress.best_accuracy = progress.epoch, accuracy
            self.save("best")
        self.save("last")

    def train_epoch(self) -> None:
        """Do the epoch's remaining steps."""
        progress, options = self.progress, self.options
        self.loader = self.loader_of(progress.epoch)
        plan = self.loader.plan()
        left = plan[progress.step :]
        batches = self.loader.batches(self.own_parts(left))
        self.network.train()
        loss_sum = torch.tensor(progress.loss_sum, dtype=torch.float64, device=self.device)
        done = sum(map(len, plan[: progress.step]))
        begin = shown_at = time.perf_counter()
        title = f"seed {options.seed}, epoch {progress.epoch + 1}/{options.epochs}"
        with closing(batches), progress_bar(len(self.loader.examples), title, self.shown) as bar:
            bar.update(done)
            for places, batch in zip(left, batches, strict=True):
                count = len(places)
                loss = self.step(batch, count)
                loss_sum += loss * count
                done += count
                progress.step += 1
                now = time.perf_counter()
                if not bar.disable and now - shown_at > _POSTFIX_SECONDS:
                    bar.set_postfix_str(f"loss {loss_sum.item() / done:.4f}", refresh=False)
                    shown_at = now
                bar.update(count)
                if self.checkpoint_is_due(now):
                    self.account(loss_sum, now - begin)
                    self.save("last")
                    begin = time.perf_counter()
        self.account(loss_sum, time.perf_counter() - begin)

    def own_parts(self, plan: Sequence[NDArray[np.int64]]) -> Sequence[NDArray[np.int64]]:
        """Of each batch what this process does."""
        if self.processes.count == 1:
            return plan
        num_nodes = self.loader.num_nodes()
        return [places[self.processes.balanced_part(num_nodes[places])] for places in plan]

    def account(self, loss_sum: Tensor, seconds: float) -> None:
        """Enter the losses of the epoch so far, and how long the steps since the last call took."""
        self.progress.loss_sum = loss_sum.item()
        self.progress.seconds += seconds
        self.progress.loader_seconds += self.loader.seconds
        self.loader.seconds = 0.0

    def step(self, batch: TreeBatch, count: int) -> Tensor:
        """One step of the optimiser; gives the batch's mean loss, without waiting for the device.

        Args:
            batch: what this process does of it; in all there are ``count`` examples.
        """
        self.optimizer.zero_grad()
        share = torch.zeros((), device=self.device)
        if batch.num_examples:
            chosen = torch.from_numpy(batch.example_ids).to(self.device)
            targets = {name: target[chosen] for name, target in self.targets.items()}
            # fabric gives outputs of the default type, which is double, as the network is, within its autocast alone
            with self.fabric.autocast() if self.options.precision == "64-true" else nullcontext():
                loss = self.model.task.loss(self.network(batch.to(self.device)), targets)
            share = loss * (batch.num_examples / count)
            self.fabric.backward(share)
        mean = self.processes.sum_gradients(self.model.parameters(), share.detach())
        if self.options.clip is not None:
            # a norm that is not finite shows in the epoch's loss, which is read where that makes nothing wait
            self.fabric.clip_gradients(
                self.network, self.optimizer, max_norm=self.options.clip, error_if_nonfinite=False
            )
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
        if self.average is not None:
            self.average.update_parameters(self.model)
        return mean

    def checkpoint_is_due(self, now: float) -> bool:
        """Whether to write a checkpoint within the epoch."""
        seconds, steps = self.options.checkpoint_seconds, self.options.checkpoint_steps
        if steps is not None and self.progress.step % steps == 0:
            return True
        if seconds is None or (self.processes.count > 1 and self.progress.step % _CLOCK_STEPS):
            return False
        return self.processes.in_first(lambda: now - self.saved_at >= seconds)

    def end_epoch(self) -> None:
        """Close the epoch: evaluate, write the record and the checkpoints."""
        progress, options = self.progress, self.options
        num_examples = len(self.loader.examples)
        progress.epoch += 1
        if not math.isfinite(progress.loss_sum):
            raise DivergedError(f"the loss of epoch {progress.epoch} is not finite; lower learning_rate, or set clip")
        record: dict[str, Any] = {
            "epoch": progress.epoch,
            "loss": progress.loss_sum / num_examples,
            "examples": num_examples,
            "trees": num_examples * self.examples.trees_per_example,
            "seconds": progress.seconds,
            "loader_seconds": progress.loader_seconds,
            "examples_per_second": num_examples / progress.seconds,
        }
        progress.step, progress.loss_sum, progress.seconds, progress.loader_seconds = 0, 0.0, 0.0, 0.0
        is_best = self.judge(record)
        if is_best:
            progress.best_epoch = progress.epoch
        progress.records.append(record)
        if is_best:
            self.save("best")
        self.save("last")
        with self.processes.agreeing():
            if self.log is not None:
                self.log.add(record)
        self.tell("%s", epoch_line(record, options, is_best))

    def judge(self, record: dict[str, Any]) -> bool:
        """Evaluate after an epoch whose turn it is; whether the model is the best so far, or none is to be compared."""
        progress, options = self.progress, self.options
        if not len(self.validation_ids):
            return True
        if progress.epoch % options.evaluate_every and progress.epoch != options.epochs:
            return False
        accuracy = self.evaluate(record)[-1].accuracy
        if self.plateau is not None:
            self.plateau.step(accuracy)
        if accuracy <= progress.best_accuracy:
            progress.evaluations_since_best += 1
            return False
        progress.best_accuracy, progress.evaluations_since_best = accuracy, 0
        return True

    def evaluate(self, record: dict[str, Any]) -> list[Score]:
        """Evaluate on the validation examples and put loss and scores into the epoch's record."""
        chosen = self.validation_ids
        begin = time.perf_counter()
        with self.processes.agreeing():
            own = self.kept_model.outputs(
                self.examples,
                self.processes.part(chosen),
                batch_size=self.options.evaluation_batch_size,
                index=self.index,
            )
        outputs = torch.cat([each for each in self.processes.gathered(own) if len(each)])
        targets = self.examples.targets_of(chosen)
        tensors = {name: torch.from_numpy(array) for name, array in targets.items()}
        scores = self.model.task.scores(outputs, targets, self.examples.group[chosen])
        self.validated = outputs, targets
        record["validation_loss"] = float(self.model.task.loss(outputs, tensors))
        record["validation_accuracy"] = scores[-1].accuracy
        record["validation_seconds"] = time.perf_counter() - begin
        record["validation"] = [dataclasses.asdict(score) for score in scores]
        return scores

    def save(self, name: str) -> None:
        """Write a checkpoint; the last one can be resumed from, the best one holds the kept model only."""
        model, state = self.kept_model, None
        if name == "last":
            model = self.model
            state = {
                "fingerprint": self.fingerprint,
                "progress": self.progress.to_dict(),
                "optimizer": self.optimizer.state_dict(),
            }
            state["random"], *others = self.processes.gathered(random_state(self.device))
            if others:
                state["random of others"] = others
            if self.average is not None:
                state["average"] = dict(self.average.state_dict())
        seen = self.validated if name == "best" else None
        model.temperature = 1.0 if seen is None else fit_temperature(model.task, *seen)
        with self.processes.agreeing():
            if self.processes.is_first:
                checkpoint.save(self.folder / name, model, training_state=state, metrics=self.progress.records)
        self.saved_at = time.perf_counter()

    def result(self) -> FitResult:
        """The best model and the run's records."""
        best = self.best_model()
        record = self.progress.records[self.progress.best_epoch - 1]
        validation = [Score(**score) for score in record.get("validation", [])]
        return FitResult(best, self.folder, self.progress.best_epoch, validation, self.progress.records)

    def best_model(self) -> Model:
        """What the checkpoint of the best epoch holds."""
        best = self.model
        with self.processes.agreeing():
            if self.processes.is_first:
                best = checkpoint.load(
                    self.folder / "best",
                    device=self.device,
                    networks=self.networks,
                    tasks={self.model.task.name: type(self.model.task)},
                )
        if self.processes.count > 1:
            kept = self.processes.in_first(lambda: {name: each.cpu() for name, each in best.state_dict().items()})
            best.load_state_dict(kept)
            best.temperature = self.processes.in_first(lambda: best.temperature)
        return best.eval()


def _parts(examples: Examples) -> tuple[Any, Any]:
    """Numbers of the examples to train on and to validate with."""
    if examples.split is None:
        train, validation = examples.part(None), examples.part(None)[:0]
    else:
        train, validation = examples.part("train"), examples.part("validation")
    if not len(train):
        raise RecipeError("there is no example to train on")
    for part in (train, validation):
        examples.targets_of(part)
    return train, validation
