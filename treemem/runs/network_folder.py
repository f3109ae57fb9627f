"""The folder of a network in a run: a folder ``seed-N`` for each seed, and what is recorded of all of them.

Beside the seeds stand the recipe, the card of the data with their hash, a record of each seed, and the rows of scores,
which are means over these records. Several commands may train seeds of one network at once: they write here under the
lock of the run's results.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from treemem.checkpoint.run_folder import RunFolder
from treemem.errors import RecipeError
from treemem.metrics.class_report import ClassReport
from treemem.metrics.score import mean_scores, row_score, score_row
from treemem.plain_yaml import load_yaml
from treemem.records import locked, write_records, write_text, writing
from treemem.runs.recipe import Recipe, format_recipe, recipe_fields
from treemem.runs.run import SeedsResult, seed_folder, seed_of
from treemem.runs.same_run import as_recorded, deciding_options, differences, free_to_change
from treemem.runs.study_records import of_one_form, read_study
from treemem.task import Task
from treemem.trees.formats.record_reader import SPLITS

_logger = logging.getLogger(__name__)
RECIPE, CARD, ANSWERS, RESULTS = "recipe.yaml", "data.md", "answers.jsonl", "results.jsonl"
"""File names: the recipe, the card of the data, the records of the seeds, the scores."""

TEST = SPLITS[2]
_MOST_CLASSES = 100
"""The largest number of classes whose report is recorded, because its confusion matrix has the square of it."""
_DIGEST = "SHA-256 of trees, labels and splits: "


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

    @property
    def description(self) -> dict[str, Any]:
        """These options and the hash of the data."""
        return {**self.options, "data": self.digest}

    def run(self, seed: int) -> RunFolder:
        """Return the folder of the run from a seed."""
        return RunFolder(seed_folder(self.path, seed))

    def differences(self) -> str:
        """Return how options or data differ from those in the folder; empty if seeds can go together.

        The number of epochs and the patience may differ as they may where a run is resumed.

        Raises:
            RecipeError: the recipe there is damaged.
        """
        recipe = read_recipe(self.path)
        before = {"data": recorded_digest(self.path) or self.digest}
        before |= {} if recipe is None else _deciding(recipe, self.name)
        now = {name: value for name, value in self.description.items() if name in before}
        return "; ".join(differences(before, now, free_to_change(self.recipe.training)).values())

    def differences_of(self, other: NetworkFolder) -> str:
        """Return how the options of another folder's training differ; empty if seeds can go together."""
        return "; ".join(differences(self.description, other.description).values())

    def at(self, path: Path) -> NetworkFolder:
        """Return the same network in another folder."""
        return dataclasses.replace(self, path=path)

    def check_seeds(self, *, leave_out: Sequence[int] | None = None) -> str:
        """Return :meth:`differences` after checking that no seed there was, or is, trained with other options.

        Args:
            leave_out: with these seeds, a finished run is no obstacle, since it is replaced or no longer in the
                results. One in training is, except for these seeds.

        Raises:
            RecipeError: there is such a seed; the message names it and the options.
            ParseError: a record there is damaged, so that no results could be written after a training.
        """
        self.records()
        problem = self.differences()
        if not problem:
            return ""
        recipe = read_recipe(self.path) or {"seeds": (), "training": {}}
        first = recipe["seeds"] or [recipe["training"].get("seed")]
        for seed in sorted(self.seeds_there(), key=lambda seed: (seed not in first, seed)):
            run = self.run(seed)
            if leave_out is None and (run.has_run() or run.is_in_use()):
                remedy = "or replace the earlier runs with --overwrite"
            elif leave_out is not None and seed not in leave_out and run.is_in_use():
                remedy = "or wait until its training has ended"
            else:
                continue
            raise RecipeError(
                f"{run.path} holds another run: {problem}. The seeds of a folder have the same options; choose "
                f"another output folder (--output), {remedy}"
            )
        return problem

    def begin(self) -> None:
        """Write what the network is trained on and how, unless it is there, so that others can compare theirs.

        Raises:
            RecipeError: seeds there have other options, or the files cannot be written.
            ParseError: as :meth:`check`.
        """
        with locked_results(self.path.parent):
            if self.check_seeds() or not (self.path / RECIPE).is_file() or not recorded_digest(self.path):
                with writing(self.path):
                    self.path.mkdir(parents=True, exist_ok=True)
                write_text(self.path / RECIPE, format_recipe(self.recipe))  # first: it marks the folder of a run
                write_card(self.path, self.card, self.digest)

    def add(self, seeds: Sequence[int], result: SeedsResult) -> None:
        """Add the records of seeds to those in the folder, and write the results of all.

        Raises:
            RecipeError: the folder was given to other options meanwhile, or cannot be written.
        """
        with locked_results(self.path.parent):
            problem = self.differences()
            if problem:
                raise RecipeError(
                    f"another command has replaced {self.path / RECIPE} during this training: {problem}. The seeds "
                    f"{', '.join(map(str, seeds))} are trained and not recorded; choose another output folder "
                    "(--output)"
                )
            added = {
                seed: {
                    "seed": seed,
                    "data": self.digest,
                    "weights": run.weights,
                    "right": run.right,
                    "report": _recorded(run.evaluations[TEST].report),
                    "scores": [score_row(self.name, score, self.task.group) for score in run.evaluations[TEST].scores],
                    "options": self.options,
                }
                for seed, run in zip(seeds, result.runs, strict=True)
            }
            self._tell_missing(self.add_records(added))

    def add_records(self, added: Mapping[int, dict[str, Any]]) -> list[int]:
        """Add records of seeds to those in the folder, and write the results of all. Return all seeds in order.

        The caller holds the lock of the results.

        Args:
            added: as :meth:`records` returns them.
        """
        records = {**self.records(), **added}
        self._write(records)
        return sorted(records)

    def records(self) -> dict[int, dict[str, Any]]:
        """Return the records of the seeds that have these options and data, and still their folder.

        Raises:
            ParseError: a line is not a record.
        """
        return {
            int(record["seed"]): record
            for record in read_study(self.path / ANSWERS, ["seed", "data", "right"])
            if record.get("scores")
            and self.run(record["seed"]).has_run()
            and not differences({**(record.get("options") or {}), "data": record["data"]}, self.description)
        }

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
        missing = [seed for seed in self.seeds_there() if seed not in recorded and self.run(seed).has_run()]
        if missing:
            names = ", ".join(map(str, missing))
            _logger.info(
                "%s: the results are of the seeds %s. Not of %s, which are in training, have other options or no "
                "recorded scores: the same command with --seeds %s adds them",
                self.path, ", ".join(map(str, recorded)), names, names.replace(",", ""),
            )  # fmt: skip

    def seeds_there(self) -> list[int]:
        """Return the seeds that have a folder, in ascending order."""
        numbers = [seed_of(place) for place in self.path.glob("seed-*/")]
        return sorted(number for number in numbers if number is not None)


