"""Whether two descriptions are of the same run: of a checkpoint, a record or a recipe, and of what is asked for."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from treemem.data.examples import Examples
from treemem.errors import RecipeError
from treemem.model import Model
from treemem.runs.options import TrainingOptions

_DEFAULTS = dataclasses.asdict(TrainingOptions())
_WITHOUT_EFFECT = frozenset({
    "accelerator", "tensorboard", "wandb", "checkpoint_seconds", "checkpoint_steps", "keep_epochs", "prefetch",
})  # fmt: skip
_ANOTHER_RUN = "choose another output folder, or replace that run with overwrite=True"


def deciding_options(training: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a training that decide its result; those that are newer than a record at their defaults."""
    return {name: value for name, value in {**_DEFAULTS, **training}.items() if name not in _WITHOUT_EFFECT}


def free_to_change(options: TrainingOptions) -> frozenset[str]:
    """Return the names of the deciding options that may differ where a run is resumed."""
    return frozenset({"patience"} if options.epochs_are_fixed else {"epochs", "patience"})


def as_recorded(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as they are read from a file, with lists instead of tuples."""
    as_read: dict[str, Any] = json.loads(json.dumps(options, default=str))  # a default may be of any type
    return as_read


def differences(before: Mapping[str, Any], now: Mapping[str, Any], free: Collection[str] = ()) -> dict[str, str]:
    """Return how two descriptions of a run differ, a phrase for each option by its name.

    Args:
        before, now: options by name; ``data`` is a hash. Training options that only ``now`` has were at their defaults.
        free: options that may differ.
    """
    newer = {name: _DEFAULTS[name] for name in now if name in _DEFAULTS}
    before, now = as_recorded({**newer, **before}), as_recorded(now)
    return {
        name: _difference(name, before.get(name), now.get(name))
        for name in {**before, **now}
        if name not in free and before.get(name) != now.get(name)
    }


def _difference(name: str, before: Any, now: Any) -> str:
    """Return in words how an option, or one of a dictionary of options, differs."""
    if name == "data":
        return "it was trained on other data (other files, data options or splits)"
    if isinstance(before, dict) and isinstance(now, dict):  # only the options that differ
        names = [option for option in {**before, **now} if before.get(option) != now.get(option)]
        before, now = ({option: options.get(option) for option in names} for options in (before, now))
    return f"{name} was {before!r:.200} and is {now!r:.200} now"


def fingerprint(model: Model, examples: Examples, options: TrainingOptions) -> dict[str, Any]:
    """Return what must not change when a run is resumed: task, network, data and the options that change results."""
    free, training = free_to_change(options), deciding_options(dataclasses.asdict(options))
    return {
        "task": model.task.name,
        "task version": model.task.version,
        "task options": dict(model.task.options),
        "network": model.network.network,
        "network options": dict(model.network.options),
        "vocabulary": model.vocabulary.digest[:12],
        "data": examples.digest(),
        **{name: value for name, value in training.items() if name not in free},
    }


def check_same_run(saved: Mapping[str, Any], asked: Mapping[str, Any], options: TrainingOptions, place: str) -> None:
    """Check the fingerprint of a saved run.

    Args:
        saved, asked: fingerprints.
        options: of the run that is asked for.
        place: the folder of the run.

    Raises:
        RecipeError: they differ; the message names each difference.
    """
    are_fixed = "epochs" in saved and "epochs" in asked  # else the schedule is the difference, which fixes them
    different = differences(saved, asked, free=() if are_fixed else {"epochs"})
    if "epochs" in different:
        by = f"schedule={options.schedule!r}" + (f" and warmup={options.warmup}" if options.warmup else "")
        by = by if options.budget is None else f"budget={options.budget:g}"
        different["epochs"] += f" (by {by} the learning rate of each step depends on them)"
    if different:
        problem = "; ".join(different.values())
        raise RecipeError(f"{place} holds another run: {problem}. Go on with the same as before, {_ANOTHER_RUN}")


def check_epochs(
    epoch: int, records: Sequence[Mapping[str, Any]], options: TrainingOptions, metric: str, place: str
) -> None:
    """Refuse a new number of epochs if it would change the result.

    Args:
        epoch: number of epochs done.
        records: of these epochs.
        options: of the run that is asked for.
        metric: name of the monitored metric in the records.
        place: the folder of the run.

    Raises:
        RecipeError: more epochs are done, or an epoch was evaluated only because it was the last one then.
    """
    if epoch > options.epochs:
        raise RecipeError(
            f"{place} holds a run of {epoch} epochs, and epochs={options.epochs} asks for fewer; ask for as "
            f"many or more, {_ANOTHER_RUN}"
        )
    if options.budget is not None:  # which fixes the number of epochs; the last one may be an earlier one
        return
    for record in records:
        done = record["epoch"]
        if metric in record and done % options.evaluate_every and done != options.epochs:
            raise RecipeError(
                f"{place} holds a run that was evaluated after epoch {done}, its last one then; with evaluate_every="
                f"{options.evaluate_every} a run of {options.epochs} epochs is not evaluated there; {_ANOTHER_RUN}"
            )


def check_same_training(terms: Sequence[Mapping[str, Any]]) -> None:
    """Check that processes that were launched together train the same.

    Args:
        terms: of each process, fingerprint and options.

    Raises:
        RecipeError: the message names what differs in the first such process.
    """
    for rank, of_process in enumerate(terms):
        different = [
            "data" if name == "data" else f"{name} ({terms[0][name]!r:.100} and {of_process[name]!r:.100})"
            for name in differences(terms[0], of_process)
        ]
        if different:
            raise RecipeError(
                "processes that train together were not given the same: the first one and process "
                f"{rank + 1} differ in {'; '.join(different)}"
            )
