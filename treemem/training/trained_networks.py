"""Networks that runs left in their folders: scores, and which test examples each seed had right."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from treemem.checkpoint import load
from treemem.errors import RecipeError
from treemem.records import read_records, write_records
from treemem.task import SPLITS, Score, Task, TaskData
from treemem.training.evaluate import evaluate
from treemem.training.metrics import row_group, row_score
from treemem.training.networks_folder import RESULTS, recorded_digest
from treemem.training.paired import Comparison, compare
from treemem.training.recipe_run import RECIPE, write_text
from treemem.training.recipes import Recipe, format_recipe, load_recipe
from treemem.training.seeds import SeedsResult
from treemem.training.state import data_digest
from treemem.training.study import packed_answers, right_answers

_logger = logging.getLogger(__name__)
ANSWERS = "answers.jsonl"
_TEST = SPLITS[2]


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


def record_network(folder: Path, result: SeedsResult, recipe: Recipe, task: Task, data: TaskData) -> None:
    """Keep with a network what its scores do not say: the recipe, and which test examples each seed had right."""
    digest = data_digest(task.examples(data.forest))
    rows = [
        {"seed": seed, "data": digest, "right": {_TEST: packed_answers(evaluation.right)}}
        for seed, evaluation in zip(recipe.seeds or [recipe.training.seed], result.evaluations, strict=True)
    ]
    write_text(folder / RECIPE, format_recipe(recipe))
    write_records(folder / ANSWERS, rows)


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
    answers: dict[int, NDArray[np.bool_]] = {}
    data = ""
    if (folder / ANSWERS).is_file():
        for record in read_records(folder / ANSWERS):
            answers[int(record.fields["seed"])] = right_answers(record.fields, _TEST)
            data = str(record.fields["data"])
    return TrainedNetwork(rows[-1]["network"], folder, group, scores, answers, data)


def with_answers(network: TrainedNetwork, recipe: Recipe | None = None) -> TrainedNetwork:
    """The same network with its answers, which are computed where they were not kept.

    Args:
        network: the network.
        recipe: what it was trained by; by default the one that is kept with it. Where there is none, the network is
            given back as it is.

    Raises:
        RecipeError: it was trained on other data than the recipe's.
        CheckpointError: a checkpoint that is torn.
    """
    if network.answers:
        return network
    if recipe is None:
        if not (network.folder / RECIPE).is_file():
            return network
        recipe = load_recipe(network.folder / RECIPE)
    task = recipe.make_task()
    data = task.make_data(recipe.data)
    digest = data_digest(task.examples(data.forest))
    if recorded_digest(network.folder) not in ("", digest):
        raise RecipeError(f"{network.folder} was trained on other data than those of the recipe")
    answers = {
        int(folder.name.removeprefix("seed-")): evaluate(
            load(folder), data, split=_TEST, title=f"{network.name}, {folder.name}"
        ).right
        for folder in sorted(network.folder.glob("seed-*/"))
    }
    return TrainedNetwork(network.name, network.folder, network.group, network.scores, answers, digest)


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
                f"these networks are of different tasks: scores of {networks[0].folder} are by {networks[0].group}, "
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
