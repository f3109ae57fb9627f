"""What does `[MAX 2 9 [MIN 4 7 ] 0 ]` come to? Train networks that read the tokens, and look at the trees they induce.

With no arguments this generates ListOps expressions of up to 30 tokens, trains Ordered Memory and LSTM on them, tests
both on as long ones and on ones of 31 to 50 tokens, and prints their accuracy by length, how the trees that Ordered
Memory induces compare with the gold ones, which it never saw, and two of these trees. With
`--size 20000 --epochs 3` it takes two minutes. A run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import signal
import sys

if __name__ == "__main__":  # until all is imported, Ctrl-C ends the program at once and without a traceback
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from treemem import Forest, Tree, TreememError
from treemem.errors import RecipeError
from treemem.explore import accuracy_table
from treemem.runs import (
    Recipe,
    default_folder,
    gathered_rows,
    load_recipe,
    scores_by_network,
    train_recipe,
    write_results,
)
from treemem.runs.network_folder import CARD, RESULTS
from treemem.runs.page_tables import tree_table
from treemem.runs.recipe_run import check_folder
from treemem.tasks.induced_trees import found_trees, gold_trees, tree_scores
from treemem.tasks.listops import ListOps


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="listops/small", help="of ListOps: its name or a file (%(default)s)")
    parser.add_argument("--size", type=int, help="number of expressions to train on")
    parser.add_argument(
        "--epochs", type=int, help="epochs over all expressions, after the stages of the recipe's curriculum"
    )
    parser.add_argument("--seeds", type=int, nargs="+", help="train each network once from each of these")
    names = ["Ordered Memory", "LSTM"]
    parser.add_argument("--networks", nargs="+", metavar="NAME", default=names, help="of the recipe (%(default)s)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE",
        help="override any field of the recipe, such as training.learning_rate=0.001; may be repeated",
    )  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="begin anew where the output folder holds a run")
    parser.add_argument("--output", type=Path, help="folder of the run (runs/TASK/RECIPE, as for `treemem train`)")
    return parser.parse_args(arguments)


def chosen_recipe(options: argparse.Namespace) -> Recipe:
    """The recipe with the options of the command line; its curriculum lasts no longer than the run."""
    given = {"data.training_size": options.size, "training.epochs": options.epochs, "seeds": options.seeds or []}
    if options.epochs is not None:
        long_enough = f"training.epochs={sys.maxsize}"  # for whatever curriculum
        curriculum = load_recipe(options.recipe, [*options.set, long_enough]).training.curriculum
        if isinstance(curriculum, int):
            given["training.curriculum"] = min(options.epochs, curriculum)
        else:
            given["training.epochs"] = options.epochs + sum(epochs for _, epochs in curriculum)
    overrides = [f"{name}={value}" for name, value in given.items() if value is not None]
    return load_recipe(options.recipe, [*overrides, *options.set]).with_networks(options.networks)


def together(group: NDArray[np.int64]) -> NDArray[np.str_]:
    """One name for expressions of all lengths."""
    return np.full(len(group), "all")


def bracketed(tree: Tree) -> str:
    return " ".join(Forest.from_trees([tree]).tokens("bracketed leaves").strings()[0])


def run(options: argparse.Namespace) -> None:
    recipe = chosen_recipe(options)
    task = recipe.make_task()
    if not isinstance(task, ListOps):
        raise RecipeError(f"this example is about ListOps, and the recipe's task is {task.name}")
    data = task.make_data(recipe.data)
    output = options.output or default_folder(recipe.task, options.recipe)
    check_folder(output)
    results = dict(train_recipe(recipe, task, data, output, overwrite=options.overwrite))
    examples = task.examples(data.forest)
    digest = examples.digest()
    rows = gathered_rows(output, list(results), digest)
    write_results(output, rows, data.card, digest)
    print("\nTest expressions, by the most tokens that they have: accuracy in %\n")
    print(accuracy_table(scores_by_network(rows, task.group), group=task.group))

    gold, _ = gold_trees(examples)
    found, other_words = {}, []
    for name, result in results.items():
        if not result.fits[0].model.encoder.can_induce_trees:
            continue
        runs = {fit.folder.name: found_trees(fit.model, examples) for fit in result.fits}
        if result.fits[0].model.encoder.form in ("leaves", "bracketed leaves"):
            found[name] = runs
        else:
            other_words.append(name)
    if other_words:
        print(f"\nNot compared, since the leaves of gold trees are not the words they read: {', '.join(other_words)}")
    if found:
        print("\nInduced trees of the test expressions, beside trees that know their lengths alone: F1 in %,")
        print("over all spans together (corpus), and the mean of the expressions' (sentence)\n")
        scored = {name: tree_scores(runs, examples, together) for name, runs in found.items()}
        print(tree_table([{"network": name, "groups": groups} for name, groups in scored.items()]))
    tokens = [[leaf.label for leaf in tree.leaves()] for tree in gold]
    short_and_nested = [place for place, own in enumerate(tokens) if len(own) < 13 and own.count("]") > 1]
    for place in short_and_nested[:2] if found else ():
        print(f"\n{'gold':14} {bracketed(gold[place])}")
        for name, runs in found.items():
            print(f"{name:14} {bracketed(next(iter(runs.values()))[place])}")

    print(f"\nscores: {output / RESULTS}; data: {output / CARD}")


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
