"""The published table of logical inference, made anew: one command that goes on where it stopped.

The records of finished runs are kept in RESULTS/STUDY.jsonl, from which the page is written; what is in there is not
run again. The studies over given trees need --data, the folder of the published files.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from treemem.errors import RecipeError
from treemem.runs import run_study
from treemem.tasks.logical_inference.results_page import write_page
from treemem.tasks.logical_inference.studies import (
    gold_tree_runs,
    held_out_pairs,
    held_out_runs,
    longer_runs,
    published_pairs,
    trial_pairs,
    trial_runs,
)
from treemem.tasks.logical_inference.task import LogicalInference
from treemem.tasks.sequence_study import run_small, small_recipe
from treemem.tasks.study_command import check_studies, run_command, study_parser

STUDIES = ("gold-trees-trials", "gold-trees", "gold-trees-longer", "gold-trees-held-out", "small")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, and write the page."""
    parser = study_parser(LogicalInference.name, __doc__, STUDIES)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="of the published files, such as train.tsv.gz")
    return run_command(_run, parser.parse_args(arguments))


def _run(options: argparse.Namespace) -> None:
    check_studies(options, STUDIES)
    over_given_trees = {
        "gold-trees-trials": (trial_runs, trial_pairs),
        "gold-trees": (gold_tree_runs, published_pairs),
        "gold-trees-longer": (longer_runs, published_pairs),
        "gold-trees-held-out": (held_out_runs, held_out_pairs),
    }
    for study, (runs, pairs) in over_given_trees.items():
        if study not in options.studies:
            continue
        if options.data is None:
            raise RecipeError(f"the study {study} needs --data, the folder of the published files")
        run_study(
            LogicalInference(),
            runs(),
            pairs(str(options.data)),
            folder=options.runs / LogicalInference.name,
            results=options.results / f"{study}.jsonl",
            processes=options.processes,
        )
    if "small" in options.studies:
        run_small(options, small_recipe(LogicalInference.name), "operations")
    write_page(options.results, options.page)


if __name__ == "__main__":
    sys.exit(main())
