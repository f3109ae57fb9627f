"""``treemem label``."""

from __future__ import annotations

import logging

from jsonargparse import Namespace

from treemem.cli.command import Command, CommandParser, add_input_format, add_output

_NONE_LABELLED = 3
_logger = logging.getLogger(__name__)


def _add_arguments(parser: CommandParser) -> None:
    parser.add_argument("input", metavar="INPUT", type=str, help="file of equations, or - for standard input")
    add_output(parser, "OUTPUT", "file, or - for standard output")
    add_input_format(parser, "INPUT")
    parser.add_argument("--output-format", type=str, metavar="FORMAT", help="csv, jsonl or parquet (by its name)")


def _run(options: Namespace) -> int:
    from treemem.tasks.equation_verification.labelling import label_file

    to_standard_output = options.output == "-"
    counts = label_file(
        options.input,
        options.output,
        format=options.format,
        output_format=options.output_format or ("jsonl" if to_standard_output else None),
        overwrite=options.overwrite,
    )
    shown = (counts[name] for name in ("true", "false", "undecided", "error"))
    _logger.info("%d true, %d false, %d undecided, %d with an error", *shown)
    if counts["error"] < counts.total():
        return 0
    _logger.warning("no record is an equation; see their field error")
    return _NONE_LABELLED


COMMAND = Command(
    name="label",
    summary="Label equations as true or false by evaluating both sides at many points.",
    usage="INPUT -o OUTPUT [options]",
    description=(
        "There is a record for each one of the input. It has the fields id, equation, label (1, 0 or nothing),\n"
        "verdict (true, false or undecided), witness, a point where a false equation fails, and error, if the\n"
        "record is no equation. Functions are real functions. Other fields are left out, and variables are\n"
        "renamed. Without records that have no label, the output is training data: name it in data.path. The\n"
        "exit code is 3 if every record has an error."
    ),
    examples=(
        "treemem label equations.jsonl -o labelled.jsonl",
        "treemem label equations.jsonl -o labelled.csv",
    ),
    add_arguments=_add_arguments,
    run=_run,
)
