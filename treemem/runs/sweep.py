"""Random search over fields of a recipe, judged by the validation examples alone."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from treemem.checked_options import checked_count
from treemem.checkpoint.run_folder import RunFolder
from treemem.errors import CellError, RecipeError
from treemem.plain_yaml import load_yaml
from treemem.records import read_records, write_records, writing
from treemem.runs.fit import fit
from treemem.runs.fit_result import FitResult
from treemem.runs.recipe import Recipe, load_recipe, recipe_fields
from treemem.runs.run_folder import check_empty
from treemem.runs.seeds import seed_folder
from treemem.runs.trainer import DivergedError
from treemem.trees.forest import Forest

_logger = logging.getLogger(__name__)
TRIALS = "trials.jsonl"
_MOST_DRAWS = 10_000  # for a trial, of points that other trials have
_DIGITS = 4  # of a number that is drawn; more where the range is narrow beside its numbers
_FORMS = "FIELD=A,B,C or FIELD=LOW:HIGH, with :log after it where the logarithm is to be uniform"


@dataclass(frozen=True)
class Variation:
    """A field of a recipe and the values that trials draw from.

    Attributes:
        field: its name, with dots between its parts.
        choices: the values, all equally likely; empty where ``low`` and ``high`` bound them.
        low, high: whole numbers where both are; both ends may be drawn.
        log: whether the logarithm is uniform, not the number.
    """

    field: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False

    @classmethod
    def parse(cls, text: str) -> Variation:
        """Read ``FIELD=A,B,C``, ``FIELD=LOW:HIGH`` or ``FIELD=LOW:HIGH:log``.

        Raises:
            RecipeError: another form, or a range that is none.

        Example:
            >>> Variation.parse("training.batch_size=32,64").choices
            (32, 64)
        """
        name, equals, values = text.partition("=")
        name = name.strip()
        if not equals or not all(name.split(".")) or not values.strip():
            raise RecipeError(f"cannot vary {text!r}; write {_FORMS}")
        parts = values.split(":")
        if len(parts) in (2, 3) and parts[2:] in ([], ["log"]):
            low, high = (_number(part) for part in parts[:2])
            if low is not None and high is not None:
                log = len(parts) == 3
                if low >= high or (log and low <= 0):
                    problem = "LOW must be above 0 for :log" if log and low < high else "LOW must be below HIGH"
                    raise RecipeError(f"cannot vary {text!r}: {problem}")
                return cls(name, (), low, high, log)
        if any(_is_range(part.split(":")) for part in values.split(",")):  # which YAML would read to the base 60
            raise RecipeError(f"cannot vary {text!r}; write {_FORMS}")
        try:
            choices = load_yaml(f"[{values}]")
        except RecipeError as error:
            raise RecipeError(f"cannot vary {text!r}; write {_FORMS}") from error
        if any(isinstance(choice, dict) for choice in choices):  # what a colon and a space make of A: B
            raise RecipeError(f"cannot vary {text!r}; write {_FORMS}")
        return cls(name, tuple(choices))

    def draw(self, random: np.random.Generator) -> Any:
        """A value."""
        if self.choices:
            return self.choices[int(random.integers(len(self.choices)))]
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        if whole and not self.log:
            return int(random.integers(int(self.low), int(self.high), endpoint=True))
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        value = float(random.uniform(low, high))
        value = math.exp(value) if self.log else value
        if whole:
            return round(value)
        widths = max(abs(self.low), abs(self.high)) / (self.high - self.low)
        digits = _DIGITS + max(0, math.floor(math.log10(widths)))
        return min(max(float(f"{value:.{digits}g}"), float(self.low)), float(self.high))


def default_variations(recipe: Recipe) -> list[Variation]:
    """What is varied where nobody says: the learning rate, from a tenth of the recipe's to ten times of it."""
    rate = recipe.training.learning_rate
    return [Variation("training.learning_rate", (), rate / 10, rate * 10, True)]


