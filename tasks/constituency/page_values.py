"""Values of pages of results."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from treemem.explore.tables import markdown_table
from treemem.runs.page_tables import percent

_Records = Sequence[Mapping[str, Any]]


def tree_table(records: _Records, labels: Sequence[str] = ()) -> str:
    """Return the scores of induced trees as a Markdown table: networks, or their layers, and baselines.

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


def scores_by_trees(records: _Records) -> dict[str, list[Mapping[str, Any]]]:
    """Return scores by what made the trees: a network, its layer, or a baseline, of which all records have the same."""
    networks: dict[str, list[Mapping[str, Any]]] = {}
    baselines: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        for score in record["scores"]:
            if score["trees"] == "induced":
                networks.setdefault(record["row"], []).append(score)
            elif score["trees"].startswith("layer"):
                networks.setdefault(f"{record['row']}, {score['trees']}", []).append(score)
            else:
                baselines[score["trees"]] = [score]
    return {**networks, **baselines}
