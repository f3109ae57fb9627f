"""Pieces of results pages: what records of runs say, in cells and tables."""

from __future__ import annotations

from collections.abc import Mapping

from treemem.explore import accuracy_table, markdown_table
from treemem.runs import right_answers
from treemem.tasks.equation_verification.error_analysis import equation_groups, error_rates
from treemem.tasks.study_tables import Records, mean_over_seeds, metric_cells, percent
from treemem.trees.forest import Forest

COMMAND = "python -m treemem.tasks.equation_verification.reproduce"
FILES = "--dev published_dev.jsonl --sample published_sample.jsonl"
METRICS = ("accuracy", "precision", "recall")


def errors_by_kind(by_row: Mapping[str, Records], test: Forest) -> str:
    """One table: a line for each kind of equation, a column for each network."""
    rows = []
    for way, groups in equation_groups(test).items():
        rates = {
            name: error_rates(groups, [right_answers(run, "test") for run in runs]) for name, runs in by_row.items()
        }
        rows.append([f"_{way}_", *[""] * (len(by_row) + 1)])
        for group, members in groups.items():
            rows.append([group, str(members.sum()), *(percent(rates[name][group]) for name in by_row)])
    return markdown_table([["kind", "equations", *by_row], *rows])


def published_files(by_row: Mapping[str, Records]) -> str:
    """Accuracy on the published files, where they were scored."""
    names = list(dict.fromkeys(name for runs in by_row.values() for run in runs for name in run["scores"]))
    parts = []
    if "published_dev" in names:
        scored = {row: runs for row, runs in by_row.items() if all("published_dev" in run["scores"] for run in runs)}
        rows = [[row, *metric_cells(runs, "published_dev", METRICS)] for row, runs in scored.items()]
        parts.append(
            "Sound equations of the published set and their one-edit neighbours (`published_dev.jsonl`, a file that is "
            "not part of the repository):\n\n"
            f"{markdown_table([['network', *METRICS], *rows])}"
            "\n\nBy depth:\n\n"
            f"{accuracy_table({row: mean_over_seeds(runs, 'published_dev') for row, runs in scored.items()})}"
        )
    held = [name for name in names if name.startswith("published_sample")]
    if held:
        rows = [
            [row, *(cell for name in held for cell in metric_cells(runs, name, METRICS[:1]))]
            for row, runs in by_row.items()
        ]
        parts.append(
            "Published test equations labelled true (`published_sample.jsonl`) that were called true, by whether they "
            "hold at all real points, some or none:\n\n"
            f"{markdown_table([['network', *(name.split(', ')[1] for name in held)], *rows])}"
        )
    return "\n\n".join(parts) if parts else "They were not there to be scored."
