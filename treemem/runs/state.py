"""Everything that changes during a run, and its checkpoints."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from treemem import checkpoint
from treemem.batch_graphs import GraphedModel
from treemem.checkpoint.run_folder import RunFolder
from treemem.data_parallel import Processes
from treemem.errors import CheckpointError, TreememError
from treemem.model import Model
from treemem.runs.optimisation import averaged_model
from treemem.runs.options import TrainingOptions
from treemem.runs.same_run import check_epochs, check_same_run
from treemem.runs.training_step import learner_of

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_logger = logging.getLogger(__name__)


@dataclass
class Progress:
    """How far a run has come.

    Attributes:
        epoch: number of finished epochs.
        step: steps done in the current epoch.
        passes, pass_step: with a budget, finished passes over the examples, and steps done in the current one.
        losses: of the epoch's steps: by name, the sum and the count.
        seconds: time of these steps.
        compute_seconds: the same in CPU seconds of the process; on a GPU, ``seconds``.
        loader_seconds: the part of that time spent waiting for batches.
        items: examples done in the current epoch.
        best_epoch, best_value: the best evaluation so far; 0 and None without any.
        evaluations_since_best: evaluations after that.
        records: the log, one record an epoch.
    """

    epoch: int = 0
    step: int = 0
    passes: int = 0
    pass_step: int = 0
    losses: dict[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0
    compute_seconds: float = 0.0
    loader_seconds: float = 0.0
    items: int = 0
    best_epoch: int = 0
    best_value: float | None = None
    evaluations_since_best: int = 0
    records: list[dict[str, Any]] = field(default_factory=list)

    def finished(self, options: TrainingOptions) -> bool:
        """Return whether all epochs are done, the budget is spent, or patience has run out."""
        out_of_patience = options.patience is not None and self.evaluations_since_best >= options.patience
        return self.epoch >= options.epochs or (self.step == 0 and (out_of_patience or self.is_at_end(options)))

    def is_at_end(self, options: TrainingOptions) -> bool:
        """Return whether all epochs are done or the budget is spent."""
        return self.epoch >= options.epochs or (options.budget is not None and self.spent >= options.budget)

    @property
    def is_best(self) -> bool:
        """Whether the last epoch is the best so far, and nothing was done since."""
        return self.best_epoch == self.epoch > 0 and not self.step

    @property
    def spent(self) -> float:
        """Seconds of computing of all steps."""
        return sum(record.get("compute_seconds", 0.0) for record in self.records) + self.compute_seconds

    def to_dict(self) -> dict[str, Any]:
        """Return all fields except the records, which the checkpoint holds in its log."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "records"}

    def begin_epoch(self) -> None:
        """Reset the sums of the current epoch."""
        self.step, self.items, self.losses = 0, 0, {}
        self.seconds, self.compute_seconds, self.loader_seconds = 0.0, 0.0, 0.0


