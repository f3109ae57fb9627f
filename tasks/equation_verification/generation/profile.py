"""What equations look like on average, to hold generated ones beside published ones."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from treemem.errors import RecipeError
from treemem.trees.equation_labels import UNIFIED_LABELS
from treemem.trees.forest import Forest

LEAST_DEPTH = 8
"""Tokens and variables are counted in true equations from this depth on: those that were published."""


@dataclass(frozen=True)
class Profile:
    """Averages over true equations.

    Attributes:
        nodes: depth to the mean number of nodes, for all depths.
        equations: depth to the number of equations.
        tokens: label to its share of the nodes, at depth 8 and beyond.
        variables: number of distinct variables to the share of equations that have so many, there too.
    """

    nodes: Mapping[int, float]
    equations: Mapping[int, int]
    tokens: Mapping[str, float]
    variables: Mapping[int, float]


def profile(equations: Forest) -> Profile:
    """The profile of the true ones of ``equations``, trees with root ``Equality`` and ``tree_data["label"]``."""
    true = equations[equations.tree_data["label"] == 1]
    length = np.diff(true.begin)
    depth = true.height()[true.begin[1:] - 1]
    by_depth = {int(level): length[depth == level] for level in np.unique(depth)}
    deep = true[depth >= LEAST_DEPTH]
    counts = np.bincount(deep.label, minlength=len(deep.labels))
    is_variable = np.array([label.startswith("Symbol:") for label in deep.labels], dtype=bool)
    tree_of_node = np.repeat(np.arange(len(deep)), np.diff(deep.begin))
    occurrences = np.zeros((len(deep), len(deep.labels)), dtype=bool)
    occurrences[tree_of_node, deep.label] = True
    num_variables = (occurrences & is_variable).sum(1)
    return Profile(
        {level: float(lengths.mean()) for level, lengths in by_depth.items()},
        {level: len(lengths) for level, lengths in by_depth.items()},
        _shares({label: int(count) for label, count in zip(deep.labels, counts, strict=True) if count}),
        _shares({int(number): int((num_variables == number).sum()) for number in np.unique(num_variables)}),
    )


def _shares(counts: Mapping[Any, int]) -> dict[Any, float]:
    total = sum(counts.values())
    return {key: count / total for key, count in sorted(counts.items(), key=lambda item: -item[1])}


def read_profile(path: str | os.PathLike[str]) -> Profile:
    """Read a profile as it was published: JSON with ``by_depth``, ``tokens``, ``distinct_variables_per_equation``.

    Raises:
        RecipeError: no such file, or one that holds something else.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        tokens: dict[str, int] = {}
        for label, count in content["tokens"].items():
            unified = UNIFIED_LABELS.get(label, label)
            tokens[unified] = tokens.get(unified, 0) + int(count)
        return Profile(
            {int(depth): float(entry["nodes_mean"]) for depth, entry in content["by_depth"].items()},
            {int(depth): int(entry["n"]) for depth, entry in content["by_depth"].items()},
            _shares(tokens),
            _shares({int(n): int(count) for n, count in content["distinct_variables_per_equation"].items()}),
        )
    except OSError as error:
        raise RecipeError(f"no profile can be read from {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        expected = 'JSON with "by_depth", "tokens" and "distinct_variables_per_equation"'
        raise RecipeError(f"{path} is no profile ({type(error).__name__}: {error}); expected {expected}") from None


def comparison(generated: Profile, published: Profile) -> str:
    """The two profiles side by side, as Markdown tables."""
    lines = ["| depth | equations | nodes | published | difference |", "|---|---|---|---|---|"]
    for depth in sorted(generated.nodes):
        ours, theirs = generated.nodes[depth], published.nodes.get(depth)
        beside = "| – | – |" if theirs is None else f"| {theirs:.1f} | {100 * (ours / theirs - 1):+.1f} % |"
        lines.append(f"| {depth} | {generated.equations[depth]} | {ours:.1f} {beside}")
    for title, ours_by_key, theirs_by_key in (
        ("share of nodes", generated.tokens, published.tokens),
        ("variables in an equation", generated.variables, published.variables),
    ):
        lines += ["", f"| {title} | generated % | published % | points |", "|---|---|---|---|"]
        keys: list[Any] = sorted(theirs_by_key, key=lambda key: -theirs_by_key[key])
        keys += [key for key in ours_by_key if key not in theirs_by_key]
        for key in keys:
            ours, theirs = (100 * shares.get(key, 0.0) for shares in (ours_by_key, theirs_by_key))
            lines.append(f"| {key} | {ours:.2f} | {theirs:.2f} | {ours - theirs:+.2f} |")
    return "\n".join(lines) + "\n"
