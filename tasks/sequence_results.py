"""The section of a results page about sequence networks: scores by group, and the trees that they find."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treemem.explore import accuracy_table, markdown_table, percent_of
from treemem.tasks.sequence_study import BASELINES, TREE_FIELDS, TREES, tree_page_name
from treemem.tasks.study_tables import Records, cost, examples_by_group, grouped, mean_over_seeds, overall, percent
from treemem.training import read_study


def sequence_section(records: Records, results: Path, task: str, command: str, group: str, about: str) -> str:
    """What the small recipe of a task came to, as Markdown.

    Args:
        records: of its runs.
        results: folder of the records of trees.
        task: its name.
        command: what makes the page.
        group: what the task calls its groups.
        about: what the data are.

    Raises:
        RecipeError: records of other data.
    """
    examples_by_group(records, "test")
    by_row = grouped(records)
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
    trees = read_study(results / f"{TREES}.jsonl", TREE_FIELDS)
    processes = 2 if all(run["training"].get("threads", 1) == 1 for run in records) else 1
    return f"""## The small recipe

{about} Settings stand in the records; they are those of the recipe `{task}/small` when it was run. Command:
`{command} small --processes {processes}`; {cost(records)}. SHA-256 of trees, labels and splits:
`{records[0]["data"]["hash"]}`.

{markdown_table([["network", "weights", "minutes a run", "validation", "test"], *rows])}

Test accuracy by {group}:

{accuracy_table(scores, group=group)}{_trees_section(trees, task)}"""


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


def _trees_section(trees: Records, task: str) -> str:
    if not trees:
        return ""
    return f"""

### The trees that they find

Unlabelled F1 of the trees found over the test sentences of several words, brackets removed, against the given trees,
beside trivial trees (`random` draws each split uniformly). `corpus` counts spans over all sentences, that of the whole
sentence included, as EVALB does; `sentence` is the mean over sentences without it. Agreement is the mean F1 of the
trees of two seeds against each other.

{tree_table(trees)}{_page_links(trees, task)}"""


def _page_links(trees: Records, task: str) -> str:
    """Where the trees of networks with several runs are drawn."""
    drawn = [record["network"] for record in trees if len(record["weights"]) > 1]
    if not drawn:
        return ""
    links = ", ".join(f"[{name}]({tree_page_name(task, name)})" for name in drawn)
    return f"\n\nSentences whose trees differ from run to run, though every run has the right answer: {links}."


def _found_row(network: str, part: Mapping[str, Any], average: str) -> list[str]:
    found = part[average]
    agreement = "" if found["agreement"] is None else percent_of(found["agreement"])
    return [network, part["group"], str(part["sentences"]), average, percent(list(found["f1"].values())), agreement]
