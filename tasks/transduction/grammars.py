"""The pairs of the task: functions of a sequence, and two synchronous grammars.

A synchronous grammar derives a source and its target together (inversion transduction grammar, Wu 1997). The grammars
are our own: Grefenstette et al. 2015 give theirs in an appendix that was not at hand.
"""

from __future__ import annotations

import functools
from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from treemem.errors import RecipeError

Kind = Literal["copy", "reversal", "bigram_flip", "associative_recall", "priority_sort", "svo_sov", "gender"]
Pair = tuple[list[str], list[str]]
_Draw = Callable[[int, int, np.random.Generator], Pair]
_ITEM = 3  # symbols of an item of associative recall

SVO_SOV = """\
1.0  sentence  -> [subject predicate]
1.0  predicate -> <vi#/vo# object>
0.7  subject   -> [si#/so#]
0.3  subject   -> [si#/so# relative]
1.0  relative  -> [rpi/rpo clause]
1.0  clause    -> [subject inner]
1.0  inner     -> [vi#/vo# object]
0.4  object    -> [oi#/oo#]
0.3  object    -> [oi#/oo# object]
0.3  object    -> [oi#/oo# modified]
1.0  modified  -> [si#/so# relative]
"""
"""Sentences whose main verb goes to the end. The first left-hand side is the start."""

GENDER = """\
0.3  text         -> [we#/wg# text]
0.7  text         -> [we#/wg# phrases]
0.15 phrases      -> [the/das neuter]
0.15 phrases      -> [the/der masculine]
0.15 phrases      -> [the/die feminine]
0.3  phrases      -> [phrase coordination]
0.25 phrases      -> [phrase text]
0.34 phrase       -> [the/das neuter]
0.33 phrase       -> [the/der masculine]
0.33 phrase       -> [the/die feminine]
1.0  coordination -> [and/und phrases]
0.6  neuter       -> [en#/gn#]
0.4  neuter       -> [we#/wg# neuter]
0.6  masculine    -> [em#/gm#]
0.4  masculine    -> [we#/wg# masculine]
0.6  feminine     -> [ef#/gf#]
0.4  feminine     -> [we#/wg# feminine]
"""
"""Texts whose articles agree with the gender of their noun, which may come some words later."""


class Rule(NamedTuple):
    """A rule of a synchronous grammar with one or two parts.

    Attributes:
        probability: among the rules with the same left-hand side.
        parts: left-hand sides of other rules, or ``source/target``; ``#`` in it stands for a number, the same in both.
        is_inverted: whether the target has the two parts in the other order.
    """

    probability: float
    parts: tuple[str, ...]
    is_inverted: bool


class _Choices(NamedTuple):
    """The ways to derive a part of a certain length: their cumulative weights, rules, and lengths of the first part."""

    cumulative: list[float]
    rules: list[Rule]
    lengths: list[int]


