"""``treemem predict``."""

from __future__ import annotations

import logging
from pathlib import Path

from jsonargparse import Namespace

from treemem.cli.command import (
    Command,
    CommandParser,
    add_explanation,
    add_form,
    add_input_format,
    add_output,
    add_shared,
)
from treemem.errors import RecipeError

_logger = logging.getLogger(__name__)
_NONE_PREDICTED = 3


def _add_arguments(parser: CommandParser) -> None:
    add_shared(parser, "checkpoint")
    parser.add_argument("input", metavar="INPUT", type=str, help="file of records, or - for standard input")
    add_output(parser, "OUTPUT", "file, or - for standard output")
    add_input_format(parser, "INPUT", more=", dgl")
    add_form(parser, "INPUT is a file of trees in this form, not of records")
    parser.add_argument("--output-format", type=str, metavar="FORMAT", help="text, csv, jsonl or parquet (by its name)")
    parser.add_argument(
        "--threshold", type=float, metavar="P", help="predict 1 above this probability of true (the model's, or 0.5)"
    )
    parser.add_argument("--strict", action="store_true", help="stop at the first bad record")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted run")
    parser.add_argument("--processes", type=int, metavar="N", help="processes that read records (cores, at most 4)")
    parser.add_argument(
        "--most-nodes", type=int, default=100_000, metavar="N", help="largest number of nodes of a record (100000)"
    )
    add_explanation(parser)
    add_shared(parser, "--batch-size", "--device", "--cuda-graphs")


def _run(options: Namespace) -> int:
    from treemem.predict import TreePredictor, predict_file
    from treemem.runs.accelerator import find_device

    if Path(options.input).is_file() and not Path(options.input).stat().st_size:
        raise RecipeError(f"{options.input} is empty; there is nothing to predict")
    predictor = TreePredictor(
        options.checkpoint,
        batch_size=options.batch_size,
        device=find_device(options.device, "--device"),
        cuda_graphs=options.cuda_graphs,
        processes=options.processes,
        most_nodes=options.most_nodes,
        explain=options.explain,
        explain_answer=options.explain_answer,
    )
    counts = predict_file(
        predictor,
        options.input,
        options.output,
        format=options.format,
        form=options.form,
        output_format=options.output_format,
        strict=options.strict,
        resume=options.resume,
        overwrite=options.overwrite,
        threshold=options.threshold,
    )
    records = "1 record" if counts.records == 1 else f"{counts.records} records"
    result = f"{records}: {counts.predicted} predicted, {counts.rejected} with an error"
    if counts.was_complete:
        _logger.info("%s is complete already, its model and input are not checked: %s", options.output, result)
    else:
        _logger.info("%s; %.0f records/s", result, counts.records / max(counts.seconds, 1e-9))
    if not counts.rejected:
        return 0
    if counts.predicted:
        _logger.warning("%d of %s have no prediction; see their field error", counts.rejected, records)
        return 0
    _logger.warning("no record has a prediction; does %s belong to the model's task?", options.input)
    return _NONE_PREDICTED


COMMAND = Command(
    name="predict",
    summary="Predict every record of a file: one answer for each record, in order.",
    usage="CHECKPOINT INPUT -o OUTPUT [options]",
    description=(
        "An answer has the fields id, prediction (1 or 0 for binary tasks, else the name of the class), probability,\n"
        "error, warning and, with --explain, explanation. Until all answers are complete, they are in OUTPUT.partial,\n"
        "from which --resume continues. The exit code is 3 if every record has an error."
    ),
    examples=(
        "treemem predict equation_verification equations.jsonl -o answers.jsonl",
        "treemem predict equation_verification equations.jsonl -o answers.csv --threshold 0.8 --processes 1",
        "treemem predict equation_verification equations.jsonl -o explained.jsonl --explain occlusion",
    ),
    add_arguments=_add_arguments,
    run=_run,
    stopped="run the same command with --resume to continue",
)
