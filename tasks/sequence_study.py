"""The small recipe of a task for all its sequence networks: scores, and the trees that they find."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from treemem.checkpoint import load
from treemem.data.examples import Examples
from treemem.errors import RecipeError
from treemem.induction import (
    RunTrees,
    baseline_trees,
    induced_trees,
    remove_brackets,
    score_runs,
    write_tree_page,
)
from treemem.induction.branching import Branching
from treemem.induction.runs import Average
from treemem.model import Model
from treemem.records import write_records
from treemem.runs import Recipe, StudyRun, load_recipe, read_study, run_study
from treemem.runs.study import weights_digest
from treemem.trees.tree import Tree

STUDY = "small"
TREES = "small-trees"
"""Names of the records of runs, and of the records of the trees that they find."""

TREE_FIELDS = ("network", "weights", "groups")
"""What a record of trees holds."""

BASELINES: tuple[Branching, ...] = ("left", "right", "balanced", "random")
_FINDERS = ("OrderedMemory", "ONLSTM")
_SENTENCES_ON_A_PAGE = 8


def small_recipe(task: str) -> Recipe:
    """The recipe of that name which comes with a task."""
    return load_recipe(f"{task}/{STUDY}")


def small_runs(recipe: Recipe) -> list[StudyRun]:
    """A run for each network of a recipe and each of its seeds, seed by seed."""
    return [
        StudyRun(f"{STUDY}/{name}/seed-{seed}", name, network, dataclasses.replace(recipe.training, seed=seed))
        for seed in recipe.seeds or (recipe.training.seed,)
        for name, network in recipe.networks.items()
    ]


def tree_page_name(task: str, network: str) -> str:
    """The name of the file, beside the page of results, with trees of several runs of a network."""
    return f"{task}_{network.lower().replace(' ', '_')}_trees.html"


def run_small(options: argparse.Namespace, recipe: Recipe, unit: str) -> None:
    """Train and score what was not yet, compare the trees that the networks find, and draw some.

    Args:
        options: of :func:`treemem.tasks.study_command.study_parser`.
        recipe: what to run.
        unit: what the groups of the task count, in the plural.

    Raises:
        RecipeError: trees of all runs of a network are to be compared or drawn, and a recorded one has no folder any
            more, or one of other weights.
    """
    task = recipe.make_task()
    data = task.make_data(recipe.data, progress=False).forest
    folder, runs = options.runs / recipe.task, small_runs(recipe)
    results, path = options.results / f"{STUDY}.jsonl", options.results / f"{TREES}.jsonl"
    finders = [name for name, network in recipe.networks.items() if network.network in _FINDERS]
    found = {record["network"]: record for record in read_study(path, TREE_FIELDS)}
    for name in finders:
        _check_folders([run for run in runs if run.row == name], results, found.get(name), folder)
    records = run_study(task, runs, {"data": data}, folder=folder, results=results, processes=options.processes)
    examples = task.examples(data)
    for name in finders:
        own = {f"seed {record['training']['seed']}": record for record in records if record["row"] == name}
        weights = {run: record["weights"] for run, record in own.items()}
        page = options.page.with_name(tree_page_name(recipe.task, name))
        could_draw = len(own) > 1 and all((folder / record["run"]).exists() for record in own.values())
        if found.get(name, {}).get("weights") == weights and (page.exists() or not could_draw):
            continue
        models = {run: _recorded_model(record, folder, results) for run, record in own.items()}
        trees = {run: found_trees(model, examples) for run, model in models.items()}
        groups = tree_scores(trees, examples, by_training(examples, unit))
        found[name] = {"network": name, "weights": weights, "groups": groups}
        others = [record for other, record in found.items() if other not in finders]
        write_records(path, [*others, *(found[other] for other in finders if other in found)])
        if len(own) > 1:
            _write_trees(page, f"{name} on {recipe.task}", models, trees, examples)


def _check_folders(runs: Sequence[StudyRun], results: Path, trees: Mapping[str, Any] | None, folder: Path) -> None:
    """Refuse, before anything is trained, what would fail when the trees of a network's runs are compared."""
    records = {record["run"]: record for record in read_study(results, ["run", "weights"])}
    recorded = [run for run in runs if run.name in records]
    weights = {f"seed {run.training.seed}": records[run.name]["weights"] for run in recorded}
    if len(recorded) == len(runs) and trees is not None and trees["weights"] == weights:
        return
    lost = [folder / run.name for run in recorded if not (folder / run.name).exists()]
    if lost:
        raise RecipeError(
            f"the trees of all runs of {runs[0].row} are to be compared, and {lost[0]} is gone; bring it back, "
            f"or take its record out of {results}, so that it runs again"
        )
    for run in recorded:
        _recorded_model(records[run.name], folder, results)


