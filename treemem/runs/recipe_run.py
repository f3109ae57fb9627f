"""A recipe as a run: train each network from each seed, score it on the test split, and record the scores.

``OUTPUT/NETWORK`` holds a folder ``seed-N`` for each seed, the recipe, the card of the data with their hash, a record
of each seed, and the rows of scores, which are means over all these records. A later run, or one at the same time, adds
other seeds and networks; results list all networks of the same data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from treemem import checkpoint
from treemem.checkpoint.run_folder import RunFolder
from treemem.data.examples import TaskData
from treemem.data_parallel import joined_processes
from treemem.errors import RecipeError
from treemem.hub_client import is_address
from treemem.metrics.score import PublishedFigure, Score, row_score, score_row
from treemem.model_digest import weights_digest
from treemem.networks import NetworkConfig
from treemem.plain_yaml import load_yaml
from treemem.records import locked, read_records, replacing, write_records, writing
from treemem.runs.fit import check_fit
from treemem.runs.recipe import Recipe, format_recipe, recipe_fields
from treemem.runs.same_run import difference
from treemem.runs.seed_records import (
    changed_options,
    check_seeds,
    deciding_options,
    mean_of_seeds,
    seed_records,
    tell_missing,
)
from treemem.runs.seeds import SeedsResult, fit_seeds, seed_folder, seed_of
from treemem.runs.study import packed_answers
from treemem.task import Task
from treemem.trees.record_reader import SPLITS

_logger = logging.getLogger(__name__)
LOG, RECIPE, ANSWERS = "log.txt", "recipe.yaml", "answers.jsonl"
RESULTS, EVALUATION, CARD = "results.jsonl", "evaluation.jsonl", "data.md"
"""File names: log of a command; recipe, correct test examples and scores of a network; further scores; data card."""

TEST = SPLITS[2]
_DIGEST = "SHA-256 of trees, labels and splits: "


def default_folder(task: str, recipe: str | Path) -> Path:
    """Return the default folder of a recipe's run, ``runs/TASK/RECIPE``."""
    return Path("runs") / task / Path(recipe).stem


