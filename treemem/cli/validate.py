"""``treemem validate``."""

from __future__ import annotations

from jsonargparse import Namespace

from treemem.cli.command import Command, CommandParser, add_overrides


def _add_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "recipe", metavar="RECIPE", type=str, help="TASK/RECIPE of one that comes along, or a YAML file"
    )
    parser.add_argument("--networks", nargs="+", type=str, metavar="NAME", help="only these networks")
    add_overrides(parser, "training.epochs=3")


def _run(options: Namespace) -> None:
    from treemem.runs.recipe import format_recipe, load_recipe

    print(format_recipe(load_recipe(options.recipe, options.set).with_networks(options.networks)), end="")


COMMAND = Command(
    name="validate",
    summary="Check a recipe and print it with all its fields, or say what is wrong with it.",
    usage="RECIPE [FIELD=VALUE ...] [options]",
    description="What it prints is a recipe: put it into a file, change it, and train that.",
    examples=(
        "treemem validate listops/small",
        "treemem validate equation_verification/small training.epochs=3 --networks Tree-LSTM",
    ),
    add_arguments=_add_arguments,
    run=_run,
    takes_overrides=True,
)
