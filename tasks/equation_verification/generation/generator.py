"""Generated equations: by the published procedure, and like those of textbooks."""

from __future__ import annotations

import hashlib
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import checked_count
from treemem.errors import RecipeError
from treemem.progress_bar import progress_bar
from treemem.reading_processes import available_cores, reading_processes
from treemem.tasks.equation_verification.generation.expressions import VARIABLES, ExpressionTable
from treemem.tasks.equation_verification.generation.heldout import held_out
from treemem.tasks.equation_verification.generation.infinity import infinite_equation
from treemem.tasks.equation_verification.generation.mistakes import (
    GROW,
    MISTAKE,
    REPLACE,
    SHRINK,
    SIBLING,
    MistakeMaker,
)
from treemem.tasks.equation_verification.generation.published_procedure import published_equations
from treemem.tasks.equation_verification.generation.quotas import TRAINING_DEPTH, depth_quotas, split_by_depth
from treemem.tasks.equation_verification.generation.textbook_walks import TextbookWalks
from treemem.tasks.equation_verification.generation.verification import FALSE, TRUE, verify
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.labels import EQUALITY

_LOG = logging.getLogger(__name__)

VERSION = "2"
"""Data sets of different versions differ even if size and seed are the same."""

TEXTBOOK_SHARE = 0.45
"""Share of the training equations that are like those of textbooks. The deeper ones are all published-style."""

_SHARD = 20_000
"""Equations made together. Each shard has its own random numbers, so the number of processes changes nothing."""

_SURPLUS = 1.06
"""Equations made, as a multiple of those wanted, because shards have some in common."""

_MOST_ROUNDS = 12
_PUBLISHED_KINDS = {GROW: 0.3, SHRINK: 0.35, REPLACE: 0.35, SIBLING: 0.06, MISTAKE: 0.06}
_TEXTBOOK_KINDS = {GROW: 0.15, SHRINK: 0.2, REPLACE: 0.45, SIBLING: 0.1, MISTAKE: 0.25}
_FROM_MISTAKES = 0.3
"""Share of the false textbook equations that start from a classic mistake, not from a true equation."""

_INFINITE_SHARE = 0.012
"""Number of equations with infinity or nan, as a share of the textbook equations of either label."""

_NUMBERED_SHARE, _RENAMED_SHARE = 0.64, 0.06
_LEAST_DIFFERENT = 0.9
_LARGEST_TEXTBOOK = 41
_ROUNDS = 40

_Record = tuple[int, int, int]
"""An equation, its label, and how it was made false; -1 if it is true."""


def make_shard(seed: str, published: Mapping[int, int], textbook: int) -> Forest:
    """Return equations that are made together; ``tree_data`` has ``label``, ``depth``, ``edit`` and ``digest``.

    Args:
        seed: of all random choices.
        published: depth to the number of true published-style equations, and of false ones.
        textbook: number of true textbook equations, and of false ones.
    """
    rng, table = random.Random(seed), ExpressionTable()
    keys: set[tuple[int, int]] = set()
    walks = TextbookWalks(table, rng)
    records: list[_Record] = []

    by_depth = published_equations(table, rng, published, keys, held_out())
    true = [equation for equations in by_depth.values() for equation in equations]
    records += [(equation, 1, -1) for equation in true]
    records += _published_false(table, walks, true, keys, rng)

    for label in (1, 0):
        infinite = _infinite(table, rng, round(_INFINITE_SHARE * textbook), keys, true=label == 1)
        records += [(equation, label, -1 if label else REPLACE) for equation in infinite]
    true = _verified(table, walks.true_candidate, TRUE, textbook, keys)
    records += [(equation, 1, -1) for equation in true]
    num_mistakes = int(_FROM_MISTAKES * len(true))
    mistakes = _verified(table, walks.false_candidate, FALSE, num_mistakes, keys)
    records += [(equation, 0, MISTAKE) for equation in mistakes]
    maker = MistakeMaker(table, walks, true, _TEXTBOOK_KINDS, rng, depths_change=True)
    depths = [table.height[equation] for equation in rng.sample(true, len(true) - num_mistakes)]
    records += _false_equations(table, maker, true, Counter(depths), keys, rng)
    return _forest_of(table, records, rng)