def check_empty(folder: Path) -> None:
    """Check that a folder is absent or empty, except for a log and hidden files.

    Raises:
        RecipeError: it holds something else.
    """
    others = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    others = sorted(name for name in others if name != LOG and not name.startswith("."))
    if others:
        raise RecipeError(
            f"{folder} holds {others[0]} and nothing that was trained there; choose a new folder for the output "
            "(--output)"
        )


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
            if not is_begun and not any(recorded_digest(path.parent) for path in output.glob(f"*/{RECIPE}")):
                check_empty(output)


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
        RecipeError, CheckpointError, VocabularyError: as :func:`~treemem.runs.seeds.fit_seeds`.
    """
    processes = joined_processes()
    seeds = recipe.seeds or [recipe.training.seed]
    examples = task.examples(data.forest)
    examples.scorable_part(TEST)
    output, digest = Path(output), examples.digest()
    if overwrite:
        for name, network in recipe.networks.items():
            check_fit(task, network, data.forest, recipe.training, output=output / name)
    with processes.agreeing():
        if processes.is_first:
            with locked_results(output):
                _check_same_data(recipe, output, digest, overwrite=overwrite)
                for name in recipe.networks:
                    changes = _changes(recipe, name, output / name, digest)
                    check_seeds(output / name, RECIPE, changes, leave_out=seeds if overwrite else None)
                if overwrite:
                    files = (RECIPE, CARD, RESULTS, ANSWERS, *other_scores)
                    _take_back(recipe, task, output, seeds, data.card, digest, files)
    for name, network in recipe.networks.items():
        _logger.info("-- %s", name)
        folder = output / name
        with processes.agreeing():
            if processes.is_first:
                with locked_results(output):
                    _begin(recipe, name, folder, data.card, digest)
        result = fit_seeds(task, network, data, recipe.training, seeds=seeds, output=folder, split=TEST, resume=True)
        training, scoring = result.fits[0], result.evaluations[0]
        _logger.info(
            "%s: %.0f trees/s in training, %.0f trees/s in scoring (%.0f without making the batches)",
            name, training.trees_per_second, scoring.trees_per_second, scoring.network_trees_per_second,
        )  # fmt: skip
        with processes.agreeing():
            if processes.is_first:
                with locked_results(output):
                    new = _records(result, seeds, digest, name, recipe, task)
                    _record(recipe, task, name, folder, new, data.card, digest)
        yield name, result


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


def _changes(recipe: Recipe, name: str, folder: Path, digest: str) -> str:
    """Return how the options or data of a network differ from those in its folder; empty if seeds can go together."""
    if recorded_digest(folder) not in ("", digest):
        return difference("data", None, None)
    return changed_options(recipe, name, folder / RECIPE)


def _begin(recipe: Recipe, name: str, folder: Path, card: str, digest: str) -> None:
    """Write what a network is trained on and how, unless it is there, so that another command can check its own.

    Raises:
        RecipeError: seeds there have other options, or the files cannot be written.
    """
    changes = _changes(recipe, name, folder, digest)
    check_seeds(folder, RECIPE, changes)
    if changes or not (folder / RECIPE).is_file() or not recorded_digest(folder):
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        _write_card(folder, card, digest)
        write_text(folder / RECIPE, format_recipe(recipe))


def _record(
    recipe: Recipe, task: Task, name: str, folder: Path, new: Mapping[int, dict[str, Any]], card: str, digest: str
) -> None:
    """Add the records of seeds to those in a network's folder, and write the results of all.

    Raises:
        RecipeError: the folder was given to other options meanwhile, or cannot be written.
    """
    changes = _changes(recipe, name, folder, digest)
    if changes:
        raise RecipeError(
            f"another command has replaced {folder / RECIPE} during this training: {changes}. The seeds "
            f"{', '.join(map(str, new))} are trained and not recorded; choose another output folder (--output)"
        )
    options = deciding_options(recipe, name)
    records = {**seed_records(folder, ANSWERS, options, digest), **new}
    _write_seeds(recipe, task, name, folder, records, card, digest)
    tell_missing(folder, sorted(records))


def _write_seeds(
    recipe: Recipe, task: Task, name: str, folder: Path, records: Mapping[int, dict[str, Any]], card: str, digest: str
) -> None:
    seeds = sorted(records)
    if seeds != [recipe.training.seed] or recipe.seeds:
        recipe = dataclasses.replace(recipe, seeds=tuple(seeds))
    write_text(folder / RECIPE, format_recipe(recipe))
    write_records(folder / ANSWERS, [records[seed] for seed in seeds])
    scores = mean_of_seeds([records[seed] for seed in seeds], task.group)
    write_results(folder, [score_row(name, score, task.group) for score in scores], card, digest)


def _check_same_data(recipe: Recipe, output: Path, digest: str, *, overwrite: bool) -> None:
    """Check that the networks of a folder that stay there were trained on the same data.

    Raises:
        RecipeError: they were not; the message names the options that differ.
    """
    for card in sorted(output.glob(f"*/{CARD}")):
        folder = card.parent
        if recorded_digest(folder) in ("", digest) or (overwrite and folder.name in recipe.networks):
            continue
        changes = _changed_data(recipe, folder) or "its options are the same, so a file or the generator has changed"
        raise RecipeError(
            f"{folder} was trained on other data: {changes}. A folder holds networks of the same data; choose another "
            "output folder (--output), or go on with the same data as before"
        )


def _changed_data(recipe: Recipe, folder: Path) -> str:
    """Return which options of the data differ from those in the recipe of a network."""
    if not (folder / RECIPE).is_file():
        return "they are not recorded"
    before, now = load_yaml((folder / RECIPE).read_text(encoding="utf-8")), recipe_fields(recipe)
    return "; ".join(
        f"{part}.{name} was {old!r:.200} and is {new!r:.200} now"
        for part in ("data", "task_options")
        for name in {**before[part], **now[part]}
        if (old := _plain(before[part].get(name))) != (new := _plain(now[part].get(name)))
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _records(
    result: SeedsResult, seeds: Sequence[int], digest: str, name: str, recipe: Recipe, task: Task
) -> dict[int, dict[str, Any]]:
    """Return the record of each seed: its scores, the correct test examples, and what decides them."""
    records = {}
    for seed, fitted, evaluation in zip(seeds, result.fits, result.evaluations, strict=True):
        records[seed] = {
            "seed": seed,
            "data": digest,
            "weights": weights_digest(fitted.model),
            "right": {} if evaluation.correct is None else {TEST: packed_answers(evaluation.correct)},
            "scores": [score_row(name, score, task.group) for score in evaluation.scores],
            "options": deciding_options(recipe, name),
        }
    return records


def _take_back(
    recipe: Recipe, task: Task, output: Path, seeds: Sequence[int], card: str, digest: str, files: Sequence[str]
) -> None:
    """Delete the runs of networks from these seeds, and what is recorded of them. Other seeds of the same options stay.

    Raises:
        RecipeError: another process is training in one of them; nothing is deleted then.
    """
    networks = {name: output / name for name in recipe.networks}
    runs = [run for folder in networks.values() for seed in seeds if (run := seed_folder(folder, seed)).is_dir()]
    with ExitStack() as holding:
        for run in runs:
            holding.enter_context(RunFolder(run).locked())
        for name, folder in networks.items():
            recorded = seed_records(folder, ANSWERS, deciding_options(recipe, name), digest)
            others = {seed: record for seed, record in recorded.items() if seed not in seeds}
            take_back_results(folder, files)
            if others:
                _write_seeds(recipe, task, name, folder, others, card, digest)
        for run in runs:
            with writing(run):
                RunFolder(run).clear(overwrite=True)


def take_back_results(folder: Path, files: Sequence[str] = (RESULTS,)) -> None:
    """Delete files of results of a network.

    Raises:
        RecipeError: they cannot be deleted.
    """
    if folder.is_dir():
        with writing(folder):
            for file in files:
                (folder / file).unlink(missing_ok=True)


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
    _write_card(folder, card, digest)
    write_records(folder / RESULTS, rows)


def _write_card(folder: Path, card: str, digest: str) -> None:
    write_text(folder / CARD, f"{card.rstrip()}\n\n{_DIGEST}{digest}\n")


def recorded_digest(folder: Path) -> str:
    """Return the hash of the data that a network was trained on, from its data card; empty without one."""
    card = folder / CARD
    last = card.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2] if card.is_file() else ""
    return last.removeprefix(_DIGEST) if last.startswith(_DIGEST) else ""


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


def published_figures(task: Task, output: Path) -> list[PublishedFigure]:
    """Return the published figures, without those of networks that have other options in this run."""
    figures = []
    for figure in task.published:
        file = output / figure.network / RECIPE
        if file.is_file():
            fields = load_yaml(file.read_text(encoding="utf-8"))["networks"][figure.network]
            if figure.network in task.networks and NetworkConfig(**fields) != task.networks[figure.network]:
                continue
        figures.append(figure)
    return figures


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
