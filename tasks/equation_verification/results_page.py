"""The page of results: every table beside its published twin, made from the records of the runs alone."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from pathlib import Path

from treemem.errors import RecipeError
from treemem.explore import accuracy_table, markdown_table, percent_of, plot_accuracy
from treemem.metrics.score import Score
from treemem.records import replacing
from treemem.runs import read_study
from treemem.runs.state import data_digest
from treemem.tasks.equation_verification.published import MAJORITY_CLASS, PUBLISHED_FIGURES, SOURCE
from treemem.tasks.equation_verification.results_beyond import best_section, search_section
from treemem.tasks.equation_verification.results_tables import (
    COMMAND,
    FILES,
    METRICS,
    errors_by_kind,
    published_files,
)
from treemem.tasks.equation_verification.studies import COMPARED, PUBLISHED_TRAINING, RATES, TABLE_2, TOKEN_READER
from treemem.tasks.equation_verification.study_data import DEEPER, SHARES, SIZE
from treemem.tasks.equation_verification.study_list import STUDIES
from treemem.tasks.equation_verification.task import EquationVerification
from treemem.tasks.study_tables import (
    Records,
    comparisons,
    cost,
    grouped,
    mean_over_seeds,
    metric_cells,
    overall,
    percent,
)
from treemem.trees.forest import Forest
from treemem.trees.record_reader import SPLITS

_PLAIN, _STACKED = COMPARED
_RECORD_FIELDS = ("row", "training", "data", "files", "scores", "right")


def write_page(results: Path, page: Path, equations: Forest) -> None:
    """Write the page, and its plots beside it, from the records of the studies in ``results`` that there are.

    Args:
        results: folder of the records.
        page: the Markdown file; replaced where it is there.
        equations: what the networks of the published tables were trained on and tested with.

    Raises:
        RecipeError: the records are of other equations.
    """
    studies = {name: read_study(results / f"{name}.jsonl", _RECORD_FIELDS) for name in (TOKEN_READER, *STUDIES)}
    hash_of_data = data_digest(EquationVerification().examples(equations))
    hashes = {run["data"]["hash"] for runs in studies.values() for run in runs if run["data"]["name"] == "data"}
    others = hashes - {hash_of_data}
    if others:
        raise RecipeError(
            f"the records in {results} are of other equations ({others.pop()}) than these: {hash_of_data}"
        )
    test = equations[equations.tree_data["split"] == "test"]
    makers: dict[str, Callable[[Records], str]] = {
        "rates": _rates,
        "table-2": lambda records: _table_2(studies[TOKEN_READER], records, test, page),
        "sample-efficiency": lambda records: _sample_efficiency(records, studies["table-2"], page),
        "ablation": lambda records: _ablation(records, studies["table-2"]),
        "search": lambda records: search_section([*records, *studies["together"]]),
        "best": lambda records: best_section(records, test, page),
    }
    parts = ["# Equation verification", _introduction(hash_of_data)]
    parts += [make(studies[name]) for name, make in makers.items() if studies[name]]
    with replacing(page) as temporary:
        temporary.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _introduction(hash_of_data: str) -> str:
    return f"""Networks over the two sides of an equation say whether it is true. They learn from equations of depth 1-7
and are tested on depth 8-13. The equations are {SIZE:,} generated ones with the counts by depth and truth of the
published set (SHA-256 of trees, labels and splits: `{hash_of_data}`), not the published ones, a quarter
of whose true test equations do not hold at every real point. Published figures are those of {SOURCE},
on the published set: they stand beside ours, and are of other test equations.

Every number here comes from the records in `docs/results/equation_verification/*.jsonl`, each of a run with its
options, its seconds and its answers; `{COMMAND}` writes this page from them. Accuracies are percent, mean ± deviation
over seeds; without a deviation, of one seed.
Each run keeps the epoch with the best validation accuracy; the test equations were scored once, with that
epoch."""


def _rates(records: Records) -> str:
    by_row = grouped(records)
    found = {
        (name, rate): [overall(record, "validation").accuracy for record in by_row.get(f"{name}, rate {rate}", [])]
        for name in TABLE_2
        for rate in RATES
    }
    rows = [[name, *(percent(found[name, rate]) if found[name, rate] else "" for rate in RATES)] for name in TABLE_2]
    means = [[value for name in TABLE_2 for value in found[name, rate]] for rate in RATES]
    rows.append(["mean", *(percent([statistics.fmean(mean)]) if len(mean) == len(TABLE_2) else "" for mean in means)])
    training = PUBLISHED_TRAINING
    return f"""## The rate

Published runs took a step for each equation at a rate of 0.001. A step here takes a batch of {training.batch_size}, so
that the rate was chosen anew, one for all networks, by mean validation accuracy after at most 20 epochs of one seed.
(Runs at 0.003 had been tested before the grid was widened upwards; validation alone chose.) All further runs have
{training.learning_rate}. Command: `{COMMAND} rates`; {cost(records)}.

{markdown_table([["network", *(f"rate {rate}" for rate in RATES)], *rows])}"""


def _table_2(token_reader: Records, records: Records, test: Forest, page: Path) -> str:
    by_row = grouped(records)
    with_reader = {**grouped(token_reader), **by_row}
    figures = {(each.network, each.split, each.metric): each for each in PUBLISHED_FIGURES}
    columns = [(split, metric) for split in SPLITS for metric in METRICS]
    rows = []
    for name, values in (
        ("majority class", [overall(records[0], split).majority for split in SPLITS]),
        ("_published_", [MAJORITY_CLASS[split] for split in SPLITS]),
    ):
        rows.append([name, *(cell for value in values for cell in (percent_of(value, None), "", ""))])
    for name, runs in with_reader.items():
        rows.append([name, *(cell for split in SPLITS for cell in metric_cells(runs, split, METRICS))])
        published = [figures.get((name, *column)) for column in columns]
        if any(published):
            cells = ["" if each is None else percent_of(each.value, each.deviation) for each in published]
            rows.append(["_published_", *cells])
    scores = {name: mean_over_seeds(runs, "test") for name, runs in with_reader.items()}
    plot = page.with_name("equation_verification_by_depth.svg")
    plot_accuracy(scores, plot, PUBLISHED_FIGURES, title="Equation verification, trained on depth 1-7")
    training = PUBLISHED_TRAINING
    return f"""## Table 2: seven networks

