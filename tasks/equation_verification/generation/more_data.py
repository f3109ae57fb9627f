"""Further equations for training, distinct from those of a data set."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import checked_count
from treemem.errors import RecipeError
from treemem.tasks.equation_verification.generation.corruption import ONE_EDIT, CorruptionOptions
from treemem.tasks.equation_verification.generation.derivation import BY_IDENTITIES, DerivationOptions
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.generator import VERSION, balanced_equations
from treemem.tasks.equation_verification.generation.quotas import TRAINING_DEPTH, depth_quotas
from treemem.trees.forest import Forest


def training_equations(
    size: int,
    *,
    seed: int = 0,
    apart_from: Forest | None = None,
    corruption: CorruptionOptions = ONE_EDIT,
    derivation: DerivationOptions = BY_IDENTITIES,
    progress: bool | None = False,
) -> Forest:
    """Generate equations of depth 1 to 7, with the published shares of depths and labels, all for training.

    Few equations of depth 1 to 3 exist; the next depth fills what they lack.

    Args:
        size: number of equations.
        seed: of all random choices.
        apart_from: no new equation equals one of these up to renaming of variables and swapping of sides.
        corruption: how false equations are made.
        derivation: how true equations are derived.
        progress: whether to show a progress bar; None shows one on a terminal.

    Returns:
        Trees with root ``Equality``, with the ``tree_data`` of :class:`EquationData`; ``source`` counts from the first
        of them.

    Raises:
        RecipeError: the size is not an integer from 0.
    """
    quota = depth_quotas(size, TRAINING_DEPTH)
    rng = random.Random(f"training equations {VERSION} {seed}")
    table = ExpressionTable()
    known = set() if apart_from is None else table.canonical_equations(apart_from)
    forest = balanced_equations(
        table, quota, rng, apart_from=known, corruption=corruption, derivation=derivation, progress=progress
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
    """Return the equations of ``forest``, followed by new ones of depth 1 to 7 until ``size`` are for training.

    No new equation equals an old one, whatever its split.

    Args:
        forest: trees with root ``Equality``, with ``label`` and ``split`` in their ``tree_data``.
        size: number of equations for training, old and new.
        seed, derivation, progress: as for :func:`training_equations`.

    Returns:
        The equations with those of the fields ``label``, ``depth``, ``split``, ``edit`` and ``source`` that ``forest``
        has.

    Raises:
        RecipeError: ``forest`` has more than ``size`` equations for training already.
    """
    num_training = int((forest.tree_data["split"] == "train").sum())
    if checked_count("size", size, least=0) < num_training:
        raise RecipeError(f"{num_training} equations are for training already; size must be that or more, not {size}")
    more = training_equations(
        size - num_training, seed=seed, apart_from=forest, derivation=derivation, progress=progress
    )
    return joined(forest, more)


def joined(first: Forest, second: Forest) -> Forest:
    """Return both sets of equations in one forest, with the ``tree_data`` of ``first``. ``source`` counts on."""
    source = second.tree_data["source"]
    columns = {**second.tree_data, "source": np.where(source < 0, -1, source + len(first))}
    names = [name for name in columns if name in first.tree_data]
    parts = ((first, first.tree_data), (second, columns))
    return Forest.concatenate(part.with_data(tree_data={name: data[name] for name in names}) for part, data in parts)


def kept_equations(forest: Forest, keep: NDArray[np.bool_]) -> Forest:
    """Return the equations to keep. ``source`` counts among them; it is -1 if the edited one is not kept."""
    place = np.where(keep, np.cumsum(keep) - 1, -1)
    source = forest.tree_data["source"]
    source = np.where(source < 0, -1, place[source])
    return forest.with_data(tree_data={**forest.tree_data, "source": source})[keep]


def in_split(forest: Forest, split: str) -> Forest:
    """Return ``forest`` with all trees in ``split``."""
    return forest.with_data(tree_data={**forest.tree_data, "split": np.full(len(forest), split, dtype="<U10")})
