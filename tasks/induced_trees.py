"""The trees that sequence networks induce: F1 against gold trees and between seeds, as a measurement of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.checkpoint import load
from treemem.checkpoint.run_folder import RunFolder
from treemem.data.examples import Examples
from treemem.induction import RunTrees, baseline_trees, remove_brackets, score_runs, write_tree_page
from treemem.induction import induced_trees as trees_of_encoder
from treemem.induction.branching import Branching
from treemem.induction.runs import Average
from treemem.model import Model
from treemem.networks.parsers.ordered_memory.layer import OrderedMemory
from treemem.runs.page_tables import tree_page_name
from treemem.runs.study import recorded_model
from treemem.runs.study_file_run import StudyResults
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tree import Tree

BASELINES: tuple[Branching, ...] = ("left", "right", "balanced", "random")
_SENTENCES_ON_A_PAGE = 8


def tree_records(done: StudyResults, before: Sequence[dict[str, Any]], *, unit: str) -> Iterator[dict[str, Any]]:
    """Yield a record for each network that induces trees, if there is none with the weights of its runs.

    A record has the fields ``network``, ``weights`` (hashes by run) and ``groups`` (of :func:`tree_scores`). Trees of
    several runs of a network are drawn on a page beside the page of results.

    Args:
        done: the study.
        before: the records so far.
        unit: what the groups of the task count, in the plural.

    Raises:
        RecipeError: the folder of a run is gone, or has other weights than its record.
    """
    known = {record["network"]: record["weights"] for record in before}
    rows = {run.row: run for run in done.runs if getattr(run.network.constructor(), "can_induce_trees", False)}
    examples: dict[str, Examples] = {}
    for name, run in rows.items():
        records = {f"seed {record['training']['seed']}": record for record in done.records if record["row"] == name}
        weights = {seed: record["weights"] for seed, record in records.items()}
        if known.get(name) == weights:
            continue
        models = {seed: recorded_model(done.folder, record) for seed, record in records.items()}
        if run.data not in examples:
            examples[run.data] = (run.task or done.task).examples(done.data[run.data])
        own_examples = examples[run.data]
        trees = {seed: found_trees(model, own_examples) for seed, model in models.items()}
        if len(records) > 1:
            page = done.page.with_name(tree_page_name(done.study.folder.task.name, done.study.name, name))
            _write_trees(page, f"{name} on {done.study.folder.name}", models, trees, own_examples)
        groups = tree_scores(trees, own_examples, by_training(own_examples, unit))
        yield {"network": name, "weights": weights, "groups": groups}


def growth_records(
    done: StudyResults, before: Sequence[dict[str, Any]], *, sentences: int = 1000
) -> Iterator[dict[str, Any]]:
    """Yield a record for each run with ``keep_epochs``: how its trees of the first validation sentences form.

    A record has ``run``, ``row``, ``training``, ``weights`` and ``epochs``. An epoch has ``f1``, that of the corpus
    against gold trees; ``right``, that against right-branching trees; and, for Ordered Memory, ``sharpness``, the mean
    probability of the attended slot.

    Args:
        done: the study.
        before: the records so far.
        sentences: how many trees.
    """
    for run, first in done.unmeasured(before):
        gold, _ = gold_trees((run.task or done.task).examples(done.data[run.data]), "validation")
        models = {epoch: load(place) for epoch, place in RunFolder(done.folder / run.name).epochs().items()}
        epochs = [{"epoch": epoch, **_growth(model, gold[:sentences])} for epoch, model in models.items()]
        yield {**first, "epochs": epochs}


def _growth(model: Model, gold: Sequence[Tree]) -> dict[str, float]:
    trees = {"run": [remove_brackets(tree) for tree in trees_of_encoder(model.encoder, gold)]}
    right = baseline_trees([[leaf.label for leaf in tree.leaves()] for tree in gold], "right")
    f1, to_right = (score_runs(reference, trees, average="corpus").of_run["run"].f1 for reference in (gold, right))
    scores = {"f1": round(f1, 4), "right": round(to_right, 4)}
    if isinstance(model.encoder, OrderedMemory):
        with torch.no_grad():
            batches = (TreeBatch.from_trees(gold[at : at + 256], model.vocabulary) for at in range(0, len(gold), 256))
            most = torch.cat([model.encoder(batch, trace=True).trace["pointers"].amax(2).ravel() for batch in batches])
        scores["sharpness"] = round(float(most[most > 0].mean()), 4)
    return scores


def by_training(examples: Examples, unit: str) -> Callable[[NDArray[np.int64]], NDArray[np.str_]]:
    """Return a function that tells groups up to the greatest training group from greater ones, and names them."""
    most = int(examples.group[examples.part("train")].max())
    names = np.array([f"at most {most} {unit}", f"more than {most}"])
    return lambda group: names[(group > most).astype(int)]


def tree_scores(
    trees: Mapping[str, Sequence[Tree]],
    examples: Examples,
    group_of: Callable[[NDArray[np.int64]], NDArray[np.str_]],
) -> list[dict[str, Any]]:
    """Return how the induced trees of the test sentences agree with the gold trees and with each other.

    Each fraction is an F1 of spans: ``corpus`` counts over all sentences, including the span of the whole sentence, as
    EVALB does; ``sentence`` is the mean over sentences, without that span.

    Args:
        found: those of :func:`found_trees`, by the names of the runs.
        examples: of the task of the runs.
        group_of: the name of the group of each sentence, from the groups of their examples.

    Returns:
        A record for each group with ``group``, ``sentences``, and for both averages ``f1`` by run, ``agreement`` (the
        mean F1 between two runs; None if there is one run) and the F1 of each of ``BASELINES``.
    """
    gold, group = gold_trees(examples)
    called = group_of(group)
    chosen = {str(name): np.flatnonzero(called == name) for name in np.unique(called)}
    return [_group_record(name, gold, trees, places) for name, places in chosen.items()]


def _group_record(
    name: str, gold: Sequence[Tree], runs: Mapping[str, Sequence[Tree]], places: NDArray[np.int64]
) -> dict[str, Any]:
    gold_trees = [gold[place] for place in places]
    of_runs = {run: [trees[place] for place in places] for run, trees in runs.items()}
    words = [[leaf.label for leaf in tree.leaves()] for tree in gold_trees]
    record: dict[str, Any] = {"group": name, "sentences": len(gold_trees)}
    baselines: dict[str, Sequence[Tree]] = {branching: baseline_trees(words, branching) for branching in BASELINES}
    for average in get_args(Average):
        scores = score_runs(gold_trees, of_runs, average=average)
        of_baselines = score_runs(gold_trees, baselines, average=average)
        record[average] = {
            "f1": {run: score.f1 for run, score in scores.of_run.items()},
            "agreement": scores.agreement.mean if len(runs) > 1 else None,
            **{branching: score.f1 for branching, score in of_baselines.of_run.items()},
        }
    return record


def gold_trees(examples: Examples, split: str = "test") -> tuple[list[Tree], NDArray[np.int64]]:
    """Return the trees of a split that have several words, and the group of each."""
    trees, group = _trees_of(examples, split)
    several = [place for place, tree in enumerate(trees) if tree.children]
    return [trees[place] for place in several], group[several]


def found_trees(model: Model, examples: Examples) -> list[Tree]:
    """Return the trees that a model induces over the sentences of :func:`gold_trees`, without brackets."""
    gold, _ = gold_trees(examples)
    return [remove_brackets(tree) for tree in trees_of_encoder(model.encoder, gold)]


def _trees_of(examples: Examples, split: str) -> tuple[list[Tree], NDArray[np.int64]]:
    chosen = examples.part(split)
    count = examples.trees_per_example
    trees = (chosen[:, None] * count + np.arange(count)).ravel()
    return list(examples.forest[trees]), np.repeat(examples.group[chosen], count)


def _write_trees(
    page: Path, title: str, models: Mapping[str, Model], trees: Mapping[str, Sequence[Tree]], examples: Examples
) -> None:
    """Draw some test sentences whose trees differ though every run answers correctly."""
    chosen = examples.part("test")
    all_trees, _ = _trees_of(examples, "test")
    several = np.array([bool(tree.children) for tree in all_trees])
    runs = {}
    for name, model in models.items():
        correct = model.task.correct(model.outputs(examples, chosen), examples.targets_of(chosen))
        assert correct is not None
        of_tree = np.repeat(correct, examples.trees_per_example)[several]
        runs[name] = RunTrees(trees[name], of_tree.tolist())
    gold, _ = gold_trees(examples)
    write_tree_page(page, gold, runs, title=title, most=_SENTENCES_ON_A_PAGE, overwrite=True)
