"""The seeds of a network in the folder of a run, which several commands may train at once.

``answers.jsonl`` has a record of each seed that is trained and scored: its scores, the test examples that it has
correct, and what decides them. The results of the network are means over these records.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from treemem.checkpoint.run_folder import RunFolder
from treemem.errors import RecipeError
from treemem.metrics.score import Score, mean_scores, row_score
from treemem.plain_yaml import load_yaml
from treemem.runs.options import TrainingOptions
from treemem.runs.recipe import Recipe, recipe_fields
from treemem.runs.same_run import difference, free_to_change
from treemem.runs.seeds import seed_folder, seed_of
from treemem.runs.study import read_study

_logger = logging.getLogger(__name__)
_DEFAULTS = dataclasses.asdict(TrainingOptions())
_WITHOUT_EFFECT = free_to_change(TrainingOptions()) - {"epochs", "patience"} | {"seed"}


def deciding_options(recipe: Recipe, network: str) -> dict[str, Any]:
    """Return the options that decide the scores of a network, besides the data and the seed, as plain data."""
    return _deciding(recipe_fields(recipe), network)


def _deciding(fields: Mapping[str, Any], network: str) -> dict[str, Any]:
    training = {**_DEFAULTS, **fields["training"]}  # the recipe may be older than some options
    options = {
        "task": fields["task"],
        "task options": fields["task_options"],
        "network": fields["networks"].get(network),
        **{name: value for name, value in training.items() if name not in _WITHOUT_EFFECT},
    }
    return _plain(options)


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as they are read from a file, with lists instead of tuples."""
    plain: dict[str, Any] = json.loads(json.dumps(options, default=str))
    return plain


def changed_options(recipe: Recipe, network: str, recorded: Path) -> str:
    """Return how the options of a network differ from those in a recorded recipe; empty if seeds can go together.

    The number of epochs and the patience may differ as they may where a run is resumed.
    """
    if not recorded.is_file():
        return ""
    before = _deciding(_read_recipe(recorded), network)
    now = deciding_options(recipe, network)
    names = [name for name in now if before.get(name) != now[name] and name not in free_to_change(recipe.training)]
    return "; ".join(difference(name, before.get(name), now[name]) for name in names)


def _read_recipe(path: Path) -> dict[str, Any]:
    """Return the fields of the recipe in a network's folder.

    Raises:
        RecipeError: it is damaged.
    """
    try:
        fields: dict[str, Any] = load_yaml(path.read_text(encoding="utf-8"))
        if not {"task", "task_options", "networks", "training", "seeds"} <= {**fields}.keys():
            raise RecipeError("fields are missing")
        {**fields["networks"], **fields["training"]}  # both are mappings
    except (RecipeError, OSError, TypeError, UnicodeDecodeError) as error:
        problem = f"{path} is damaged: {error!s:.200}; delete it, and run the same command to write it again"
        raise RecipeError(problem) from error
    return fields


def check_seeds(folder: Path, file: str, changes: str, *, leave_out: Sequence[int] | None = None) -> None:
    """Check that a network's folder holds no seed that was, or is, trained with other options.

    Args:
        folder: of the network.
        file: name of the file of its recipe.
        changes: how the options differ from it.
        leave_out: with these seeds, a finished run is no obstacle, since it is replaced or no longer in the results.
            One in training is, except for these seeds.

    Raises:
        RecipeError: it does; the message names the seed and the options.
    """
    if not changes:
        return
    listed = _read_recipe(folder / file) if (folder / file).is_file() else {"seeds": (), "training": {}}
    first = listed["seeds"] or [listed["training"].get("seed")]
    there = _seeds_there(folder)
    for seed in [*(seed for seed in there if seed in first), *(seed for seed in there if seed not in first)]:
        run = RunFolder(seed_folder(folder, seed))
        if leave_out is None and (run.has_run() or run.is_in_use()):
            remedy = "or replace the earlier runs with --overwrite"
        elif leave_out is not None and seed not in leave_out and run.is_in_use():
            remedy = "or wait until its training has ended"
        else:
            continue
        raise RecipeError(
            f"{run.path} holds another run: {changes}. The seeds of a folder have the same options; choose another "
            f"output folder (--output), {remedy}"
        )


def seed_records(folder: Path, file: str, options: Mapping[str, Any], digest: str) -> dict[int, dict[str, Any]]:
    """Return the records of the seeds in a network's folder that have these options and data.

    Args:
        folder: of the network.
        file: name of the file of records.
        options: of :func:`deciding_options`.
        digest: the hash of the data.

    Raises:
        ParseError: a line is not a record.
    """
    found = {}
    defaults = {name: value for name, value in _plain(_DEFAULTS).items() if name in options}  # as above
    for record in read_study(folder / file, ["seed", "data", "right"]):
        is_same = record["data"] == digest and {**defaults, **(record.get("options") or {})} == options
        if is_same and record.get("scores") and RunFolder(seed_folder(folder, record["seed"])).has_run():
            found[int(record["seed"])] = record
    return found


def mean_of_seeds(records: Sequence[Mapping[str, Any]], group: str) -> list[Score]:
    """Return the means over the records of seeds, with the deviation of the first metric."""
    return mean_scores([[row_score(row, group) for row in record["scores"]] for record in records])


def tell_missing(folder: Path, recorded: Sequence[int]) -> None:
    """Log which seeds of a network's folder have a checkpoint and are not in its results."""
    there = [seed for seed in _seeds_there(folder) if RunFolder(seed_folder(folder, seed)).has_run()]
    missing = [seed for seed in there if seed not in recorded]
    if missing:
        names = ", ".join(map(str, missing))
        _logger.info(
            "%s: the results are of the seeds %s. Not of %s, which are in training, have other options or no recorded "
            "scores: the same command with --seeds %s adds them",
            folder, ", ".join(map(str, recorded)), names, names.replace(",", ""),
        )  # fmt: skip


def _seeds_there(folder: Path) -> list[int]:
    """Return the seeds that have a folder within that of a network, in ascending order."""
    numbers = [seed_of(place) for place in folder.glob("seed-*/")]
    return sorted(number for number in numbers if number is not None)
