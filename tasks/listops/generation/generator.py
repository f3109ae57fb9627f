"""Random ListOps expressions, of the published distribution.

Nangia & Bowman 2018 draw an expression from its root down. A node is a list with probability ``list_probability`` and
otherwise a digit. A list has 2 to ``max_arguments`` arguments and one of the operators, all equally likely. At the
greatest depth every node is a digit. Their files hold each expression once.

Rejection sampling of given lengths would be slow for rare lengths. Here the distribution of the lengths of nodes is
computed level by level, from the deepest up. A length is drawn first; the number of a list's arguments and the length
of each are then drawn from the root down. The distribution is that of rejection sampling.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import checked_count
from treemem.errors import RecipeError
from treemem.trees.formats.listops_arrays import END_TOKEN, TOKENS, Expressions, join

PUBLISHED_OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
_MOST_TOKENS_AT_ONCE = 4_000_000
_ENTRIES_AT_ONCE = 1 << 18
_BELOW_ONE = 1 - 2.0**-40  # so that no row's number plus a fraction is rounded up to the next row
_BARREN_DRAWS = 50_000
_RAREST = 1000  # draws for one new expression; if there are fewer, drawing stops


@dataclass(frozen=True)
class ListOpsDistribution:
    """A distribution of expressions.

    Attributes:
        min_length, max_length: number of tokens: digits, operators and ``]``.
        min_depth, max_depth: number of nested lists. Expressions that are not deep enough are rejected; below
            ``max_depth`` lists every node is a digit. MAX_DEPTH of the published generator is ``max_depth + 1``.
        max_arguments: most arguments of a list; the least is 2.
        list_probability: probability of a list at a node.
        bare_digits: whether an expression may be a lone digit.

    Raises:
        RecipeError: a value out of its range.
    """

    min_length: int = 1
    max_length: int = 1000
    min_depth: int = 0
    max_depth: int = 19
    max_arguments: int = 5
    list_probability: float = 0.25
    bare_digits: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.min_length <= self.max_length:
            raise RecipeError(f"lengths must be 1 or more, and rise: not {self.min_length} to {self.max_length}")
        checked_count("max_depth", self.max_depth)
        checked_count("max_arguments", self.max_arguments, least=2)
        if not 0 <= self.min_depth <= self.max_depth:
            raise RecipeError(f"depths must be 0 or more, and rise: not {self.min_depth} to {self.max_depth}")
        if not 0 < self.list_probability <= 1:
            raise RecipeError(f"list_probability must be above 0 and at most 1, not {self.list_probability}")


class Sampler:
    """Draws expressions of a distribution, with repetitions.

    Args:
        distribution: what to draw from. ``min_depth`` does not count.

    Raises:
        RecipeError: there is no expression of these lengths and depths.
    """

    def __init__(self, distribution: ListOpsDistribution) -> None:
        self.distribution = distribution
        limit, deepest = distribution.max_length, distribution.max_depth
        shortest = 3 * distribution.min_depth + 1  # each list has two tokens and a digit beside the one within it
        if shortest > limit:
            raise RecipeError(
                f"no expression of at most {limit} tokens is {distribution.min_depth} lists deep: the shortest has "
                f"{shortest}"
            )
        digit = np.zeros(limit + 1)
        digit[1] = 1.0
        weight = distribution.list_probability / (distribution.max_arguments - 1)
        self._sums: list[NDArray[np.float64]] = []  # [arguments + 1, tokens + 1] of each level, the deepest first
        length = digit
        for _ in range(deepest):
            sums = _sums_of_lengths(length, distribution.max_arguments)
            self._sums.append(sums)
            length = np.zeros(limit + 1)
            length[2:] = weight * sums[2:, :-2].sum(0)[: limit - 1] if limit > 1 else 0.0
            as_list = length.copy()
            length += (1 - distribution.list_probability) * digit
        self._sums.reverse()
        root = length if distribution.bare_digits else as_list
        root = np.where(np.arange(limit + 1) >= distribution.min_length, root, 0.0)
        if not root.sum() > 0:
            reason = "the shortest list has 4 tokens"
            if distribution.list_probability == 1:  # a whole tree of lists, which have two tokens besides arguments
                reason = (
                    "with list_probability 1 every node above the deepest is a list, so that the shortest expression "
                    f"has 3 * 2^{deepest} - 2 tokens"
                )
            raise RecipeError(
                f"no expression has {distribution.min_length} to {limit} tokens with at most {deepest} lists within "
                f"one another, of at most {distribution.max_arguments} arguments; {reason}"
            )
        self._root = np.cumsum(root) / root.sum()
        lengths = np.flatnonzero(root)
        self.mean_length = float((root * np.arange(limit + 1)).sum() / root.sum())
        self.lengths = int(lengths[0]), int(lengths[-1])

    def draw(self, count: int, random: np.random.Generator) -> Expressions:
        """Return ``count`` expressions."""
        length = np.searchsorted(self._root, random.random(count), side="right").clip(max=self.lengths[1])
        begin = np.concatenate([np.zeros(1, np.int64), np.cumsum(length)])
        token = np.empty(int(begin[-1]), np.uint8)
        operators = np.array([TOKENS.index(name) for name in PUBLISHED_OPERATORS], np.uint8)
        place = begin[:-1]
        for sums in [*self._sums, None]:
            is_list = length > 1
            digits = place[~is_list]
            token[digits] = random.integers(10, size=len(digits), dtype=np.uint8)
            place, length = place[is_list], length[is_list]
            if sums is None or not len(place):
                break
            token[place] = operators[random.integers(len(operators), size=len(place))]
            token[place + length - 1] = END_TOKEN
            place, length = _draw_arguments(sums, place + 1, length - 2, random)
        return Expressions(token, begin)


def _sums_of_lengths(length: NDArray[np.float64], max_arguments: int) -> NDArray[np.float64]:
    """Return the probabilities of the total length of several arguments, ``[arguments + 1, tokens + 1]``.

    Args:
        length: probabilities of the length of one argument, ``[tokens + 1]``.
    """
    sums = np.zeros((max_arguments + 1, len(length)))
    sums[0, 0] = 1.0
    for count in range(1, max_arguments + 1):
        sums[count] = np.convolve(sums[count - 1], length)[: len(length)]
    return sums


def _draw_arguments(
    sums: NDArray[np.float64], place: NDArray[np.int64], tokens: NDArray[np.int64], random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the place and the length of every argument of some lists.

    Args:
        sums: of :func:`_sums_of_lengths`.
        place: where each list's first argument begins.
        tokens: total length of each list's arguments.
    """
    most = len(sums) - 1
    likely = np.cumsum(sums[2:, tokens], axis=0)
    count = 2 + (likely < random.random(len(tokens)) * likely[-1]).sum(0)
    places, lengths = [], []
    for left in range(most, 1, -1):
        chosen = np.flatnonzero(count >= left)
        length = _draw_first(sums[1], sums[left - 1], tokens[chosen], random)
        places.append(place[chosen])
        lengths.append(length)
        place, tokens = place.copy(), tokens.copy()
        place[chosen] += length
        tokens[chosen] -= length
    return np.concatenate([*places, place]), np.concatenate([*lengths, tokens])


