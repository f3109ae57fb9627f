"""Equations between subexpressions of other equations: pairs of equal and of unequal ones."""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from treemem.tasks.equation_verification.generation.evaluation import USABLE, Values, evaluate
from treemem.tasks.equation_verification.generation.expressions import (
    TRIGONOMETRIC_FUNCTIONS,
    VARIABLES,
    ExpressionTable,
)
from treemem.tasks.equation_verification.generation.generator import VERSION, in_split
from treemem.tasks.equation_verification.generation.quotas import TRAINING_DEPTH, shuffled
from treemem.tasks.equation_verification.generation.verification import FALSE, TRUE, verify
from treemem.trees.equation_labels import EQUALITY
from treemem.trees.forest import Forest

_CHUNK = 16384  # expressions evaluated at once; at 48 points, 20 MB for each field
_SIGNIFICANT_BITS = 24
_SMALL = 1e-9
_ROUNDS = 20
"""How often, at most, the members of a group are shuffled and paired again."""

_TRIED_SHARE = 1.3
"""Number of pairs tried at once, as a multiple of the number wanted; at least _LEAST_TRIED."""

_LEAST_TRIED = 4096
_SHIFTS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144)
"""Distances, in the order of their labels, of the partners tried for a false equation."""

_TELLING_LABELS = (*TRIGONOMETRIC_FUNCTIONS, "Pi:pi", *VARIABLES[:3], "Pow", "Mul", "Add")

_Pair: TypeAlias = tuple[int, int]


def subexpression_pairs(forest: Forest, count: int, *, seed: int = 0) -> Forest:
    """Return equations between inner subexpressions of the training equations, of depth 2 to 7.

    The sides of a true one are different subexpressions with equal values at real and complex points. A false one has
    the left side of a true one and the right side of another, with the same variables and height. So each depth has the
    same number of true and false ones, made of the same sides.

    Args:
        forest: trees with root ``Equality``, with ``split`` in their ``tree_data``.
        count: number of true equations, and of false ones. There are fewer if the equations have no more pairs.
        seed: of all random choices.

    Returns:
        Trees with root ``Equality``, sorted by depth, with the ``tree_data`` of :class:`EquationData`: ``split`` is
        ``"train"``, ``edit`` and ``source`` are -1. None equals an equation of ``forest`` or another one, up to
        renaming of variables and swapping of sides.
    """
    rng = random.Random(f"subexpression pairs {VERSION} {seed}")
    table = ExpressionTable()
    taken = table.canonical_equations(forest)
    groups = _equal_subexpressions(table, forest[forest.tree_data["split"] == "train"])
    true: list[int] = []
    false: list[int] = []
    for candidates in _candidates(table, groups, taken, max(_LEAST_TRIED, _TRIED_SHARE * count), rng):
        if len(true) >= count:
            break
        for pair, unequal in _with_unequal(table, _equal(table, candidates), taken).items():
            true.append(table.make(EQUALITY, pair))
            false.append(table.make(EQUALITY, unequal))
    chosen = shuffled(len(true), rng)[:count]
    equations = [part[place] for part in (true, false) for place in chosen]
    order = sorted(shuffled(len(equations), rng), key=lambda place: table.height[equations[place]])
    equations = [equations[place] for place in order]
    nowhere = np.full(len(equations), -1)
    tree_data: dict[str, NDArray[Any]] = {
        "label": np.array([place < len(chosen) for place in order], dtype=np.int8),
        "depth": np.array([table.height[equation] for equation in equations], dtype=np.int8),
        "edit": nowhere.astype(np.int8),
        "source": nowhere.astype(np.int64),
    }
    return in_split(table.to_forest(equations, tree_data), "train")


def _equal_subexpressions(table: ExpressionTable, training: Forest) -> list[list[int]]:
    """Return groups of two or more inner subexpressions that seem equal, each ascending."""
    sides = {side for equation in set(table.from_forest(training)) for side in table.children[equation]}
    inner = [node for node in table.subexpressions(sides) if 1 <= table.height[node] < TRAINING_DEPTH]
    groups: dict[bytes, list[int]] = defaultdict(list)
    for begin in range(0, len(inner), _CHUNK):
        chunk = inner[begin : begin + _CHUNK]
        for expression, digest in zip(chunk, _value_digests(evaluate(table, chunk)), strict=True):
            groups[digest].append(expression)
    return [members for members in groups.values() if len(members) > 1]