def _recorded_model(record: Mapping[str, Any], folder: Path, results: Path) -> Model:
    """The model of a recorded run.

    Raises:
        RecipeError: what lies in its folder has other weights.
    """
    place = folder / record["run"]
    model = load(place)
    if weights_digest(model) != record["weights"]:
        raise RecipeError(
            f"the weights in {place} are not those that {results} has the figures of; bring these back, or move that "
            f"folder away and take the record of {record['run']!r} out, so that it runs again"
        )
    return model


def by_training(examples: Examples, unit: str) -> Callable[[NDArray[np.int64]], NDArray[np.str_]]:
    """Tells groups up to the greatest of a training example from greater ones, and calls them by it.

    Where groups are ranges, called by their ends, what was trained on may end within one; all of that one counts.

    Args:
        examples: of the task.
        unit: what the groups count, in the plural.
    """
    most = int(examples.group[examples.part("train")].max())
    names = np.array([f"at most {most} {unit}", f"more than {most}"])
    return lambda group: names[(group > most).astype(int)]


def tree_scores(
    found: Mapping[str, Sequence[Tree]],
    examples: Examples,
    group_of: Callable[[NDArray[np.int64]], NDArray[np.str_]],
) -> list[dict[str, Any]]:
    """How the trees that runs found over the test sentences compare with the given trees and with each other.

    Each fraction is an F1 of spans: ``corpus`` counts over all sentences, the whole sentence's span included, as EVALB
    does; ``sentence`` is the mean over sentences, without that span.

    Args:
        found: those of :func:`found_trees`, by the names of the runs.
        examples: of the task of the runs.
        group_of: what the sentences are told apart by, from the groups of their examples.

    Returns:
        A record for each of these with ``group``, ``sentences``, and for both averages ``f1`` by run, ``agreement``
        (the mean F1 between two runs; None for one alone) and the F1 of each of ``BASELINES``.
    """
    gold, group = gold_trees(examples)
    called = group_of(group)
    chosen = {str(name): np.flatnonzero(called == name) for name in np.unique(called)}
    return [_group_record(name, gold, found, places) for name, places in chosen.items()]


def _group_record(
    name: str, gold: Sequence[Tree], runs: Mapping[str, Sequence[Tree]], places: NDArray[np.int64]
) -> dict[str, Any]:
    own = [gold[place] for place in places]
    of_runs = {run: [trees[place] for place in places] for run, trees in runs.items()}
    words = [[leaf.label for leaf in tree.leaves()] for tree in own]
    record: dict[str, Any] = {"group": name, "sentences": len(own)}
    baselines: dict[str, Sequence[Tree]] = {branching: baseline_trees(words, branching) for branching in BASELINES}
    for average in get_args(Average):
        scores = score_runs(own, of_runs, average=average)
        of_baselines = score_runs(own, baselines, average=average)
        record[average] = {
            "f1": {run: score.f1 for run, score in scores.of_run.items()},
            "agreement": scores.agreement.mean if len(runs) > 1 else None,
            **{branching: score.f1 for branching, score in of_baselines.of_run.items()},
        }
    return record


def gold_trees(examples: Examples) -> tuple[list[Tree], NDArray[np.int64]]:
    """The test trees of several words, and the group of each."""
    trees, group = _test_trees(examples)
    several = [place for place, tree in enumerate(trees) if tree.children]
    return [trees[place] for place in several], group[several]


def found_trees(model: Model, examples: Examples) -> list[Tree]:
    """The trees that a model finds over the sentences of :func:`gold_trees`, without brackets."""
    gold, _ = gold_trees(examples)
    return [remove_brackets(tree) for tree in induced_trees(model.encoder, gold)]  # type: ignore[arg-type]


def _test_trees(examples: Examples) -> tuple[list[Tree], NDArray[np.int64]]:
    chosen = examples.part("test")
    count = examples.trees_per_example
    trees = (chosen[:, None] * count + np.arange(count)).ravel()
    return list(examples.forest[trees]), np.repeat(examples.group[chosen], count)


def _write_trees(
    page: Path, title: str, models: Mapping[str, Model], found: Mapping[str, Sequence[Tree]], examples: Examples
) -> None:
    """Draw some test sentences whose trees differ though every run is right."""
    chosen = examples.part("test")
    all_trees, _ = _test_trees(examples)
    several = np.array([bool(tree.children) for tree in all_trees])
    runs = {}
    for name, model in models.items():
        right = model.task.correct(model.outputs(examples, chosen), examples.targets_of(chosen))
        of_tree = np.repeat(right, examples.trees_per_example)[several]
        runs[name] = RunTrees(found[name], of_tree.tolist())
    gold, _ = gold_trees(examples)
    write_tree_page(page, gold, runs, title=title, most=_SENTENCES_ON_A_PAGE, overwrite=True)
