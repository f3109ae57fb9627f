"""``treemem reproduce``."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import Namespace

from treemem.cli.command import Command, CommandParser, UsageError, add_shared, given_folder
from treemem.errors import near_names

if TYPE_CHECKING:
    from treemem.runs.data_sets import StudyPlaces
    from treemem.runs.study_file import Study, StudyFolder

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
        help="rows to run; of a comparison also networks of your own (--import); all by default",
    )
    parser.add_argument(
        "--shard", type=str, metavar="K/N", help="only the K-th of N parts of the runs, for N jobs on a cluster"
    )
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="runs at a time (1)")
    parser.add_argument("--again", type=str, metavar="FOLDER", help="train anew; runs and records go into this folder")
    parser.add_argument("--runs", type=str, metavar="DIR", help="folder of the runs (runs/reproduce)")
    parser.add_argument("--results", type=str, metavar="DIR", help="folder of the records (docs/results/TASK)")
    parser.add_argument("--page", type=str, metavar="FILE", help="the page (docs/results/TASK.md)")
    add_shared(parser, "--format")


def _run(options: Namespace) -> None:
    from treemem.records import check_writable
    from treemem.runs.results_page import write_page
    from treemem.runs.study_file import StudyFolder
    from treemem.runs.study_file_run import run_study_file
    from treemem.tasks.claims.claims import FOLDER as CLAIMS
    from treemem.tasks.comparison.comparison import FOLDER

    if options.processes < 1:
        raise UsageError(f"--processes must be at least 1, not {options.processes}")
    folders = {named.name: named for named in (FOLDER, CLAIMS)}
    folder = folders[options.task] if options.task in folders else StudyFolder.find(options.task)
    if options.studies and folder is CLAIMS:
        raise UsageError(f"{CLAIMS.name} has no studies; leave out {options.studies[0]}")
    for name in ("networks", "shard", "again", "files"):
        given = getattr(options, name)
        if given and not options.studies:
            shown = given[0] if isinstance(given, list) else f"--{name} {given}"
            raise UsageError(f"{shown} is for runs; name the study too" + ", learned" * (folder is FOLDER))
    places = _places(options, folder, "" if folder is CLAIMS else folder.page)
    if folder is FOLDER:
        _run_comparison(options, places)
    studies = [] if folder is FOLDER else [folder.study(name) for name in options.studies]
    shard = None if options.shard is None else _shard(options.shard)
    chosen = _chosen_runs(studies, places.data, options.networks, shard)
    is_whole = folder is FOLDER or not (options.networks or shard)
    writes_page = is_whole and options.again is None
    if writes_page:
        check_writable(places.page, overwrite=True)
    for study, only in zip(studies, chosen, strict=True):
        records = run_study_file(study, places, processes=options.processes, only=None if is_whole else only)
        _print_table(study, records, places, options)
    if not options.studies and folder.studies:
        known = ", ".join(folder.studies)
        _logger.info("no study is named, so nothing is trained, and the page is written from %s", places.results)
        _logger.info("to train what is not recorded there, name studies: %s", known)
    if writes_page:
        write_page(folder, places.results, places.page)
        print(f"page: {places.page}")
    else:
        _logger.info("the page is not written; the command without --networks, --shard and --again writes it")


def _places(options: Namespace, folder: StudyFolder, page: str) -> StudyPlaces:
    """Return where the runs, records and the page are."""
    from treemem.runs.data_sets import StudyPlaces

    files = {}
    for text in options.files:
        name, equals, path = text.partition("=")
        if not equals or not Path(path).is_file():
            raise UsageError(f"--files {text}: write NAME=PATH with the path of an existing file")
        files[name] = Path(path)
    if options.again is not None:
        if options.runs or options.results or options.page:
            raise UsageError(
                "--again names the folder of runs, records and page; leave out --runs, --results and --page"
            )
        again = Path(options.again)
        places = again / "runs", again / "results" / page, again / "results" / f"{folder.page}.md"
        _make_folder(places[1])
    else:
        results = Path(options.results or Path("docs/results", page))
        places = Path(options.runs or "runs/reproduce"), results, Path(options.page or f"docs/results/{folder.page}.md")
    return StudyPlaces(*places, given_folder("--data", options.data), files)


def _make_folder(folder: Path) -> None:
    from treemem.records import writing

    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def _run_comparison(options: Namespace, places: StudyPlaces) -> None:
    """Run the rows of the comparison that are asked for."""
    from treemem.errors import RecipeError
    from treemem.tasks.comparison.comparison import chosen_parts
    from treemem.tasks.queue import Places, entries_of_rows, read_queue, run_queue

    if options.shard is not None:
        raise UsageError("--shard is for studies of a task; jobs share the rows of a comparison by `treemem queue`")
    parts = chosen_parts(options.studies, options.networks)
    if not parts:
        return
    entries = entries_of_rows(read_queue(), parts, options.networks, places.files)
    where = Places(places.runs, places.results.parent, places.data, places.results)
    failed = run_queue(entries, where, options.processes)
    if failed:
        raise RecipeError("; ".join(f"{name}: {problem}" for name, problem in failed.items()))


def _shard(text: str) -> tuple[int, int]:
    """Return K and N of ``K/N``."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"--shard {text}: write K/N with K from 1 to N, such as 1/8")
    return int(match[1]), int(match[2])


def _chosen_runs(
    studies: Sequence[Study], data: Path | None, networks: Sequence[str], shard: tuple[int, int] | None
) -> list[list[str]]:
    """Return the names of the runs of each study that rows and a shard choose.

    Raises:
        UsageError: no study has such a row.
    """
    planned = [study.runs(data) for study in studies]
    rows = [*dict.fromkeys(run.row for runs in planned for run in runs)]
    wanted = {row for row in rows for name in networks if row == name or row.startswith(f"{name}, ")}
    for name in networks if studies else []:
        if not any(row == name or row.startswith(f"{name}, ") for row in rows):
            raise UsageError(f"no study has a row {name!r}{near_names(name, rows) or '; there are ' + '; '.join(rows)}")
    first, step = shard or (1, 1)
    return [[run.name for run in runs if not networks or run.row in wanted][first - 1 :: step] for runs in planned]


def _print_table(study: Study, records: Sequence[dict[str, object]], places: StudyPlaces, options: Namespace) -> None:
    """Print the scores of the runs of a study; with ``--again``, also those that were recorded before."""
    from treemem.explore.tables import titled
    from treemem.runs.page_tables import study_table
    from treemem.runs.study_records import read_study

    if not records:
        return
    tables = {places.results / f"{study.name}.jsonl": records}
    if options.again is not None:
        before = Path("docs/results", study.folder.page, f"{study.name}.jsonl")
        names = {record["run"] for record in records}
        tables[before] = [record for record in read_study(before) if record["run"] in names]
    monitor = study.folder.task.monitor
    for file, shown in tables.items():
        if shown:
            title = f"{file}: mean ± standard deviation over seeds"
            print(titled(title, study_table([*shown], monitor, options.format), options.format), end="\n\n")


COMMAND = Command(
    name="reproduce",
    summary="Run studies of a task and write its page of results.",
    usage="TASK [STUDY ...] [options]",
    description=(
        "A study is a YAML file in the task's folder: networks, seeds, variants and data sets. A recorded run is not\n"
        "run again, so the same command continues after an interruption. --again FOLDER trains anew, --networks only\n"
        "some rows, and --shard K/N one part of N. The page is written for whole studies.\n"
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