class Grammar:
    """Draws pairs of a synchronous grammar with a given length.

    The probability of a derivation is that of the grammar, given the length. It is drawn from the top down: each rule,
    and the length of its first part, with the probability that the parts have these lengths (the inside probabilities).

    Args:
        text: a line for each rule: its probability, its left-hand side, ``->``, and its parts in ``[ ]`` or, if the
            target has them in the other order, in ``< >``. The first left-hand side is the start.
    """

    def __init__(self, text: str) -> None:
        self.rules: dict[str, list[Rule]] = {}
        for line in text.splitlines():
            probability, left, _, parts = line.split(maxsplit=3)
            rule = Rule(float(probability), tuple(parts[1:-1].split()), parts[0] == "<")
            self.rules.setdefault(left, []).append(rule)
        self.start = next(iter(self.rules))
        self._inside = {left: np.zeros(1) for left in self.rules}
        self._choices: dict[tuple[str, int], _Choices] = {}

    def words(self, number: int) -> Pair:
        """Return all symbols of sources, and all of targets, with numbers from 0 to ``number - 1``."""
        terminals = dict.fromkeys(part for left in self.rules.values() for rule in left for part in rule.parts)
        sides = [part.split("/") for part in terminals if part not in self.rules]
        source, target = (
            [side[which].replace("#", str(place)) for side in sides for place in range(number if "#" in side[0] else 1)]
            for which in range(2)
        )
        return list(dict.fromkeys(source)), list(dict.fromkeys(target))

    def length_chances(self, lengths: Sequence[int]) -> NDArray[np.float64]:
        """Return the probability that a source has each of these lengths, given that it has one of them."""
        chances = self._inside_of(self.start, max(lengths))[list(lengths)]
        return chances / chances.sum()

    def draw(self, length: int, number: int, generator: np.random.Generator) -> Pair:
        """Return a source of ``length`` symbols with its target; numbers are below ``number``.

        Raises:
            RecipeError: the grammar has no source of this length.
        """
        source, target = [""] * length, [""] * length
        chances = iter(generator.random(2 * length).tolist())  # a derivation has at most 2 length - 1 rules
        numbers = generator.integers(number, size=length).astype(str).tolist()
        pending = [(self.start, length, 0, 0)]
        while pending:
            part, size, at_source, at_target = pending.pop()
            if part not in self.rules:
                source[at_source], target[at_target] = part.replace("#", numbers[at_source]).split("/")
                continue
            choices = self._choices.get((part, size)) or self._find_choices(part, size)
            place = bisect(choices.cumulative, next(chances) * choices.cumulative[-1], hi=len(choices.rules) - 1)
            rule, first = choices.rules[place], choices.lengths[place]
            if len(rule.parts) == 1:
                pending.append((rule.parts[0], size, at_source, at_target))
                continue
            before, after = (size - first, 0) if rule.is_inverted else (0, first)
            pending.append((rule.parts[1], size - first, at_source + first, at_target + after))
            pending.append((rule.parts[0], first, at_source, at_target + before))
        return source, target

    def _find_choices(self, left: str, size: int) -> _Choices:
        weights, rules, lengths = [], [], []
        for rule in self.rules[left]:
            weight = self._weights(rule, size)
            for first in np.flatnonzero(weight).tolist():
                weights.append(float(weight[first]))
                rules.append(rule)
                lengths.append(first)
        if not weights:
            raise RecipeError(f"the grammar has no source of {size} symbols; ask for other lengths")
        choices = self._choices[left, size] = _Choices(list(accumulate(weights)), rules, lengths)
        return choices

    def _weights(self, rule: Rule, size: int) -> NDArray[np.float64]:
        """Return the probability of a rule with ``size`` symbols, by the length of its first part: ``[size + 1]``."""
        first = self._inside_of(rule.parts[0], size)
        if len(rule.parts) == 1:
            return np.where(np.arange(size + 1) == size, rule.probability * first, 0)
        return rule.probability * first * self._inside_of(rule.parts[1], size)[::-1]

    def _inside_of(self, part: str, size: int) -> NDArray[np.float64]:
        """Return the probability that a part has each number of symbols up to ``size``: ``[size + 1]``.

        With two parts in a rule, each has less than all symbols, so shorter lengths decide longer ones.
        """
        if part not in self.rules:
            return (np.arange(size + 1) == 1).astype(np.float64)
        while len(self._inside[part]) <= size:
            longer = len(next(iter(self._inside.values())))
            self._inside = {left: np.append(known, 0.0) for left, known in self._inside.items()}
            for left, rules in self.rules.items():
                self._inside[left][longer] = sum(float(self._weights(rule, longer).sum()) for rule in rules)
        return self._inside[part][: size + 1]


@functools.cache
def grammar(kind: Kind) -> Grammar:
    """Return the grammar of ``"svo_sov"`` or ``"gender"``."""
    return Grammar({"svo_sov": SVO_SOV, "gender": GENDER}[kind])


