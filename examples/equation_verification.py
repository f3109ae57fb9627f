"""Is `sin(x)^2 + cos(x)^2 = 1` true? Train tree networks on shallow equations and test them on deep ones.

With no arguments this generates equations, trains Tree-LSTM and Tree-LSTM with a stack on depth 1-7, tests them on
depth 8-13, prints a table by depth and draws a plot of it. The equations are our own, and the
training schedule is not the published one; ``--full`` comes closer to the published setting. A run that was interrupted
goes on where it stopped.

Networks that earlier runs trained on the same equations in the same folder stay in the results, the table and the plot.
"""

from __future__ import annotations

import signal
import sys

if __name__ == "__main__":  # until all is imported, Ctrl-C ends the program at once and without a traceback
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from treemem import Forest, RecipeError, TreememError
from treemem.explore import accuracy_table, overall_table, plot_accuracy
from treemem.records import write_records
from treemem.runs import (
    FitResult,
    default_folder,
    evaluate,
    gathered_rows,
    load_recipe,
    mean_scores,
    score_row,
    scores_by_network,
    train_recipe,
    write_results,
)
from treemem.runs.network_folder import CARD, RESULTS
from treemem.runs.recipe_run import EVALUATION, check_folder
from treemem.tasks.equation_verification import read_equations

HELD = {"all": "at every real point", "some": "at some", "none": "at none"}


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="equation_verification/small", help="TASK/RECIPE or a file (%(default)s)")
    parser.add_argument(
        "--full", dest="recipe", action="store_const", const="equation_verification/published",
        help="the published setting: seven networks, 41,894 equations, 40 epochs, three seeds; takes an hour",
    )  # fmt: skip
    parser.add_argument("--size", type=int, help="number of equations to generate")
    parser.add_argument("--epochs", type=int, help="most epochs to train")
    parser.add_argument("--seeds", type=int, nargs="+", help="train each network once from each of these")
    parser.add_argument("--networks", nargs="+", metavar="NAME", help="only these of the recipe's networks")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE",
        help="override any field of the recipe, such as training.learning_rate=0.002; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--evaluate", type=Path, nargs="+", default=[], metavar="FILE",
        help=f"also score these labelled equations (text, CSV, JSONL, Parquet); the scores go to {EVALUATION} too",
    )  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="begin anew where the output folder holds a run")
    parser.add_argument("--output", type=Path, help="folder of the run (runs/TASK/RECIPE, as for `treemem train`)")
    return parser.parse_args(arguments)


def read_labelled(path: Path, numeric: bool) -> Forest:
    """The labelled equations of a file; published names of variables keep their index, others are numbered in order."""
    file = read_equations(path, variables="indexed", keep=["holds"], numeric=numeric)
    if any(getattr(record.error, "problem", "").startswith("unknown variable") for record in file.bad):
        logging.info("%s: variables are numbered in order of appearance", path)
        file = read_equations(path, keep=["holds"], numeric=numeric)
    forest = file.forest
    if not len(forest) or (forest.tree_data["label"] < 0).any():
        raise RecipeError(
            f"{path}: equations to score need labels, 1 for correct and 0 for incorrect, and be at least one"
        )
    return forest


def evaluation_rows(network: str, fits: Sequence[FitResult], path: Path, forest: Forest) -> Iterator[dict[str, Any]]:
    """Mean scores of a network's seeds on a file, on all of it and by where its equations hold, if it says so."""
    parts = {"": forest, **{held: forest[forest.tree_data["holds"] == held] for held in HELD}}
    for held, part in parts.items():
        if len(part):
            what = f"{path}{held and f', equations that hold {HELD[held]}'}"
            runs = [evaluate(fit.model, part, title=f"{network}, {fit.folder.name}, {what}").scores for fit in fits]
            for score in mean_scores(runs):
                yield {"file": str(path), "holds": held or None, **score_row(network, score, "depth")}


def run(options: argparse.Namespace) -> None:
    given = {"data.size": options.size, "training.epochs": options.epochs, "seeds": options.seeds}
    overrides = [f"{name}={value}" for name, value in given.items() if value is not None]
    recipe = load_recipe(options.recipe, [*overrides, *options.set]).with_networks(options.networks)
    task = recipe.make_task()
    numeric = bool(recipe.task_options.get("numeric"))
    files = {path: read_labelled(path, numeric) for path in options.evaluate}
    data = task.make_data(recipe.data)
    output = options.output or default_folder(recipe.task, options.recipe)
    check_folder(output)
    networks = list(recipe.networks)

    trained = train_recipe(recipe, task, data, output, overwrite=options.overwrite, other_scores=[EVALUATION])
    for name, result in trained:
        if files:
            rows = [row for file, forest in files.items() for row in evaluation_rows(name, result.fits, file, forest)]
            write_records(output / name / EVALUATION, rows)

    digest = task.examples(data.forest).digest()
    rows = gathered_rows(output, networks, digest)
    scores = scores_by_network(rows, "depth")
    print("\nTest equations: accuracy in %, by depth; published figures are of the published data\n")
    print(accuracy_table(scores, task.published))
    print("\nTest equations, all depths: %, published figures in parentheses\n")
    print(overall_table(scores, task.published))
    evaluations = gathered_rows(output, networks, digest, EVALUATION) if files else []
    for path in files:
        rows_of_file = [row for row in evaluations if row["file"] == str(path)]
        print(f"\n{path}: accuracy in %\n")
        print(accuracy_table(scores_by_network([row for row in rows_of_file if row["holds"] is None], "depth")))
        held: dict[str, list[str]] = {}
        for row in rows_of_file:
            if row["holds"] is not None and row["depth"] == "all":
                held.setdefault(row["network"], []).append(f"{HELD[row['holds']]} {row['accuracy']:.1%}")
        for name, parts in held.items():
            print(f"{name}, by where the equations hold: {', '.join(parts)}")

    write_results(output, rows, data.card, digest)
    if files:
        write_records(output / EVALUATION, evaluations)
    plot = output / "accuracy_by_depth.png"
    plot_accuracy(scores, plot, task.published, title="Equation verification, trained on depth 1-7")
    print(f"\nplot: {plot}; scores: {output / RESULTS}; data: {output / CARD}")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        run(options)
    except TreememError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; the same command (without --overwrite) goes on where it stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
