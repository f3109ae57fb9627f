"""Where a run stands: everything, besides weights and optimiser, that the steps to come depend on."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from treemem.data.examples import Examples
from treemem.errors import RecipeError
from treemem.model import Model
from treemem.runs.options import TrainingOptions
from treemem.task import Task

_FREE_TO_CHANGE = frozenset({
    "epochs", "accelerator", "tensorboard", "checkpoint_seconds", "checkpoint_steps", "patience", "prefetch",
})  # fmt: skip
_ANOTHER_RUN = (
    "choose another output folder (--output), or begin anew in place of that run with overwrite (--overwrite)"
)


@dataclass
class Progress:
    """How far a run has come.

    Attributes:
        epoch: epochs that are finished.
        step: steps done of the epoch after these.
        loss_sum: sum of the losses of this epoch's examples.
        seconds: spent on this epoch's steps.
        loader_seconds: of these, what the steps waited for their batches.
        best_epoch, best_accuracy: the best evaluation so far; epoch 0: none yet.
        evaluations_since_best: how many evaluations came after it.
        records: the log's records, one an epoch.
    """

    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    seconds: float = 0.0
    loader_seconds: float = 0.0
    best_epoch: int = 0
    best_accuracy: float = -1.0
    evaluations_since_best: int = 0
    records: list[dict[str, Any]] = field(default_factory=list)

    def finished(self, options: TrainingOptions) -> bool:
        """Whether no step is left to do: all epochs are done, or patience has run out."""
        out_of_patience = options.patience is not None and self.evaluations_since_best >= options.patience
        return self.epoch >= options.epochs or (self.step == 0 and out_of_patience)

    def to_dict(self) -> dict[str, Any]:
        """Numbers only; the records are kept in the log."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "records"}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], records: list[dict[str, Any]]) -> Progress:
        """Read what :meth:`to_dict` gave.

        Raises:
            TypeError, ValueError: other fields, or values that no run can have.
        """
        progress = cls(**fields, records=records)
        for part in dataclasses.fields(cls):
            value = getattr(progress, part.name)
            if part.name != "records" and type(value) not in (int, type(part.default)):
                raise TypeError(f"{part.name} is {value!r}")
        if progress.epoch != len(records) or not 0 <= progress.best_epoch <= progress.epoch or progress.step < 0:
            raise ValueError(
                f"{len(records)} records of {progress.epoch} epochs, of which {progress.best_epoch} is best"
            )
        return progress


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The states of the generators that dropout draws from."""
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
    """Let dropout draw anew: in the first process from the seed itself, in each other one from a stream of its own.

    Args:
        seed: of the run.
        rank: of the process.
        moment: epoch and step, where the process joins a run that has begun.
    """
    if rank or moment:
        seed = int(np.random.SeedSequence([seed, rank, *moment]).generate_state(1, np.uint64)[0])
    torch.manual_seed(seed)


def fingerprint(model: Model, examples: Examples, options: TrainingOptions) -> dict[str, Any]:
    """What must be the same for a run to be resumed: task, network, data, and the options that change its numbers."""
    free = _FREE_TO_CHANGE - {"epochs"} if options.rate_varies else _FREE_TO_CHANGE
    chosen = {name: value for name, value in dataclasses.asdict(options).items() if name not in free}
    return {
        "task": model.task.name,
        "task version": model.task.version,
        "task options": dict(model.task.options),
        "network": model.network.network,
        "network options": dict(model.network.options),
        "vocabulary": model.vocabulary.digest[:12],
        "data": data_digest(examples),
        **chosen,
    }


def check_same_run(saved: Mapping[str, Any], asked: Mapping[str, Any], defaults: Mapping[str, Any], place: str) -> None:
    """Refuse to go on with a run under other terms than it was begun with.

    Args:
        saved, asked: fingerprints. An option that one of them does not have, as where it came with a later version, is
            at its default.
        defaults: what :func:`option_defaults` gives.
        place: the folder of the run.

    Raises:
        RecipeError: it names each thing that differs.
    """
    before, now = _completed(saved, defaults), _completed(asked, defaults)
    different = {
        name: _difference(name, before.get(name), now[name])
        for name in now
        if before.get(name) != now[name]
        # epochs count where the rate varies; that only one of the two runs has them, its schedule or warmup tells
        and (name != "epochs" or name in before)
    }
    if "epochs" in different:
        by = " and ".join(f"{name}={now[name]!r}" for name in ("schedule", "warmup") if now[name] != defaults[name])
        different["epochs"] += f" (by {by} the learning rate of each step depends on them)"
    if different:
        raise RecipeError(
            f"{place} holds another run: {'; '.join(different.values())}. Go on with the same as before, {_ANOTHER_RUN}"
        )


def check_epochs(progress: Progress, options: TrainingOptions, place: str) -> None:
    """Refuse to go on with a run to another number of epochs where an unbroken run of so many would differ.

    Args:
        progress: of the run.
        options: how many epochs are asked for, and how often to evaluate.
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
        if "validation_accuracy" in record and epoch % options.evaluate_every and epoch != options.epochs:
            raise RecipeError(
                f"{place} holds a run that was evaluated after epoch {epoch}, its last one then; with evaluate_every="
                f"{options.evaluate_every} a run of {options.epochs} epochs is not, so that it cannot go on to these; "
                f"{_ANOTHER_RUN}"
            )


def check_same_training(terms: Sequence[Mapping[str, Any]]) -> None:
    """Refuse processes that were launched together and would train different things.

    Args:
        terms: of each process, fingerprint and options.

    Raises:
        RecipeError: it names each thing that differs in the first such process.
    """
    for rank, own in enumerate(terms):
        different = [
            "data" if name == "data" else f"{name} ({terms[0][name]!r} and {own[name]!r})"
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
    return f"{name} was {before!r} and is {now!r} now"


def option_defaults(task: Task, network: Callable[..., nn.Module]) -> dict[str, Any]:
    """What the options of a fingerprint are where nobody chose: by name, those of task and network in their groups."""
    return {
        **defaults_of(TrainingOptions),
        "task options": defaults_of(type(task)),
        "network options": defaults_of(network),
    }


def defaults_of(made: Callable[..., Any]) -> dict[str, Any]:
    """The values of the options that a class or function has where nobody chose; those without a default left out."""
    parameters = inspect.signature(made).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}


def _completed(fingerprint: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """A fingerprint with the defaults in place of the options that it does not have."""
    found = {**{name: value for name, value in defaults.items() if name not in _FREE_TO_CHANGE}, **fingerprint}
    for group in ("task options", "network options"):
        found[group] = {**defaults[group], **fingerprint.get(group, {})}
    return found


def data_digest(examples: Examples) -> str:
    """SHA-256 over the trees, targets, groups and splits, in hexadecimal."""
    forest = examples.forest
    digest = hashlib.sha256("\0".join(forest.labels).encode())
    arrays = {"label": forest.label, "arity": forest.arity, "begin": forest.begin, "group": examples.group}
    arrays.update({f"target {name}": array for name, array in sorted(examples.targets.items())})
    for name, array in (*arrays.items(), ("value", forest.value), ("split", examples.split)):
        if array is not None:
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
