"""The published tables and figures of equation verification, made anew: one command that goes on where it stopped.

The records of finished runs are kept in RESULTS/STUDY.jsonl, from which the page is written; what is in there is not
run again.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from treemem.errors import RecipeError, TreememError
from treemem.tasks.equation_verification.generator import EquationData, generate_equations
from treemem.tasks.equation_verification.readers import read_equations
from treemem.tasks.equation_verification.results_page import write_page
from treemem.tasks.equation_verification.studies import DATA_SEED, SIZE, STUDIES, parts_of
from treemem.tasks.equation_verification.task import EquationVerification
from treemem.training import run_study
from treemem.trees.forest import Forest

_HELD = ("all", "some", "none")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, and write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m treemem.tasks.equation_verification.reproduce",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"of {', '.join(STUDIES)}; none: the page alone")
    parser.add_argument("--runs", type=Path, default=Path("runs/reproduce"), help="folder of the runs (%(default)s)")
    parser.add_argument(
        "--results", type=Path, default=Path("docs/results/equation_verification"), help="folder (%(default)s)"
    )
    parser.add_argument(
        "--page", type=Path, default=Path("docs/results/equation_verification.md"), help="(%(default)s)"
    )
    parser.add_argument("--processes", type=int, default=1, help="runs at a time (%(default)s)")
    parser.add_argument("--dev", type=Path, metavar="FILE", help="labelled published equations, to be scored too")
    parser.add_argument("--sample", type=Path, metavar="FILE", help="published equations with a field holds, likewise")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        _run(options)
    except TreememError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on", file=sys.stderr)
        return 130
    return 0


def _run(options: argparse.Namespace) -> None:
    unknown = [name for name in options.studies if name not in STUDIES]
    if unknown:
        raise RecipeError(f"no study is called {unknown[0]!r}; there are {', '.join(STUDIES)}")
    if options.studies:
        files = _files(options.dev, options.sample)
        forest = study_equations(options.runs / "data").forest
        forests = {"data": forest, **parts_of(forest)}
        for name in options.studies:
            choosing = name == "rates"
            run_study(
                EquationVerification(),
                STUDIES[name](),
                forests,
                folder=options.runs,
                results=options.results / f"{name}.jsonl",
                files={} if choosing else files,
                splits=("train", "validation") if choosing else ("train", "validation", "test"),
                processes=options.processes,
            )
    if not any((options.results / f"{name}.jsonl").exists() for name in STUDIES):
        raise RecipeError(f"there are no records in {options.results}; name studies to run: {', '.join(STUDIES)}")
    write_page(options.results, options.page)


def study_equations(folder: Path) -> EquationData:
    """The equations of all studies, generated once and then read from ``folder``."""
    if (folder / "CARD.md").exists():
        return EquationData.load(folder)
    data = generate_equations(SIZE, seed=DATA_SEED)
    data.save(folder)
    return data


def _files(dev: Path | None, sample: Path | None) -> dict[str, Forest]:
    """The published equations that are here to be scored."""
    files = {}
    if dev is not None:
        files["published_dev"] = read_equations(dev, variables="indexed", strict=True).forest
    if sample is not None:
        forest = read_equations(sample, variables="indexed", keep=["holds"], strict=True).forest
        files |= {f"published_sample, holds {held}": forest[forest.tree_data["holds"] == held] for held in _HELD}
    return files


if __name__ == "__main__":
    sys.exit(main())
