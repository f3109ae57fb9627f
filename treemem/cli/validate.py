"""``treemem validate``."""

from __future__ import annotations

from jsonargparse import Namespace

from treemem.cli.command import Command, CommandParser, add_overrides, add_shared


def _add_arguments(parser: CommandParser) -> None:
    add_shared(parser, "recipe")
    parser.add_argument("--networks", nargs="+", type=str, metavar="NAME", help="only these networks")
    add_overrides(parser, "training.epochs=3")


def _run(options: Namespace) -> None:
    from treemem.runs.recipe import format_recipe, load_recipe

    print(format_recipe(load_recipe(options.recipe, options.set).with_networks(options.networks)), end="")


COMMAND = Command(
    name="validate",
    summary="Check a recipe and print it with all its fields.",
    usage="RECIPE [FIELD=VALUE ...] [options]",
    description="The output is a recipe: write it to a file, change it, and train it.",
    examples=(
        "treemem validate listops/small",
        "treemem validate equation_verification/small training.epochs=3 --networks Tree-LSTM",
    ),
    add_arguments=_add_arguments,
    run=_run,
    takes_overrides=True,
)
