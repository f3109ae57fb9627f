"""``treemem sweep``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace

from treemem.cli.command import Command, CommandParser, add_output, add_overrides, add_shared

if TYPE_CHECKING:
    from treemem.runs.sweep import Sweep


def _add_arguments(parser: CommandParser) -> None:
    add_shared(parser, "recipe")
    add_overrides(parser, "training.epochs=3, for all trials")
    parser.add_argument("--trials", type=int, required=True, metavar="N", help="total number of trials")
    parser.add_argument(
        "--vary", action="append", default=[], type=str, metavar="FIELD=VALUES",
        help="choices A,B,C or a range LOW:HIGH or LOW:HIGH:log; may be repeated (the learning rate, from a tenth of "
        "that of the recipe to ten times it)",
    )  # fmt: skip
    parser.add_argument("--network", type=str, metavar="NAME", help="the network to train (the recipe's first)")
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[], metavar="SEED",
        help="train each trial with each of these seeds and use the mean (the recipe's training.seed)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of Optuna's sampler (0)")
    add_output(parser, "FOLDER", "folder of the sweep (runs/TASK/RECIPE-sweep)", required=False)


def _run(options: Namespace) -> None:
    from treemem.cli.train import logged_in
    from treemem.runs.accelerator import find_device
    from treemem.runs.recipe_run import default_folder
    from treemem.runs.sweep import TRIALS, check_sweep_folder, plan_sweep, run_trials
    from treemem.runs.variation import Variation

    sweep = plan_sweep(
        options.recipe,
        [Variation.parse(text) for text in options.vary],
        trials=options.trials,
        overrides=options.set,
        network=options.network,
        seed=options.seed,
        seeds=options.seeds,
    )
    recipe = sweep.trial(0, {}).recipe
    find_device(recipe.training.accelerator, "training.accelerator")
    output = Path(options.output or f"{default_folder(recipe.task, options.recipe)}-sweep")
    check_sweep_folder(output)
    with logged_in(output):
        records = run_trials(sweep, options.trials, output, overwrite=options.overwrite)
    print(_table(sweep, records, options.set))
    print(f"trials: {output / TRIALS}")


def _table(sweep: Sweep, records: Sequence[Mapping[str, Any]], overrides: Sequence[str]) -> str:
    """Return a table of the trials, and the command that trains the best one."""
    from treemem.explore import markdown_table
    from treemem.runs.sweep import as_overrides

    rows = [["trial", *records[0]["overrides"], f"validation {sweep.monitor.metric}"]]
    for record in records:
        result = sweep.monitor.shown(record[sweep.judged_by]) if record["error"] is None else "failed"
        values = [text.partition("=")[2] for text in as_overrides(record["overrides"])]
        rows.append([str(record["trial"]), *values, result])
    best = sweep.best(records)
    drawn = as_overrides(best["overrides"])
    words = ["treemem", "train", sweep.source, *overrides, *drawn, "--networks", sweep.network]
    if sweep.seeds:
        words += ["--seeds", *map(str, sweep.seeds)]
    shown = sweep.monitor.shown(best[sweep.judged_by]) + " %" * sweep.monitor.percent
    return (
        f"{markdown_table(rows)}\n\nbest: trial {best['trial']}, {shown}, {' '.join(drawn)}\n"
        f"to train it: {shlex.join(words)}"
    )


COMMAND = Command(
    name="sweep",
    summary="Search fields of a recipe with Optuna for the best validation metric.",
    usage="RECIPE --trials N [--vary FIELD=VALUES ...] [FIELD=VALUE ...] [options]",
    description=(
        "The test examples are not used. Each trial is recorded in trials.jsonl. The same command continues after an\n"
        "interruption. With a larger N it adds trials."
    ),
    examples=(
        "treemem sweep equation_verification/small --trials 4 --vary training.learning_rate=0.0003:0.03:log "
        "--vary training.batch_size=64,256",
    ),
    add_arguments=_add_arguments,
    run=_run,
    takes_overrides=True,
    stopped="run the same command without --overwrite to continue",
)
