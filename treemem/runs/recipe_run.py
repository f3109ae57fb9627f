"""A recipe as a run: train each network from each seed, score it on the test split, and record the scores.

``OUTPUT/NETWORK`` is a :class:`~treemem.runs.network_folder.NetworkFolder`. A later run, or one at the same time, adds
other seeds and networks; results list all networks of the same data.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from treemem import checkpoint
from treemem.data.examples import TaskData
from treemem.data_parallel import joined_processes
from treemem.errors import RecipeError
from treemem.hub_client import is_address
from treemem.metrics.class_report import ClassReport, mean_report
from treemem.metrics.score import PublishedFigure, Score, row_score
from treemem.networks import NetworkConfig
from treemem.records import read_records
from treemem.runs.fit import check_fit
from treemem.runs.network_folder import (
    ANSWERS,
    CARD,
    RESULTS,
    TEST,
    NetworkFolder,
    changed_data,
    locked_results,
    read_recipe,
    recorded_digest,
    take_back,
)
from treemem.runs.recipe import Recipe
from treemem.runs.run import SeedsResult, fit_seeds, seed_of
from treemem.runs.study_records import read_study
from treemem.task import Task

_logger = logging.getLogger(__name__)
LOG, EVALUATION = "log.txt", "evaluation.jsonl"
"""File names: log of a command; further scores of a network."""


def default_folder(task: str, recipe: str | Path) -> Path:
    """Return the default folder of a recipe's run, ``runs/TASK/RECIPE``."""
    return Path("runs") / task / Path(recipe).stem


def check_empty(folder: Path) -> None:
    """Check that a folder is absent or has no files, except for a log and hidden ones.

    Raises:
        RecipeError: it holds something else.
    """
    places = [path for path in folder.iterdir() if path.name != LOG] if folder.is_dir() else []
    others = sorted(place.name for place in places if _holds_files(place))
    if others:
        raise RecipeError(
            f"{folder} holds {others[0]} and nothing that was trained there; choose a new folder for the output "
            "(--output)"
        )


def _holds_files(place: Path) -> bool:
    """Return whether a place is a file, or a folder with files in it, except for hidden ones."""
    if place.name.startswith("."):
        return False
    return not place.is_dir() or any(map(_holds_files, place.iterdir()))


def check_folder(output: Path) -> None:
    """Check that a folder is empty or holds an earlier run of a recipe.

    Raises:
        RecipeError: it is a file or holds something else.
    """
    if output.exists() and not output.is_dir():
        raise RecipeError(f"cannot write {output}: it is a file, and a folder is asked for")
    if output.exists():
        with locked_results(output):  # another command may be about to write its first files
            is_begun = any((run / ".lock").is_file() for run in output.glob("*/seed-*/"))
            if not is_begun and not any(map(_has_recipe, output.iterdir())):
                check_empty(output)


def _has_recipe(folder: Path) -> bool:
    """Return whether a folder has a whole recipe, as that of a network has from its beginning on."""
    try:
        return read_recipe(folder) is not None
    except RecipeError:
        return False


def train_recipe(
    recipe: Recipe,
    task: Task,
    data: TaskData,
    output: str | Path,
    *,
    overwrite: bool = False,
    other_scores: Sequence[str] = (),
) -> Iterator[tuple[str, SeedsResult]]:
    """Train the networks of a recipe one after the other. Continue an earlier call.

    In processes of ``torchrun``, the first one writes the results.

    Args:
        recipe: which networks, and how to train them.
        task: the recipe's.
        data: the recipe's.
        output: folder of the run.
        overwrite: first delete all runs of these networks from these seeds. After an interruption, call without it to
            continue. Nothing is deleted if the training would be refused.
        other_scores: names of further files of scores in a network's folder, to be deleted with ``overwrite``.

    Yields:
        Name and result of each network, once its scores are recorded.

    Raises:
        RecipeError, CheckpointError, VocabularyError: as :func:`~treemem.runs.fit_seeds`.
    """
    processes = joined_processes()
    seeds = recipe.seeds or [recipe.training.seed]
    examples = task.examples(data.forest)
    examples.scorable_part(TEST)
    output, digest = Path(output), examples.digest()
    folders = {name: NetworkFolder(output / name, recipe, task, data.card, digest) for name in recipe.networks}
    if overwrite or recipe.training.monitor is not None or recipe.training.threshold is not None:
        for name, network in recipe.networks.items():  # before anything is deleted or written
            check_fit(task, network, data.forest, recipe.training, output=output / name)

    def prepare() -> None:
        with locked_results(output):
            _check_same_data(recipe, output, digest, overwrite=overwrite)
            for folder in folders.values():
                folder.check_seeds(leave_out=seeds if overwrite else None)
            if overwrite:
                take_back([*folders.values()], seeds, other_scores)

    processes.in_first(prepare)
    for name, folder in folders.items():
        _logger.info("-- %s", name)
        processes.in_first(folder.begin)
        network = recipe.networks[name]
        result = fit_seeds(
            task, network, data, recipe.training, seeds=seeds, output=folder.path, split=TEST, resume=True
        )
        training, scoring = result.fits[0], result.evaluations[0]
        _logger.info(
            "%s: %.0f trees/s in training, %.0f trees/s in scoring (%.0f without making the batches)",
            name, training.trees_per_second, scoring.trees_per_second, scoring.network_trees_per_second,
        )  # fmt: skip
        processes.in_first(partial(folder.add, seeds, result))
        yield name, result


