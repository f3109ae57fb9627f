"""Values of pages of results."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from treemem.explore.tables import markdown_table
from treemem.runs.page_tables import percent, seed_of_record
from treemem.tasks.constituency.evaluation import BASELINE_NAMES
from treemem.tasks.constituency.published import HEAD, LABELS
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.tree import Tree

_Records = Sequence[Mapping[str, Any]]


def tree_table(records: _Records, labels: Sequence[str] = ()) -> str:
    """Return the scores of induced trees as a Markdown table: networks, their layers or controls, and baselines.

    Args:
        records: of :func:`~treemem.tasks.constituency.study.tree_records`, all of the same sentences.
        labels: of gold constituents whose recall the table has.
    """
    rows = [["trees", "sentence F1", "corpus F1", "depth", *labels]]
    for name, scores in scores_by_trees(records).items():
        f1 = [percent(score[metric] for score in scores) for metric in ("sentence_f1", "corpus_f1")]
        depth = f"{statistics.fmean(score['depth'] for score in scores):.1f}"
        rows.append([name, *f1, depth, *(percent(score["recall"][label] for score in scores) for label in labels)])
    return markdown_table(rows)


def parser_table(of_short: _Records, of_all: _Records) -> str:
    """Return the sentence F1 of induced trees and of baselines as a Markdown table, in the form of the published one.

    Args:
        of_short, of_all: of :func:`~treemem.tasks.constituency.study.tree_records`, of sentences of at most 10 words
            and of all.
    """
    short, rows = scores_by_trees(of_short), [list(HEAD)]
    for name, scores in scores_by_trees(of_all).items():
        f1 = [[score["sentence_f1"] for score in part] for part in (short.get(name, []), scores)]
        cells = [cell for part in f1 for cell in (percent(part), f"{100 * max(part):.1f}" if part else "")]
        depth = f"{statistics.fmean(score['depth'] for score in scores):.1f}"
        recall = [[score["recall"][label] for score in scores if label in score["recall"]] for label in LABELS]
        rows.append([name, *cells, depth, *map(percent, recall)])
    return markdown_table(rows)


def trees_of_examples(records: _Records) -> dict[str, list[Tree]]:
    """Return the trees of the example sentences by what made them, from records of one network.

    Args:
        records: of :func:`~treemem.tasks.constituency.study.example_records`.
    """
    return {
        f"seed {seed_of_record(record)}" + (f", {name}" if name != "induced" else ""): [*map(parse_brackets, texts)]
        for record in records
        for name, texts in record["trees"].items()
    }


def scores_by_trees(records: _Records) -> dict[str, list[Mapping[str, Any]]]:
    """Return scores by what made the trees: a network, its layer, or a baseline, of which all records have the same."""
    networks: dict[str, list[Mapping[str, Any]]] = {}
    baselines: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        for score in record["scores"]:
            trees = score["trees"]
            if trees in BASELINE_NAMES:
                baselines[trees] = [score]
            else:
                name = record["row"] if trees == "induced" else f"{record['row']}, {trees}"
                networks.setdefault(name, []).append(score)
    return {**networks, **baselines}
