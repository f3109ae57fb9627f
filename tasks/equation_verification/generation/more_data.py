"""Equations beyond those of one data set: more to train on, and deeper ones to test with."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import checked_count
from treemem.errors import GraphError, RecipeError
from treemem.tasks.equation_verification.generation.balance import assembled, balanced_equations, equation_bar
from treemem.tasks.equation_verification.generation.corruption import EDIT_SHARES, Corruption, CorruptionOptions
from treemem.tasks.equation_verification.generation.deepening import Deepening
from treemem.tasks.equation_verification.generation.derivation import BY_IDENTITIES, Derivation, DerivationOptions
from treemem.tasks.equation_verification.generation.evaluation import draw_points
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.generator import VERSION
from treemem.tasks.equation_verification.generation.quotas import DEEPEST, depth_quotas
from treemem.tasks.equation_verification.generation.splits import TRAINING_DEPTH
from treemem.tasks.equation_verification.generation.verification import TRUE, verify
from treemem.trees.equation_labels import EQUALITY
from treemem.trees.forest import Forest

_ANCESTORS = 20_000
"""Deep equations start from the true ones of so many shallow equations."""


def training_equations(
    size: int,
    *,
    seed: int = 0,
    apart_from: Forest | None = None,
    false_steps: int = 0,
    edits: Sequence[float] = EDIT_SHARES,
    derivation: DerivationOptions = BY_IDENTITIES,
    progress: bool | None = False,
) -> Forest:
    """Generate equations of depth 1 to 7, with the published shares of depths and labels, all for training.

    Few equations of depth 1 to 3 exist; what they cannot give is taken from the next depth.

    Args:
        size: number of equations.
        seed: of all random choices.
        apart_from: none of these equations comes out, nor one that is equal to any of them up to renaming of variables
            and swapping of sides.
        false_steps: number of times that an identity is applied to an equation after the edit that made it false.
        edits: how often edits that grow, shrink, replace and exchange are tried; in any unit. With other steps or edits
            than these, false equations are chosen so that they have the lengths and labels of true ones on average.
        derivation: how the true ones among the new equations are derived.
        progress: whether to show a progress bar; None shows one on a terminal.

    Returns:
        Trees with root ``Equality``, with the ``tree_data`` of :class:`EquationData`; ``source`` counts from the first
        of them.

    Raises:
        RecipeError: a size or seed that is not a whole number or out of range.
        GraphError: a tree of ``apart_from`` that is no equation.
    """
    quota = depth_quotas(size, TRAINING_DEPTH)
    rng = random.Random(f"training equations {VERSION} {seed}")
    table = ExpressionTable()
    known = canonical_equations(table, apart_from)
    options = CorruptionOptions.with_even_counts(false_steps, edits)
    forest = balanced_equations(
        table, quota, rng, apart_from=known, options=options, derivation_options=derivation, progress=progress
    )
    return in_split(forest, "train")


def with_more_training(
    forest: Forest,
    size: int,
    *,
    seed: int = 0,
    derivation: DerivationOptions = BY_IDENTITIES,
    progress: bool | None = False,
) -> Forest:
    """Return the equations of ``forest``, and new ones of depth 1 to 7 after them until ``size`` are for training.

    Validation and test stay as they are; no new equation is equal to an old one, whatever its split.

    Args:
        forest: trees with root ``Equality``, with ``label`` and ``split`` in their ``tree_data``.
        size: number of equations for training, old and new.
        seed: of all random choices.
        derivation: how the true ones among the new equations are derived.
        progress: whether to show a progress bar; None shows one on a terminal.

    Returns:
        The equations with those of the fields ``label``, ``depth``, ``split``, ``edit`` and ``source`` that ``forest``
        has.

    Raises:
        RecipeError: ``forest`` has no labels or splits, more than ``size`` equations for training already, or
            the size or seed is no whole number.
        GraphError: a tree of ``forest`` that is no equation.
    """
    missing = [name for name in ("label", "split") if name not in forest.tree_data]
    if missing:
        raise RecipeError(f"the equations have no {' and no '.join(missing)} in their tree_data; both are needed")
    num_training = int((forest.tree_data["split"] == "train").sum())
    if checked_count("size", size, least=0) < num_training:
        raise RecipeError(f"{num_training} equations are for training already; size must be that or more, not {size}")
    wanted = size - num_training
    return joined(
        forest, training_equations(wanted, seed=seed, apart_from=forest, derivation=derivation, progress=progress)
    )


def deep_equations(
    count_per_depth: int,
    depths: Sequence[int] = range(14, DEEPEST + 1),
    *,
    seed: int = 0,
    apart_from: Forest | None = None,
    progress: bool | None = False,
) -> Forest:
    """Generate equations to test with: at each of some depths as many true ones as false ones.

    Each true one is made by steps of its own from a shallow one (see :class:`Deepening`), so that no family of nearly
    equal ones decides what comes out.

    Args:
        count_per_depth: number of true equations at each depth, and of false ones.
        depths: from 8 to 20, each once.
        seed: of all random choices.
        apart_from: none of these equations comes out, nor one that is equal to any of them up to renaming of variables
            and swapping of sides.
        progress: whether to show a progress bar; None shows one on a terminal.

    Returns:
        Trees with root ``Equality``, with the ``tree_data`` of :class:`EquationData`; ``split`` is ``"test"``.

    Raises:
        RecipeError: a count or seed that is no whole number, or depths out of range.
        GraphError: a tree of ``apart_from`` that is no equation.
    """
    count = checked_count("size", count_per_depth, least=0)
    possible = range(TRAINING_DEPTH + 1, DEEPEST + 1)
    if not len(depths) or len(set(depths)) < len(depths) or not set(depths) <= set(possible):
        raise RecipeError(
            f"depths must be whole numbers from {possible[0]} to {possible[-1]}, each once, not {list(depths)}"
        )
    rng = random.Random(f"deep equations {VERSION} {seed}")
    table, points = ExpressionTable(), draw_points()
    keys = canonical_equations(table, apart_from)
    shallow = {depth: true for depth, (_, true) in depth_quotas(_ANCESTORS, TRAINING_DEPTH).items()}
    derivation = Derivation(table, shallow, points, rng)
    derivation.run()
    parents = [equation for found in derivation.stock.values() for equation in found]
    deepening = Deepening(table, derivation.rewriter, parents, rng)
    true: dict[int, list[int]] = {depth: [] for depth in sorted(depths)}
    with equation_bar(2 * count * len(depths), progress) as bar:
        for depth, found in true.items():
            while len(found) < count:
                made = [deepening.equation(depth) for _ in range(count)]
                fresh = []
                for equation in made:
                    if equation is not None and (key := table.canonical_equation(equation)) not in keys:
                        keys.add(key)
                        fresh.append(equation)
                verdicts = verify(table, fresh, points)
                verified = [each for each, verdict in zip(fresh, verdicts, strict=True) if verdict == TRUE]
                bar.update(min(len(verified), count - len(found)))
                found += verified[: count - len(found)]
        corruption = Corruption(
            table, true, dict.fromkeys(true, count), keys, points, rng, derivation.rewriter,
            CorruptionOptions(even_counts=True),
        )  # fmt: skip
        corruption.run(bar.update)
    return in_split(assembled(table, true, corruption.found, rng), "test")


def joined(first: Forest, second: Forest) -> Forest:
    """Two sets of equations in one; ``tree_data["source"]`` of the second counts on.

    Args:
        first: with any ``tree_data``.
        second: with those fields and maybe others, which are left out.
    """
    source = second.tree_data["source"]
    columns = {**second.tree_data, "source": np.where(source < 0, -1, source + len(first))}
    names = [name for name in columns if name in first.tree_data]
    first = first.with_data(tree_data={name: first.tree_data[name] for name in names})
    return Forest.concatenate([first, second.with_data(tree_data={name: columns[name] for name in names})])


def kept_equations(forest: Forest, keep: NDArray[np.bool_]) -> Forest:
    """Some of the equations; ``tree_data["source"]`` counts among them, -1 where the edited one is not kept."""
    place = np.where(keep, np.cumsum(keep) - 1, -1)
    source = forest.tree_data["source"]
    source = np.where(source < 0, -1, place[source])
    return forest.with_data(tree_data={**forest.tree_data, "source": source})[keep]


def canonical_equations(table: ExpressionTable, forest: Forest | None) -> set[tuple[int, int]]:
    """The canonical forms of the equations of ``forest``, none for None.

    Raises:
        GraphError: a tree that is no equation.
    """
    keys = set()
    for tree, equation in enumerate([] if forest is None else table.from_forest(forest)):
        if table.label[equation] != EQUALITY or len(table.children[equation]) != 2:
            label, arity = table.label[equation], len(table.children[equation])
            raise GraphError(f"tree {tree} is no equation: its root is {label!r} with {arity} children")
        keys.add(table.canonical_equation(equation))
    return keys


def in_split(forest: Forest, split: str) -> Forest:
    """``forest`` with ``split`` as the split of every tree."""
    return forest.with_data(tree_data={**forest.tree_data, "split": np.full(len(forest), split, dtype="<U10")})
