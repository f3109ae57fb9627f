from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest

from treemem.errors import RecipeError
from treemem.tasks.listops.generation.generator import PUBLISHED_OPERATORS, ListOpsDistribution, Sampler, draw_distinct


def naive(distribution: ListOpsDistribution, draw: random.Random) -> list[str]:
    """One expression as the published generator draws it, whatever its length."""

    def node(depth: int) -> list[str]:
        must = depth == 1 and not distribution.bare_digits
        may = depth <= distribution.max_depth
        if not must and not (may and draw.random() <= distribution.list_probability):
            return [str(draw.randrange(10))]
        arguments = [node(depth + 1) for _ in range(draw.randint(2, distribution.max_arguments))]
        return [draw.choice(PUBLISHED_OPERATORS), *(word for argument in arguments for word in argument), "]"]

    return node(1)


def figures(words: list[str]) -> tuple[float, ...]:
    """What two samples are compared by: length, depth, their squares, lists, lists of two, one operator, one digit."""
    nesting = deepest = 0
    sizes: list[int] = []
    pairs = 0
    for word in words:
        if word == "]":
            nesting -= 1
            pairs += sizes.pop() == 2
        if word[0] != "[" and sizes:
            sizes[-1] += 1
        if word[0] == "[":
            sizes.append(0)
            nesting += 1
            deepest = max(deepest, nesting)
    lists = words.count("]")
    return len(words), len(words) ** 2, deepest, deepest**2, lists, pairs, words.count("[MED"), words.count("7")


@pytest.mark.parametrize(
    "changes",
    [
        {"max_length": 30},
        {"max_length": 60, "min_length": 12, "max_depth": 3, "max_arguments": 7, "list_probability": 0.3},
        {"max_length": 25, "bare_digits": True},
    ],
)
def test_expressions_are_those_that_drawing_and_throwing_away_gives(changes: dict[str, Any]) -> None:
    distribution = ListOpsDistribution(**changes)
    draw = random.Random(3)
    expected: list[tuple[float, ...]] = []
    while len(expected) < 6_000:
        words = naive(distribution, draw)
        if distribution.min_length <= len(words) <= distribution.max_length:
            expected.append(figures(words))
    drawn = Sampler(distribution).draw(6_000, np.random.default_rng(4))
    found = [figures(words) for words in drawn.forest().tokens("leaves").strings()]
    theirs, ours = np.array(expected), np.array(found)
    error = np.sqrt(theirs.var(0) / len(theirs) + ours.var(0) / len(ours))
    assert (np.abs(theirs.mean(0) - ours.mean(0)) < 4 * error + 1e-12).all()


def test_generated_lengths_are_those_of_the_published_file() -> None:
    """Mean 42.56 tokens and 69.1 % of at most 30, of 100,000 expressions without repeats."""
    length = draw_distinct(ListOpsDistribution(), 100_000, np.random.default_rng(5), set()).length()
    assert abs(length.mean() - 42.56) < 1.0
    assert abs((length <= 30).mean() - 0.691) < 0.02


@pytest.mark.parametrize(("first", "last"), [(4, 30), (31, 50), (201, 299), (901, 999)])
def test_lengths_keep_their_limits_however_rare(first: int, last: int) -> None:
    drawn = draw_distinct(ListOpsDistribution(min_length=first, max_length=last), 300, np.random.default_rng(2), set())
    assert len(drawn) == 300
    assert first <= drawn.length().min() <= drawn.length().max() <= last


def test_depths_keep_their_limits() -> None:
    distribution = ListOpsDistribution(min_depth=8, max_depth=9, max_length=100, list_probability=0.3)
    depth = draw_distinct(distribution, 300, np.random.default_rng(2), set()).depth()
    assert set(depth.tolist()) == {8, 9}


def test_no_expression_comes_twice_and_none_that_was_seen() -> None:
    distribution = ListOpsDistribution(max_length=5)
    seen = set(draw_distinct(distribution, 2000, np.random.default_rng(1), set()).spellings())
    new = draw_distinct(distribution, 2400, np.random.default_rng(1), known := set(seen)).spellings()
    assert len(set(new)) == 2400
    assert not seen & set(new)
    assert known == seen | set(new)
    assert len(known) == 4400  # all there are: 4 operators, 2 or 3 digits


def test_more_than_there_are_is_refused() -> None:
    distribution = ListOpsDistribution(max_length=4)
    with pytest.raises(RecipeError, match=r"401 different expressions were asked for, and .* draws gave 400"):
        draw_distinct(distribution, 401, np.random.default_rng(1), set())
    assert len(draw_distinct(distribution, 401, np.random.default_rng(1), set(), least=300)) == 400


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"max_length": 3}, "no expression has 1 to 3 tokens"),
        ({"min_length": 50, "max_length": 90, "max_depth": 1}, "no expression has 50 to 90 tokens with at most 1 list"),
        ({"min_length": 31, "max_length": 30}, "lengths must be 1 or more, and rise: not 31 to 30"),
        ({"min_depth": 20}, "depths must be 0 or more, and rise: not 20 to 19"),
        ({"max_depth": 0}, "max_depth must be at least 1, not 0"),
        (
            {"max_depth": 3, "max_length": 21, "list_probability": 1.0},
            r"the shortest expression has 3 \* 2\^3 - 2 tokens",
        ),
        ({"max_arguments": 1}, "max_arguments must be at least 2"),
        ({"list_probability": 0.0}, "list_probability must be above 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        Sampler(dataclasses.replace(ListOpsDistribution(), **changes))


def test_where_every_node_is_a_list_the_shortest_expression_is_a_whole_tree() -> None:
    distribution = ListOpsDistribution(max_depth=3, max_length=22, list_probability=1.0)
    assert Sampler(distribution).lengths == (22, 22)