def _published_false(
    table: ExpressionTable, walks: TextbookWalks, true: Sequence[int], keys: set[tuple[int, int]], rng: random.Random
) -> list[_Record]:
    """Return as many false equations at each depth as there are true ones."""
    maker = MistakeMaker(table, walks, true, _PUBLISHED_KINDS, rng)
    return _false_equations(table, maker, true, Counter(table.height[equation] for equation in true), keys, rng)


def with_false_equations(
    table: ExpressionTable, true: Mapping[int, Sequence[int]], keys: set[tuple[int, int]], rng: random.Random
) -> Forest:
    """Return published-style equations and as many false ones at each depth, sorted by depth."""
    equations = [equation for depth in sorted(true) for equation in true[depth]]
    records = [(equation, 1, -1) for equation in equations]
    records += _published_false(table, TextbookWalks(table, rng), equations, keys, rng)
    records.sort(key=lambda record: table.height[record[0]])
    return _without_digest(_forest_of(table, records, rng))


def _with_other_names(table: ExpressionTable, equation: int, rng: random.Random) -> int:
    """Return the equation with its variables numbered in order of appearance most often, as a parsed text has them.

    A few equations get random ones of the ten variables, so that all occur. The others stay as they were made.
    """
    drawn = rng.random()
    if drawn < _NUMBERED_SHARE:
        return table.make(EQUALITY, table.renumbered(*table.children[equation]))
    if drawn >= _NUMBERED_SHARE + _RENAMED_SHARE:
        return equation
    indexes = table.variable_indexes(equation)
    names = rng.sample(VARIABLES, len(indexes))
    bindings = {table.make(VARIABLES[old]): table.make(new) for old, new in zip(indexes, names, strict=True)}
    return table.substitute(equation, bindings)


def _infinite(
    table: ExpressionTable, rng: random.Random, count: int, keys: set[tuple[int, int]], *, true: bool
) -> list[int]:
    tries = [infinite_equation(table, rng, true=true) for _ in range(40 * count)]
    return _new(table, [equation for equation in tries if equation is not None], keys)[:count]


def _verified(
    table: ExpressionTable, candidate: Callable[[], int], wanted: int, count: int, keys: set[tuple[int, int]]
) -> list[int]:
    """Return ``count`` of the equations that ``candidate`` draws whose verdict is ``wanted``, or fewer."""
    heldout = held_out()
    verified: list[int] = []
    for _ in range(_ROUNDS):
        if len(verified) >= count:
            break
        candidates = [candidate() for _ in range(int(1.4 * (count - len(verified))) + 64)]
        fresh = _new(table, candidates, keys)
        verdicts = verify(table, fresh, _LEAST_DIFFERENT, branches=True).tolist()
        correct = [equation for equation, verdict in zip(fresh, verdicts, strict=True) if verdict == wanted]
        verified += [equation for equation in correct if not heldout.has(table, equation)]
    return verified[:count]


def _new(table: ExpressionTable, candidates: Sequence[int], keys: set[tuple[int, int]]) -> list[int]:
    """Return the candidates that are not too deep, too large, trivial or known. Adds their keys to ``keys``."""
    fresh = []
    for equation in candidates:
        left, right = table.children[equation]
        if left == right or table.height[equation] > TRAINING_DEPTH or table.size[equation] > _LARGEST_TEXTBOOK:
            continue
        key = table.canonical_equation(equation)
        if key not in keys:
            keys.add(key)
            fresh.append(equation)
    return fresh


def _false_equations(
    table: ExpressionTable,
    maker: MistakeMaker,
    sources: Sequence[int],
    wanted: Mapping[int, int],
    keys: set[tuple[int, int]],
    rng: random.Random,
) -> list[_Record]:
    """Return false equations made from ``sources``, as many at each depth as wanted."""
    heldout, missing = held_out(), Counter(wanted)
    by_depth: dict[int, list[int]] = {}
    for equation in sources:
        by_depth.setdefault(table.height[equation], []).append(equation)
    records: list[_Record] = []
    for _ in range(_ROUNDS):
        if not +missing:
            break
        candidates: list[tuple[int, int]] = []
        for depth, count in (+missing).items():
            for source in rng.choices(by_depth[depth], k=int(1.4 * count) + 8):
                made = maker.candidate(source, TRAINING_DEPTH)
                if made is not None and (key := table.canonical_equation(made[0])) not in keys:
                    keys.add(key)
                    candidates.append(made)
        verdicts = verify(table, [equation for equation, _ in candidates], _LEAST_DIFFERENT)
        for (equation, kind), verdict in zip(candidates, verdicts.tolist(), strict=True):
            depth = table.height[equation]
            if verdict == FALSE and missing[depth] > 0 and not heldout.has(table, equation):
                records.append((equation, 0, kind))
                missing[depth] -= 1
    return records