class RunState:
    """Weights, EMA, optimisers, random generators and progress of a run, new or from its last checkpoint.

    Args:
        model: the new model.
        options: of the training.
        processes: those that train together.
        fabric: precision and device.
        folder: of the run.
        fingerprint: see :func:`treemem.runs.same_run.fingerprint`.
        monitored: the field of the records that has the monitored metric.

    Raises:
        RecipeError: the folder holds another run, or one of more epochs.
        CheckpointError: no checkpoint is whole, or the training state has another form.
    """

    def __init__(
        self,
        model: Model,
        options: TrainingOptions,
        processes: Processes,
        fabric: Fabric,
        folder: RunFolder,
        fingerprint: Mapping[str, Any],
        monitored: str,
    ) -> None:
        self.model, self.options, self.processes, self.folder = model, options, processes, folder
        self.device, self.fingerprint = fabric.device, fingerprint
        self.monitored = monitored
        self.progress = Progress()
        self._graphs: GraphedModel | None = None
        _seed_generators(options.seed, processes.rank)
        saved = processes.in_first(self._saved)
        if saved is not None:
            state, weights, records = saved
            with _reading(folder.path):
                check_same_run(state["fingerprint"], fingerprint, options, str(folder.path))
                self.progress = Progress(**state["progress"], records=records)
                check_epochs(self.progress.epoch, records, options, self.monitored, str(folder.path))
        elif processes.count > 1:
            model.load_state_dict(processes.in_first(model.state_dict))
        self.learner = learner_of(model)(model, options, processes, fabric)
        self.average = None if options.averaging is None else averaged_model(model, options.averaging)
        if saved is not None and "average" in state and options.average_after is not None:
            self.begin_average()
        if saved is not None:
            with _reading(folder.path):
                self._restore(state, weights)
            self._find_best()
        self.saved_at = time.perf_counter()

    @property
    def kept_model(self) -> Model:
        """The model that is evaluated and saved: with an EMA or another average, the one with averaged weights."""
        return self.model if self.average is None else cast(Model, self.average.module)

    @property
    def graphs_of_kept(self) -> GraphedModel | None:
        """What runs the kept model as CUDA graphs, if the options ask for them."""
        if self.options.cuda_graphs and (self._graphs is None or self._graphs.model is not self.kept_model):
            self._graphs = GraphedModel(self.kept_model)
        return self._graphs

    def begin_average(self) -> None:
        """Average the weights after each step from now on; every step counts the same."""
        self.average = AveragedModel(self.model)

    def tell(self, message: str, *values: object) -> None:
        """Log a message in the first process."""
        if self.processes.is_first:
            _logger.info(message, *values)

    def _saved(self) -> tuple[dict[str, Any], dict[str, Tensor], list[dict[str, Any]]] | None:
        """Return training state, weights and records of the last whole checkpoint; None for a new run."""
        self.folder.drop_damaged()
        last = self.folder.find("last", with_training_state=True)
        return None if last is None else checkpoint.training_state_of(last[2], last[1])

    def _restore(self, state: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
        progress, rank = self.progress, self.processes.rank
        checkpoint.check_weights(weights, self.model.state_dict(), self.folder.path)
        if self.average is None:
            self.model.load_state_dict(weights)
        else:
            self.model.load_state_dict(state["weights"])
            self.average.load_state_dict(state["average"])
        self.learner.load_state_dict(state["learner"])
        of_processes = state["processes"]
        if len(of_processes) != self.processes.count:
            self.tell("%d processes trained until here, %d go on", len(of_processes), self.processes.count)
        if rank < len(of_processes):
            random = of_processes[rank]["random"]
            torch.set_rng_state(random["cpu"])
            if self.device.type == "cuda" and "cuda" in random:
                torch.cuda.set_rng_state(random["cuda"], self.device)
            self.learner.state = of_processes[rank]["state"]
        else:
            _seed_generators(self.options.seed, rank, progress.epoch, progress.step)

    def _find_best(self) -> None:
        """Look for the best checkpoint. If it is damaged, the one before it counts, or the next evaluation."""
        progress = self.progress

        def epoch_of_best() -> int:
            if self.folder.number_of("best") is None and progress.is_best:
                self.folder.make_last_best()
            best = None if self.folder.number_of("best") is None else self.folder.find("best")
            return 0 if best is None else len(checkpoint.records_of(best[2], best[1]))

        epoch = self.processes.in_first(epoch_of_best)
        if epoch != progress.best_epoch:
            kept = f"that of epoch {epoch} is the best now" if epoch else "the best is chosen anew from here on"
            self.tell("the best checkpoint, of epoch %d, is lost; %s", progress.best_epoch, kept)
            progress.best_epoch = epoch
            progress.best_value = progress.records[epoch - 1].get(self.monitored) if epoch else None
        if progress.finished(self.options):
            self.tell("%s is finished: epoch %d was its last", self.folder.path, progress.epoch)
        else:
            step = f" after step {progress.step}" if progress.step else ""
            self.tell("resuming %s in epoch %d%s", self.folder.path, progress.epoch + 1, step)

    def save(self, *, best: bool, temperature: float = 1.0, threshold: float | None = None) -> None:
        """Write a checkpoint.

        Args:
            best: whether it is the best one so far.
            temperature, threshold: of the model.
        """
        random = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self.device)
        state: dict[str, Any] = {
            "fingerprint": self.fingerprint,
            "progress": self.progress.to_dict(),
            "learner": self.learner.state_dict(),
            "processes": self.processes.gathered({"random": random, "state": self.learner.state}),
        }
        if self.average is not None:
            state["weights"] = self.model.state_dict()
            state["average"] = dict(self.average.state_dict())
        self.kept_model.temperature, self.kept_model.threshold = temperature, threshold

        def write() -> None:
            files = checkpoint.files_of(self.kept_model, self.progress.records)
            files |= checkpoint.training_files_of(state)
            self.folder.save(files, self._unfinished(), best=best)

        self.processes.in_first(write)
        self.saved_at = time.perf_counter()

    def say_progress(self) -> None:
        """Write how far a resumed run has come; other options may have ended it, or made it longer."""
        self.processes.in_first(lambda: self.folder.set_progress(self._unfinished()))

    def _unfinished(self) -> dict[str, int] | None:
        """Return how far the training has come; None if it has ended."""
        if self.progress.finished(self.options):
            return None
        return {"epoch": self.progress.epoch, "epochs": self.options.epochs}

    def keep_epoch(self) -> None:
        """Write the model of the finished epoch to a folder of its own."""
        self.processes.in_first(
            lambda: self.folder.keep_epoch(
                self.progress.epoch, checkpoint.files_of(self.kept_model, self.progress.records)
            )
        )

    def best_model(self, networks: Mapping[str, Callable[..., nn.Module]] | None) -> Model:
        """Return the model of the best checkpoint, in all processes."""
        best, task = self.model, self.model.task
        with self.processes.agreeing():
            if self.processes.is_first:
                tasks = {task.name: type(task)}
                best = checkpoint.load(self.folder.path, device=self.device, networks=networks, tasks=tasks)
        if self.processes.count > 1:
            weights = {name: weight.cpu() for name, weight in best.state_dict().items()}
            weights, temperature, threshold = self.processes.in_first(
                lambda: (weights, best.temperature, best.threshold)
            )
            best.load_state_dict(weights)
            best.temperature, best.threshold = temperature, threshold
        return best.eval()


def _seed_generators(seed: int, rank: int, *moment: int) -> None:
    """Seed torch: with the seed itself in the first process, with a stream of its own in each other one.

    Args:
        seed: of the run.
        rank: of the process.
        moment: epoch and step, if the process joins a run that has begun.
    """
    if rank or moment:
        seed = int(np.random.SeedSequence([seed, rank, *moment]).generate_state(1, np.uint64)[0])
    torch.manual_seed(seed)


@contextlib.contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Raise errors of a training state that lacks something as ``CheckpointError``."""
    try:
        yield
    except TreememError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        problem = f"it has no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())[:300]
        raise CheckpointError(
            f"cannot resume from {folder}, whose training state is of another form: {problem}; choose another output "
            "folder, or replace that run with overwrite=True"
        ) from error
