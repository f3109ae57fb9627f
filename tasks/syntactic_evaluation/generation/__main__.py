"""Write the minimal pairs of Marvin & Linzen 2018 to a file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from treemem.errors import TreememError, for_commands
from treemem.records import check_writable, write_records
from treemem.tasks.syntactic_evaluation.generation.templates import template_pairs


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pairs, say how many they are, and return the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=__doc__)
    parser.add_argument("output", metavar="FILE", help="a .tsv, .txt, .csv, .jsonl or .parquet, also .gz")
    parser.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")
    options = parser.parse_args(arguments)
    output = options.output
    try:
        check_writable(output, overwrite=options.overwrite)
        fields = (
            {"good": " ".join(pair.good), "bad": " ".join(pair.bad), "construction": pair.construction}
            for pair in template_pairs()
        )
        print(f"{write_records(output, fields, overwrite=options.overwrite):,} pairs", file=sys.stderr)
    except TreememError as error:
        print(f"error: {for_commands(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