def _forest_of(table: ExpressionTable, records: Sequence[_Record], rng: random.Random) -> Forest:
    equations = [_with_other_names(table, equation, rng) for equation, _, _ in records]
    tree_data: dict[str, NDArray[Any]] = {
        "label": np.array([label for _, label, _ in records], np.int8),
        "depth": np.array([table.height[equation] for equation in equations], np.int8),
        "edit": np.array([edit for _, _, edit in records], np.int8),
        "digest": _digests(table, equations),
    }
    return table.to_forest(equations, tree_data)


def _digests(table: ExpressionTable, equations: Sequence[int]) -> NDArray[np.int64]:
    """Return a hash of each equation, equal for those that differ only in names of variables and order of sides."""
    known: dict[int, bytes] = {}

    def digest(node: int) -> bytes:
        hashed = known.get(node)
        if hashed is None:
            below = b"".join(digest(child) for child in table.children[node])
            hashed = known[node] = hashlib.blake2b(table.label[node].encode() + below, digest_size=8).digest()
        return hashed

    def of_equation(equation: int) -> bytes:
        left, right = table.children[equation]
        orders = (table.renumbered(left, right), table.renumbered(right, left))
        return min(digest(first) + digest(last) for first, last in orders)

    joint = b"".join(hashlib.blake2b(of_equation(equation), digest_size=8).digest() for equation in equations)
    return np.frombuffer(joint, np.int64)


def generate_equations(
    size: int, *, seed: int = 0, max_depth: int = 13, processes: int | None = None, progress: bool | None = False
) -> Forest:
    """Generate as many true equations as false ones, with the published shares by depth among the published-style ones.

    The same arguments give the same equations on every run.

    Args:
        size: number of equations. There are fewer if some depths do not have so many; the log says so.
        seed: of all random choices.
        max_depth: the greatest depth, 2 to 20.
        processes: number of processes; by default one for each processor that this process may use. It does not change
            the equations.
        progress: whether to show a progress bar; None shows one on a terminal.

    Returns:
        Trees with root ``Equality``, sorted by depth. Their ``tree_data``: ``label`` (int8, 1 true, 0 false); ``depth``
        (int8, height of the tree); ``edit`` (int8, how a false equation was made, one of
        :data:`~treemem.tasks.equation_verification.generation.mistakes.EDIT_NAMES`; -1 for true ones); ``split``
        (``"train"``, ``"validation"``, ``"test"``).

    Raises:
        RecipeError: a size or depth that is not a whole number or out of range.

    Example:
        >>> equations = generate_equations(1000, seed=1, processes=1)
        >>> len(equations), int(equations.tree_data["depth"].max())
        (1000, 13)
    """
    checked_count("size", size, least=0)
    name = f"mixed equations {VERSION} {seed}"
    forest = _generated(size, name, max_depth, np.empty(0, np.int64), processes, progress)
    split = split_by_depth(forest.tree_data["depth"], forest.tree_data["label"], random.Random(f"split {name}"))
    return forest.with_data(tree_data={**forest.tree_data, "split": split})


def with_more_training(
    forest: Forest,
    size: int,
    *,
    seed: int = 0,
    max_depth: int = TRAINING_DEPTH,
    processes: int | None = None,
    progress: bool | None = False,
) -> Forest:
    """Return the equations of ``forest``, followed by new ones to ``max_depth`` until ``size`` are for training.

    No new equation equals an old one, whatever its split.

    Raises:
        RecipeError: ``forest`` has more than ``size`` equations for training already.
    """
    num_training = int((forest.tree_data["split"] == "train").sum())
    if checked_count("size", size, least=0) < num_training:
        raise RecipeError(f"{num_training} equations are for training already; size must be that or more, not {size}")
    table = ExpressionTable()
    known = _digests(table, table.from_forest(forest))
    name = f"more mixed equations {VERSION} {seed}"
    more = _generated(size - num_training, name, max_depth, known, processes, progress)
    return Forest.concatenate([forest, in_split(more, "train")])


