"""The part of the results page on what lifts the accuracy on deep equations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treemem.explore import accuracy_table, markdown_table, plot_accuracy
from treemem.runs import OddsCount
from treemem.tasks.equation_verification.beyond import BEST, CHANGES, SEARCH_TRAINING, TOGETHER, Change
from treemem.tasks.equation_verification.results_tables import (
    COMMAND,
    FILES,
    METRICS,
    errors_by_kind,
    published_files,
)
from treemem.tasks.equation_verification.studies import COMPARED
from treemem.tasks.equation_verification.study_data import DEEP_VALIDATION, DEEPER
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


def search_section(records: Records) -> str:
    """Every trial of either network against the unchanged one."""
    of_row = {row: runs[0] for row, runs in grouped(records).items()}
    rows = []
    for change in {**CHANGES, **TOGETHER}:
        cells = []
        for network in COMPARED:
            run, base = of_row.get(f"{network}: {change}"), of_row.get(f"{network}: nothing")
            if run is None or base is None:
                cells += ["", "", ""]
                continue
            for part in ("validation", DEEP_VALIDATION):
                value, before = overall(run, part).accuracy, overall(base, part).accuracy
                cells.append(percent([value]) + (f" ({100 * (value - before):+.2f})" if run is not base else ""))
            counts = OddsCount.from_lists(run["odds"]["validation"])
            deep = OddsCount.from_lists(run["odds"][DEEP_VALIDATION])
            cells.append(percent([deep.accuracy(counts.best_threshold())]))
        rows.append([change, *cells])
    head = [f"{network}: {what}" for network in COMPARED for what in ("validation", "deep", "deep, threshold")]
    hashes = {record["files"][DEEP_VALIDATION] for record in records}
    return f"""## Beyond: trials

Changes to networks of {SEARCH_TRAINING.epochs} epochs, one seed, as many trials for either network: one at a time,
and below them those that promised most together. Ten times the equations for one epoch are as many steps as ten epochs
without. Compared on validation equations (depth 1-7) and on equations of depth 8-13 of another seed ("deep"; SHA-256
of them {", ".join(f"`{each}`" for each in sorted(hashes))}).
No test equation and no published one was scored. In brackets the difference to no change, in points; "threshold": with
the threshold that is best on validation equations. One seed says little about differences below one point. Command:
`{COMMAND} search together --processes 2`; {cost(records)}.

{markdown_table([["change", *head], *rows])}"""


def best_section(records: Records, test: Forest, page: Path) -> str:
    """What the best recipes reach on all equations that nothing was chosen on."""
    by_row = grouped(records)
    plot = page.with_name("equation_verification_best.svg")
    scores = {name: mean_over_seeds(runs, "test") for name, runs in by_row.items()}
    deeper = {
        name: [*scores[name][:-1], *mean_over_seeds(runs, DEEPER)[:-1], scores[name][-1]]
        for name, runs in by_row.items()
    }
    plot_accuracy(deeper, plot, title="Best recipes, trained on depth 1-7")
    columns = [(split, metric) for split in SPLITS for metric in METRICS]
    rows = [
        [name, *(cell for split in SPLITS for cell in metric_cells(runs, split, METRICS)), *_calibrated(runs, "test")]
        for name, runs in by_row.items()
    ]
    recipes = "\n".join(
        f"- {recipe}: " + "; ".join(f"{name} {dict(options)}" for name, options in _parts(change))
        for recipe, change in BEST.items()
    )
    head = ["network", *(f"{split} {metric}" for split, metric in columns), "test accuracy, threshold"]
    hashes = sorted({record["files"][DEEPER] for record in records})
    return f"""## Beyond: the best recipes

Chosen by the trials, and then trained for longer than they were:

{recipes}

"Branches" are the four published identities that hold for one sign of a root alone, such as
`sin(a) = (1 - cos(a)^2)^(1/2)`: equations are derived by them too, and those that are true by the test come out, where
the root is squared or stands on both sides. That they were missing in ours came out when labels and their
neighbours were counted in a sample of the published equations, which that recipe has so far seen; no network's
answers on published equations chose anything. The recipes were settled with the trials scored on an earlier set of deep
validation equations, of fewer families; the scores above are of the present one, on which the cosine of the sides and
the dot product are level.

Command: `{COMMAND} best {FILES} --processes 2`; {cost(records)}.
"Threshold": with the one that is best on the deep validation equations.

{markdown_table([head, *rows])}

### By depth, to 20

Depth 8-13 are the test equations; depth 14-20 are others of the same generator, 200 true and 200 false of each depth
(SHA-256 {", ".join(f"`{each}`" for each in hashes)}).

{accuracy_table(scores)}

{accuracy_table({name: mean_over_seeds(runs, DEEPER) for name, runs in by_row.items()})}

![Accuracy by depth]({plot.name})

Deep test equations are derived from one stock, so that many are relatives of each other, and a family that is taken
for false weighs much, as at depth 12 and 13. On the deep validation equations, each of which is deepened on its own, as
those of depth 14-20 are, the fall is steady (but they have been chosen by):

{accuracy_table({name: mean_over_seeds(runs, DEEP_VALIDATION) for name, runs in by_row.items()})}

### Against Tree-LSTM, example by example

{comparisons(by_row, f"{COMPARED[0]}, best recipe", "test")}

### What is judged wrongly

{errors_by_kind(by_row, test)}

### On published equations

{published_files(by_row)}"""


def _parts(change: Change) -> list[tuple[str, Mapping[str, Any]]]:
    parts = {"network": change.network, "training": change.training, "task": change.task}
    return [(name, options) for name, options in parts.items() if options] + [("data", {"set": change.data})]


def _calibrated(runs: Records, part: str) -> list[str]:
    """Accuracy of each run with the threshold that is best on its deep validation equations."""
    values = []
    for run in runs:
        threshold = OddsCount.from_lists(run["odds"][DEEP_VALIDATION]).best_threshold()
        values.append(OddsCount.from_lists(run["odds"][part]).accuracy(threshold))
    return [percent(values)]
