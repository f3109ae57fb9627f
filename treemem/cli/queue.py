"""``treemem queue``."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import Namespace

from treemem.cli.command import Command, CommandParser, UsageError, given_folder


def _add_arguments(parser: CommandParser) -> None:
    parser.add_argument("studies", nargs="*", metavar="STUDY", type=str, help="studies of the queue (none: all)")
    parser.add_argument("--data", metavar="FOLDER", type=str, help="folder of the published files")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="runs at a time, one thread each (1)")
    parser.add_argument(
        "--runs", type=str, default="runs/reproduce", metavar="DIR", help="folder of the runs (runs/reproduce)"
    )
    parser.add_argument(
        "--results", type=str, default="docs/results", metavar="DIR", help="folder of the records (docs/results)"
    )
    parser.add_argument("--list", action="store_true", help="only print what is done and what remains")


def _run(options: Namespace) -> int | None:
    from treemem.explore.tables import markdown_table
    from treemem.tasks.queue import Places, chosen_entries, read_queue, remaining, run_queue, write_pages

    if options.processes < 1:
        raise UsageError(f"--processes must be at least 1, not {options.processes}")
    entries = chosen_entries(read_queue(), options.studies)
    places = Places(Path(options.runs), Path(options.results), given_folder("--data", options.data))

    def print_state() -> float:
        rows = list(remaining(entries, places))
        lines = [[row.study, str(row.done), str(row.jobs), f"{row.hours:.1f}"] for row in rows]
        left = sum(row.hours for row in rows)
        total = ["all", str(sum(row.done for row in rows)), str(sum(row.jobs for row in rows)), f"{left:.1f}"]
        print(markdown_table([["study", "done", "jobs", "core-hours left"], *lines, total]), flush=True)
        return left

    if not print_state() or options.list:
        return None
    failed = run_queue(entries, places, options.processes)
    print_state()
    for page in write_pages(entries, places):
        print(f"page: {page}")
    for name, problem in failed.items():
        print(f"failed: {name}: {problem}")
    return 1 if failed else None


COMMAND = Command(
    name="queue",
    summary="Run the long studies behind the pages of results, one after the other.",
    usage="[STUDY ...] [options]",
    description=(
        "The queue lists the studies in order, with their estimated core-hours. A recorded run is not run again and\n"
        "an interrupted one resumes, so the same command continues after any interruption. Several processes, or\n"
        "machines that share the folder of runs, can work on one queue. `treemem reproduce` runs a single study."
    ),
    examples=("treemem queue --list",),
    add_arguments=_add_arguments,
    run=_run,
    stopped="run the same command to continue",
)
