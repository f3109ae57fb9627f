"""Formulas whose class one subtree decides, and a small network that has learned them.

A formula is a random tree of ``f`` and ``g`` over the leaves a, b, c, p and q. It has the subtree ``(vote p p p)`` or
``(vote q q q)``, which decides that its class is p or q. Without a ``vote`` its class is none. The letters p and q
elsewhere mean nothing.

    python tests/attribution/deciding_subtrees.py

trains a Tree-LSTM and prints for each method in how many of 400 new formulas the deciding subtree ranks first.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from typing import NamedTuple

from treemem.attribution import METHODS, explain
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.runs.fit import fit
from treemem.runs.options import TrainingOptions
from treemem.tasks.table import TableDataOptions, task_from_table
from treemem.trees.tree import Tree


class Formula(NamedTuple):
    """A formula, its class, and the subtree that decides it, None without a vote."""

    tree: Tree
    letter: str
    deciding: Tree | None


def random_tree(draw: random.Random, height: int) -> Tree:
    if not height or draw.random() < 0.2:
        return Tree(draw.choice("abcpq"))
    return Tree(draw.choice("fg"), [random_tree(draw, height - 1), random_tree(draw, height - 1)])


def random_formula(draw: random.Random) -> Formula:
    letter = draw.choice(["p", "q", "none"])
    deciding = None if letter == "none" else Tree("vote", [Tree(letter)] * 3)
    tree = deciding or random_tree(draw, 1)
    for _ in range(draw.randint(1, 4)):
        sides = [tree, random_tree(draw, 2)]
        draw.shuffle(sides)
        tree = Tree(draw.choice("fg"), sides)
    return Formula(tree, letter, deciding)


def formulas(count: int, seed: int, *, deciding: bool = False) -> list[Formula]:
    """Return random formulas; with ``deciding`` only those with a deciding subtree."""
    draw = random.Random(seed)
    made: list[Formula] = []
    while len(made) < count:
        formula = random_formula(draw)
        if formula.deciding is not None or not deciding:
            made.append(formula)
    return made


def trained_model(
    network: str = "TreeLSTM", *, count: int = 800, epochs: int = 16, hidden_size: int = 16, seed: int = 0
) -> Model:
    rows = [{"tree": formula.tree, "letter": formula.letter} for formula in formulas(count, 0)]
    task = task_from_table(rows, tree="tree", target="letter")
    options = TrainingOptions(epochs=epochs, batch_size=32, learning_rate=0.02, seed=seed, threads=1, accelerator="cpu")
    data = task.make_data(TableDataOptions(validation=0.1, test=0.0))
    with tempfile.TemporaryDirectory() as folder:
        return fit(task, NetworkConfig(network, {"hidden_size": hidden_size}), data, options, output=folder).model


def share_first(model: Model, method: str, test: list[Formula]) -> float:
    """Return the share of formulas whose deciding subtree ranks first."""
    explanations = explain(model, [formula.tree for formula in test], method)  # type: ignore[arg-type]
    first = [explanation.tree_at(explanation.ranking()[0]) for explanation in explanations]
    return sum(tree == formula.deciding for tree, formula in zip(first, test, strict=True)) / len(test)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", default="TreeLSTM")
    parser.add_argument("--hidden-size", type=int, default=64)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    arguments = parser.parse_args()
    model = trained_model(arguments.network, count=2000, epochs=10, hidden_size=arguments.hidden_size)
    test = formulas(400, 1, deciding=True)
    predicted = model.predict([formula.tree for formula in test]).argmax(1).tolist()
    classes = list(model.task.class_names or ())
    print("accuracy", sum(classes[c] == formula.letter for c, formula in zip(predicted, test, strict=True)) / len(test))
    for method in arguments.methods:
        print(f"{method:24}{100 * share_first(model, method, test):6.1f} %")


if __name__ == "__main__":
    main()
