"""The page of results, made from the records of the runs alone."""

from __future__ import annotations

from pathlib import Path

from treemem.explore import markdown_table
from treemem.records import replacing
from treemem.runs import read_study
from treemem.tasks.listops.published import EARLIER_SOURCE, PUBLISHED_FIGURES, SOURCE
from treemem.tasks.listops.task import ListOps
from treemem.tasks.sequence_results import sequence_section
from treemem.tasks.sequence_study import STUDY
from treemem.tasks.study_tables import RUN_FIELDS, Records, as_published, examples_by_group, greatest_group

COMMAND = f"python -m treemem.tasks.{ListOps.name}.reproduce"


def write_page(results: Path, page: Path) -> None:
    """Write the page from the records in ``results``.

    Args:
        results: folder of the records.
        page: the Markdown file; replaced where it is there.
    """
    parts = ["# ListOps", _introduction()]
    if records := read_study(results / f"{STUDY}.jsonl", RUN_FIELDS):
        parts.append(_sequences(records, results, page.parent))
    parts.append(_published())
    with replacing(page) as temporary:
        temporary.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _introduction() -> str:
    return f"""Networks read expressions such as `[MAX 2 9 [MIN 4 7 ] 0 ]` and say which digit they come to (Nangia and
Bowman 2018). Every number here comes from the records in `docs/results/listops/*.jsonl`, each of a run with its
options, its seconds, the hash of its data and its answers; `{COMMAND}` writes this page from them. Accuracies
are percent, mean ± deviation over seeds; without a deviation, of one seed. Each run keeps the epoch with the best
validation accuracy; the test expressions were scored once, with that epoch."""


def _sequences(records: Records, results: Path, pages: Path) -> str:
    train, test = (examples_by_group(records, part) for part in ("train", "test"))
    about = (
        f"Networks learn from the tokens of {train['all']:,} expressions of up to {greatest_group(train)} tokens, and "
        f"are tested on {test['all']:,} of up to {greatest_group(test)}. Of lengths, 10 stands for up to 10 tokens, 20 "
        "for 11 to 20, and so on."
    )
    return sequence_section(records, results, pages, ListOps, COMMAND, about)


def _published() -> str:
    """What others reached on the published files, which are longer."""
    by_network: dict[str, dict[str, str]] = {}
    for figure in PUBLISHED_FIGURES:
        by_network.setdefault(figure.network, {})[figure.metric] = as_published(figure)
    *others, last = dict.fromkeys(figure.network for figure in PUBLISHED_FIGURES if figure.source == EARLIER_SOURCE)
    metrics = list(dict.fromkeys(figure.metric for figure in PUBLISHED_FIGURES))
    rows = [[name, *(cells.get(metric, "") for metric in metrics)] for name, cells in by_network.items()]
    return f"""## Published figures

Of {SOURCE}, which has those of {", ".join(others)} and {last} from Nangia & Bowman 2018. The test expressions have up
to 939 tokens; Ordered Memory was trained on those of up to 50. No run here has been trained on such expressions yet;
the recipe `listops/published` has that setting.

{markdown_table([["network", *metrics], *rows])}"""
