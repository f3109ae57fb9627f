"""``treemem reproduce``."""

from __future__ import annotations

import logging
from pathlib import Path

from jsonargparse import Namespace

from treemem.cli.command import Command, CommandParser, UsageError, given_folder

_logger = logging.getLogger(__name__)


def _add_arguments(parser: CommandParser) -> None:
    parser.add_argument("task", metavar="TASK", type=str, help="name of the task, TASK/PART, comparison or claims")
    parser.add_argument("studies", nargs="*", metavar="STUDY", type=str, help="studies to run (none: write the page)")
    parser.add_argument("--data", metavar="FOLDER", type=str, help="folder of published files, if a study needs them")
    parser.add_argument(
        "--files", nargs="+", default=[], metavar="NAME=PATH", type=str, help="more files for a study to score"
    )
    parser.add_argument(
        "--networks",
        nargs="+",
        default=[],
        metavar="NAME",
        type=str,
        help="of a comparison: rows to run, or networks of your own (--import); all by default",
    )
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="runs at a time (1)")
    parser.add_argument(
        "--runs", type=str, default="runs/reproduce", metavar="DIR", help="folder of the runs (runs/reproduce)"
    )
    parser.add_argument("--results", type=str, metavar="DIR", help="folder of the records (docs/results/TASK)")
    parser.add_argument("--page", type=str, metavar="FILE", help="the page (docs/results/TASK.md)")


def _run(options: Namespace) -> None:
    from treemem.errors import RecipeError
    from treemem.records import check_writable
    from treemem.runs.data_sets import StudyPlaces
    from treemem.runs.results_page import write_page
    from treemem.runs.study_file import StudyFolder
    from treemem.runs.study_file_run import run_study_file
    from treemem.tasks.claims.claims import FOLDER as CLAIMS
    from treemem.tasks.comparison.comparison import FOLDER, chosen_parts
    from treemem.tasks.queue import Places, entries_of_rows, read_queue, run_queue

    if options.processes < 1:
        raise UsageError(f"--processes must be at least 1, not {options.processes}")
    folders = {named.name: named for named in (FOLDER, CLAIMS)}
    folder = folders[options.task] if options.task in folders else StudyFolder.find(options.task)
    results = Path(options.results or Path("docs/results", "" if folder is CLAIMS else folder.page))
    page = Path(options.page or Path("docs/results", f"{folder.page}.md"))
    check_writable(page, overwrite=True)
    if options.studies and folder is CLAIMS:
        raise UsageError(f"{CLAIMS.name} has no studies; leave out {options.studies[0]}")
    if options.networks and folder is not FOLDER:
        raise UsageError(f"--networks {options.networks[0]}: only {FOLDER.name} takes networks")
    files = {}
    for text in options.files:
        name, equals, path = text.partition("=")
        if not equals or not Path(path).is_file():
            raise UsageError(f"--files {text}: write NAME=PATH with the path of an existing file")
        files[name] = Path(path)
    runs, data = Path(options.runs), given_folder("--data", options.data)
    if folder is FOLDER:
        parts = chosen_parts(options.studies, options.networks)
        given = [*options.networks, *options.files]
        if given and not parts:
            raise UsageError(f"{given[0]} is for runs; name the study too, learned")
        if parts:
            entries = entries_of_rows(read_queue(), parts, options.networks, files)
            failed = run_queue(entries, Places(runs, results.parent, data, results), options.processes)
            if failed:
                raise RecipeError("; ".join(f"{name}: {problem}" for name, problem in failed.items()))
    else:
        for study in [folder.study(name) for name in options.studies]:
            run_study_file(study, StudyPlaces(runs, results, page, data, files), processes=options.processes)
    if not options.studies and folder.studies:
        known = ", ".join(folder.studies)
        _logger.info("no study is named, so nothing is trained, and the page is written from %s", results)
        _logger.info("to train what is not recorded there, name studies: %s", known)
    write_page(folder, results, page)
    print(f"page: {page}")


COMMAND = Command(
    name="reproduce",
    summary="Run studies of a task and write its page of results.",
    usage="TASK [STUDY ...] [options]",
    description=(
        "A study is a YAML file in the task's folder: networks, seeds, variants and data sets. A recorded run is not\n"
        "run again, so the same command continues after an interruption. Other --results and --runs train anew.\n"
        "Without STUDY, only the page is written, from the records. `comparison` runs every encoder on several\n"
        "tasks for the same computing time; its study is learned, and learned-logic is one part of it. DATA is then\n"
        "the folder of all published files, as for `treemem queue`. `claims` has no study: it writes the page that\n"
        "compares the claims of papers with the records of all tasks."
    ),
    examples=("treemem reproduce listops", "treemem reproduce comparison"),
    add_arguments=_add_arguments,
    run=_run,
    stopped="run the same command to continue",
)
