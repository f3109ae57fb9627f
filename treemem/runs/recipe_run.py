"""A recipe as a run: each network trained from each seed, scored on the test, its scores in a folder of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from treemem import checkpoint
from treemem.checkpoint.run_folder import RunFolder
from treemem.data.examples import TaskData
from treemem.data_parallel import joined_processes
from treemem.errors import RecipeError
from treemem.hub_client import is_address
from treemem.metrics.score import score_row
from treemem.model_digest import weights_digest
from treemem.records import replacing, write_records, writing
from treemem.runs.fit import check_fit
from treemem.runs.networks_folder import RESULTS, recorded_digest, take_back_results, write_results
from treemem.runs.recipe import Recipe, format_recipe
from treemem.runs.run_folder import check_empty
from treemem.runs.seeds import SeedsResult, fit_seeds, seed_folder, seed_of
from treemem.runs.study import packed_answers
from treemem.task import Task
from treemem.trees.record_reader import SPLITS

_logger = logging.getLogger(__name__)
RECIPE, ANSWERS = "recipe.yaml", "answers.jsonl"
"""Names of the files in a network's folder that say what it was trained by, and which test examples it had right."""

TEST = SPLITS[2]


def default_folder(task: str, recipe: str | Path) -> Path:
    """The folder of a recipe's run where nobody says: ``runs/TASK/RECIPE``.

    Args:
        task: name of the recipe's task.
        recipe: what :func:`~treemem.runs.recipe.load_recipe` took.
    """
    return Path("runs") / task / Path(recipe).stem


def check_folder(output: Path) -> None:
    """Refuse a folder for a run in which there are other things and no network of an earlier run.

    Raises:
        RecipeError: it names one of the things, or says that it is no folder.
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
    """Train the recipe's networks one after the other, going on where an earlier call stopped.

    A network's folder receives its scores on the test, the recipe, and which test examples each seed had right.
    Of processes that ``torchrun`` launched, the first alone writes what is kept.

    Args:
        recipe: which networks, and how to train them.
        task: the recipe's.
        data: the data that the recipe asks for.
        output: folder of the run.
        overwrite: delete the runs of these networks from these seeds, all of them before the first is trained, so that
            after an interruption the same call without it goes on; nothing is deleted where a network or its training
            would be refused.
        other_scores: names of files in a network's folder that hold scores too: what is trained anew takes them back.

    Yields:
        Each network's name and runs, as soon as they are scored and recorded.

    Raises:
        RecipeError, CheckpointError, VocabularyError: as :func:`~treemem.runs.seeds.fit_seeds` does.
    """
    processes = joined_processes()
    seeds = recipe.seeds or [recipe.training.seed]
    examples = task.examples(data.forest)
    examples.scorable_part(TEST)
    digest = examples.digest()
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
                write_records(folder / ANSWERS, _answers(result, seeds, digest))  # last: they tell of which weights
        yield name, result


def _answers(result: SeedsResult, seeds: Sequence[int], digest: str) -> Iterator[dict[str, Any]]:
    """For each seed which test examples it had right, with the hashes of data and weights."""
    for seed, fitted, evaluation in zip(seeds, result.fits, result.evaluations, strict=True):
        weights = weights_digest(fitted.model)
        if evaluation.correct is not None:
            correct = {TEST: packed_answers(evaluation.correct)}
            yield {"seed": seed, "data": digest, "weights": weights, "right": correct}


def _take_back(networks: Sequence[Path], seeds: Sequence[int], files: Sequence[str]) -> None:
    """Delete the runs in the folders of networks from some seeds, and the files about them; all of them or none.

    Raises:
        RecipeError: another process is training in one of them, or they cannot be deleted.
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


def write_text(path: str | Path, text: str) -> None:
    """Write a text file, whole or not at all.

    Raises:
        RecipeError: it cannot be written.
    """
    with replacing(path) as temporary:
        temporary.write_bytes(text.encode())


def network_folder_of(model: str | Path) -> Path | None:
    """The folder ``NETWORK``, with its recipe, in which a run left a checkpoint; None for one that no run left.

    Args:
        model: what :func:`treemem.checkpoint.load` took: a checkpoint of ``NETWORK/seed-N``, that folder itself, or one
            above it. A model that comes along, or is on the hub, is none of a run here.

    Raises:
        CheckpointError: no checkpoint there is whole.
    """
    if is_address(model) or checkpoint.is_pretrained_name(model):
        return None
    place = checkpoint.read(model)[0].resolve()
    seed = next((folder for folder in (place, *place.parents[:2]) if seed_of(folder) is not None), None)
    return seed.parent if seed is not None and (seed.parent / RECIPE).is_file() else None