@dataclass(frozen=True)
class Trial:
    """One point of a sweep.

    Attributes:
        number: from 1.
        values: what was drawn, by field.
        recipe: with these values, and with the network alone that is trained.
        seeds: to train it from, once each; none: once, from the recipe's ``training.seed``.
    """

    number: int
    values: dict[str, Any]
    recipe: Recipe
    seeds: tuple[int, ...] = ()

    @property
    def network(self) -> str:
        """The name of the network."""
        return next(iter(self.recipe.networks))

    @property
    def overrides(self) -> list[str]:
        """What was drawn, as ``FIELD=VALUE``."""
        return _overrides(self.values)

    @property
    def digest(self) -> str:
        """SHA-256 of all fields of the recipe, in hexadecimal."""
        content = json.dumps(recipe_fields(self.recipe), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()


def plan_trials(
    source: str,
    variations: Sequence[Variation],
    *,
    trials: int,
    overrides: Sequence[str] = (),
    network: str | None = None,
    seed: int = 0,
    seeds: Sequence[int] = (),
) -> list[Trial]:
    """Draw the values of a sweep, none of them twice, and check that they make recipes.

    Args:
        source: the recipe, as :func:`~treemem.runs.recipe.load_recipe` takes it.
        variations: what differs from trial to trial; none: see :func:`default_variations`.
        trials: how many.
        overrides: ``FIELD=VALUE`` each, the same for all trials.
        network: which of the recipe's; the first by default.
        seed: of the draws; those of a trial depend on this and its number alone, not on how many there are.
        seeds: to train each trial from, once each; none: once, from the recipe's ``training.seed``.

    Raises:
        RecipeError: no such recipe, field, network or value, a field that no trial is trained by, one given twice, or
            more trials than there are points to draw.
    """
    checked_count("trials", trials)
    checked_count("seed", seed, least=0)
    overrides = [*overrides, f"seeds={list(seeds)}"] if seeds else overrides
    base = load_recipe(source, overrides)
    name = next(iter(base.networks)) if network is None else network
    chosen = list(variations) or default_variations(base)
    fields = [variation.field for variation in chosen]
    for field in fields:
        if fields.count(field) > 1:
            raise RecipeError(f"{field} is varied twice; give all its values at once")
        _check_trained(field, name, seeds)
    planned: list[Trial] = []
    drawn: set[tuple[str, ...]] = set()
    for number in range(1, trials + 1):
        values = _drawn(chosen, np.random.default_rng([seed, number]), drawn)
        recipe = load_recipe(source, [*overrides, *_overrides(values)]).with_networks([name])
        planned.append(Trial(number, values, recipe, tuple(seeds)))
    return planned


def _drawn(variations: Sequence[Variation], random: np.random.Generator, drawn: set[tuple[str, ...]]) -> dict[str, Any]:
    """The values of the next trial, by field, that none of ``drawn`` has; it is added to these.

    Raises:
        RecipeError: none such was drawn.
    """
    for _ in range(_MOST_DRAWS):
        values = {variation.field: variation.draw(random) for variation in variations}
        point = tuple(_overrides(values))
        if point not in drawn:
            drawn.add(point)
            return values
    fields, count = " and ".join(variation.field for variation in variations), len(drawn)
    found = "1 value was" if count == 1 else f"{count} different values were"
    raise RecipeError(
        f"{found} drawn of {fields}, and then no other in {_MOST_DRAWS:,} draws; ask for {count} "
        f"trial{'s' if count > 1 else ''}, vary more, or train each trial from several --seeds"
    )


def _check_trained(field: str, network: str, seeds: Sequence[int]) -> None:
    """Refuse to vary a field that is without effect on the network that is trained.

    Raises:
        RecipeError: it is of another network, or a seed in place of which others are given.
    """
    of_networks, *names = field.split(".")
    if of_networks == "networks" and names[:1] not in ([], [network]):
        raise RecipeError(f"cannot vary {field}: the trials train {network!r}; choose another with --network")
    if field == "seeds":
        raise RecipeError("cannot vary seeds: each trial is trained from --seeds, or from training.seed")
    if field == "training.seed" and seeds:
        raise RecipeError("cannot vary training.seed: each trial is trained from --seeds; leave one of the two out")


def run_trials(planned: Sequence[Trial], output: str | Path, *, overwrite: bool = False) -> list[dict[str, Any]]:
    """Train a network once for each trial, or from each of its seeds, and record its validation accuracy.

    The test examples are taken out of the data before anything is trained. Each trial has a folder ``trial-N`` of its
    own in ``output``; ``trials.jsonl`` there has a record for each that is done. The same call after an interruption
    runs those that are not recorded, and goes on with the one that was interrupted; with more trials, it adds some.

    A record has the fields ``trial`` (from 1), ``network``, ``overrides`` (values by field), ``validation_accuracy``,
    ``best_epoch``, ``epochs``, ``seconds`` (of training), ``error`` (null, or why it came to nothing; the
    numbers are then null) and ``recipe`` (a hash of all its fields). Of a trial with seeds the accuracy is the mean,
    ``best_epoch`` and ``epochs`` are lists, and ``seeds`` and ``accuracies`` say what came of which. It comes to
    nothing where one seed does.

    Args:
        planned: the trials.
        output: folder of the sweep.
        overwrite: delete the trials in ``output`` and begin anew.

    Returns:
        The records, in the order of the trials.

    Raises:
        RecipeError: no validation examples, a folder that cannot be written, or recorded trials of another sweep.
    """
    output = Path(output)
    with RunFolder(output).locked():
        if overwrite:
            with writing(output):
                (output / TRIALS).unlink(missing_ok=True)
                for folder in _trial_folders(output):
                    shutil.rmtree(folder)
        records = _recorded(output / TRIALS)
        for trial in planned:
            if trial.number not in records:
                continue
            if records[trial.number]["recipe"] != trial.digest:
                raise RecipeError(
                    f"{output / TRIALS} has a trial {trial.number} of another sweep; choose another folder (--output), "
                    "or begin anew in place of that one with overwrite (--overwrite)"
                )
            # Of a trial that came to nothing, earlier versions did not record these.
            records[trial.number] = {**_of_seeds(trial), **records[trial.number]}
        made: tuple[Any, Forest] | None = None
        for trial in planned:
            if trial.number in records:
                _logger.info("trial %d is recorded", trial.number)
                continue
            recipe = trial.recipe
            if made is None or made[0] != (recipe.task_options, recipe.data):
                data = recipe.make_task().make_data(recipe.data)
                made = (recipe.task_options, recipe.data), without_test(data.forest)
            _logger.info("-- trial %d of %d: %s", trial.number, len(planned), " ".join(trial.overrides))
            records[trial.number] = _run(trial, made[1], output / f"trial-{trial.number:03}")
            write_records(output / TRIALS, [records[number] for number in sorted(records)])
    return [records[trial.number] for trial in planned]


def check_folder(output: Path) -> None:
    """Refuse a folder for a sweep in which there are other things and no trial.

    Raises:
        RecipeError: it names one of the things.
    """
    if not (output / TRIALS).is_file() and not _trial_folders(output):
        check_empty(output)


def _trial_folders(output: Path) -> list[Path]:
    """The folders of trials, of which each holds a run or one for each seed."""
    return [
        folder
        for folder in sorted(output.glob("trial-*/"))
        if re.fullmatch(r"trial-\d{3,}", folder.name)
        and any((place / ".lock").is_file() for place in (folder, *folder.glob("seed-*/")))
    ]


def best_trial(records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The record of the best validation accuracy, the first one where several have it.

    Raises:
        RecipeError: no trial came to anything.
    """
    done = [record for record in records if record["error"] is None]
    if not done:
        raise RecipeError(f"no trial came to anything; the first: {records[0]['error']}")
    return max(done, key=lambda record: record["validation_accuracy"])


def without_test(forest: Forest) -> Forest:
    """The examples that are not for the test.

    Raises:
        RecipeError: the examples are not divided, or none validates.
    """
    split = forest.tree_data.get("split")
    if split is None or not (split == "validation").any():
        raise RecipeError("a sweep needs validation examples to choose by, and these data have none")
    return forest[split != "test"]


def _run(trial: Trial, forest: Forest, folder: Path) -> dict[str, Any]:
    """Train a trial; its record."""
    found: dict[str, Any] = dict.fromkeys(("validation_accuracy", "best_epoch", "epochs", "seconds", "error"))
    found |= _of_seeds(trial)
    try:
        results = _results(trial, forest, folder)
    except (DivergedError, CellError) as error:
        _logger.warning("this trial came to nothing: %s", error)
        found["error"] = str(error)
    else:
        accuracies = [result.validation[-1].accuracy for result in results]
        best_epochs, epochs = [result.best_epoch for result in results], [len(result.records) for result in results]
        found["validation_accuracy"] = sum(accuracies) / len(accuracies)
        found["best_epoch"], found["epochs"] = (best_epochs, epochs) if trial.seeds else (best_epochs[0], epochs[0])
        found["seconds"] = sum(epoch["seconds"] for result in results for epoch in result.records)
        if trial.seeds:
            found["accuracies"] = accuracies
    about = {"trial": trial.number, "network": trial.network, "overrides": trial.values}
    return {**about, **found, "recipe": trial.digest}


def _of_seeds(trial: Trial) -> dict[str, Any]:
    """The fields that the record of a trial with seeds has besides, as long as nothing came of them."""
    return {"seeds": list(trial.seeds), "accuracies": None} if trial.seeds else {}


def _results(trial: Trial, forest: Forest, folder: Path) -> list[FitResult]:
    """What came of each seed; of the recipe's own in the folder itself."""
    recipe = trial.recipe
    task, network = recipe.make_task(), recipe.networks[trial.network]
    runs = {seed_folder(folder, seed): replace(recipe.training, seed=seed) for seed in trial.seeds}
    runs = runs or {folder: recipe.training}
    return [fit(task, network, forest, options, output=place, resume=True) for place, options in runs.items()]


def _recorded(path: Path) -> dict[int, dict[str, Any]]:
    if not path.exists():
        return {}
    records = [record.fields for record in read_records(path)]
    for fields in records:
        if not {"trial", "recipe", "error", "overrides", "validation_accuracy"} <= fields.keys():
            raise RecipeError(f"{path} holds no records of a sweep; choose another folder, or overwrite it")
    return {int(fields["trial"]): fields for fields in records}


def _overrides(values: Mapping[str, Any]) -> list[str]:
    return [f"{name}={_as_yaml(value)}" for name, value in values.items()]


def _as_yaml(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=math.inf).removesuffix("...\n").strip()


def _is_range(parts: Sequence[str]) -> bool:
    return len(parts) > 1 and all(_number(part) is not None for part in parts[:2])


def _number(text: str) -> float | int | None:
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else None
    return None
