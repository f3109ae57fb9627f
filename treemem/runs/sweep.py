"""Hyperparameter search with Optuna over fields of a recipe, on the validation examples."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import yaml

from treemem.checked_options import checked_count
from treemem.checkpoint.run_folder import RunFolder
from treemem.errors import CellError, RecipeError
from treemem.metrics.score import Monitor, monitor_of
from treemem.records import read_json, writing
from treemem.runs.recipe import Recipe, load_recipe, recipe_fields
from treemem.runs.recipe_run import check_empty
from treemem.runs.run import StudyRun, completed_run
from treemem.runs.study_records import add_records, read_study
from treemem.runs.training_examples import split_examples
from treemem.runs.training_loop import DivergedError
from treemem.runs.variation import Variation
from treemem.task import Task
from treemem.trees.forest import Forest

_logger = logging.getLogger(__name__)
TRIALS, JOURNAL = "trials.jsonl", "optuna.journal"
_MOST_DRAWS = 40  # for a trial, of points that other trials have
_MOST_POINTS = 10_000


def default_variations(recipe: Recipe) -> list[Variation]:
    """Return the default: the learning rate from a tenth to ten times the recipe's, on a logarithmic scale."""
    rate = recipe.training.learning_rate
    return [Variation("training.learning_rate", (), rate / 10, rate * 10, True)]


