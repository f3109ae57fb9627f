"""A recipe as a run: train each network from each seed, score it on the test split, and record the scores.

``OUTPUT/NETWORK`` holds a folder ``seed-N`` for each seed, the recipe, the card of the data with their hash, and the
rows of scores. A later run with other networks leaves them there; results list all networks of the same data.
"""

from __future__ import annotations

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
from treemem.records import read_records, replacing, write_records, writing
from treemem.runs.fit import check_fit
from treemem.runs.recipe import Recipe, format_recipe, recipe_fields
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
    digest = examples.digest()
    _check_same_data(recipe, Path(output), digest, overwrite=overwrite)
    if overwrite:
        for name, network in recipe.networks.items():
            check_fit(task, network, data.forest, recipe.training, output=Path(output) / name)
        with processes.agreeing():
            if processes.is_first:
                folders = [Path(output) / name for name in recipe.networks]
                _take_back(folders, seeds, (RECIPE, RESULTS, ANSWERS, *other_scores))
    for name, network in recipe.networks.items():
        _logger.info("-- %s", name)
        folder = Path(output) / name
        result = fit_seeds(task, network, data, recipe.training, seeds=seeds, output=folder, split=TEST, resume=True)
        training, scoring = result.fits[0], result.evaluations[0]
        _logger.info(
            "%s: %.0f trees/s in training, %.0f trees/s in scoring (%.0f without making the batches)",
            name, training.trees_per_second, scoring.trees_per_second, scoring.network_trees_per_second,
        )  # fmt: skip
        rows = [score_row(name, score, task.group) for score in result.scores]
        with processes.agreeing():
            if processes.is_first:
                write_text(folder / RECIPE, format_recipe(recipe))
                write_results(folder, rows, data.card, digest)
                write_records(folder / ANSWERS, _answers(result, seeds, digest))
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


def _answers(result: SeedsResult, seeds: Sequence[int], digest: str) -> Iterator[dict[str, Any]]:
    """Yield for each seed the correct test examples, with the hashes of data and weights."""
    for seed, fitted, evaluation in zip(seeds, result.fits, result.evaluations, strict=True):
        weights = weights_digest(fitted.model)
        if evaluation.correct is not None:
            correct = {TEST: packed_answers(evaluation.correct)}
            yield {"seed": seed, "data": digest, "weights": weights, "right": correct}


def _take_back(networks: Sequence[Path], seeds: Sequence[int], files: Sequence[str]) -> None:
    """Delete the runs of networks from these seeds, and files about them.

    Raises:
        RecipeError: another process is training in one of them; nothing is deleted then.
    """
    runs = [run for folder in networks for seed in seeds if (run := seed_folder(folder, seed)).is_dir()]
    with ExitStack() as holding:
        for run in runs:
            holding.enter_context(RunFolder(run).locked())
        for folder in networks:
            take_back_results(folder, files)
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
    write_text(folder / CARD, f"{card.rstrip()}\n\n{_DIGEST}{digest}\n")
    write_records(folder / RESULTS, rows)


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
