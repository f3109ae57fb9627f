"""The page of results: every table beside its published twin, made from the records of the runs alone."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from treemem.explore import accuracy_table, plot_accuracy
from treemem.records import replacing
from treemem.task import Score
from treemem.tasks.equation_verification.published import PUBLISHED_FIGURES, SOURCE
from treemem.tasks.equation_verification.studies import PUBLISHED_TRAINING, RATES, SHARES, SIZE, TABLE_2
from treemem.training import compare, mean_scores, read_study, right_answers, row_score

_METRICS = ("accuracy", "precision", "recall")
_COMMAND = "python -m treemem.tasks.equation_verification.reproduce"
_FILES = "--dev published_dev.jsonl --sample published_sample.jsonl"
Records = list[dict[str, Any]]


def write_page(results: Path, page: Path) -> None:
    """Write the page, and its plots beside it, from the records of the studies in ``results`` that there are."""
    studies = {
        name: read_study(results / f"{name}.jsonl") for name in ("rates", "table-2", "sample-efficiency", "ablation")
    }
    parts = ["# Equation verification", _introduction(studies)]
    makers = {
        "rates": _rates,
        "table-2": lambda records: _table_2(records, page),
        "sample-efficiency": lambda records: _sample_efficiency(records, studies["table-2"], page),
        "ablation": lambda records: _ablation(records, studies["table-2"]),
    }
    parts += [make(studies[name]) for name, make in makers.items() if studies[name]]
    with replacing(page) as temporary:
        temporary.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _introduction(studies: Mapping[str, Records]) -> str:
    hashes = {record["data"]["hash"] for name in ("rates", "table-2") for record in studies[name]}
    shown = ", ".join(f"`{each}`" for each in sorted(hashes)) or "-"
    return f"""Networks over the two sides of an equation say whether it is true. They learn from equations of depth 1-7
and are tested on depth 8-13. The equations are {SIZE:,} generated ones with the counts by depth and truth of the
published set (SHA-256 of trees, labels and splits: {shown}), not the published ones, a quarter
of whose true test equations do not hold at every real point. Published figures are those of {SOURCE},
on the published set: they stand beside ours, and are of other test equations.

Every number here comes from the records in `docs/results/equation_verification/*.jsonl`, each of a run with its
options, its seconds and its answers; `{_COMMAND}` writes this page from them. Accuracies are percent, mean ± deviation
over seeds; without a deviation, of one seed.
Each run keeps the epoch with the best validation accuracy; the test equations were scored once, with that
epoch."""


def _rates(records: Records) -> str:
    rows = [f"| network | {' | '.join(f'rate {rate}' for rate in RATES)} |", "|---|" + "---:|" * len(RATES)]
    totals: dict[float, list[float]] = {rate: [] for rate in RATES}
    for name in TABLE_2:
        cells = []
        for rate in RATES:
            found = [
                _overall(record, "validation").accuracy for record in records if record["row"] == f"{name}, rate {rate}"
            ]
            totals[rate] += found
            cells.append(_percent(found))
        rows.append(f"| {name} | {' | '.join(cells)} |")
    rows.append(f"| mean | {' | '.join(_percent([statistics.fmean(totals[rate])]) for rate in RATES)} |")
    training = PUBLISHED_TRAINING
    return f"""## The rate

Published runs took a step for each equation at a rate of 0.001. A step here takes a batch of {training.batch_size}, so
that the rate was chosen anew, one for all networks, by validation accuracy after at most 20 epochs of one seed. All
further runs have {training.learning_rate}. Command: `{_COMMAND} rates`; {_cost(records)}.

