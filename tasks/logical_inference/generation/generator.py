"""Random pairs of formulas with their relations."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import checked_count
from treemem.errors import RecipeError
from treemem.tasks.logical_inference.generation.relations import VARIABLE_TABLES, relations, truth_tables
from treemem.tasks.logical_inference.readers import LogicPairs, pair_operations
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.formats.logic import AND, NOT, OR, VARIABLES

VERSION = "1"
_VARIABLES_OF_A_PAIR = 4
_NEGATED = 1 / 3
_JOINED_BY_DEPTH = (2 / 3, 0.48, 0.48, 0.0)  # probability of "and" or "or", by the number of those around it
_TEST_SHARE = 0.15
_EVERYWHERE = 2**64 - 1
_FRUITLESS = 1000  # repeated pairs in a row, after which drawing stops

_Word = tuple[str, int]  # label and arity, in post-order


def generate_logic(size: int, *, seed: int = 1111, max_operations: int = 12) -> tuple[LogicPairs, NDArray[np.bool_]]:
    """Return distinct pairs of formulas as Bowman et al. 2015 describe them.

    Both formulas of a pair use the same four of six variables. A formula is a variable, or ``and`` or ``or`` of two
    formulas, nested at most three times. Each is negated with probability 1/3. 2/3 of the formulas and 48 % of their
    parts are not variables, about as in the published file. As there, no formula is a tautology or a contradiction.

    Args:
        size: number of pairs.
        seed: of the generator.
        max_operations: operators of a formula; longer ones are rejected.

    Returns:
        The pairs, and the test pairs, bool ``[pairs]``: 15 % at random.

    Raises:
        RecipeError: none of many draws is a new pair, or a number is below 0.
    """
    checked_count("size", size, least=0)
    checked_count("max_operations", max_operations, least=0)
    draw = random.Random(f"logic {VERSION} {seed}")
    seen: set[tuple[_Word, ...]] = set()
    words: list[_Word] = []
    begin = [0]
    fruitless = 0
    while len(seen) < size:
        names = draw.sample(VARIABLES, _VARIABLES_OF_A_PAIR)
        sides = [_formula(draw, names, max_operations) for _ in range(2)]
        pair = (*sides[0], ("", 0), *sides[1])
        fruitless += 1
        if fruitless > _FRUITLESS:
            raise RecipeError(
                f"the last {_FRUITLESS} pairs drawn of at most {max_operations} operations were all there before, and "
                f"size is {size}; ask for {len(seen)} or fewer, or for more operations"
            )
        if pair in seen:
            continue
        fruitless = 0
        seen.add(pair)
        for side in sides:
            words.extend(side)
            begin.append(len(words))
    labels = (CONSTITUENT, NOT, AND, OR, *VARIABLES)
    place = {label: index for index, label in enumerate(labels)}
    forest = Forest(
        labels,
        np.array([place[label] for label, _ in words], np.int32),
        np.array([arity for _, arity in words], np.int32),
        np.array(begin, np.int64),
    )
    left, right = truth_tables(forest).reshape(-1, 2).T
    is_test = np.random.default_rng(seed).random(size) < _TEST_SHARE
    return LogicPairs(forest, relations(left, right), pair_operations(forest)), is_test


def _formula(draw: random.Random, names: list[str], max_operations: int) -> list[_Word]:
    """Return the nodes of a formula in post-order; words are leaves."""
    while True:
        words, worlds = _part(draw, names, 0)
        if worlds not in (0, _EVERYWHERE) and sum(label in (NOT, AND, OR) for label, _ in words) <= max_operations:
            return words


def _part(draw: random.Random, names: list[str], depth: int) -> tuple[list[_Word], int]:
    """Return the nodes of a formula or a part of one, and its truth table."""
    if draw.random() < _JOINED_BY_DEPTH[depth]:
        left, in_left = _part(draw, names, depth + 1)
        operator = draw.choice((AND, OR))
        right, in_right = _part(draw, names, depth + 1)
        words = [*left, (operator, 0), *right, (CONSTITUENT, 2), (CONSTITUENT, 2)]
        worlds = in_left & in_right if operator == AND else in_left | in_right
    else:
        name = draw.choice(names)
        words, worlds = [(name, 0)], VARIABLE_TABLES[name]
    if draw.random() < _NEGATED:
        return [(NOT, 0), *words, (CONSTITUENT, 2)], _EVERYWHERE ^ worlds
    return words, worlds
