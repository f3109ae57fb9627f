"""Generated data sets of true and false equations, in the manner of Arabshahi et al. 2018, but sound."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import checked_count
from treemem.errors import RecipeError
from treemem.progress_bar import progress_bar
from treemem.tasks.equation_verification.generation.corruption import (
    ONE_EDIT,
    Corruption,
    CorruptionOptions,
    FalseEquation,
)
from treemem.tasks.equation_verification.generation.derivation import BY_IDENTITIES, Derivation, DerivationOptions
from treemem.tasks.equation_verification.generation.expressions import ExpressionTable
from treemem.tasks.equation_verification.generation.quotas import (
    PUBLISHED_SIZE,
    TRAINING_DEPTH,
    depth_quotas,
    shuffled,
    split_by_depth,
)
from treemem.trees.forest import Forest
from treemem.trees.record_reader import SPLITS

VERSION = "1"
"""Data sets of different versions differ even if size and seed are the same."""


@dataclass(frozen=True, eq=False)
class EquationData:
    """A generated data set.

    Attributes:
        forest: trees with root ``Equality``, sorted by depth. Its ``tree_data``: ``label`` (int8, 1 true, 0 false);
            ``depth`` (int8, height of the tree); ``split`` (``"train"``, ``"validation"``, ``"test"``); ``edit`` (int8,
            how a false equation was made: 0 grow, 1 shrink, 2 replace, or with infinity; 3 exchange, 4 the side of
            another equation, 5 a classic mistake; -1 for true ones); ``source`` (int64, the
            number of the equation that was edited; -1 for true ones, or if the edited one is not in the data).
        version: of the generator.
        seed: of the generator.
        procedure: how the equations were made and tested, for the card.
    """

    forest: Forest
    version: str
    seed: int
    procedure: str = (
        "True equations are derived from 142 identities; false ones are one edit away from a true one of the same "
        "depth. Each was tested at 24 real and 24 complex points."
    )

    def __len__(self) -> int:
        return len(self.forest)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the equations, their order, labels and split, in hexadecimal."""
        forest = self.forest
        content = hashlib.sha256("\n".join((*forest.labels, "")).encode())
        data = [forest.tree_data[name] for name in ("label", "edit", "source")]
        for array in (forest.label, forest.arity, forest.begin, *data):
            content.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
        content.update("\n".join(forest.tree_data["split"].tolist()).encode())
        return content.hexdigest()

    def card(self) -> str:
        """Return a description of the data as Markdown."""
        label, depth, split = (self.forest.tree_data[name] for name in ("label", "depth", "split"))
        lines = [
            "# Equations, true and false",
            "",
            f"{len(self)} equations made by treemem's equation generator, version {self.version}, seed {self.seed}.",
            f"SHA-256 of the content: `{self.digest}`",
            "",
            self.procedure,
            "No two are equal up to renaming and swapping.",
            "",
            "| depth | equations | true | training | validation | test |",
            "|---|---|---|---|---|---|",
        ]
        for level in np.unique(depth):
            at = depth == level
            counts = [at.sum(), label[at].sum(), *((split[at] == name).sum() for name in SPLITS)]
            lines.append(f"| {level} | " + " | ".join(str(int(count)) for count in counts) + " |")
        return "\n".join(lines) + "\n"


def generate_equations(
    size: int = PUBLISHED_SIZE, *, seed: int = 0, max_depth: int = 13, progress: bool | None = False
) -> EquationData:
    """Generate equations with the depths and labels of the published data, scaled to ``size``.

    True equations are derived from identities by steps of rewriting; false ones are true ones of the same depth with
    one edit. Both are tested at real and complex points. The same arguments give the same equations on every run.

    Args:
        size: number of equations. There may be fewer if the greatest depths are exhausted; the log says so.
        seed: of all random choices.
        max_depth: the greatest depth, 2 to 20.
        progress: whether to show a progress bar; None shows one on a terminal.

    Raises:
        RecipeError: a size or depth that is not a whole number or out of range.

    Example:
        >>> data = generate_equations(1000, seed=1)
        >>> len(data), int(data.forest.tree_data["depth"].max())
        (1000, 13)
    """
    quota = depth_quotas(size, max_depth)
    rng = random.Random(f"equations {VERSION} {seed}")
    forest = balanced_equations(quota, rng, progress=progress)
    split = split_by_depth(forest.tree_data["depth"], forest.tree_data["label"], rng)
    return EquationData(forest.with_data(tree_data={**forest.tree_data, "split": split}), VERSION, int(seed))


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
    forest = balanced_equations(
        quota, rng, apart_from=apart_from, corruption=corruption, derivation=derivation, progress=progress
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

    No new equation equals an old one, whatever its split. The ``tree_data`` are those of ``forest``.

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


def balanced_equations(
    quota: Mapping[int, tuple[int, int]],
    rng: random.Random,
    *,
    apart_from: Forest | None = None,
    corruption: CorruptionOptions = ONE_EDIT,
    derivation: DerivationOptions = BY_IDENTITIES,
    progress: bool | None = False,
) -> Forest:
    """Return true equations derived from the identities and false ones made from them, all distinct.

    Args:
        quota: depth, from 1 on without a gap, to (number of false equations, number of true ones).
        rng: source of all choices.
        apart_from, corruption, derivation, progress: as for :func:`training_equations`.

    Returns:
        The equations, sorted by depth and shuffled within, with ``label``, ``depth``, ``edit`` and ``source`` in their
        ``tree_data``. There are fewer if the greatest depths are exhausted.
    """
    with progress_bar(sum(map(sum, quota.values())), "generating", progress, unit="equations") as bar:
        wanted = {depth: true for depth, (_, true) in quota.items()}
        derived = Derivation(wanted, rng, apart_from, derivation)
        derived.run(bar.update)
        table, stock = derived.table, derived.stock
        true = {depth: _drawn(table, stock[depth], count, rng) for depth, count in derived.quotas.quota.items()}
        sources = {depth: true[depth] or stock[depth] for depth in quota}
        wanted = {depth: false for depth, (false, _) in quota.items()}
        keys = derived.keys | derived.apart_from
        corrupted = Corruption(derived.rewriter, sources, wanted, keys, rng, corruption)
        corrupted.run(bar.update)
    return assembled(table, true, corrupted.found, rng)


def _drawn(table: ExpressionTable, candidates: Sequence[int], count: int, rng: random.Random) -> list[int]:
    """Return ``count`` of ``candidates``: sorted by size, a random one of each ``count``-th part."""
    by_size = sorted(candidates, key=table.size.__getitem__)
    bounds = [len(by_size) * part // max(count, 1) for part in range(count + 1)]
    return [by_size[low + int(rng.random() * (high - low))] for low, high in pairwise(bounds)]


def assembled(
    table: ExpressionTable, true: Mapping[int, list[int]], false: Mapping[int, list[FalseEquation]], rng: random.Random
) -> Forest:
    """Return all equations as a forest with their ``tree_data``, sorted by depth and shuffled within."""
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
