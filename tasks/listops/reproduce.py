"""Results on ListOps, made anew: one command that goes on where it stopped.

The records of finished runs are kept in RESULTS/STUDY.jsonl, from which the page is written; what is in there is not
run again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from treemem.tasks.listops.results_page import write_page
from treemem.tasks.listops.task import ListOps
from treemem.tasks.sequence_study import STUDY, run_small, small_recipe
from treemem.tasks.study_command import check_studies, run_command, study_parser

STUDIES = (STUDY,)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, and write the page."""
    return run_command(_run, study_parser(ListOps.name, __doc__, STUDIES).parse_args(arguments))


def _run(options: argparse.Namespace) -> None:
    check_studies(options, STUDIES)
    if options.studies:
        run_small(options, small_recipe(ListOps.name), "tokens")
    write_page(options.results, options.page)


if __name__ == "__main__":
    sys.exit(main())