def _check_same_data(recipe: Recipe, output: Path, digest: str, *, overwrite: bool) -> None:
    """Check that the networks of a folder that stay there were trained on the same data.

    Raises:
        RecipeError: they were not; the message names the options that differ.
    """
    for card in sorted(output.glob(f"*/{CARD}")):
        folder = card.parent
        if recorded_digest(folder) in ("", digest) or (overwrite and folder.name in recipe.networks):
            continue
        changes = changed_data(recipe, folder) or "its options are the same, so a file or the generator has changed"
        raise RecipeError(
            f"{folder} was trained on other data: {changes}. A folder holds networks of the same data; choose another "
            "output folder (--output), or go on with the same data as before"
        )


def gathered_rows(output: Path, first: Sequence[str], digest: str, file: str = RESULTS) -> list[dict[str, Any]]:
    """Return the rows of the networks ``first`` in a run, then of all others that were trained on the same data.

    Networks that were trained on other data are left out, with a message in the log.

    Args:
        output: the folder of the run.
        first: names of networks.
        digest: the hash of the data.
        file: name of the file of a network's rows.

    Raises:
        RecipeError: one of ``first`` has no such file.
    """
    others = []
    for path in sorted(output.glob(f"*/{CARD}")):
        name = path.parent.name
        if name in first or not path.with_name(file).exists():
            continue
        if recorded_digest(path.parent) == digest:
            others.append(name)
        else:
            _logger.info("%s was trained on other data, so that its scores are left out of %s", name, output / file)
    return [record.fields for name in (*first, *others) for record in read_records(output / name / file)]


def class_reports(output: Path, networks: Iterable[str], digest: str) -> dict[str, ClassReport]:
    """Return the metrics of each class on the test split, means over the seeds, of the networks that have them.

    Args:
        output: the folder of the run.
        networks: names in it.
        digest: the hash of the data.

    Raises:
        ParseError: a record there is damaged.
    """
    by_network = {}
    for name in networks:
        records = read_study(output / name / ANSWERS, ["seed", "data"])
        reports = [
            ClassReport.from_record(run["report"]) for run in records if run["data"] == digest and run.get("report")
        ]
        if reports:
            by_network[name] = mean_report(reports)
    return by_network


def published_figures(task: Task, output: Path) -> list[PublishedFigure]:
    """Return the published figures, without those of networks that have other options in this run."""

    def is_as_published(network: str) -> bool:
        recorded, known = read_recipe(output / network), task.networks.get(network)
        return recorded is None or known is None or NetworkConfig(**recorded["networks"][network]) == known

    return [figure for figure in task.published if is_as_published(figure.network)]


def scores_by_network(rows: Iterable[Mapping[str, Any]], group: str) -> dict[str, list[Score]]:
    """Return the scores of each network from rows of :func:`treemem.runs.score_row`."""
    scores: dict[str, list[Score]] = {}
    for row in rows:
        scores.setdefault(row["network"], []).append(row_score(row, group))
    return scores


def network_folder_of(model: str | Path) -> Path | None:
    """Return the network's folder of a checkpoint of a run; None for any other model. Its recipe comes with its scores.

    Args:
        model: what :func:`treemem.checkpoint.load` accepts.

    Raises:
        CheckpointError: no checkpoint there is whole.
    """
    if is_address(model) or checkpoint.is_pretrained_name(model):
        return None
    place = checkpoint.read(model)[0].resolve()
    seed = next((folder for folder in (place, *place.parents[:2]) if seed_of(folder) is not None), None)
    return None if seed is None else seed.parent
