"""``treemem convert``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from treemem.cli.command import Command, CommandParser, UsageError, add_overrides


def _add_arguments(parser: CommandParser) -> None:
    parser.add_argument("file", metavar="FILE", type=str, help="a state dict that the published code saved")
    parser.add_argument("-o", "--output", type=str, metavar="FOLDER", help="the checkpoint to write")
    parser.add_argument("--options", type=str, metavar="FILE", help="JSON object of options of the network")
    parser.add_argument(
        "--words", type=str, metavar="FILE", help="the word of each row of the embedding table (the published words)"
    )
    parser.add_argument("--numeric", action="store_true", help="keep the number encoder and decoder of equations")
    parser.add_argument(
        "--published", type=str, metavar="CODE", help="recursiveMemNet, Ordered-Memory, Ordered-Neurons"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing checkpoint")
    add_overrides(parser, "stack_size=5")


def _run(options: Namespace) -> None:
    from treemem.conversion import convert
    from treemem.runs.recipe import parse_override

    if options.output is None:
        raise UsageError("where to? give -o FOLDER")
    model = convert(
        options.file,
        options.output,
        published=options.published,
        options={**_options_in(options.options), **dict(map(parse_override, options.set))},
        task_options={"numeric": True} if options.numeric else None,
        words=None if options.words is None else _text_of(options.words, "--words").splitlines(),
        overwrite=options.overwrite,
    )
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"{options.output}: {model.network.network} of {model.task.name}, {count} weights")


def _text_of(path: str, option: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{option} {path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _options_in(path: str | None) -> dict[str, Any]:
    """Return the options in a JSON file."""
    if path is None:
        return {}
    try:
        found = json.loads(_text_of(path, "--options"))
    except json.JSONDecodeError as error:
        raise UsageError(f"--options {path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f'--options {path} must hold an object such as {{"stack_size": 5}}')
    return found


COMMAND = Command(
    name="convert",
    summary="Convert weights that the published code of a network saved to a checkpoint.",
    usage="FILE -o FOLDER [OPTION=VALUE ...] [options]",
    description=(
        "Covers recursiveMemNet, Ordered-Memory and Ordered-Neurons; docs/authors_weights.md lists the models.\n"
        "Options that change numbers and that the weights do not tell must be given. The error names them."
    ),
    examples=(
        "treemem convert model-97.checkpoint -o published "
        "stack_size=5 activation=tanh output_activation=tanh normalize=true",
    ),
    add_arguments=_add_arguments,
    run=_run,
    takes_overrides=True,
)
