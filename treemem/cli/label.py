"""``treemem label``."""

from __future__ import annotations

import logging

from jsonargparse import Namespace

from treemem.cli.command import Command, CommandParser, add_input_format, add_output

_logger = logging.getLogger(__name__)


def _add_arguments(parser: CommandParser) -> None:
    parser.add_argument("input", metavar="INPUT", type=str, help="file of equations, or - for standard input")
    add_output(parser, "OUTPUT", "file, or - for standard output")
    add_input_format(parser, "INPUT")
    parser.add_argument("--output-format", type=str, metavar="FORMAT", help="csv, jsonl or parquet (by its name)")


def _run(options: Namespace) -> None:
    from treemem.tasks.equation_verification.labelling import label_file

    to_standard_output = options.output == "-"
    counts = label_file(
        options.input,
        options.output,
        format=options.format,
        output_format=options.output_format or ("jsonl" if to_standard_output else None),
        overwrite=options.overwrite,
    )
    _logger.info("%d true, %d false, %d undecided", *(counts[name] for name in ("true", "false", "undecided")))


COMMAND = Command(
    name="label",
    summary="Label equations as true or false by evaluating both sides at many points.",
    usage="INPUT -o OUTPUT [options]",
    description=(
        "A record has the fields id, equation, label (1, 0 or nothing), verdict (true, false or undecided) and\n"
        "witness, a point where a false equation fails. Functions are real functions. Other fields are left\n"
        "out, and variables are renamed. Without its undecided equations, the output is training data: name it\n"
        "in data.path."
    ),
    examples=(
        "treemem label equations.jsonl -o labelled.jsonl",
        "treemem label equations.jsonl -o labelled.csv",
    ),
    add_arguments=_add_arguments,
    run=_run,
)
