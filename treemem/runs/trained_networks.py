"""Networks that runs left in their folders: scores, and which test examples each seed had right."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from treemem import checkpoint
from treemem.checkpoint.run_folder import RunFolder
from treemem.errors import RecipeError
from treemem.metrics.paired import Comparison, compare
from treemem.metrics.score import Score, mean_scores, row_group, row_score
from treemem.model_digest import weights_digest
from treemem.records import read_records
from treemem.runs.evaluate import evaluate
from treemem.runs.recipe import Recipe, load_recipe
from treemem.runs.recipe_run import ANSWERS, RECIPE, RESULTS, TEST, recorded_digest
from treemem.runs.seeds import seed_folder, seed_of
from treemem.runs.study import read_study, right_answers

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainedNetwork:
    """A network of a run, trained from one seed or several.

    Attributes:
        name: as its run calls it.
        folder: its folder, with a folder ``seed-N`` for each seed.
        group: what its task calls its groups.
        scores: on the test, means over the seeds.
        answers: seed to which test examples it had right, bool ``[examples]``; empty where they are not known.
        data: hash of the data that the answers are about.
    """

    name: str
    folder: Path
    group: str
    scores: list[Score]
    answers: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    data: str = ""


def networks_of_run(run: str | Path) -> list[TrainedNetwork]:
    """The networks in the folder of a run, in the order of its results, or the one in a network's own.

    Raises:
        RecipeError: there is no such folder, or nothing that was trained and scored in it.
        ParseError: a file of results that is damaged.
    """
    run = Path(run)
    if not run.is_dir():
        raise RecipeError(f"there is no folder {run}")
    folders = [run] if any(run.glob("seed-*/")) else sorted(path.parent for path in run.glob(f"*/{RESULTS}"))
    folders = [folder for folder in folders if (folder / RESULTS).is_file()]
    if not folders:
        raise RecipeError(f"{run} holds no scored networks: neither */{RESULTS} nor {RESULTS} beside folders seed-N")
    networks = [_network(folder) for folder in folders]
    order: list[str] = []
    if folders != [run] and (run / RESULTS).is_file():
        order = list(dict.fromkeys(str(record.fields.get("network")) for record in read_records(run / RESULTS)))
    return sorted(networks, key=lambda network: order.index(network.name) if network.name in order else len(order))


def _network(folder: Path) -> TrainedNetwork:
    rows = [record.fields for record in read_records(folder / RESULTS)]
    if not rows:
        raise RecipeError(f"{folder / RESULTS} holds no scores")
    group = row_group(rows[-1])
    scores = [row_score(row, group) for row in rows]
    return TrainedNetwork(rows[-1]["network"], folder, group, scores, *_kept_answers(folder))


def _kept_answers(folder: Path) -> tuple[dict[int, NDArray[np.bool_]], str]:
    """The answers that are kept with a network, and the hash of their data; none where they are of other weights.

    Weights that are there no more are taken for those of the answers.
    """
    records = read_study(folder / ANSWERS, ["seed", "data", "right"])
    for record in records:
        run = seed_folder(folder, record["seed"])
        if RunFolder(run).has_run() and record.get("weights") != weights_digest(checkpoint.load(run)):
            _logger.info("the answers in %s are of other weights than %s has now", folder / ANSWERS, run)
            return {}, ""
    answers = {int(record["seed"]): right_answers(record, TEST) for record in records}
    return answers, str(records[-1]["data"]) if records else ""


def with_answers(network: TrainedNetwork, recipe: Recipe | None = None) -> TrainedNetwork:
    """The same network with its answers, which are computed where they were not kept, and its scores with them.

    Args:
        network: the network.
        recipe: what it was trained by; by default the one that is kept with it, whose seeds alone then count. Where
            there is none, the network is given back as it is.

    Raises:
        RecipeError: it was trained on other data than the recipe's.
        CheckpointError: a checkpoint that is torn.
    """
    if network.answers:
        return network
    runs = {seed: run for run in sorted(network.folder.glob("seed-*/")) if (seed := seed_of(run)) is not None}
    if recipe is None:
        if not (network.folder / RECIPE).is_file():
            return network
        recipe = load_recipe(network.folder / RECIPE)
        own = recipe.seeds or [recipe.training.seed]
        runs = {seed: run for seed, run in runs.items() if seed in own}
    task = recipe.make_task()
    data = task.make_data(recipe.data)
    digest = task.examples(data.forest).digest()
    if recorded_digest(network.folder) not in ("", digest):
        raise RecipeError(f"{network.folder} was trained on other data than those of the recipe")
    evaluations = {
        seed: evaluate(
            checkpoint.load(run),
            data,
            split=TEST,
            batch_size=recipe.training.evaluation_batch_size,
            threads=recipe.training.threads,
            title=f"{network.name}, {run.name}",
        )
        for seed, run in runs.items()
    }
    answers = {seed: found.correct for seed, found in evaluations.items() if found.correct is not None}
    scores = mean_scores([evaluation.scores for evaluation in evaluations.values()])
    return replace(network, scores=scores or network.scores, answers=answers, data=digest)


def compare_networks(first: TrainedNetwork, second: TrainedNetwork) -> Comparison | str:
    """Paired statistics of two networks over the seeds that both have, or why there are none.

    Where they have no seed in common, their seeds are paired in ascending order, as many as both have.
    """
    if not first.answers or not second.answers:
        return "answers to single examples are not known"
    if first.data != second.data:
        return "the networks were tested on different data"
    common = sorted(first.answers.keys() & second.answers.keys())
    ours, theirs = (common or sorted(network.answers) for network in (first, second))
    pairs = list(zip(ours, theirs, strict=False))
    return compare(
        np.stack([first.answers[seed] for seed, _ in pairs]), np.stack([second.answers[seed] for _, seed in pairs])
    )


def check_one_task(networks: Sequence[TrainedNetwork]) -> None:
    """Refuse networks whose scores are told apart by different things.

    Raises:
        RecipeError: it names two of them.
    """
    for network in networks:
        if network.group != networks[0].group:
            raise RecipeError(
                "these networks are of different tasks, or of one whose scores were told apart by different things: "
                f"scores of {networks[0].folder} are by {networks[0].group}, "
                f"those of {network.folder} by {network.group}"
            )


def table_names(networks: Sequence[TrainedNetwork]) -> list[str]:
    """A name for each network that no other one has: with its folder, and a number, where two would have the same."""
    names = [network.name for network in networks]
    placed = [
        f"{network.name} ({network.folder.parent})" if names.count(network.name) > 1 else network.name
        for network in networks
    ]
    return [
        f"{name} {placed[: place + 1].count(name)}" if placed.count(name) > 1 else name
        for place, name in enumerate(placed)
    ]