def _numbers(kind: Kind, alphabet: int) -> int:
    """Return how many symbols of each sort there are, so that the sources have about ``alphabet`` symbols."""
    return max(1, alphabet // {"svo_sov": 3, "gender": 4}[kind])


def _symbols(length: int, alphabet: int, generator: np.random.Generator) -> list[str]:
    return [str(symbol) for symbol in generator.integers(alphabet, size=length)]


def copy(length: int, alphabet: int, generator: np.random.Generator) -> Pair:
    """Return a sequence twice."""
    source = _symbols(length, alphabet, generator)
    return source, list(source)


def reversal(length: int, alphabet: int, generator: np.random.Generator) -> Pair:
    """Return a sequence, and the same from its end."""
    source = _symbols(length, alphabet, generator)
    return source, source[::-1]


def bigram_flip(length: int, alphabet: int, generator: np.random.Generator) -> Pair:
    """Return a sequence of even length, and the same with neighbours swapped: 2 1 4 3 ..."""
    source = _symbols(length, alphabet, generator)
    return source, [symbol for place in range(0, length, 2) for symbol in source[place : place + 2][::-1]]


def associative_recall(length: int, alphabet: int, generator: np.random.Generator) -> Pair:
    """Return items of three symbols and one of them as a query, and the item that follows it (Graves et al. 2014, 4.3).

    ``;`` stands before an item and ``?`` before the query, so the length is ``4 * (items + 1)``. If
    an item occurs twice, its first place counts. At least two items are needed, so 12 symbols.
    """
    items = [_symbols(_ITEM, alphabet, generator) for _ in range(length // (_ITEM + 1) - 1)]
    query = items[int(generator.integers(len(items) - 1))]
    source = [symbol for item in items for symbol in (";", *item)]
    return [*source, "?", *query], items[items.index(query) + 1]


def priority_sort(length: int, alphabet: int, generator: np.random.Generator) -> Pair:
    """Return symbols, each with a priority after it, and the symbols of the highest ones (Graves et al. 2014, 4.5).

    Priorities are ``p0`` to ``p(alphabet - 1)``. The target has three quarters of the symbols, rounded up, the highest
    priority first; of equal priorities, the earlier one.
    """
    symbols = _symbols(length // 2, alphabet, generator)
    priorities = generator.integers(alphabet, size=len(symbols)).tolist()
    source = [word for symbol, priority in zip(symbols, priorities, strict=True) for word in (symbol, f"p{priority}")]
    order = sorted(range(len(symbols)), key=lambda place: -priorities[place])
    return source, [symbols[place] for place in order[: -(-3 * len(symbols) // 4)]]


def svo_sov(length: int, alphabet: int, generator: np.random.Generator) -> Pair:
    """Return a sentence, and the same with the verb of its main clause last."""
    return grammar("svo_sov").draw(length, _numbers("svo_sov", alphabet), generator)


def gender(length: int, alphabet: int, generator: np.random.Generator) -> Pair:
    """Return a text whose articles do not show gender, and one where they agree with their noun."""
    return grammar("gender").draw(length, _numbers("gender", alphabet), generator)


DRAWS: dict[Kind, _Draw] = {
    "copy": copy,
    "reversal": reversal,
    "bigram_flip": bigram_flip,
    "associative_recall": associative_recall,
    "priority_sort": priority_sort,
    "svo_sov": svo_sov,
    "gender": gender,
}


def is_grammar(kind: Kind) -> bool:
    """Return whether a kind is derived by a grammar."""
    return kind in ("svo_sov", "gender")


def has_length(kind: Kind, length: int) -> bool:
    """Return whether the function of a kind takes sources of this length; a grammar tells when it draws."""
    if kind == "associative_recall":
        return length % (_ITEM + 1) == 0 and length >= 3 * (_ITEM + 1)
    return kind not in ("bigram_flip", "priority_sort") or length % 2 == 0


def symbols_of(kind: Kind, alphabet: int) -> Pair:
    """Return all symbols of the sources of a kind, and all of its targets."""
    if is_grammar(kind):
        return grammar(kind).words(_numbers(kind, alphabet))
    symbols = [str(symbol) for symbol in range(alphabet)]
    more = {"associative_recall": [";", "?"], "priority_sort": [f"p{place}" for place in range(alphabet)]}
    return symbols + more.get(kind, []), symbols