{chr(10).join(rows)}"""


def _table_2(records: Records, page: Path) -> str:
    by_row = _by_row(records)
    figures = {(each.network, each.split, each.metric): each for each in PUBLISHED_FIGURES}
    columns = [
        (split, metric) for split in ("train", "validation", "test") for metric in ("accuracy", "precision", "recall")
    ]
    head = "| network | " + " | ".join(f"{split} {metric}" for split, metric in columns) + " |"
    rows = [head, "|---|" + "---:|" * len(columns)]
    first = records[0]
    majority = [
        f"{100 * _overall(first, split).majority:.2f}" if metric == "accuracy" else "" for split, metric in columns
    ]
    rows.append("| majority class | " + " | ".join(majority) + " |")
    for name, runs in by_row.items():
        cells = [_percent([getattr(_overall(run, split), metric) for run in runs]) for split, metric in columns]
        rows.append(f"| {name} | {' | '.join(cells)} |")
        published = [figures.get((name, *column)) for column in columns]
        cells = ["" if each is None else _percent_of(each.value, each.deviation) for each in published]
        rows.append(f"| _published_ | {' | '.join(cells)} |")
    scores = {name: _mean(runs, "test") for name, runs in by_row.items()}
    plot = page.with_name("equation_verification_by_depth.svg")
    plot_accuracy(scores, plot, PUBLISHED_FIGURES, title="Equation verification, trained on depth 1-7")
    training = PUBLISHED_TRAINING
    return f"""## Table 2: seven networks

Hidden size 50, stacks of 5 rows, the top row read; Adam with 1e-5 of L2, batches of {training.batch_size}, rate
{training.learning_rate}, {training.epochs} epochs.
Command: `{_COMMAND} table-2 {_FILES} --processes 2`; {_cost(records)}.

{chr(10).join(rows)}

### By depth (figure 5)

{accuracy_table(scores, PUBLISHED_FIGURES)}

![Accuracy by depth]({plot.name})

### Against Tree-LSTM, example by example

The difference of accuracies on the test equations and its 95 % interval by bootstrap over the equations, the seeds
taken together; and McNemar's exact test for each seed.

{_comparisons(by_row, "Tree-LSTM", "test")}

### On published equations

{_files(by_row)}"""


def _files(by_row: Mapping[str, Records]) -> str:
    """Accuracy on the published files, where they were scored."""
    names = [name for name in next(iter(by_row.values()))[0]["scores"] if name.startswith("published")]
    if not names:
        return "They were not there to be scored."
    parts = []
    for file in names:
        if file == "published_dev":
            scores = {row: _mean(runs, file) for row, runs in by_row.items()}
            overall = ["| network | accuracy | precision | recall |", "|---|---:|---:|---:|"]
            for row, runs in by_row.items():
                found = [_overall(run, file) for run in runs]
                cells = [
                    _percent([getattr(each, metric) for each in found])
                    for metric in ("accuracy", "precision", "recall")
                ]
                overall.append(f"| {row} | {' | '.join(cells)} |")
            parts.append(
                "Sound equations of the published set and their one-edit neighbours (`published_dev.jsonl`):\n\n"
                f"{chr(10).join(overall)}\n\nBy depth:\n\n{accuracy_table(scores)}"
            )
    held = [name for name in names if name.startswith("published_sample")]
    if held:
        rows = [f"| network | {' | '.join(name.split(', ')[1] for name in held)} |", "|---|" + "---:|" * len(held)]
        for row, runs in by_row.items():
            cells = [_percent([_overall(run, name).accuracy for run in runs]) for name in held]
            rows.append(f"| {row} | {' | '.join(cells)} |")
        parts.append(
            "Published test equations labelled true (`published_sample.jsonl`) that were called true, by whether they "
            f"hold at all real points, some or none:\n\n{chr(10).join(rows)}"
        )
    return "\n\n".join(parts)


def _sample_efficiency(records: Records, whole: Records, page: Path) -> str:
    networks = ("Tree-LSTM", "Tree-LSTM+stack+normalize+no-op")
    by_row = _by_row([*records, *whole])
    head = "| network | " + " | ".join(f"{share} %" for share in SHARES) + " |"
    rows = [head, "|---|" + "---:|" * len(SHARES)]
    scores: dict[str, list[Score]] = {}
    for name in networks:
        cells = []
        for share in SHARES:
            runs = by_row.get(name if share == 100 else f"{name}, {share} %", [])
            cells.append(_percent([_overall(run, "test").accuracy for run in runs]) if runs else "")
            if runs:
                mean = _mean(runs, "test")[-1]
                scores.setdefault(name, []).append(
                    Score(share, mean.examples, mean.accuracy, mean.majority, deviation=mean.deviation)
                )
        rows.append(f"| {name} | {' | '.join(cells)} |")
    plot = page.with_name("equation_verification_sample_efficiency.svg")
    plot_accuracy(scores, plot, group="percent of the training equations", title="Accuracy on depth 8-13")
    return f"""## Sample efficiency (figure 6)