Hidden size 50, stacks of 5 rows, the top row read; Adam with 1e-5 of L2, batches of {training.batch_size}, rate
{training.learning_rate}, {training.epochs} epochs. Boosted trees count the tokens of both sides and read no structure.
Command: `{COMMAND} table-2 {FILES} --processes 2`; {cost(records)}.

{markdown_table([["network", *(f"{split} {metric}" for split, metric in columns)], *rows])}

### By depth (figure 5)

{accuracy_table(scores, PUBLISHED_FIGURES)}

![Accuracy by depth]({plot.name})

{_deeper(with_reader)}

### Against Tree-LSTM, example by example

The difference of accuracies on the test equations and its 95 % interval by bootstrap over the equations, the seeds
taken together; and McNemar's exact test for each seed.

{comparisons(by_row, _PLAIN, "test")}

### What is judged wrongly

Test equations judged wrongly, percent of their kind.

{errors_by_kind(by_row, test)}

### On published equations

{published_files(with_reader)}"""


def _deeper(by_row: Mapping[str, Records]) -> str:
    """Accuracy beyond the test equations, where it was scored."""
    scored = {row: runs for row, runs in by_row.items() if all(DEEPER in run["scores"] for run in runs)}
    if not scored:
        return "Deeper equations were not scored."
    hashes = sorted({run["files"][DEEPER] for runs in scored.values() for run in runs})
    return f"""Deeper still: other equations of the same generator, 200 true and 200 false ones of each depth (SHA-256
{", ".join(f"`{each}`" for each in hashes)}):

{accuracy_table({row: mean_over_seeds(runs, DEEPER) for row, runs in scored.items()})}"""


def _sample_efficiency(records: Records, whole: Records, page: Path) -> str:
    by_row = grouped([*records, *whole])
    rows = []
    scores: dict[str, list[Score]] = {}
    for name in COMPARED:
        of_share = {share: by_row.get(name if share == 100 else f"{name}, {share} %", []) for share in SHARES}
        rows.append([name, *(metric_cells(runs, "test", METRICS)[0] if runs else "" for runs in of_share.values())])
        for share, runs in of_share.items():
            if runs:
                mean = mean_over_seeds(runs, "test")[-1]
                scores.setdefault(name, []).append(
                    Score(share, mean.examples, mean.accuracy, mean.majority, deviation=mean.deviation)
                )
    plot = page.with_name("equation_verification_sample_efficiency.svg")
    plot_accuracy(scores, plot, group="percent of the training equations", title="Accuracy on depth 8-13")
    claim = {name: by_row.get(name, []) for name in (_PLAIN, f"{_STACKED}, 80 %")}
    return f"""## Sample efficiency (figure 6)

Test accuracy, all depths, of networks trained on a part of the training equations; a smaller part is within each
larger one. Command: `{COMMAND} sample-efficiency --processes 2`; {cost(records)}.

{markdown_table([["network", *(f"{share} %" for share in SHARES)], *rows])}

![Accuracy by percent of the training equations]({plot.name})

The published figure shows the stack, trained on 80 %, above Tree-LSTM trained on all. Here, as the difference to
Tree-LSTM on all of them, example by example:

{comparisons(claim, _PLAIN, "test")}"""


def _ablation(records: Records, whole: Records) -> str:
    bases = {_STACKED, "Tree-RNN+stack+no-op"}
    by_row = grouped([*(record for record in whole if record["row"] in bases), *records])
    rows = [
        [name, str(len(runs)), *(metric_cells(runs, split, METRICS)[0] for split in ("validation", "test"))]
        for name, runs in by_row.items()
    ]
    against = {name: runs for name, runs in by_row.items() if name.startswith(_STACKED)}
    return f"""## Ablation

One choice at a time changed; the networks that were changed stand first. Scalar actions are a softmax, which there is
nothing to normalise of. Command: `{COMMAND} ablation --processes 2`; {cost(records)}.

{markdown_table([["network", "seeds", "validation accuracy", "test accuracy"], *rows])}

Against {_STACKED} (p 5, k 1, element-wise actions, reading its children's stacks), example by example:

{comparisons(against, _STACKED, "test")}{_of_unused_places(against)}"""


def _of_unused_places(by_row: Mapping[str, Records]) -> str:
    """A remark where a larger stack came to the weights of the smaller one."""

    def weights(name: str) -> dict[int, str]:
        return {run["training"]["seed"]: run["weights"] for run in by_row.get(name, [])}

    def size(name: str) -> int:
        return int(by_row[name][0]["network"]["options"]["stack_size"])

    larger = [name for name in by_row if weights(_STACKED) and size(name) > size(_STACKED)]
    same = [name for name in larger if weights(name).items() <= weights(_STACKED).items()]
    if not same:
        return ""
    return f"""

To the bit the same weights, in every seed: {", ".join(same)}. What lies below the first {size(_STACKED)} elements of a
stack came there by as many pushes and is read after as many pops, on a path longer than any in the training
equations."""
