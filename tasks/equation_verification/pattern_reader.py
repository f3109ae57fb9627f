"""How do two files of true equations differ? A linear classifier of local patterns, and counts of a few shapes.

``python -m treemem.tasks.equation_verification.pattern_reader FIRST SECOND``
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from treemem.errors import TreememError, for_commands
from treemem.tasks.equation_verification.readers import read_equations
from treemem.trees.tree import Tree

_FOLDS = 5


def true_equations(path: Path, depths: tuple[int, int]) -> dict[int, list[Tree]]:
    """Return the true equations of a file by depth, in the order of the file.

    If the file has a field ``holds``, only those that hold at every real point.

    Args:
        path: labelled equations.
        depths: the first and the last depth.
    """
    forest = read_equations(path, variables="indexed", keep=["holds"], strict=True).forest
    forest = forest[np.isin(forest.tree_data["holds"], ["all", ""])]
    height = forest.height()[forest.begin[1:] - 1]
    chosen = forest.tree_data["label"] == 1
    return {
        depth: [forest[int(tree)] for tree in np.flatnonzero(chosen & (height == depth))]
        for depth in range(depths[0], depths[1] + 1)
    }


def local_patterns(equation: Tree) -> Counter[str]:
    """Return how often each node with its children, and each path of three nodes, occurs; all variables are alike."""
    found: Counter[str] = Counter()
    for node in equation.postorder():
        if node.children:
            found[f"{_name(node)}({', '.join(map(_name, node.children))})"] += 1
        for child in node.children:
            found.update(f"{_name(node)} > {_name(child)} > {_name(last)}" for last in child.children)
    return found


def accuracy_and_patterns(
    first: Sequence[Tree], second: Sequence[Tree], *, shown: int = 10
) -> tuple[float, list[str], list[str]]:
    """Return how well a linear classifier tells two lists of trees apart, and the patterns that it uses most.

    The accuracy is a mean over five folds, each predicted by a logistic regression on the others. The patterns are
    those of the largest weights for the first list, then for the second.
    """
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    counts = [local_patterns(tree) for tree in (*first, *second)]
    is_second = np.repeat([0, 1], [len(first), len(second)])
    reader = make_pipeline(DictVectorizer(), MaxAbsScaler(), LogisticRegression(max_iter=2000))
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
    with threadpool_limits(1):  # its threads wait busily
        accuracy = float(cross_val_score(reader, counts, is_second, cv=folds).mean())
        reader.fit(counts, is_second)
    names = reader[0].get_feature_names_out()
    order = np.argsort(reader[-1].coef_[0])
    return accuracy, names[order[:shown]].tolist(), names[order[::-1][:shown]].tolist()


def _name(node: Tree) -> str:
    return "variable" if node.label.startswith("Symbol:") else node.label


def _roots_of_sums(equation: Tree) -> float:
    return sum(
        node.label == "Pow" and [child.label for child in node.children] == ["Add", "Half:1/2"]
        for node in equation.postorder()
    )


def _powers_of_powers_of_sums(equation: Tree) -> float:
    return sum(
        node.label == node.children[0].label == "Pow" and node.children[0].children[0].label == "Add"
        for node in equation.postorder()
        if node.children
    )


def _same_function_at_the_roots(equation: Tree) -> float:
    left, right = equation.children
    return bool(left.children) and left.label == right.label


def _at_least_three_variables(equation: Tree) -> float:
    return len({node.label for node in equation.postorder() if node.label.startswith("Symbol:")}) >= 3


_SHAPES: dict[str, Callable[[Tree], float]] = {
    "square roots of sums, per equation": _roots_of_sums,
    "powers of powers of sums, per equation": _powers_of_powers_of_sums,
    "share whose sides have the same function at the root": _same_function_at_the_roots,
    "share with three or more variables": _at_least_three_variables,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how two files differ. Return 2 if one of them cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m treemem.tasks.equation_verification.pattern_reader",
        description="How do two files of true equations differ? Both get the same number of each depth.",
    )
    parser.add_argument("first", type=Path, help="labelled equations")
    parser.add_argument("second", type=Path, help="likewise")
    parser.add_argument("--depths", type=int, nargs=2, default=(8, 13), metavar=("FROM", "TO"), help="(8 13)")
    options = parser.parse_args(arguments)
    try:
        found = [true_equations(path, tuple(options.depths)) for path in (options.first, options.second)]
    except TreememError as error:
        print(f"error: {for_commands(error)}", file=sys.stderr)
        return 2
    sizes = {depth: min(len(each[depth]) for each in found) for depth in found[0]}
    first, second = ([tree for depth, size in sizes.items() for tree in each[depth][:size]] for each in found)
    if len(first) < _FOLDS:
        print(f"error: the files share {len(first)} true equations by depth; {_FOLDS} are needed", file=sys.stderr)
        return 2
    accuracy, of_first, of_second = accuracy_and_patterns(first, second)
    print(f"{len(first)} true equations of each file, by depth: {sizes}")
    print(f"accuracy of a linear classifier of local patterns: {accuracy:.1%}")
    for name, shape in _SHAPES.items():
        print(f"{name}: {np.mean([*map(shape, first)]):.3f} and {np.mean([*map(shape, second)]):.3f}")
    print(f"patterns of the first: {'; '.join(of_first)}")
    print(f"patterns of the second: {'; '.join(of_second)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