def in_split(forest: Forest, split: str) -> Forest:
    """Return ``forest`` with all trees in ``split``."""
    return forest.with_data(tree_data={**forest.tree_data, "split": np.full(len(forest), split, dtype="<U10")})


def _generated(
    size: int, name: str, max_depth: int, known: NDArray[np.int64], processes: int | None, progress: bool | None
) -> Forest:
    """Return ``size`` distinct equations, none of those whose digests are ``known``, sorted by depth."""
    forests: list[Forest] = []
    places = np.empty(0, np.int64)
    with progress_bar(size, "generating", progress, unit="equations") as bar:
        for _ in range(_MOST_ROUNDS):
            for made in _made(_shards(size - len(places), name, max_depth, len(forests)), processes):
                forests.append(made)
                bar.update(min(len(made), size - bar.n))
            places = _new_places(np.concatenate([forest.tree_data["digest"] for forest in forests]), known)
            if len(places) >= size:
                break
    forest = Forest.concatenate(forests)
    rng = np.random.default_rng(list(name.encode()))
    if len(places) < size:
        _LOG.warning("there are only %d equations of %d; some depths have no more", len(places), size)
    chosen = _balanced(rng, places, forest.tree_data["label"], size)
    order = np.lexsort((rng.random(len(chosen)), forest.tree_data["depth"][chosen]))
    return _without_digest(forest[chosen[order]])


def _new_places(digest: NDArray[np.int64], known: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of the first equation of each digest that is not known."""
    _, first = np.unique(digest, return_index=True)
    first.sort()
    return first[~np.isin(digest[first], known)]


def _shards(size: int, name: str, max_depth: int, begin: int) -> list[tuple[str, dict[int, int], int]]:
    """Return the arguments of :func:`make_shard` for all parts of the work, numbered from ``begin`` on."""
    num_made = int(_SURPLUS * size) + 40
    count = -(-num_made // _SHARD)
    histogram = depth_quotas(num_made, max_depth)
    shallow = sum(sum(pair) for depth, pair in histogram.items() if depth <= TRAINING_DEPTH)
    shares = {
        depth: sum(pair) * (1 - TEXTBOOK_SHARE if depth <= TRAINING_DEPTH else 1) / 2 / count
        for depth, pair in histogram.items()
    }
    textbook = TEXTBOOK_SHARE * shallow / 2 / count
    return [
        (
            f"{name} {begin + number}",
            {depth: _portion(share, number) for depth, share in shares.items()},
            _portion(textbook, number),
        )
        for number in range(count)
    ]


def _portion(share: float, number: int) -> int:
    """Return how many of ``share`` for each part the part ``number`` makes, so that the sum is right."""
    return int(share * (number + 1)) - int(share * number)


def _made(shards: Sequence[tuple[str, dict[int, int], int]], processes: int | None) -> Iterator[Forest]:
    count = min(len(shards), processes or available_cores())
    if count <= 1:
        yield from starmap(make_shard, shards)
        return
    with reading_processes(count) as submit:
        for future in [submit(make_shard, *shard) for shard in shards]:
            yield future.result()


def _balanced(
    rng: np.random.Generator, places: NDArray[np.int64], label: NDArray[np.int8], size: int
) -> NDArray[np.int64]:
    """Return ``size`` of ``places`` or all, half of either label as far as there are enough."""
    parts = [rng.permutation(places[label[places] == value]) for value in (1, 0)]
    half = min(size // 2, len(parts[0]))
    taken = [parts[0][:half], parts[1][: size - half]]
    rest = size - len(taken[0]) - len(taken[1])
    return np.sort(np.concatenate([*taken, parts[0][half : half + rest]]))


def _without_digest(forest: Forest) -> Forest:
    return forest.with_data(tree_data={name: value for name, value in forest.tree_data.items() if name != "digest"})
