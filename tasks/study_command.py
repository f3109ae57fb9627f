"""The command lines that make the published tables anew, as far as they are alike."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from treemem.errors import RecipeError, TreememError


def study_parser(task: str, description: str | None, studies: Iterable[str]) -> argparse.ArgumentParser:
    """A parser of what all of them take: which studies to run, how many runs at a time, and the places of files.

    Args:
        task: name of the task, whose module ``reproduce`` is the command.
        description: of the command.
        studies: the names that there are.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m treemem.tasks.{task}.reproduce",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"of {', '.join(studies)}; none: the page alone")
    results, page = Path("docs/results") / task, Path("docs/results") / f"{task}.md"
    parser.add_argument("--runs", type=Path, default=Path("runs/reproduce"), help="folder of the runs (%(default)s)")
    parser.add_argument("--results", type=Path, default=results, help="folder (%(default)s)")
    parser.add_argument("--page", type=Path, default=page, help="(%(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="runs at a time (%(default)s)")
    return parser


def run_command(run: Callable[[argparse.Namespace], None], options: argparse.Namespace) -> int:
    """Run a command that goes on where it stopped; what it exits with. Errors of users go to standard error."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        run(options)
    except TreememError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on", file=sys.stderr)
        return 130
    return 0


def check_studies(options: argparse.Namespace, studies: Iterable[str]) -> None:
    """Refuse, before anything is done, what no run could come of.

    Raises:
        RecipeError: a study that there is not, no study and no records, no process, or a page in a folder that is not
            there.
    """
    known = list(studies)
    unknown = [name for name in options.studies if name not in known]
    if unknown:
        raise RecipeError(f"no study is called {unknown[0]!r}; there are {', '.join(known)}")
    if options.processes < 1:
        raise RecipeError(f"--processes must be at least 1, not {options.processes}")
    if not options.studies and not any((options.results / f"{name}.jsonl").exists() for name in known):
        raise RecipeError(f"there are no records in {options.results}; name studies to run: {', '.join(known)}")
    folder = options.page.parent
    if not folder.is_dir() and folder not in options.results.parents:
        raise RecipeError(f"cannot write {options.page}: there is no folder {folder}")
