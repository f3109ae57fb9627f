"""``treemem predict``."""

from __future__ import annotations

import logging
from pathlib import Path

from jsonargparse import Namespace

from treemem.cli.command import (
    Command,
    CommandParser,
    UsageError,
    add_batch_size,
    add_checkpoint,
    add_device,
    add_input_format,
)
from treemem.errors import RecipeError

_logger = logging.getLogger(__name__)
_NONE_PREDICTED = 3


def _add_arguments(parser: CommandParser) -> None:
    add_checkpoint(parser)
    parser.add_argument("input", metavar="INPUT", type=str, help="file of records, or - for standard input")
    parser.add_argument("-o", "--output", type=str, metavar="OUTPUT", help="file, or - for standard output")
    add_input_format(parser, "INPUT", more=", dgl")
    parser.add_argument("--output-format", type=str, metavar="FORMAT", help="text, csv, jsonl or parquet (by its name)")
    parser.add_argument("--threshold", type=float, metavar="P", help="of the probability of true, for 1 (0.5)")
    parser.add_argument("--strict", action="store_true", help="stop at the first record that is none")
    parser.add_argument("--resume", action="store_true", help="go on with a run that was cut off")
    parser.add_argument("--overwrite", action="store_true", help="begin anew where the output exists")
    parser.add_argument(
        "--processes", type=int, metavar="N", help="that read records (as the machine has cores, at most 4)"
    )
    parser.add_argument("--most-nodes", type=int, metavar="N", help="of an example; a larger one is an error (100000)")
    add_batch_size(parser)
    add_device(parser)


def _run(options: Namespace) -> int:
    from treemem.predict import TreePredictor, predict_file
    from treemem.runs.accelerator import find_device

    if options.output is None:
        raise UsageError("where to? give -o OUTPUT, or -o - for standard output")
    if options.input != "-" and _is_empty(Path(options.input)):
        raise RecipeError(f"{options.input} is empty; there is nothing to predict")
    predictor = TreePredictor(
        options.checkpoint,
        batch_size=options.batch_size,
        device=find_device(options.device, "--device"),
        processes=options.processes,
        most_nodes=options.most_nodes,
    )
    counts = predict_file(
        predictor,
        options.input,
        options.output,
        format=options.format,
        output_format=options.output_format,
        strict=options.strict,
        resume=options.resume,
        overwrite=options.overwrite,
        threshold=options.threshold,
    )
    records = "1 record" if counts.records == 1 else f"{counts.records} records"
    told = f"{records}: {counts.predicted} predicted, {counts.rejected} with an error"
    if counts.was_complete:
        _logger.info("%s is complete and left as it is, whatever model and input it is of: %s", options.output, told)
    else:
        _logger.info("%s; %.0f records/s", told, counts.records / max(counts.seconds, 1e-9))
    if not counts.rejected:
        return 0
    if counts.predicted:
        _logger.warning("%d of %s have no prediction; see their field error", counts.rejected, records)
        return 0
    _logger.warning("no record has a prediction; is %s of the model's task?", options.input)
    return _NONE_PREDICTED


def _is_empty(path: Path) -> bool:
    """Whether a file is empty; it is not read, because what is read of a pipe is gone from it."""
    try:
        return path.is_file() and not path.stat().st_size
    except OSError:  # its reader says why
        return False


COMMAND = Command(
    name="predict",
    summary="Predict every record of a file: one answer for each, in order, errors included.",
    usage="CHECKPOINT INPUT -o OUTPUT [options]",
    description=(
        "An answer has the fields id, prediction (1 or 0 where it is yes or no, else the name of the class),\n"
        "probability and error. Until all are there they stand in OUTPUT.partial, from where --resume goes on.\n"
        "The exit code is 3 if every record has an error."
    ),
    examples=(
        "treemem predict equation_verification equations.jsonl -o answers.jsonl",
        "treemem predict equation_verification equations.jsonl -o answers.csv --threshold 0.8 --processes 1",
    ),
    add_arguments=_add_arguments,
    run=_run,
    stopped="the same command with --resume goes on where it stopped",
)
