"""Where a run stands, and whether a saved run is the one that is asked for."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from treemem.data.examples import Examples
from treemem.errors import RecipeError
from treemem.model import Model
from treemem.runs.options import TrainingOptions

_FREE_TO_CHANGE = frozenset({
    "epochs", "accelerator", "tensorboard", "checkpoint_seconds", "checkpoint_steps", "patience", "prefetch",
})  # fmt: skip
_ANOTHER_RUN = "choose another output folder (--output), or begin anew in place of that run (--overwrite)"


@dataclass
class Progress:
    """How far a run has come.

    Attributes:
        epoch: epochs that are finished.
        step: steps done of the epoch after these.
        losses: of the epoch's steps so far: by name, the sum and the count.
        seconds: spent on this epoch's steps.
        loader_seconds: of these, what the steps waited for their batches.
        items: examples done in this epoch.
        best_epoch, best_value: the best evaluation so far, by the task's monitor; epoch 0 and None: none yet.
        evaluations_since_best: how many evaluations came after it.
        records: the log's records, one an epoch.
    """

    epoch: int = 0
    step: int = 0
    losses: dict[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0
    loader_seconds: float = 0.0
    items: int = 0
    best_epoch: int = 0
    best_value: float | None = None
    evaluations_since_best: int = 0
    records: list[dict[str, Any]] = field(default_factory=list)

    def finished(self, options: TrainingOptions) -> bool:
        """Return whether no step is left: all epochs are done, or patience has run out."""
        out_of_patience = options.patience is not None and self.evaluations_since_best >= options.patience
        return self.epoch >= options.epochs or (self.step == 0 and out_of_patience)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers without the records, which are kept in the log."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "records"}

    def begin_epoch(self) -> None:
        """Forget the sums of the epoch before."""
        self.step, self.items, self.seconds, self.loader_seconds, self.losses = 0, 0, 0.0, 0.0, {}


def random_state(device: torch.device) -> dict[str, Tensor]:
    """Return the states of the generators that dropout draws from."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: Mapping[str, Tensor], device: torch.device) -> None:
    """Put the generators where :func:`random_state` found them."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)


def seed_generators(seed: int, rank: int, *moment: int) -> None:
    """Seed the generators: in the first process with the seed itself, in each other one with a stream of its own.

    Args:
        seed: of the run.
        rank: of the process.
        moment: epoch and step, if the process joins a run that has begun.
    """
    if rank or moment:
        seed = int(np.random.SeedSequence([seed, rank, *moment]).generate_state(1, np.uint64)[0])
    torch.manual_seed(seed)


def fingerprint(model: Model, examples: Examples, options: TrainingOptions) -> dict[str, Any]:
    """Return what must be the same for a run to be resumed: task, network, data, options that change numbers."""
    free = _FREE_TO_CHANGE - {"epochs"} if options.rate_varies else _FREE_TO_CHANGE
    chosen = {name: value for name, value in dataclasses.asdict(options).items() if name not in free}
    return {
        "task": model.task.name,
        "task version": model.task.version,
        "task options": dict(model.task.options),
        "network": model.network.network,
        "network options": dict(model.network.options),
        "vocabulary": model.vocabulary.digest[:12],
        "data": examples.digest(),
        **chosen,
    }


def check_same_run(saved: Mapping[str, Any], asked: Mapping[str, Any], options: TrainingOptions, place: str) -> None:
    """Refuse to go on with a run under other terms than it was begun with.

    Args:
        saved, asked: fingerprints.
        options: of the run that is asked for.
        place: the folder of the run.

    Raises:
        RecipeError: the message names each thing that differs.
    """
    different = {
        name: _difference(name, saved.get(name), asked.get(name))
        for name in {**saved, **asked}
        if saved.get(name) != asked.get(name)
    }
    if "epochs" in different and not ("epochs" in saved and "epochs" in asked):
        del different["epochs"]  # one of the schedules leaves them free; the schedule is what differs
    elif "epochs" in different:
        by = f"schedule={options.schedule!r}" + (f" and warmup={options.warmup}" if options.warmup else "")
        different["epochs"] += f" (by {by} the learning rate of each step depends on them)"
    if different:
        told = "; ".join(different.values())
        raise RecipeError(f"{place} holds another run: {told}. Go on with the same as before, {_ANOTHER_RUN}")


def check_epochs(progress: Progress, options: TrainingOptions, metric: str, place: str) -> None:
    """Refuse a new number of epochs if it would change the result.

    Args:
        progress: of the run.
        options: how many epochs are asked for, and how often to evaluate.
        metric: the name of the monitored metric in the records.
        place: the folder of the run.

    Raises:
        RecipeError: more epochs are done, or an epoch was evaluated because it was the last one then.
    """
    if progress.epoch > options.epochs:
        raise RecipeError(
            f"{place} holds a run of {progress.epoch} epochs, and epochs={options.epochs} asks for fewer; ask for as "
            f"many or more, {_ANOTHER_RUN}"
        )
    for record in progress.records:
        epoch = record["epoch"]
        if metric in record and epoch % options.evaluate_every and epoch != options.epochs:
            raise RecipeError(
                f"{place} holds a run that was evaluated after epoch {epoch}, its last one then; with evaluate_every="
                f"{options.evaluate_every} a run of {options.epochs} epochs is not evaluated there; {_ANOTHER_RUN}"
            )


def check_same_training(terms: Sequence[Mapping[str, Any]]) -> None:
    """Refuse processes that were launched together and would train different things.

    Args:
        terms: of each process, fingerprint and options.

    Raises:
        RecipeError: the message names each thing that differs in the first such process.
    """
    for rank, own in enumerate(terms):
        different = [
            "data" if name == "data" else f"{name} ({terms[0][name]!r:.100} and {own[name]!r:.100})"
            for name in own
            if own[name] != terms[0][name]
        ]
        if different:
            raise RecipeError(
                "processes that train together were not given the same: the first one and process "
                f"{rank + 1} differ in {'; '.join(different)}"
            )


def _difference(name: str, before: Any, now: Any) -> str:
    if name == "data":
        return "the data are others now"
    if isinstance(before, dict) and isinstance(now, dict):  # options: those alone that differ
        names = [option for option in {**before, **now} if before.get(option) != now.get(option)]
        before, now = ({option: options.get(option) for option in names} for options in (before, now))
    return f"{name} was {before!r:.200} and is {now!r:.200} now"


def defaults_of(made: Callable[..., Any]) -> dict[str, Any]:
    """Return the default values of the options that a class or function has."""
    parameters = inspect.signature(made).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}


def data_digest(examples: Examples) -> str:
    """Return the SHA-256 of trees, targets, groups and splits, in hexadecimal."""
    return examples.digest()
