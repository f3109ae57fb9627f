"""So many true equations of each depth, and so many false ones made from them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Any

import numpy as np
from tqdm import tqdm

from treemem.tasks.equation_verification.generation.corruption import Corruption, CorruptionOptions, FalseEquation
from treemem.tasks.equation_verification.generation.derivation import BY_IDENTITIES, Derivation, DerivationOptions
from treemem.tasks.equation_verification.generation.evaluation import draw_points
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.splits import shuffled
from treemem.trees.forest import Forest


def balanced_equations(
    table: ExpressionTable,
    quota: Mapping[int, tuple[int, int]],
    rng: random.Random,
    *,
    apart_from: AbstractSet[tuple[int, int]] = frozenset(),
    options: CorruptionOptions,
    derivation_options: DerivationOptions = BY_IDENTITIES,
    progress: bool | None = False,
) -> Forest:
    """True equations derived from the identities, and false ones made from them, no two of them equal.

    Args:
        table: where expressions are kept.
        quota: depth, from 1 on without a gap, to (number of false equations, number of true ones).
        rng: where all choices are drawn from.
        apart_from: canonical forms of equations that may not come out.
        options: how false equations are made.
        derivation_options: how true equations are derived.
        progress: whether to show a progress bar; None shows one on a terminal.

    Returns:
        The equations, sorted by depth and shuffled within, with ``label``, ``depth``, ``edit`` and ``source`` in their
        ``tree_data``. Where the last depths have no more to give, there are fewer than asked for.
    """
    points = draw_points()
    total = sum(map(sum, quota.values()))
    with equation_bar(total, progress) as bar:
        wanted = {depth: true for depth, (_, true) in quota.items()}
        derivation = Derivation(table, wanted, points, rng, apart_from, derivation_options)
        derivation.run(bar.update)
        true = {depth: _drawn(table, derivation.stock[depth], n, rng) for depth, n in derivation.quota.items()}
        sources = {depth: true[depth] or derivation.stock[depth] for depth in quota}
        wanted = {depth: false for depth, (false, _) in quota.items()}
        keys = derivation.keys | apart_from
        corruption = Corruption(table, sources, wanted, keys, points, rng, derivation.rewriter, options)
        corruption.run(bar.update)
    return assembled(table, true, corruption.found, rng)


def equation_bar(total: int, progress: bool | None) -> tqdm[Any]:
    """Return a progress bar; None shows one on a terminal."""
    return tqdm(total=total, desc="equations", unit="", disable=None if progress is None else not progress)


def _drawn(table: ExpressionTable, candidates: Sequence[int], count: int, rng: random.Random) -> list[int]:
    """``count`` of ``candidates``: of each ``count``-th part of them, by size, a random one."""
    by_size = sorted(candidates, key=table.size.__getitem__)
    bounds = [len(by_size) * part // max(count, 1) for part in range(count + 1)]
    return [by_size[low + int(rng.random() * (high - low))] for low, high in pairwise(bounds)]


def assembled(
    table: ExpressionTable, true: Mapping[int, list[int]], false: Mapping[int, list[FalseEquation]], rng: random.Random
) -> Forest:
    """All equations in one forest: sorted by depth, shuffled within, with their ``tree_data``."""
    records: list[tuple[int, int, int, int]] = []  # equation, label, edit, source
    depths: list[int] = []
    for depth in sorted(true):
        here = [(equation, 1, -1, -1) for equation in true[depth]]
        here += [(candidate.equation, 0, candidate.edit, candidate.source) for candidate in false[depth]]
        records += [here[place] for place in shuffled(len(here), rng)]
        depths += [depth] * len(here)
    place_of = {record[0]: place for place, record in enumerate(records)}
    columns = np.array(records, dtype=np.int64).reshape(-1, 4).T
    tree_data = {
        "label": columns[1].astype(np.int8),
        "depth": np.array(depths, dtype=np.int8),
        "edit": columns[2].astype(np.int8),
        "source": np.array([place_of.get(source, -1) for source in columns[3].tolist()], dtype=np.int64),
    }
    return table.to_forest(columns[0].tolist(), tree_data)
