"""The section of a results page about sequence networks: scores by group, and the trees that they find."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treemem.explore import accuracy_table, markdown_table, percent_of
from treemem.runs import read_study
from treemem.task import Task
from treemem.tasks.sequence_study import BASELINES, TREE_FIELDS, TREES, tree_page_name
from treemem.tasks.study_tables import (
    Records,
    common_training,
    cost,
    examples_by_group,
    mean_over_seeds,
    overall,
    percent,
    rows_of_networks,
    training_seed,
)


def sequence_section(records: Records, results: Path, pages: Path, task: type[Task], command: str, about: str) -> str:
    """What the small recipe of a task came to, as Markdown.

    Trees that are not those of all runs of a network, with the weights that these have, are left out, as are links to
    pages of trees that are not there.

    Args:
        records: of its runs.
        results: folder of the records of trees.
        pages: folder of the pages of trees, in which this one is.
        task: what was learnt.
        command: what makes the page.
        about: what the data are.

    Raises:
        RecipeError: records of other data, of training with other options, or of other networks in one row.
    """
    examples_by_group(records, "test")
    training, by_row = common_training(records), rows_of_networks(records, task)
    scores = {name: mean_over_seeds(runs, "test") for name, runs in by_row.items()}
    rows = [
        [
            name,
            f"{runs[0]['parameters']:,}",
            f"{statistics.fmean(run['seconds'] for run in runs) / 60:.1f}",
            percent([overall(run, "validation").accuracy for run in runs]),
            percent([overall(run, "test").accuracy for run in runs]),
        ]
        for name, runs in by_row.items()
    ]
    processes = 2 if training["threads"] == 1 else 1
    return f"""## The small recipe

{about} Settings stand in the records; they are those of the recipe `{task.name}/small` when it was run. Command:
`{command} small --processes {processes}`; {cost(records)}. SHA-256 of trees, labels and splits:
`{records[0]["data"]["hash"]}`.

{markdown_table([["network", "weights", "minutes a run", "validation", "test"], *rows])}

Test accuracy by {task.group}:

{accuracy_table(scores, group=task.group)}{_trees_section(_trees_of(by_row, results), pages, task.name)}"""


def tree_table(trees: Records) -> str:
    """The F1 of the trees that networks found, and of trivial ones, as a Markdown table.

    Args:
        trees: a record for each network, at least one: ``network``, its name, and ``groups``, which are those of
            :func:`treemem.tasks.sequence_study.tree_scores`.
    """
    rows = []
    for place, part in enumerate(trees[0]["groups"]):
        for average in ("corpus", "sentence"):
            for record in trees:
                rows.append(_found_row(record["network"], record["groups"][place], average))
            cells = [percent_of(part[average][branching]) for branching in BASELINES]
            for branching, cell in zip(BASELINES, cells, strict=True):
                rows.append([f"_{branching}_", part["group"], str(part["sentences"]), average, cell, ""])
    return markdown_table([["trees", "sentences", "number", "average", "F1", "agreement between seeds"], *rows])


def _trees_of(by_row: Mapping[str, Records], results: Path) -> Records:
    """The records of trees that all runs of a network found, with the weights that these runs have."""
    weights = {name: {f"seed {training_seed(run)}": run["weights"] for run in runs} for name, runs in by_row.items()}
    trees = read_study(results / f"{TREES}.jsonl", TREE_FIELDS)
    return [record for record in trees if record["weights"] == weights.get(record["network"])]


def _trees_section(trees: Records, pages: Path, task: str) -> str:
    if not trees:
        return ""
    return f"""

### The trees that they find

Unlabelled F1 of the trees found over the test sentences of several words, brackets removed, against the given trees,
beside trivial trees (`random` draws each split uniformly). `corpus` counts spans over all sentences, that of the whole
sentence included, as EVALB does; `sentence` is the mean over sentences without it. Agreement is the mean F1 of the
trees of two seeds against each other.

{tree_table(trees)}{_page_links(trees, pages, task)}"""


def _page_links(trees: Records, pages: Path, task: str) -> str:
    """Where the trees of networks with several runs are drawn, as far as they are."""
    names = [record["network"] for record in trees if len(record["weights"]) > 1]
    drawn = {name: tree_page_name(task, name) for name in names}
    links = ", ".join(f"[{name}]({page})" for name, page in drawn.items() if (pages / page).exists())
    if not links:
        return ""
    return f"\n\nSentences whose trees differ from run to run, though every run has the right answer: {links}."


def _found_row(network: str, part: Mapping[str, Any], average: str) -> list[str]:
    found = part[average]
    agreement = "" if found["agreement"] is None else percent_of(found["agreement"])
    return [network, part["group"], str(part["sentences"]), average, percent(list(found["f1"].values())), agreement]
