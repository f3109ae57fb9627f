"""``treemem explore``."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from jsonargparse import Namespace
from jsonargparse.typing import PositiveInt

from treemem.cli.command import Command, CommandParser, add_explanation, add_input_format, add_output, add_shared

_logger = logging.getLogger(__name__)
_MOST = 100


def _add_arguments(parser: CommandParser) -> None:
    add_shared(parser, "checkpoint")
    parser.add_argument("input", metavar="INPUT", type=str, help="file of examples, or - for standard input")
    add_output(parser, "PAGE", "the HTML file to write")
    add_input_format(parser, "INPUT")
    parser.add_argument(
        "--most",
        type=PositiveInt,
        default=_MOST,
        metavar="N",
        help=f"show N examples, spread evenly over the file ({_MOST})",
    )
    parser.add_argument("--title", type=str, default="", metavar="TEXT", help="title of the page")
    add_explanation(parser)
    add_shared(parser, "--device")


def _run(options: Namespace) -> None:
    from treemem.checkpoint import load
    from treemem.explore import explore
    from treemem.predict.file_prediction import check_labels, record_ids
    from treemem.records import check_writable
    from treemem.runs.accelerator import find_device

    check_writable(options.output, overwrite=options.overwrite)
    model = load(options.checkpoint, device=find_device(options.device, "--device"))
    forest = model.task.read_examples(options.input, format=options.format)
    check_labels(model, forest, options.input, options.format)
    count = len(model.task.examples_to_predict(forest))
    ids: list[Any] = []
    if options.input != "-":
        ids = record_ids(options.input, model.task.reader, options.format)
    if len(ids) != count:  # an example of this task is not a record
        ids = list(range(1, count + 1))
    if count > options.most:
        _logger.info("the page shows %d of %d examples, spread evenly; --most N shows more", options.most, count)
        chosen = np.linspace(0, count - 1, options.most).round().astype(np.int64)
        trees = np.arange(len(forest)).reshape(count, -1)
        forest, ids = forest[trees[chosen].ravel()], [ids[number] for number in chosen.tolist()]
    page = explore(
        model,
        forest,
        options.output,
        ids=ids,
        title=options.title,
        most=options.most,
        explain=options.explain,
        explain_answer=options.explain_answer,
        overwrite=options.overwrite,
    )
    print(f"open {page} in a browser")


COMMAND = Command(
    name="explore",
    summary="Write an HTML page of what a model does with examples: trees, states, stacks, gates and answers.",
    usage="CHECKPOINT INPUT -o PAGE [options]",
    description="INPUT holds examples as for evaluate; labels are optional.",
    examples=(
        "treemem explore equation_verification equations.jsonl -o page.html --most 20",
        "treemem explore equation_verification equations.jsonl -o explained.html --explain occlusion",
    ),
    add_arguments=_add_arguments,
    run=_run,
)
