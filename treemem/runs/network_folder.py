"""The folder of a network in a run: a folder ``seed-N`` for each seed, and what is recorded of all of them.

Beside the seeds stand the recipe, the card of the data with their hash, a record of each seed, and the rows of scores,
which are means over these records. Several commands may train seeds of one network at once: they write here under the
lock of the run's results.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from treemem.checkpoint.run_folder import RunFolder
from treemem.errors import RecipeError
from treemem.metrics.score import mean_scores, row_score, score_row
from treemem.model_digest import weights_digest
from treemem.plain_yaml import load_yaml
from treemem.records import replacing, write_records, writing
from treemem.runs.options import TrainingOptions
from treemem.runs.recipe import Recipe, format_recipe, recipe_fields
from treemem.runs.same_run import difference, free_to_change
from treemem.runs.seeds import SeedsResult, seed_folder, seed_of
from treemem.runs.study_records import packed_answers, read_study
from treemem.task import Task
from treemem.trees.formats.record_reader import SPLITS

_logger = logging.getLogger(__name__)
RECIPE, CARD, ANSWERS, RESULTS = "recipe.yaml", "data.md", "answers.jsonl", "results.jsonl"
"""File names: the recipe, the card of the data, the records of the seeds, the scores."""

TEST = SPLITS[2]
_DIGEST = "SHA-256 of trees, labels and splits: "
_DEFAULTS = dataclasses.asdict(TrainingOptions())
_WITHOUT_EFFECT = free_to_change(TrainingOptions()) - {"epochs", "patience"} | {"seed"}


@dataclass(frozen=True)
class NetworkFolder:
    """The folder of a network, as a recipe trains it.

    Attributes:
        path: the folder.
        recipe: with the network among others.
        task: the recipe's.
        card, digest: of the data.
    """

    path: Path
    recipe: Recipe
    task: Task
    card: str
    digest: str

    @property
    def name(self) -> str:
        """The network's name in the recipe."""
        return self.path.name

    @cached_property
    def options(self) -> dict[str, Any]:
        """The options that decide the scores, besides the data and the seed, as plain data."""
        return _deciding(recipe_fields(self.recipe), self.name)

    def differences(self) -> str:
        """Return how options or data differ from those in the folder; empty if seeds can go together.

        The number of epochs and the patience may differ as they may where a run is resumed.

        Raises:
            RecipeError: the recipe there is damaged.
        """
        if recorded_digest(self.path) not in ("", self.digest):
            return difference("data", None, None)
        if not (self.path / RECIPE).is_file():
            return ""
        before, now = _deciding(_read_recipe(self.path / RECIPE), self.name), self.options
        may_differ = free_to_change(self.recipe.training)
        names = [name for name in now if before.get(name) != now[name] and name not in may_differ]
        return "; ".join(difference(name, before.get(name), now[name]) for name in names)

    def check(self, *, leave_out: Sequence[int] | None = None) -> str:
        """Return :meth:`differences` after checking that no seed there was, or is, trained with other options.

        Args:
            leave_out: with these seeds, a finished run is no obstacle, since it is replaced or no longer in the
                results. One in training is, except for these seeds.

        Raises:
            RecipeError: there is such a seed; the message names it and the options.
        """
        differences = self.differences()
        if not differences:
            return ""
        listed = _read_recipe(self.path / RECIPE) if (self.path / RECIPE).is_file() else {"seeds": (), "training": {}}
        first = listed["seeds"] or [listed["training"].get("seed")]
        for seed in sorted(self._seeds_there(), key=lambda seed: (seed not in first, seed)):
            run = RunFolder(seed_folder(self.path, seed))
            if leave_out is None and (run.has_run() or run.is_in_use()):
                remedy = "or replace the earlier runs with --overwrite"
            elif leave_out is not None and seed not in leave_out and run.is_in_use():
                remedy = "or wait until its training has ended"
            else:
                continue
            raise RecipeError(
                f"{run.path} holds another run: {differences}. The seeds of a folder have the same options; choose "
                f"another output folder (--output), {remedy}"
            )
        return differences

    def begin(self) -> None:
        """Write what the network is trained on and how, unless it is there, so that others can compare theirs.

        Raises:
            RecipeError: seeds there have other options, or the files cannot be written.
        """
        if self.check() or not (self.path / RECIPE).is_file() or not recorded_digest(self.path):
            with writing(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
            write_card(self.path, self.card, self.digest)
            write_text(self.path / RECIPE, format_recipe(self.recipe))

    def add(self, seeds: Sequence[int], result: SeedsResult) -> None:
        """Add the records of seeds to those in the folder, and write the results of all.

        Raises:
            RecipeError: the folder was given to other options meanwhile, or cannot be written.
        """
        differences = self.differences()
        if differences:
            raise RecipeError(
                f"another command has replaced {self.path / RECIPE} during this training: {differences}. The seeds "
                f"{', '.join(map(str, seeds))} are trained and not recorded; choose another output folder (--output)"
            )
        records = self.records()
        for seed, fitted, evaluation in zip(seeds, result.fits, result.evaluations, strict=True):
            records[seed] = {
                "seed": seed,
                "data": self.digest,
                "weights": weights_digest(fitted.model),
                "right": {} if evaluation.correct is None else {TEST: packed_answers(evaluation.correct)},
                "scores": [score_row(self.name, score, self.task.group) for score in evaluation.scores],
                "options": self.options,
            }
        self._write(records)
        self._tell_missing(sorted(records))

    def records(self) -> dict[int, dict[str, Any]]:
        """Return the records of the seeds that have these options and data, and still their folder.

        Raises:
            ParseError: a line is not a record.
        """
        records = {}
        defaults = {name: value for name, value in _plain(_DEFAULTS).items() if name in self.options}
        for record in read_study(self.path / ANSWERS, ["seed", "data", "right"]):
            recorded = {**defaults, **(record.get("options") or {})}  # it may be older than some options
            is_same = record["data"] == self.digest and recorded == self.options
            if is_same and record.get("scores") and RunFolder(seed_folder(self.path, record["seed"])).has_run():
                records[int(record["seed"])] = record
        return records

    def runs(self, seeds: Sequence[int]) -> list[Path]:
        """Return the folders of seeds that are there."""
        return [run for seed in seeds if (run := seed_folder(self.path, seed)).is_dir()]

    def take_back(self, seeds: Sequence[int], other_files: Sequence[str]) -> None:
        """Delete what is recorded of seeds, and other files of scores. Other seeds of the same options stay."""
        others = {seed: record for seed, record in self.records().items() if seed not in seeds}
        if self.path.is_dir():
            with writing(self.path):
                for file in (RECIPE, CARD, RESULTS, ANSWERS, *other_files):
                    (self.path / file).unlink(missing_ok=True)
        if others:
            self._write(others)

    def _write(self, records: Mapping[int, dict[str, Any]]) -> None:
        seeds, recipe = sorted(records), self.recipe
        if seeds != [recipe.training.seed] or recipe.seeds:
            recipe = dataclasses.replace(recipe, seeds=tuple(seeds))
        write_text(self.path / RECIPE, format_recipe(recipe))
        write_records(self.path / ANSWERS, [records[seed] for seed in seeds])
        group = self.task.group
        scores = mean_scores([[row_score(row, group) for row in records[seed]["scores"]] for seed in seeds])
        write_results(self.path, [score_row(self.name, score, group) for score in scores], self.card, self.digest)

    def _tell_missing(self, recorded: Sequence[int]) -> None:
        """Log which seeds have a checkpoint and are not in the results."""
        there = [seed for seed in self._seeds_there() if RunFolder(seed_folder(self.path, seed)).has_run()]
        missing = [seed for seed in there if seed not in recorded]
        if missing:
            names = ", ".join(map(str, missing))
            _logger.info(
                "%s: the results are of the seeds %s. Not of %s, which are in training, have other options or no "
                "recorded scores: the same command with --seeds %s adds them",
                self.path, ", ".join(map(str, recorded)), names, names.replace(",", ""),
            )  # fmt: skip

    def _seeds_there(self) -> list[int]:
        """Return the seeds that have a folder, in ascending order."""
        numbers = [seed_of(place) for place in self.path.glob("seed-*/")]
        return sorted(number for number in numbers if number is not None)


def take_back(folders: Sequence[NetworkFolder], seeds: Sequence[int], other_files: Sequence[str]) -> None:
    """Delete the runs of networks from these seeds, and what is recorded of them.

    Raises:
        RecipeError: another process is training in one of them; nothing is deleted then.
    """
    runs = [run for folder in folders for run in folder.runs(seeds)]
    with ExitStack() as holding:
        for run in runs:
            holding.enter_context(RunFolder(run).locked())
        for folder in folders:
            folder.take_back(seeds, other_files)
        for run in runs:
            with writing(run):
                RunFolder(run).clear(overwrite=True)


def _deciding(fields: Mapping[str, Any], network: str) -> dict[str, Any]:
    """Return the options of a recipe's fields that decide the scores of a network, as plain data."""
    training = {**_DEFAULTS, **fields["training"]}  # the recipe may be older than some options
    return _plain(
        {
            "task": fields["task"],
            "task options": fields["task_options"],
            "network": fields["networks"].get(network),
            **{name: value for name, value in training.items() if name not in _WITHOUT_EFFECT},
        }
    )


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as they are read from a file, with lists instead of tuples."""
    plain: dict[str, Any] = json.loads(json.dumps(options, default=str))
    return plain


def _read_recipe(path: Path) -> dict[str, Any]:
    """Return the fields of the recipe in a network's folder.

    Raises:
        RecipeError: it is damaged.
    """
    try:
        fields: dict[str, Any] = load_yaml(path.read_text(encoding="utf-8"))
        if not {"task", "task_options", "networks", "training", "seeds"} <= {**fields}.keys():
            raise RecipeError("fields are missing")
        {**fields["networks"], **fields["training"]}, [*fields["seeds"]]  # mappings, and a list
    except (RecipeError, OSError, TypeError, UnicodeDecodeError) as error:
        problem = f"{path} is damaged: {error!s:.200}; delete it, and run the same command to write it again"
        raise RecipeError(problem) from error
    return fields


def changed_data(recipe: Recipe, folder: Path) -> str:
    """Return which options of the data differ from those in the recipe of a network's folder."""
    if not (folder / RECIPE).is_file():
        return "they are not recorded"
    before, now = (_plain(fields) for fields in (_read_recipe(folder / RECIPE), recipe_fields(recipe)))
    return "; ".join(
        f"{part}.{name} was {before[part].get(name)!r:.200} and is {now[part].get(name)!r:.200} now"
        for part in ("data", "task_options")
        for name in {**before[part], **now[part]}
        if before[part].get(name) != now[part].get(name)
    )


def write_text(path: str | Path, text: str) -> None:
    """Write a text file, whole or not at all.

    Raises:
        RecipeError: it cannot be written.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(text.encode())


def write_results(folder: Path, rows: Iterable[Mapping[str, Any]], card: str, digest: str) -> None:
    """Write rows of scores and the card of their data.

    Args:
        folder: of a network, or of the run.
        rows: of :func:`treemem.runs.score_row`.
        card: of the data.
        digest: the hash of the data, :meth:`treemem.data.examples.Examples.digest`.

    Raises:
        RecipeError: they cannot be written.
    """
    write_card(folder, card, digest)
    write_records(folder / RESULTS, rows)


def write_card(folder: Path, card: str, digest: str) -> None:
    """Write the card of the data, with their hash as its last line."""
    write_text(folder / CARD, f"{card.rstrip()}\n\n{_DIGEST}{digest}\n")


def recorded_digest(folder: Path) -> str:
    """Return the hash of the data that a network was trained on, from its data card; empty without one."""
    card = folder / CARD
    last = card.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2] if card.is_file() else ""
    return last.removeprefix(_DIGEST) if last.startswith(_DIGEST) else ""
