"""Write a task's page of results from its template ``results.md.j2`` and the records of its studies.

Templates see the functions of :mod:`treemem.runs.page_tables`, and ``page``, a :class:`_Page`. Lines within
``{% filter aligned %}`` are a table with cells between ``|``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from treemem.errors import RecipeError
from treemem.explore.plots import (
    plot_accuracy,
    plot_curves,
    plot_heat_maps,
    plot_memory_run,
    plot_training,
)
from treemem.induction import RunTrees, write_tree_page
from treemem.metrics.score import PublishedFigure, Score
from treemem.records import check_writable, locked, write_text
from treemem.runs import page_tables
from treemem.runs.page_tables import Records, seed_of_record, tree_page_name
from treemem.runs.study_file import StudyFolder
from treemem.runs.study_records import read_study
from treemem.trees.tree import Tree

_BLOCK = "readme.md.j2"  # of the part of the README that follows records


def write_page(folder: StudyFolder, results: Path, page: Path) -> None:
    """Write the page and its plots from the records in ``results``.

    If the folder has a template ``readme.md.j2``, its text replaces a block of ``README.md`` three folders above the
    page.

    Raises:
        RecipeError: records are missing, one table has records of different data, or the page cannot be written.
    """
    if not any(results.rglob("*.jsonl")):
        known = ", ".join(folder.studies)
        raise RecipeError(f"there are no records in {results}; name studies of {folder.name} to run: {known}")
    check_writable(page, overwrite=True)
    with locked(page.with_suffix("")):  # so that the last of several writers has read all records
        text = rendered(folder, results, page)
        write_text(page, text)
    readme = page.resolve().parent.parent.parent / "README.md"
    if (folder.path / _BLOCK).exists() and readme.exists():
        with locked(readme.with_suffix("")):
            write_block(readme, folder.name, rendered(folder, results, page, _BLOCK))


def write_block(readme: Path, name: str, text: str) -> None:
    """Replace what stands between ``<!-- NAME -->`` and ``<!-- end of NAME -->``, if a file has both."""
    first, last = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, begins, rest = readme.read_text(encoding="utf-8").partition(first)
    _, ends, after = rest.partition(last)
    if begins and ends:
        write_text(readme, f"{before}{first}{text}{last}{after}")


def rendered(folder: StudyFolder, results: Path, page: Path, template: str = "results.md.j2") -> str:
    """Return the text of a template of a folder; plots are written beside the page.

    Raises:
        RecipeError: as :func:`write_page`.
    """
    from jinja2 import ChoiceLoader, Environment, FileSystemLoader, StrictUndefined, UndefinedError

    loader = ChoiceLoader([FileSystemLoader(folder.path), FileSystemLoader(Path(__file__).with_name("templates"))])
    environment = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.do"]
    )
    environment.globals.update(vars(page_tables))
    environment.filters["aligned"] = page_tables.aligned
    values = _Page(folder, results, page)
    try:
        text = environment.get_template(template).render(page=values, task=folder.task, name=folder.name)
    except UndefinedError as error:
        known = ", ".join(folder.studies)
        raise RecipeError(
            f"{page} needs the records of more studies than {results} holds ({error}); there are {known}"
        ) from error
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


class _Page:
    """What a template reads and writes beside the page: records, plots and links."""

    def __init__(self, folder: StudyFolder, results: Path, page: Path) -> None:
        self._folder, self._results, self._page = folder, results, page

    def records(self, study: str) -> Records:
        """Return the records of a study or measurement; empty without a file."""
        return read_study(self._results / f"{study}.jsonl")

    def study(self, name: str) -> Any:
        """Return a study as its file describes it."""
        return self._folder.study(name)

    def function(self, name: str) -> Any:
        """Return a function of the task's package, named ``"module:name"``."""
        return self._folder.function(name)

    def figure(self, network: str, split: str, metric: str = "accuracy") -> PublishedFigure | None:
        """Return a published figure of the task, or None."""
        figures = reversed(self._folder.task.published)  # the first of equal ones counts
        by_key = {(figure.network, figure.split, figure.metric): figure for figure in figures}
        return by_key.get((network, split, metric))

    def _drawn(
        self, suffix: str, draw: Callable[..., Any], data: Any, *rest: Any, end: str = ".svg", **options: Any
    ) -> str:
        """Draw a plot of some data beside the page. Return the file name."""
        place = self._page.with_name(f"{self._page.stem}_{suffix}{end}")
        draw(data, place, *rest, **options)
        return place.name

    def plot(self, suffix: str, scores: Mapping[str, Sequence[Score]], *published: Any, **options: Any) -> str:
        """Draw accuracies by group. Return the file name."""
        return self._drawn(suffix, plot_accuracy, scores, *published, **options)

    def curves(self, suffix: str, records: Records, **options: Any) -> str:
        """Draw how runs learned, from records of :func:`treemem.tasks.training_curves.curve_records`."""
        runs = {f"{record['row']}, seed {seed_of_record(record)}": record["epochs"] for record in records}
        return self._drawn(suffix, plot_training, runs, monitor=self._folder.task.monitor, **options)

    def heat_maps(self, suffix: str, maps: Mapping[str, Any], **options: Any) -> str:
        """Draw tables of numbers. Return the file name."""
        return self._drawn(suffix, plot_heat_maps, maps, **options)

    def cost_curves(self, suffix: str, panels: Mapping[str, Any], **options: Any) -> str:
        """Draw curves against a cost. Return the file name."""
        return self._drawn(suffix, plot_curves, panels, **options)

    def memory_run(self, suffix: str, record: Mapping[str, Any], **options: Any) -> str:
        """Draw a recorded run of an Ordered Memory. Return the file name."""
        return self._drawn(suffix, plot_memory_run, record, end=".png", **options)

    def trees(self, rows: Mapping[str, Records], measurement: str) -> Records:
        """Return the records of induced trees that belong to these runs' weights."""
        weights = {name: {f"seed {seed_of_record(run)}": run["weights"] for run in runs} for name, runs in rows.items()}
        return [record for record in self.records(measurement) if record["weights"] == weights.get(record["network"])]

    def example_page(self, suffix: str, gold: Sequence[Tree], trees: Mapping[str, Sequence[Tree]], title: str) -> str:
        """Draw the trees of some sentences on a page: the gold trees and those of each run. Return the file name."""
        place = self._page.with_name(f"{self._page.stem}_{suffix}.html")
        runs = {name: RunTrees(of_run) for name, of_run in trees.items()}
        write_tree_page(place, gold, runs, title=title, sentences=range(len(gold)), most=len(gold), overwrite=True)
        return place.name

    def tree_pages(self, study: str, trees: Records) -> str:
        """Return links to the existing pages of trees of a study."""
        networks = [record["network"] for record in trees]
        pages = {network: tree_page_name(self._folder.task.name, study, network) for network in networks}
        there = {name: page for name, page in pages.items() if self._page.with_name(page).exists()}
        return ", ".join(f"[{name}]({page})" for name, page in there.items())
