"""``treemem convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from treemem.cli.command import Command, CommandParser, UsageError
from treemem.errors import RecipeError


def _add_arguments(parser: CommandParser) -> None:
    parser.add_argument("file", metavar="FILE", type=str, help="a state dict that the published code saved")
    parser.add_argument("-o", "--output", type=str, metavar="FOLDER", help="the checkpoint to write")
    parser.add_argument(
        "--options", type=str, metavar="FILE", help="JSON file of an object with options of the network"
    )
    parser.add_argument(
        "--words", type=str, metavar="FILE", help="what the rows of the table of words are, one a line (the published)"
    )
    parser.add_argument("--numeric", action="store_true", help="keep what an equation network learnt of numbers")
    parser.add_argument(
        "--published",
        type=str,
        metavar="CODE",
        help="recursiveMemNet, Ordered-Memory or Ordered-Neurons (by its names)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the checkpoint where it exists")
    parser.add_argument(
        "--set", action="append", default=[], type=str, metavar="OPTION=VALUE",
        help="an option of the network, such as stack_size=5; may be repeated",
    )  # fmt: skip


def _run(options: Namespace) -> None:
    from treemem.conversion import convert

    if options.output is None:
        raise UsageError("where to? give -o FOLDER")
    model = convert(
        options.file,
        options.output,
        published=options.published,
        options={**_options_in(options.options), **dict(map(_option, options.set))},
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
    """The options in a JSON file."""
    import json

    if path is None:
        return {}
    try:
        found = json.loads(_text_of(path, "--options"))
    except (json.JSONDecodeError, RecursionError) as error:
        raise UsageError(f"--options {path} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UsageError(f'--options {path} must hold an object such as {{"stack_size": 5}}')
    return found


def _option(text: str) -> tuple[str, Any]:
    """``NAME=VALUE`` as a name and what the value says in YAML."""
    from treemem.runs.recipe import read_yaml

    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set takes NAME=VALUE, not {text!r}")
    try:
        return name.strip(), read_yaml(value)
    except RecipeError as error:
        raise UsageError(f"the value in {text!r} is no YAML value ({error})") from error


COMMAND = Command(
    name="convert",
    summary="Make a checkpoint of weights that the published code of a network saved.",
    usage="FILE -o FOLDER [OPTION=VALUE ...] [options]",
    description=(
        "Covers recursiveMemNet, Ordered-Memory and Ordered-Neurons (docs/authors_weights.md says which models).\n"
        "What the weights do not say and what changes numbers must be given as OPTION=VALUE; the error names it."
    ),
    examples=(
        "treemem convert model-97.checkpoint -o published "
        "stack_size=5 activation=tanh output_activation=tanh normalize=true",
    ),
    add_arguments=_add_arguments,
    run=_run,
    takes_overrides=True,
)
