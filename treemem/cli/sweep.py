"""``treemem sweep``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace

from treemem.cli.command import Command, CommandParser, UsageError, add_overrides

if TYPE_CHECKING:
    from treemem.runs.sweep import Trial


def _add_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "recipe", metavar="RECIPE", type=str, help="TASK/RECIPE of one that comes along, or a YAML file"
    )
    add_overrides(parser, "training.epochs=3, the same for all trials")
    parser.add_argument("--trials", type=int, metavar="N", help="how many in all")
    parser.add_argument(
        "--vary", action="append", default=[], type=str, metavar="FIELD=VALUES",
        help="A,B,C to choose from, LOW:HIGH, or LOW:HIGH:log; may be repeated (the learning rate, from a tenth of the "
        "recipe's to ten times of it)",
    )  # fmt: skip
    parser.add_argument("--network", type=str, metavar="NAME", help="which one to train (the recipe's first)")
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[], metavar="SEED",
        help="train each trial once from each of these, and judge it by the mean (the recipe's training.seed)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the values that are drawn (0)")
    parser.add_argument("-o", "--output", type=str, metavar="FOLDER", help="of the sweep (runs/TASK/RECIPE-sweep)")
    parser.add_argument("--overwrite", action="store_true", help="begin anew where the folder holds a sweep")


def _run(options: Namespace) -> None:
    from treemem.cli.train import logged_in
    from treemem.runs.accelerator import find_device
    from treemem.runs.recipe_run import default_folder
    from treemem.runs.sweep import TRIALS, Variation, check_folder, plan_trials, run_trials

    if options.trials is None:
        raise UsageError("how many trials? give --trials N")
    planned = plan_trials(
        options.recipe,
        [Variation.parse(text) for text in options.vary],
        trials=options.trials,
        overrides=options.set,
        network=options.network,
        seed=options.seed,
        seeds=options.seeds,
    )
    recipe = planned[0].recipe
    find_device(recipe.training.accelerator, "training.accelerator")
    output = Path(options.output or f"{default_folder(recipe.task, options.recipe)}-sweep")
    check_folder(output)
    with logged_in(output):
        records = run_trials(planned, output, overwrite=options.overwrite)
    print(_told(planned, records, options.recipe, options.set))
    print(f"trials: {output / TRIALS}")


def _told(planned: Sequence[Trial], records: Sequence[Mapping[str, Any]], recipe: str, overrides: Sequence[str]) -> str:
    """A table of the trials, and the command that trains the best of them."""
    from treemem.explore import markdown_table, percent_of
    from treemem.runs.sweep import best_trial

    rows = [["trial", *planned[0].values, "validation accuracy"]]
    for trial, record in zip(planned, records, strict=True):
        accuracy = percent_of(record["validation_accuracy"]) if record["error"] is None else "failed"
        rows.append([str(trial.number), *(text.partition("=")[2] for text in trial.overrides), accuracy])
    best = best_trial(records)
    chosen = next(trial for trial in planned if trial.number == best["trial"])
    words = ["treemem", "train", recipe, *overrides, *chosen.overrides, "--networks", chosen.network]
    if chosen.seeds:
        words += ["--seeds", *map(str, chosen.seeds)]
    return (
        f"{markdown_table(rows)}\n\nbest: trial {chosen.number}, {percent_of(best['validation_accuracy'])} %, "
        f"{' '.join(chosen.overrides)}\nto train it: {shlex.join(words)}"
    )


COMMAND = Command(
    name="sweep",
    summary="Search a recipe's fields at random, judged by the validation examples alone.",
    usage="RECIPE --trials N [--vary FIELD=VALUES ...] [FIELD=VALUE ...] [options]",
    description=(
        "The test examples are taken out of the data before anything is trained. Each trial is recorded in\n"
        "trials.jsonl; the same command goes on after an interruption, and with a greater N adds trials."
    ),
    examples=(
        "treemem sweep equation_verification/small --trials 4 --vary training.learning_rate=0.0003:0.03:log "
        "--vary training.batch_size=64,256",
    ),
    add_arguments=_add_arguments,
    run=_run,
    takes_overrides=True,
    stopped="the same command (without --overwrite) goes on where it stopped",
)