def _draw_first(
    one: NDArray[np.float64], others: NDArray[np.float64], tokens: NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.int64]:
    """Return the length of the first of several arguments whose total length is ``tokens``.

    Args:
        one, others: probabilities of the length of one argument and of the rest together, ``[tokens + 1]``.
    """
    first = np.empty(len(tokens), np.int64)
    different, row = np.unique(tokens, return_inverse=True)
    order = np.argsort(row, kind="stable")
    rows_at_once = max(1, _ENTRIES_AT_ONCE // len(one))
    for begin in range(0, len(different), rows_at_once):
        total = different[begin : begin + rows_at_once]
        chosen = order[slice(*np.searchsorted(row[order], [begin, begin + len(total)]))]
        rest = total[:, None] - np.arange(int(total[-1]) + 1)
        likely = np.cumsum(one[: rest.shape[1]] * np.where(rest >= 0, others[np.maximum(rest, 0)], 0.0), axis=1)
        likely = likely / likely[:, -1:] + np.arange(len(total))[:, None]
        own_row = row[chosen] - begin
        drawn = own_row + random.random(len(chosen)) * _BELOW_ONE
        first[chosen] = np.searchsorted(likely.ravel(), drawn, side="right") - own_row * rest.shape[1]
    return first


def draw_distinct(
    distribution: ListOpsDistribution,
    count: int,
    random: np.random.Generator,
    seen: set[bytes],
    *,
    least: int | None = None,
) -> Expressions:
    """Return distinct expressions that were not seen before, in the order in which they were drawn.

    Args:
        distribution: what to draw from.
        count: number of expressions.
        random: the generator.
        seen: :meth:`Expressions.spellings` of expressions to leave out; the new ones are added.
        least: the smallest number to accept if there are no more; ``count`` by default.

    Raises:
        RecipeError: in 50,000 draws, fewer than one in a thousand is new and deep enough.
    """
    sampler = Sampler(distribution)
    parts: list[Expressions] = []
    accepted = drawn = barren = 0
    while accepted < count:
        draws_for_one = min(max(1.2, drawn / max(1, accepted)), 20.0)
        most = max(100, int(_MOST_TOKENS_AT_ONCE / sampler.mean_length))
        batch = min(int((count - accepted) * draws_for_one) + 100, most)
        expressions = sampler.draw(batch, random)
        is_deep_enough = expressions.depth() >= distribution.min_depth
        chosen: list[int] = []
        for index, key in enumerate(expressions.spellings()):
            if is_deep_enough[index] and key not in seen and accepted + len(chosen) < count:
                seen.add(key)
                chosen.append(index)
        parts.append(expressions.chosen(np.array(chosen, np.int64)))
        accepted, drawn = accepted + len(chosen), drawn + batch
        barren = 0 if len(chosen) * _RAREST > batch else barren + batch
        if barren > _BARREN_DRAWS:
            break
    if accepted < (count if least is None else least):
        raise RecipeError(
            f"{count if least is None else least} different expressions were asked for, and {drawn} draws gave "
            f"{accepted}; ask for fewer, or for lengths and depths that are less rare in {distribution}"
        )
    return join(parts)
