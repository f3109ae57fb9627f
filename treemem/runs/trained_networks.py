"""Networks of finished runs: their scores, and which test examples each seed has correct."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from treemem import checkpoint
from treemem.checkpoint.run_folder import RunFolder
from treemem.errors import RecipeError
from treemem.metrics.paired import Comparison, compare
from treemem.metrics.score import Score, row_group, row_score
from treemem.model_digest import weights_digest
from treemem.records import read_records
from treemem.runs.network_folder import ANSWERS, RESULTS, TEST, read_recipe
from treemem.runs.run import seed_folder
from treemem.runs.study_records import read_study, right_answers
from treemem.task import TASKS, Task

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainedNetwork:
    """A network of a run, trained from one or several seeds.

    Attributes:
        name: in its run.
        folder: of the network.
        group: what its task groups scores by.
        scores: on the test split, means over the seeds.
        answers: for each seed which test examples are correct, bool ``[examples]``; empty if they are not recorded.
        data: the hash of the data of the answers.
    """

    name: str
    folder: Path
    group: str
    scores: list[Score]
    answers: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    data: str = ""


def networks_of_run(run: str | Path) -> list[TrainedNetwork]:
    """Return the networks of a run in the order of its results, or the network of a network's folder.

    Raises:
        RecipeError: there is no such folder, or it holds no scored network.
        ParseError: a file of results is damaged.
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


def task_of(network: TrainedNetwork) -> Task | None:
    """Return the task of a network; None if no recipe beside the network names it."""
    recipe = read_recipe(network.folder)
    return None if recipe is None else TASKS.find(recipe["task"])(**(recipe["task_options"] or {}))


def _kept_answers(folder: Path) -> tuple[dict[int, NDArray[np.bool_]], str]:
    """Return the recorded answers of a network and the hash of their data; nothing if its weights have changed."""
    records = [record for record in read_study(folder / ANSWERS, ["seed", "data", "right"]) if record["right"]]
    for record in records:
        run = seed_folder(folder, record["seed"])
        if RunFolder(run).has_run() and record.get("weights") != weights_digest(checkpoint.load(run)):
            _logger.info("the answers in %s are of other weights than %s has now", folder / ANSWERS, run)
            return {}, ""
    answers = {int(record["seed"]): right_answers(record, TEST) for record in records if record["right"]}
    return answers, str(records[-1]["data"]) if records else ""


def compare_networks(first: TrainedNetwork, second: TrainedNetwork) -> Comparison | str:
    """Return paired statistics over the pairs of :func:`paired_seeds`, or why there are none."""
    if not first.answers or not second.answers:
        return "answers to single examples are not known"
    if first.data != second.data:
        return "the networks were tested on different data"
    pairs = paired_seeds(first, second)
    return compare(
        np.stack([first.answers[seed] for seed, _ in pairs]), np.stack([second.answers[seed] for _, seed in pairs])
    )


def paired_seeds(first: TrainedNetwork, second: TrainedNetwork) -> list[tuple[int, int]]:
    """Return the common seeds of two networks, each with itself; without one, pairs in ascending order."""
    common = sorted(first.answers.keys() & second.answers.keys())
    ours, theirs = (common or sorted(network.answers) for network in (first, second))
    return list(zip(ours, theirs, strict=False))


def check_one_task(networks: Sequence[TrainedNetwork]) -> None:
    """Check that the scores of all networks are grouped by the same thing.

    Raises:
        RecipeError: they are not.
    """
    for network in networks:
        if network.group != networks[0].group:
            raise RecipeError(
                "these networks are of different tasks, or of one whose scores were told apart by different things: "
                f"scores of {networks[0].folder} are by {networks[0].group}, "
                f"those of {network.folder} by {network.group}"
            )


def table_names(networks: Sequence[TrainedNetwork]) -> list[str]:
    """Return a distinct name for each network, with its folder and a number if needed."""
    names = [network.name for network in networks]
    placed = [
        f"{network.name} ({network.folder.parent})" if names.count(network.name) > 1 else network.name
        for network in networks
    ]
    return [
        f"{name} {placed[: place + 1].count(name)}" if placed.count(name) > 1 else name
        for place, name in enumerate(placed)
    ]