def take_back(folders: Sequence[NetworkFolder], seeds: Sequence[int], other_files: Sequence[str]) -> None:
    """Delete the runs of networks from these seeds, and what is recorded of them.

    Raises:
        RecipeError: another process is training in one of them; nothing is deleted then.
    """
    runs = [run for folder in folders for run in map(folder.run, seeds) if run.path.is_dir()]
    with ExitStack() as holding:
        for run in runs:
            holding.enter_context(run.locked())
        for folder in folders:
            folder.take_back(seeds, other_files)
        for run in runs:
            run.clear(overwrite=True)


@contextlib.contextmanager
def locked_results(output: Path) -> Iterator[None]:
    """Hold the lock of all files of results in a run's folder, which is made if it is absent. Other commands wait.

    Raises:
        RecipeError: the folder cannot be written.
    """
    with writing(output):
        output.mkdir(parents=True, exist_ok=True)
    with locked(output / "results"):
        yield


def _recorded(report: ClassReport | None) -> dict[str, Any] | None:
    return None if report is None or len(report.names) > _MOST_CLASSES else report.as_record()


def _deciding(fields: Mapping[str, Any], network: str) -> dict[str, Any]:
    """Return the options of a recipe's fields that decide the scores of a network, as plain data."""
    training = deciding_options(fields["training"])
    training.pop("seed", None)
    parts = {"task": fields["task"], "task options": fields["task_options"], "network": fields["networks"].get(network)}
    return as_recorded({**parts, **training})


def read_recipe(folder: Path) -> dict[str, Any] | None:
    """Return the fields of the recipe in a network's folder; None without one.

    Raises:
        RecipeError: it is damaged.
    """
    path = folder / RECIPE
    if not path.is_file():
        return None
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
    recorded = read_recipe(folder)
    if recorded is None:
        return "they are not recorded"
    before, now = (
        {f"{part}.{name}": value for part in ("data", "task_options") for name, value in fields[part].items()}
        for fields in (recorded, recipe_fields(recipe))
    )
    return "; ".join(differences(before, now).values())


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
    write_records(folder / RESULTS, of_one_form([*rows]))


def card_of(folder: Path) -> str:
    """Return the card of the data in a folder, without their hash."""
    return (folder / CARD).read_text(encoding="utf-8").rpartition(_DIGEST)[0].rstrip() + "\n"


def write_card(folder: Path, card: str, digest: str) -> None:
    """Write the card of the data, with their hash as its last line."""
    write_text(folder / CARD, f"{card.rstrip()}\n\n{_DIGEST}{digest}\n")


def recorded_digest(folder: Path) -> str:
    """Return the hash of the data that a network was trained on, from its data card; empty without one."""
    card = folder / CARD
    last = card.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2] if card.is_file() else ""
    return last.removeprefix(_DIGEST) if last.startswith(_DIGEST) else ""
