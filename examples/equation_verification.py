"""Is `sin(x)^2 + cos(x)^2 = 1` true? Train tree networks on shallow equations and test them on deep ones.

With no arguments this generates equations, trains Tree-LSTM and Tree-LSTM with a stack on depth 1-7, tests them on
depth 8-13, prints a table by depth and draws a plot of it. A run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from treemem import Forest, RecipeError, TreememError
from treemem.explore import accuracy_table, overall_table, plot_accuracy
from treemem.records import replacing, write_records
from treemem.task import Score
from treemem.tasks.equation_verification import read_equations
from treemem.training import FitResult, evaluate, fit_seeds, load_recipe, mean_scores, score_row

HELD = {"all": "at every real point", "some": "at some", "none": "at none"}


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="equation_verification/small", help="TASK/RECIPE or a file (%(default)s)")
    parser.add_argument(
        "--full", dest="recipe", action="store_const", const="equation_verification/published",
        help="the published setting: seven networks, 41,894 equations, 100 epochs, three seeds; takes hours",
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
        help="also score these labelled equations (text, CSV, JSONL, Parquet)",
    )  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="begin anew where the output folder holds a run")
    parser.add_argument("--output", type=Path, default=Path("runs/equation_verification"), help="folder (%(default)s)")
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


def mean_over_seeds(fits: Sequence[FitResult], forest: Forest) -> list[Score]:
    return mean_scores([evaluate(fit.model, forest).scores for fit in fits])


def run(options: argparse.Namespace) -> None:
    given = {"data.size": options.size, "training.epochs": options.epochs, "seeds": options.seeds}
    overrides = [f"{name}={value}" for name, value in given.items() if value is not None]
    recipe = load_recipe(options.recipe, [*overrides, *options.set]).with_networks(options.networks)
    task = recipe.make_task()
    numeric = bool(recipe.task_options.get("numeric"))
    files = {path: read_labelled(path, numeric) for path in options.evaluate}
    data = task.make_data(recipe.data)

    fits: dict[str, list[FitResult]] = {}
    scores: dict[str, list[Score]] = {}
    for name, network in recipe.networks.items():
        logging.info("-- %s", name)
        result = fit_seeds(
            task, network, data, recipe.training,
            seeds=recipe.seeds or [recipe.training.seed], output=options.output / name,
            resume=not options.overwrite, overwrite=options.overwrite,
        )  # fmt: skip
        fits[name], scores[name] = result.fits, result.scores
        training, scoring = result.fits[0], result.evaluations[0]
        logging.info(
            "%s: %.0f trees/s in training, %.0f trees/s in scoring (%.0f without making the batches)",
            name, training.trees_per_second, scoring.trees_per_second, scoring.network_trees_per_second,
        )  # fmt: skip

    plot = options.output / "accuracy_by_depth.png"
    plot_accuracy(scores, plot, task.published, title="Equation verification, trained on depth 1-7")
    rows = [score_row(name, score, task.group) for name, own in scores.items() for score in own]
    write_records(options.output / "results.jsonl", rows)
    with replacing(options.output / "data.md") as card:
        card.write_text(data.card, encoding="utf-8")
    print("\nTest equations: accuracy in %\n")
    print(accuracy_table(scores, task.published))
    print("\nTest equations, all depths: % (published figures in parentheses)\n")
    print(overall_table(scores, task.published))
    for path, forest in files.items():
        print(f"\n{path}: accuracy in %\n")
        print(accuracy_table({name: mean_over_seeds(own, forest) for name, own in fits.items()}))
        chosen = {told: forest[forest.tree_data["holds"] == value] for value, told in HELD.items()}
        parts = {told: part for told, part in chosen.items() if len(part)}
        for name, own in fits.items() if parts else ():
            held = [f"{told} {mean_over_seeds(own, part)[-1].accuracy:.1%}" for told, part in parts.items()]
            print(f"{name}, by where the equations hold: {', '.join(held)}")
    print(f"\nplot: {plot}; data: {options.output / 'data.md'}")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        run(options)
    except TreememError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\nstopped; without --overwrite the same command goes on from {options.output}", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