Test accuracy, all depths, of networks trained on a part of the training equations; a smaller part is within each
larger one. Command: `{_COMMAND} sample-efficiency {_FILES} --processes 2`; {_cost(records)}.

{chr(10).join(rows)}

![Accuracy by percent of the training equations]({plot.name})"""


def _ablation(records: Records, whole: Records) -> str:
    by_row = _by_row([*whole, *records])
    rows = ["| network | validation accuracy | test accuracy |", "|---|---:|---:|"]
    for name, runs in by_row.items():
        cells = [_percent([_overall(run, split).accuracy for run in runs]) for split in ("validation", "test")]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return f"""## Ablation

One choice at a time changed. Command: `{_COMMAND} ablation {_FILES} --processes 2`; {_cost(records)}.

{chr(10).join(rows)}"""


def _comparisons(by_row: Mapping[str, Records], base: str, split: str) -> str:
    rows = ["| network | difference, points | 95 % interval | right alone | wrong alone | McNemar's p by seed |"]
    rows.append("|---|---:|---:|---:|---:|---|")
    theirs = {run["training"]["seed"]: right_answers(run, split) for run in by_row.get(base, [])}
    for name, runs in by_row.items():
        own = {run["training"]["seed"]: right_answers(run, split) for run in runs}
        seeds = sorted(own.keys() & theirs.keys())
        if name == base or not seeds:
            continue
        found = compare(np.stack([own[seed] for seed in seeds]), np.stack([theirs[seed] for seed in seeds]))
        low, high = (100 * bound for bound in found.interval)
        p_values = ", ".join(f"{value:.2g}" for value in found.p_values)
        rows.append(
            f"| {name} | {100 * found.difference:+.2f} | {low:+.2f} to {high:+.2f} "
            f"| {found.only_first} | {found.only_second} | {p_values} |"
        )
    return "\n".join(rows)


def _by_row(records: Records) -> dict[str, Records]:
    found: dict[str, Records] = {}
    for record in records:
        found.setdefault(record["row"], []).append(record)
    return found


def _scores(record: Mapping[str, Any], part: str) -> list[Score]:
    return [row_score(row, "depth") for row in record["scores"][part]]


def _overall(record: Mapping[str, Any], part: str) -> Score:
    return _scores(record, part)[-1]


def _mean(runs: Records, part: str) -> list[Score]:
    return mean_scores([_scores(run, part) for run in runs])


def _percent(values: Sequence[float]) -> str:
    return _percent_of(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def _percent_of(value: float, deviation: float | None) -> str:
    return f"{100 * value:.2f}" + ("" if deviation is None else f" ± {100 * deviation:.2f}")


def _cost(records: Records) -> str:
    """How many runs, and how long they took."""
    seconds = sum(record["seconds"] for record in records)
    seeds = sorted({record["training"]["seed"] for record in records})
    hours = f"{seconds / 3600:.1f} hours of training by the clock, all runs added up"
    return f"{len(records)} runs of the seeds {', '.join(map(str, seeds))}, {hours}"