def _value_digests(values: Values) -> list[bytes]:
    """Return a hash of each row: of its rounded values and their status."""
    magnitude = np.abs(values.value)
    unit = np.exp2(np.frexp(magnitude)[1] - _SIGNIFICANT_BITS)
    rounded = np.stack([np.rint(part / unit) * unit for part in (values.value.real, values.value.imag)], axis=-1)
    rounded[(magnitude < _SMALL) | (values.status != USABLE)] = 0
    rounded += 0.0  # -0.0 and 0.0 are one number
    return [
        hashlib.blake2b(row.tobytes() + status.tobytes(), digest_size=16).digest()
        for row, status in zip(rounded, values.status, strict=True)
    ]


def _candidates(
    table: ExpressionTable, groups: Sequence[Sequence[int]], taken: set[_Pair], size: float, rng: random.Random
) -> Iterator[list[_Pair]]:
    """Yield ``size`` new pairs of expressions of one group at a time. Adds their canonical forms to ``taken``."""
    for _ in range(_ROUNDS):
        orders = [[members[place] for place in shuffled(len(members), rng)] for members in groups]
        pairs = [pair for order in orders for pair in pairwise(order)]
        num_found = 0
        fresh: list[_Pair] = []
        for place in shuffled(len(pairs), rng):
            if _is_new(table, pairs[place], taken):
                fresh.append(pairs[place])
            if len(fresh) >= size:
                yield fresh
                num_found += len(fresh)
                fresh = []
        yield fresh
        if not num_found + len(fresh):
            return


def _equal(table: ExpressionTable, pairs: Sequence[_Pair]) -> list[_Pair]:
    """Return the pairs that are equal by the numerical test."""
    verdicts = _verdicts(table, [table.make(EQUALITY, pair) for pair in pairs])
    return [pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict == TRUE]


def _with_unequal(table: ExpressionTable, pairs: Sequence[_Pair], taken: set[_Pair]) -> dict[_Pair, _Pair]:
    """Return for each pair an unequal one, if there is one: its left side and the right side of another pair.

    The new right side has the same height and variables as the old one, and about the same labels; each is used once.
    So neither lengths nor labels reveal which pairs are equal.
    """
    classes: dict[tuple[int, int, int], list[_Pair]] = defaultdict(list)
    for left, right in pairs:
        classes[table.height[right], table.variables[left], table.variables[right]].append((left, right))
    ordered = [sorted(members, key=lambda pair: _label_counts(table, pair[1])) for members in classes.values()]
    found: dict[_Pair, _Pair] = {}
    used: set[_Pair] = set()
    for shift in _SHIFTS:
        tried: dict[_Pair, _Pair] = {}
        for members in ordered:
            open_pairs = [pair for pair in members if pair not in found]
            partners = [pair for pair in members if pair not in used]
            for pair, partner in zip(open_pairs, (*partners[shift:], *partners[:shift]), strict=True):
                if _is_new(table, (pair[0], partner[1]), taken):
                    tried[pair] = partner
        equations = [table.make(EQUALITY, (pair[0], partner[1])) for pair, partner in tried.items()]
        for (pair, partner), verdict in zip(tried.items(), _verdicts(table, equations), strict=True):
            if verdict == FALSE:
                found[pair] = pair[0], partner[1]
                used.add(partner)
    return found


def _label_counts(table: ExpressionTable, expression: int) -> tuple[int, ...]:
    """Return the counts of the most telling labels, and the number of nodes."""
    labels = [table.label[node] for node in table.postorder(expression)]
    return (*(labels.count(label) for label in _TELLING_LABELS), len(labels))


def _is_new(table: ExpressionTable, pair: _Pair, taken: set[_Pair]) -> bool:
    """Return whether the sides differ and their equation is not in ``taken``. Adds it."""
    key = table.canonical_equation(table.make(EQUALITY, pair))
    if pair[0] == pair[1] or key in taken:
        return False
    taken.add(key)
    return True


def _verdicts(table: ExpressionTable, equations: Sequence[int]) -> NDArray[np.int8]:
    chunks = [equations[begin : begin + _CHUNK] for begin in range(0, len(equations), _CHUNK)]
    return np.concatenate([np.empty(0, np.int8), *(verify(table, chunk) for chunk in chunks)])
