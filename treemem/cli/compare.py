"""``treemem compare``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from jsonargparse import Namespace

from treemem.cli.command import Command, CommandParser, add_output, add_shared

if TYPE_CHECKING:
    from treemem.explore.tables import TableFormat
    from treemem.runs.trained_networks import TrainedNetwork

_logger = logging.getLogger(__name__)


def _add_arguments(parser: CommandParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", type=str, help="folder of a run or of a network")
    add_output(parser, "FILE", "write a plot, .png or .svg", required=False)
    add_shared(parser, "--format")


def _run(options: Namespace) -> None:
    from treemem.explore import accuracy_table, plot_accuracy
    from treemem.explore.tables import ACCURACY, titled
    from treemem.records import check_writable
    from treemem.runs.trained_networks import check_one_task, networks_of_run, table_names, task_of

    if options.output is not None:
        check_writable(options.output, overwrite=options.overwrite)
    compared = [network for run in options.runs for network in networks_of_run(run)]
    check_one_task(compared)
    networks = dict(zip(table_names(compared), compared, strict=True))
    group = compared[0].group
    scores = {name: network.scores for name, network in networks.items()}
    task = task_of(compared[0])
    monitor, group_name = (ACCURACY, str) if task is None else (task.monitor, task.group_name)
    unit = " in %" if monitor.percent else ""
    table = accuracy_table(scores, group=group, monitor=monitor, group_name=group_name, format=options.format)
    print(titled(f"Test: {monitor.metric}{unit}, by {group}", table, options.format))
    if len(networks) > 1:
        print(f"\n{_statistics(networks, options.format)}")
    if options.output is not None:
        plot_accuracy(scores, options.output, group=group, monitor=monitor)
        _logger.info("plot: %s", options.output)


def _statistics(networks: Mapping[str, TrainedNetwork], format: TableFormat) -> str:
    """Return how the first network differs from each of the others."""
    from treemem.explore.tables import formatted_table, titled
    from treemem.runs.trained_networks import compare_networks, paired_seeds

    (first, reference), *others = networks.items()
    counts = ["only the first correct", "only the other correct"]
    head = [f"{first} minus", "points", "95 % interval", *counts, "p by seed"]
    rows, missing = [head], []
    for name, network in others:
        statistics = compare_networks(reference, network)
        if isinstance(statistics, str):
            missing.append(f"no paired statistics for {first} and {name}: {statistics}")
            continue
        low, high = statistics.interval
        if reference.answers.keys() != network.answers.keys():
            ours, theirs = (", ".join(map(str, sorted(side.answers))) for side in (reference, network))
            used = ", ".join(f"{a}" if a == b else f"{a} with {b}" for a, b in paired_seeds(reference, network))
            missing.append(
                f"{first} has the seeds {ours}, and {name} has {theirs}. Their paired statistics use only: {used}. The "
                "means in the table above are over all seeds of each."
            )
        counts = [str(statistics.only_first), str(statistics.only_second)]
        interval = f"{100 * low:.2f} to {100 * high:.2f}"
        rows.append([name, f"{100 * statistics.difference:.2f}", interval, *counts, statistics.p_text()])
    about = "The same test examples: bootstrap over the examples, and McNemar's test for each seed"
    parts = [titled(about, formatted_table(rows, format), format)] if len(rows) > 1 else []
    return "\n\n".join([*parts, *(titled(text, "", format).rstrip() for text in missing)])


COMMAND = Command(
    name="compare",
    summary="Compare trained networks of one task: accuracy by group, and paired statistics.",
    usage="RUN ... [options]",
    description=(
        "The table has means and deviations over seeds. Paired statistics compare the first network with each of the\n"
        "others on the test examples that both answered."
    ),
    examples=("treemem compare runs/equation_verification/small -o comparison.png",),
    add_arguments=_add_arguments,
    run=_run,
)