@dataclass(frozen=True)
class Trial:
    """A point of a sweep.

    Attributes:
        number: from 1.
        values: the drawn values by field.
        recipe: with these values and the one network to train.
    """

    number: int
    values: dict[str, Any]
    recipe: Recipe

    @property
    def digest(self) -> str:
        """SHA-256 of all fields of the recipe, in hexadecimal."""
        content = json.dumps(recipe_fields(self.recipe), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()


@dataclass(frozen=True)
class Sweep:
    """What a sweep varies.

    Attributes:
        source, overrides: the recipe.
        variations: the fields that differ between trials.
        network: the network to train.
        seed: of Optuna's sampler. A trial depends on it and on the trials before.
        seeds: train each trial once from each of these; empty: once, from the recipe's ``training.seed``.
    """

    source: str
    overrides: tuple[str, ...]
    variations: tuple[Variation, ...]
    network: str
    seed: int
    seeds: tuple[int, ...]

    def trial(self, number: int, values: Mapping[str, Any]) -> Trial:
        """Return the trial with these values. Raises ``RecipeError`` if they make no recipe."""
        recipe = load_recipe(self.source, [*self.overrides, *as_overrides(values)]).with_networks([self.network])
        return Trial(number, dict(values), recipe)

    @cached_property
    def monitor(self) -> Monitor:
        """The metric by which trials are judged: what chooses the best epoch of each."""
        recipe = self.trial(0, {}).recipe
        task, metric = recipe.make_task(), recipe.training.monitor
        if metric is not None:
            return task.monitor if metric == task.monitor.metric else monitor_of(metric, [metric])
        if type(task).training_monitor is Task.training_monitor:
            return task.monitor
        examples = task.examples(task.make_data(recipe.data).forest)
        return task.training_monitor(examples, split_examples(examples)[0])

    @property
    def judged_by(self) -> str:
        """The field of a record that has this metric on the validation split."""
        return f"validation_{self.monitor.metric}"

    def best(self, records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the record of the best trial, the first if several are.

        Raises:
            RecipeError: all trials failed.
        """
        done = [record for record in records if record["error"] is None]
        if not done:
            raise RecipeError(f"no trial came to anything; the first: {records[0]['error']}")
        best = max if self.monitor.mode == "max" else min
        return best(done, key=lambda record: record[self.judged_by])


def plan_sweep(
    source: str,
    variations: Sequence[Variation],
    *,
    trials: int,
    overrides: Sequence[str] = (),
    network: str | None = None,
    seed: int = 0,
    seeds: Sequence[int] = (),
) -> Sweep:
    """Return a sweep after checking that each choice and each end of a range makes a recipe.

    Args:
        source: the recipe, as in :func:`~treemem.runs.load_recipe`.
        variations: the fields that differ between trials; empty: :func:`default_variations`.
        trials: how many.
        overrides: ``FIELD=VALUE`` each, for all trials.
        network: of the recipe; by default its first.
        seed: of Optuna's sampler.
        seeds: see :class:`Sweep`.

    Raises:
        RecipeError: Optuna is not installed; no such recipe, field, network or value; a field without effect on the
            network; a field given twice; or more trials than points.
    """
    _optuna()
    checked_count("trials", trials)
    checked_count("seed", seed, least=0)
    overrides = [*overrides, f"seeds={list(seeds)}"] if seeds else overrides
    base = load_recipe(source, overrides)
    name = next(iter(base.networks)) if network is None else network
    chosen = list(variations) or default_variations(base)
    fields = [variation.field for variation in chosen]
    for variation in chosen:
        if fields.count(variation.field) > 1:
            raise RecipeError(f"{variation.field} is varied twice; give all its values at once")
        _check_trained(variation.field, name, seeds)
    sweep = Sweep(source, tuple(overrides), tuple(chosen), name, seed, tuple(seeds))
    for variation in chosen:
        for value in variation.examples:
            sweep.trial(0, {variation.field: value})
    points = _points(chosen)
    if points is not None and trials > len(points):
        raise RecipeError(
            f"{' and '.join(fields)} have {len(points)} different values, fewer than the {trials} trials; ask for "
            "fewer trials, vary more, or train each trial from several --seeds"
        )
    return sweep


def _points(variations: Sequence[Variation]) -> list[dict[str, int]] | None:
    """Return all points of a sweep as Optuna parameters; None if there are too many."""
    values = [variation.parameters or () for variation in variations]
    if not 0 < math.prod(map(len, values)) <= _MOST_POINTS:
        return None
    fields = [variation.field for variation in variations]
    return [dict(zip(fields, place, strict=True)) for place in itertools.product(*values)]


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise RecipeError("a sweep needs Optuna; install it with: pip install 'treemem[sweep]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _check_trained(field: str, network: str, seeds: Sequence[int]) -> None:
    """Check that a field has an effect on the network that is trained."""
    of_networks, *names = field.split(".")
    if of_networks == "networks" and names[:1] not in ([], [network]):
        raise RecipeError(f"cannot vary {field}: the trials train {network!r}; choose another with --network")
    if field == "seeds":
        raise RecipeError("cannot vary seeds: each trial is trained from --seeds, or from training.seed")
    if field == "training.monitor":
        raise RecipeError("cannot vary training.monitor: the trials are judged by it")
    if field == "training.seed" and seeds:
        raise RecipeError("cannot vary training.seed: each trial is trained from --seeds; leave one of the two out")


def run_trials(sweep: Sweep, trials: int, output: str | Path, *, overwrite: bool = False) -> list[dict[str, Any]]:
    """Draw trials with Optuna, train a network for each, and record its validation metric.

    Test examples are removed before training. ``output`` holds a folder ``trial-N`` for each trial, ``trials.jsonl``
    with a record for each finished trial, and ``optuna.journal``. The same call continues after an interruption; with
    more trials, it adds some. No point is drawn twice.

    A record has the fields ``trial`` (from 1), ``network``, ``overrides`` (values by field), ``validation_accuracy``
    (or what else chooses the best epoch), ``best_epoch``, ``epochs``, ``seconds`` (of training), ``error`` (null, or
    why the trial failed; numbers are then null) and ``recipe`` (a hash of all fields). With seeds, the metric is the
    mean, ``best_epoch`` and ``epochs`` are lists, and ``seeds`` and ``by_seed`` give the single results. A trial fails
    if one seed fails.

    Args:
        sweep: what to vary.
        trials: how many in all.
        output: folder of the sweep.
        overwrite: delete the trials in ``output`` first.

    Returns:
        The records, in the order of the trials.

    Raises:
        RecipeError: no validation examples, a folder that cannot be written, or recorded trials of another sweep.
    """
    output = Path(output)
    with RunFolder(output).locked():
        if overwrite:
            with writing(output):
                for folder in output.glob("trial-*/"):
                    if any(folder.glob(".lock")) or any(folder.glob("seed-*/.lock")):  # not a folder of the user's
                        shutil.rmtree(folder)
                for file in (TRIALS, JOURNAL):
                    (output / file).unlink(missing_ok=True)
        recorded = read_study(output / TRIALS, ["trial", "recipe", "overrides"])
        records = {int(record["trial"]): record for record in recorded}
        for number, record in records.items():
            if number <= trials and _digest_of(sweep, record) != record["recipe"]:
                raise RecipeError(
                    f"{output / TRIALS} has a trial {number} of another sweep; choose another folder, or "
                    "replace that sweep with overwrite=True"
                )
        made: tuple[Any, Forest] | None = None
        draws = _Draws(sweep, output / JOURNAL, records)
        for number in range(1, trials + 1):
            if number in records:
                _logger.info("trial %d is recorded", number)
                continue
            trial = draws.draw(number)
            recipe = trial.recipe
            if made is None or made[0] != (recipe.task_options, recipe.data):
                data = recipe.make_task().make_data(recipe.data)
                made = (recipe.task_options, recipe.data), without_test(data.forest)
            _logger.info("-- trial %d of %d: %s", number, trials, " ".join(as_overrides(trial.values)))
            records[number] = _run(sweep, trial, made[1], output)
            add_records(output / TRIALS, [records[number]], ["trial"], order=sorted(records))
            draws.tell(records[number])
    return [records[number] for number in range(1, trials + 1)]


def _digest_of(sweep: Sweep, record: Mapping[str, Any]) -> str | None:
    """Return the recipe hash of a recorded trial in this sweep; None if it varies other fields."""
    fields = [variation.field for variation in sweep.variations]
    if list(record["overrides"]) != fields or (record.get("seeds") or []) != list(sweep.seeds):
        return None
    return sweep.trial(record["trial"], record["overrides"]).digest


class _FolderLock:
    """The lock of Optuna's journal: nothing more, since the folder of the sweep is locked.

    Optuna's own lock outlives a killed process, and the next one would wait for it.
    """

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def _drop_unfinished_draw(journal: Path) -> None:
    """Remove the draw that a killed process began and has not given its number, so that the next one draws the same.

    Raises:
        ParseError: a line is not JSON.
    """
    lines = journal.read_bytes().splitlines(keepends=True) if journal.exists() else []
    kept, end, is_kept = 0, 0, True
    for line in lines:
        record = read_json(line, str(journal)) if line.endswith(b"\n") else {}
        begins = "study_id" in record and "trial_id" not in record
        is_kept = (is_kept and not begins) or "number" in record.get("user_attr", {})
        end += len(line)
        kept = end if is_kept and record else kept
    if lines:
        os.truncate(journal, kept)


class _Draws:
    """The points of a sweep, drawn by Optuna and kept in its journal."""

    def __init__(self, sweep: Sweep, journal: Path, records: Mapping[int, Mapping[str, Any]]) -> None:
        self._optuna = optuna = _optuna()
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        self._sweep, self._points = sweep, _points(sweep.variations)
        with writing(journal):
            _drop_unfinished_draw(journal)
        storage = JournalStorage(JournalFileBackend(str(journal), cast(Any, _FolderLock())))
        self._study = optuna.create_study(
            storage=storage, study_name="sweep", direction=f"{sweep.monitor.mode}imize", load_if_exists=True
        )
        for record in records.values():
            self.tell(record)

    def draw(self, number: int) -> Trial:
        """Return this trial: the interrupted one, or a new point."""
        for drawn in self._study.trials:
            if drawn.user_attrs.get("number") == number:
                values = drawn.user_attrs["values"]
                if list(values) != [variation.field for variation in self._sweep.variations]:
                    raise RecipeError(
                        f"trial {number} was drawn for another sweep; choose another folder, or "
                        "replace that sweep with overwrite=True"
                    )
                return self._sweep.trial(number, values)
        taken = {str(drawn.user_attrs["values"]) for drawn in self._study.trials if "values" in drawn.user_attrs}
        self._study.sampler = self._optuna.samplers.TPESampler(seed=(self._sweep.seed * 1_000_003 + number) % 2**32)
        for attempt in range(_MOST_DRAWS):
            if attempt == _MOST_DRAWS // 2 and self._points is not None:
                self._enqueue_new_point()
            drawn = self._study.ask()
            values = {variation.field: variation.suggested(drawn) for variation in self._sweep.variations}
            if str(values) not in taken:
                drawn.set_user_attr("values", values)
                drawn.set_user_attr("number", number)
                return self._sweep.trial(number, values)
            self._study.tell(drawn, state=self._optuna.trial.TrialState.FAIL)
        raise RecipeError(f"no new point was drawn for trial {number}; ask for fewer trials, or vary more")

    def _enqueue_new_point(self) -> None:
        """Make Optuna draw a point that it has not drawn yet."""
        drawn = [trial.params for trial in self._study.trials]
        new = next((point for point in self._points or () if point not in drawn), None)
        if new is not None:
            self._study.enqueue_trial(new)

    def tell(self, record: Mapping[str, Any]) -> None:
        """Tell Optuna the result of a recorded trial."""
        state = self._optuna.trial.TrialState
        for drawn in self._study.trials:
            if drawn.user_attrs.get("number") == record["trial"] and drawn.state == state.RUNNING:
                failed = record["error"] is not None
                self._study.tell(
                    drawn.number, None if failed else record[self._sweep.judged_by], state.FAIL if failed else None
                )


def check_sweep_folder(output: Path) -> None:
    """Check that a folder is empty or holds a sweep.

    Raises:
        RecipeError: it holds something else.
    """
    if not any((output / file).is_file() for file in (TRIALS, JOURNAL)):
        check_empty(output)


def without_test(forest: Forest) -> Forest:
    """Return the examples outside the test split.

    Raises:
        RecipeError: there is no split, or no validation example.
    """
    split = forest.tree_data.get("split")
    if split is None or not (split == "validation").any():
        raise RecipeError("a sweep needs validation examples to choose by, and these data have none")
    return forest[split != "test"]


def _run(sweep: Sweep, trial: Trial, forest: Forest, output: Path) -> dict[str, Any]:
    """Train a trial and return its record."""
    fields: dict[str, Any] = dict.fromkeys((sweep.judged_by, "best_epoch", "epochs", "seconds", "error"))
    if sweep.seeds:
        fields |= {"seeds": list(sweep.seeds), "by_seed": None}
    recipe = trial.recipe
    run = StudyRun(f"trial-{trial.number:03}", sweep.network, recipe.networks[sweep.network], recipe.training)
    runs = run.from_seeds(sweep.seeds) or [run]
    try:
        results = [completed_run(recipe.make_task(), run, forest, {}, output, resume=True).fit for run in runs]
    except (DivergedError, CellError) as error:
        _logger.warning("this trial came to nothing: %s", error)
        fields["error"] = str(error)
    else:
        metrics: list[Any] = [result.best_record[sweep.judged_by] for result in results]
        best_epochs, epochs = [result.best_epoch for result in results], [len(result.records) for result in results]
        fields[sweep.judged_by] = sum(metrics) / len(metrics)
        fields["best_epoch"], fields["epochs"] = (best_epochs, epochs) if sweep.seeds else (best_epochs[0], epochs[0])
        fields["seconds"] = sum(epoch["seconds"] for result in results for epoch in result.records)
        if sweep.seeds:
            fields["by_seed"] = metrics
    about = {"trial": trial.number, "network": sweep.network, "overrides": trial.values}
    return {**about, **fields, "recipe": trial.digest}


def as_overrides(values: Mapping[str, Any]) -> list[str]:
    """Return values by field as ``FIELD=VALUE``."""
    return [f"{name}={_as_yaml(value)}" for name, value in values.items()]


def _as_yaml(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=math.inf).removesuffix("...\n").strip()
