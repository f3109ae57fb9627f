"""``treemem convert``."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import Namespace

from treemem.cli.command import Command, CommandParser, UsageError, add_output, add_overrides


def _add_arguments(parser: CommandParser) -> None:
    parser.add_argument("file", metavar="FILE", type=str, help="a state dict of the published code")
    add_output(parser, "FOLDER", "the checkpoint to write")
    parser.add_argument("--options", type=str, metavar="FILE", help="YAML or JSON file of options of the network")
    parser.add_argument(
        "--words",
        type=str,
        metavar="FILE",
        help="file of the words of the embedding table, one a row (the published words)",
    )
    parser.add_argument("--numeric", action="store_true", help="keep the number encoder and decoder of equations")
    add_overrides(parser, "stack_size=5")


def _run(options: Namespace) -> None:
    from treemem.conversion import convert
    from treemem.plain_yaml import load_yaml
    from treemem.runs.recipe import parse_override

    given = {} if options.options is None else load_yaml(_text_of(options.options, "--options"))
    if not isinstance(given, dict):
        raise UsageError(f"--options {options.options} must hold options and their values, such as stack_size: 5")
    model = convert(
        options.file,
        options.output,
        options={**given, **dict(map(parse_override, options.set))},
        task_options={"numeric": True} if options.numeric else None,
        words=None if options.words is None else _text_of(options.words, "--words").splitlines(),
        overwrite=options.overwrite,
    )
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"{options.output}: {model.network.network} of {model.task.name}, {count} weights")


def _text_of(path: str, option: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{option} {path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


COMMAND = Command(
    name="convert",
    summary="Convert weights of the published code of a network to a checkpoint.",
    usage="FILE -o FOLDER [OPTION=VALUE ...] [options]",
    description=(
        "Covers recursiveMemNet, Ordered-Memory and Ordered-Neurons; docs/authors_weights.md lists the models.\n"
        "Give the options that change results and that do not follow from the weights. The error names them."
    ),
    examples=(
        "treemem convert model-97.checkpoint -o published "
        "stack_size=5 activation=tanh output_activation=tanh normalize=true",
    ),
    add_arguments=_add_arguments,
    run=_run,
    takes_overrides=True,
)
