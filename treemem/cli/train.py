"""``treemem train``."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import Namespace

from treemem.cli.command import Command, CommandParser, UsageError, add_on_error, add_output, add_overrides, add_shared

if TYPE_CHECKING:
    from treemem.explore.tables import TableFormat
    from treemem.metrics.class_report import ClassReport
    from treemem.metrics.score import PublishedFigure, Score
    from treemem.task import Task

_logger = logging.getLogger(__name__)
_TABLES: dict[TableFormat, str] = {"markdown": "table.md", "latex": "table.tex"}


def _add_arguments(parser: CommandParser) -> None:
    add_shared(parser, "recipe")
    add_overrides(parser, "training.epochs=3")
    parser.add_argument("--networks", nargs="+", type=str, metavar="NAME", help="networks of the recipe or the task")
    parser.add_argument("--epochs", type=int, metavar="N", help="total number of epochs, as training.epochs=N")
    parser.add_argument(
        "--seeds", "--seed", nargs="+", type=int, metavar="SEED", help="train each network with each of these"
    )
    add_on_error(parser, "leave it out and write it to bad_rows.jsonl in the run")
    add_output(parser, "FOLDER", "folder of the run (runs/TASK/RECIPE)", required=False)
    add_shared(parser, "--format")


def _run(options: Namespace) -> None:
    from treemem.data_parallel import joined_processes
    from treemem.runs.accelerator import find_device
    from treemem.runs.recipe import load_recipe
    from treemem.runs.recipe_run import EVALUATION, check_folder, default_folder, train_recipe

    processes = joined_processes()
    given = [] if options.seeds is None else [f"seeds={options.seeds}"]
    if options.epochs is not None:
        if any(override.partition("=")[0].strip() == "training.epochs" for override in options.set):
            raise UsageError("--epochs and training.epochs both set the number of epochs; give one of them")
        given.append(f"training.epochs={options.epochs}")
    if options.on_error is not None:
        given.append(f"task_options.on_error={options.on_error}")
    with processes.agreeing():
        overrides = [*given, *options.set]
        of_others = [override for override in overrides if not override.startswith(("networks.", "training."))]
        before = load_recipe(options.recipe, of_others)
        recipe = load_recipe(options.recipe, overrides).with_networks(options.networks).named_by_changes(before)
        find_device(recipe.training.accelerator, "training.accelerator")
        output = Path(options.output or default_folder(recipe.task, options.recipe))
        check_folder(output)
        task = recipe.make_task()
        data = task.make_data(recipe.data, progress=None if processes.is_first else False)
    with contextlib.ExitStack() as log_file:
        processes.in_first(lambda: log_file.enter_context(logged_in(output)))
        for _ in train_recipe(recipe, task, data, output, overwrite=options.overwrite, other_scores=[EVALUATION]):
            pass  # the results are in the folder
        digest = task.examples(data.forest).digest()
        processes.in_first(
            lambda: print_results(task, output, list(recipe.networks), data.card, digest, options.format)
        )


def print_results(
    task: Task, output: Path, networks: Sequence[str], card: str, digest: str, format: TableFormat
) -> None:
    """Print the scores of all networks in the folder of a run, and write tables and a plot there.

    Args:
        task: of the run.
        output: the folder.
        networks: names of those that come first, whose results must be there.
        card, digest: of the data.
        format: of the printed tables. ``table.md`` is written in any case, ``table.tex`` for ``"latex"``. The files
            have the metrics of each class and the confusion matrices, too.
    """
    from treemem.records import write_text
    from treemem.runs.network_folder import CARD, RESULTS, locked_results, write_results
    from treemem.runs.recipe_run import LOG, class_reports, gathered_rows, published_figures, scores_by_network

    with locked_results(output):
        rows = gathered_rows(output, networks, digest)
        scores = scores_by_network(rows, task.group)
        published = published_figures(task, output)
        tables = {form: _tables(task, scores, published, form) for form in dict.fromkeys(("markdown", format))}
        reports = class_reports(output, scores, digest)
        write_results(output, rows, card, digest)
        for form, text in tables.items():
            write_text(output / _TABLES[form], "\n\n".join([text, *_class_tables(reports, form)]) + "\n")
        plot = _plotted(task, scores, published, output)
    print(f"\n{tables[format]}\n")
    by_class = f"; by class: {output / _TABLES[format]}" if reports else ""
    print(f"scores: {output / RESULTS}{by_class}; log: {output / LOG}; data: {output / CARD}{plot}")


@contextlib.contextmanager
def logged_in(folder: Path) -> Iterator[None]:
    """Make a folder, and also write the log messages of the block to its log file.

    Raises:
        RecipeError: the folder cannot be written.
    """
    from treemem.records import writing
    from treemem.runs.recipe_run import LOG

    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(folder / LOG, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    logger = logging.getLogger("treemem")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def _tables(
    task: Task, scores: dict[str, list[Score]], published: Sequence[PublishedFigure], format: TableFormat
) -> str:
    from treemem.explore import accuracy_table, overall_table
    from treemem.explore.tables import MAJORITY, OVERALL_METRICS, titled
    from treemem.runs.network_folder import TEST

    monitor = task.monitor
    published = [figure for figure in published if figure.split == TEST and figure.network in (*scores, MAJORITY)]
    shown = [figure for figure in published if figure.metric == monitor.metric]
    about = "; mean ± standard deviation over seeds" if any(rows[-1].deviation for rows in scores.values()) else ""
    about += "; published figures are of the published data" if shown else ""
    unit = " in %" if monitor.percent else ""
    table = accuracy_table(scores, shown, group=task.group, monitor=monitor, group_name=task.group_name, format=format)
    has_groups = any(
        isinstance(score.group, int) and task.group_name(score.group) for rows in scores.values() for score in rows
    )
    by = f", by {task.group}" if has_groups else ""
    parts = [titled(f"Test: {monitor.metric}{unit}{by}{about}", table, format)]
    known = {metric for rows in scores.values() for metric in rows[-1].metrics}
    if known & {"f1", "macro f1", "mae"}:
        in_parentheses = any(figure.network in scores and figure.metric in OVERALL_METRICS for figure in published)
        about = ", published figures in parentheses" if in_parentheses else ""
        parts.append(
            titled(
                f"Test, all{'' if 'mae' in known else ': %'}{about}",
                overall_table(scores, published, format=format),
                format,
            )
        )
    return "\n\n".join(parts)


def _class_tables(reports: Mapping[str, ClassReport], format: TableFormat) -> list[str]:
    """Return tables of the metrics of each class or label, and of the confusion, for each network."""
    from treemem.explore.tables import formatted_table, titled

    tables = []
    for name, report in reports.items():
        by_class, confusion = report.rows(), report.confusion_rows()
        tables.append((f"% by {by_class[0][0]}", name, by_class))
        tables += [("examples by true and predicted class", name, confusion)] if confusion else []
    return [titled(f"Test, {name}: {what}", formatted_table(rows, format), format) for what, name, rows in tables]


def _plotted(task: Task, scores: dict[str, list[Score]], published: Sequence[PublishedFigure], output: Path) -> str:
    if importlib.util.find_spec("matplotlib") is None:
        _logger.info("matplotlib is not installed, so no plot is drawn; pip install 'treemem[plot]'")
        return ""
    from treemem.explore import plot_accuracy

    plot = output / f"{task.monitor.metric.replace(' ', '_')}_by_{task.group}.png"
    plot_accuracy(scores, plot, published, group=task.group, title=task.name.replace("_", " "), monitor=task.monitor)
    return f"; plot: {plot}"


COMMAND = Command(
    name="train",
    summary="Train the networks of a recipe, score them on the test split, and print their accuracy by group.",
    usage="RECIPE [FIELD=VALUE ...] [options]",
    description=(
        "The same command resumes an interrupted run. The results include networks and seeds that were trained in the\n"
        "same folder earlier or at the same time. A folder of networks that were trained on other data is refused."
    ),
    examples=(
        "treemem train equation_verification/small --networks Tree-LSTM",
        "treemem train listops/small data.training_size=5000 training.epochs=12 --networks LSTM -o runs/lists",
    ),
    add_arguments=_add_arguments,
    run=_run,
    takes_overrides=True,
    data_parallel=True,
    stopped="run the same command without --overwrite to resume",
)
