"""Probabilistic context-free grammars: sentences with their trees, exact probabilities and exact entropy."""

from __future__ import annotations

import itertools
import math
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from treemem.errors import RecipeError, quoted
from treemem.trees.forest import Forest

_MOST_EXACT = 2**53  # the numbers up to it are exact
_DRAWN_AT_ONCE = 1 << 16
Rules = Mapping[str, Sequence[tuple[float, Sequence[str]]]]
"""The rules of each symbol: a weight and the parts. A part without rules of its own is a word."""


class Sentence(NamedTuple):
    """A sentence and its tree in post-order.

    Attributes:
        words: of the sentence.
        label, arity: of each node of the tree.
        log_probability: of the derivation, in nats.
    """

    words: tuple[str, ...]
    label: list[str]
    arity: list[int]
    log_probability: float


class Grammar:
    """A probabilistic context-free grammar.

    The tree of a sentence has a node for each rule with several parts, labelled as the symbol up to ``[``: a symbol
    ``NP[plural]`` makes nodes ``NP``. Rules with one part make no node.

    Args:
        rules: weights are divided by their sum for each symbol. No rule is empty.
        start: the symbol of a sentence; by default the first.

    Raises:
        RecipeError: a symbol without rules, a weight that is not above 0, or a grammar whose sentences have no finite
            mean length.

    Example:
        >>> grammar = Grammar({"S": [(1, ["NP", "VP"])], "NP": [(1, ["the", "N"])], "N": [(3, ["cat"]), (1, ["dog"])],
        ...                    "VP": [(1, ["V"])], "V": [(1, ["sleeps"])]})
        >>> str(grammar.forest(grammar.draw(1, seed=0))[0])
        '(S (NP the cat) sleeps)'
        >>> round(math.exp(grammar.log_probability(["the", "dog", "sleeps"])), 3)
        0.25
    """

    def __init__(self, rules: Rules, start: str | None = None) -> None:
        for symbol, choices in rules.items():
            if not choices or any(not weight > 0 or not parts for weight, parts in choices):
                raise RecipeError(f"the symbol {symbol!r} needs rules with weights above 0 and at least one part each")
        self.symbols = tuple(rules)
        self.start = self.symbols[0] if start is None else start
        if self.start not in rules:
            raise RecipeError(f"the start symbol {self.start!r} has no rules; there are {quoted(rules)}")
        total = {symbol: math.fsum(weight for weight, _ in choices) for symbol, choices in rules.items()}
        self.rules = {
            symbol: [(weight / total[symbol], tuple(parts)) for weight, parts in choices]
            for symbol, choices in rules.items()
        }
        radius = max(abs(np.linalg.eigvals(self._parts)))
        if radius >= 1:
            problem = "the sentences of the grammar have no finite mean length"
            raise RecipeError(f"{problem}; lower the weights of recursive rules")

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words, in the order of the rules."""
        parts = (part for choices in self.rules.values() for _, expansion in choices for part in expansion)
        return tuple(dict.fromkeys(part for part in parts if part not in self.rules))

    @cached_property
    def _parts(self) -> NDArray[np.float64]:
        """The mean number of each symbol among the parts of each symbol's rules, ``[symbols, symbols]``."""
        place = {symbol: number for number, symbol in enumerate(self.symbols)}
        mean = np.zeros((len(place), len(place)))
        for symbol, choices in self.rules.items():
            for probability, parts in choices:
                for part in parts:
                    if part in place:
                        mean[place[symbol], place[part]] += probability
        return mean

    def _mean_over_derivations(self, of_rule: Callable[[float, Sequence[str]], float]) -> float:
        """Return the mean sum of a quantity over the rules of a derivation: ``x = own + parts x``, solved for x."""
        constants = [
            math.fsum(probability * of_rule(probability, parts) for probability, parts in choices)
            for choices in self.rules.values()
        ]
        solution = np.linalg.solve(np.eye(len(constants)) - self._parts, np.array(constants))
        return float(solution[self.symbols.index(self.start)])

    @cached_property
    def entropy(self) -> float:
        """The entropy of a derivation in nats; of a sentence if no sentence has two derivations."""
        return self._mean_over_derivations(lambda probability, parts: -math.log(probability))

    @cached_property
    def mean_length(self) -> float:
        """The mean number of words of a sentence."""
        return self._mean_over_derivations(lambda _, parts: sum(part not in self.rules for part in parts))

    @property
    def perplexity(self) -> float:
        """The least perplexity of a model of its sentences, with an end of sentence as one more word of each."""
        return math.exp(self.entropy / (self.mean_length + 1))

    def sentences(self, seed: int | np.random.Generator) -> Iterator[Sentence]:
        """Yield sentences without end, drawn from the grammar one after the other."""
        generator = np.random.default_rng(seed)
        drawn = itertools.chain.from_iterable(generator.random(_DRAWN_AT_ONCE).tolist() for _ in itertools.count())
        table = {
            symbol: (
                list(itertools.accumulate(probability for probability, _ in choices)),
                [(math.log(probability), parts[::-1]) for probability, parts in choices],
                symbol.partition("[")[0],
            )
            for symbol, choices in self.rules.items()
        }
        while True:
            label: list[str] = []
            arity: list[int] = []
            words: list[str] = []
            total = 0.0
            pending: list[str | tuple[str, int]] = [self.start]
            while pending:
                part = pending.pop()
                if isinstance(part, tuple):
                    label.append(part[0])
                    arity.append(part[1])
                elif (known := table.get(part)) is None:
                    words.append(part)
                    label.append(part)
                    arity.append(0)
                else:
                    cumulative, choices, name = known
                    number = bisect(cumulative, next(drawn), hi=len(choices) - 1) if len(choices) > 1 else 0
                    log_probability, reversed_parts = choices[number]
                    total += log_probability
                    if len(reversed_parts) > 1:
                        pending.append((name, len(reversed_parts)))
                    pending += reversed_parts
            yield Sentence(tuple(words), label, arity, total)

    def draw(self, count: int, seed: int | np.random.Generator) -> list[Sentence]:
        """Return this many sentences."""
        return list(itertools.islice(self.sentences(seed), count))

    @staticmethod
    def forest(sentences: Sequence[Sentence]) -> Forest:
        """Return the trees of sentences; ``tree_data["log_probability"]`` has their log probabilities."""
        table: dict[str, int] = {}
        label = [table.setdefault(name, len(table)) for sentence in sentences for name in sentence.label]
        arity = [number for sentence in sentences for number in sentence.arity]
        begin = np.cumsum([0, *(len(sentence.label) for sentence in sentences)])
        data = {"log_probability": np.array([sentence.log_probability for sentence in sentences])}
        arrays = np.array(label, np.int32), np.array(arity, np.int32), begin.astype(np.int64)
        return Forest(tuple(table), *arrays, tree_data=data)

    def log_probability(self, words: Sequence[str]) -> float:
        """Return the log probability of a sentence in nats, over all its derivations; -inf if it has none.

        The inside algorithm; takes time cubic in the number of words.
        """
        return self._chart.log_probability(words)

    def num_derivations(self, words: Sequence[str]) -> int:
        """Return how many derivations a sentence has: 0 if it is not of the grammar, above 1 if it is ambiguous.

        Raises:
            RecipeError: rules with one part lead from a symbol to itself, or there are more than 2^53.
        """
        return self._chart.num_derivations(words)

    @cached_property
    def _chart(self) -> _Chart:
        return _Chart(self)


class _Chart:
    """The rules of a grammar with at most two parts each, for the inside algorithm.

    ``place`` numbers the symbols and, after them, words and the ends of longer rules, as symbols of their own.
    """

    def __init__(self, grammar: Grammar) -> None:
        self.place: dict[str | tuple[str, ...], int] = {symbol: place for place, symbol in enumerate(grammar.symbols)}
        self.start = self.place[grammar.start]
        self.is_word = set(grammar.words)
        unary: Counter[tuple[int, int]] = Counter()
        binary: dict[tuple[int, int, int], float] = {}
        rules: list[tuple[int, float, tuple[str, ...]]] = [
            (self.place[symbol], probability, parts)
            for symbol, choices in grammar.rules.items()
            for probability, parts in choices
        ]
        while rules:
            left, probability, parts = rules.pop()
            if len(parts) == 1:
                unary[left, self._number(parts[0])] += probability  # type: ignore[assignment]
                continue
            rest: str | tuple[str, ...] = parts[1] if len(parts) == 2 else parts[1:]
            if rest not in self.place and isinstance(rest, tuple):
                rules.append((self._number(rest), 1.0, rest))
            key = left, self._number(parts[0]), self._number(rest)
            binary[key] = binary.get(key, 0.0) + probability
        self.size = len(self.place)
        inner = np.array([isinstance(name, tuple) or name not in self.is_word for name in self.place])
        self.inner = np.flatnonzero(inner)
        keys = np.array(list(binary), np.int64).reshape(-1, 3)
        self.left, self.first, self.second = keys.T
        self.weight = np.array(list(binary.values()))
        self.of_word: dict[int, list[tuple[int, float]]] = {}
        up = np.zeros((len(self.inner), len(self.inner)))
        dense = {int(symbol): row for row, symbol in enumerate(self.inner)}
        for (left, part), probability in unary.items():
            if inner[part]:
                up[dense[left], dense[part]] += probability
            else:
                self.of_word.setdefault(part, []).append((left, probability))
        # of chains of rules with one part, of any length: 1 + up + up^2 + ...
        self.chains = np.linalg.inv(np.eye(len(up)) - up)
        self.up = up

    def _chain_counts(self) -> NDArray[np.float64]:
        """Return how many chains there are.

        Raises:
            RecipeError: a chain of rules leads from a symbol to itself.
        """
        steps = (self.up > 0).astype(float)
        if np.linalg.matrix_power(steps, len(steps)).any():
            raise RecipeError("rules with one part lead from a symbol to itself, so there is no number of them")
        return np.linalg.inv(np.eye(len(steps)) - steps)

    def _number(self, name: str | tuple[str, ...]) -> int:
        return self.place.setdefault(name, len(self.place))

    def num_derivations(self, words: Sequence[str]) -> int:
        """Return the number of derivations of a sentence; see :meth:`Grammar.num_derivations`."""
        count = len(words)
        if not count or any(word not in self.is_word for word in words):
            return 0
        chains = self._chain_counts()
        chart = np.zeros((count, count + 1, self.size))
        for begin, word in enumerate(words):
            number, cell = self.place[word], chart[begin, begin + 1]
            for left, _ in self.of_word.get(number, []):
                cell[left] += 1.0
            cell[self.inner] = chains @ cell[self.inner]
            cell[number] = 1.0
        for begin, end, middle in _spans(count):
            before, after = chart[begin, middle], chart[middle, end]
            products = np.einsum("sr,sr->r", before[:, self.first], after[:, self.second])
            cell = np.bincount(self.left, products, self.size)
            chart[begin, end, self.inner] = chains @ cell[self.inner]
        found = chart[0, count, self.start]
        if found > _MOST_EXACT:
            raise RecipeError("the sentence has more than 2^53 derivations")
        return round(found)

    def log_probability(self, words: Sequence[str]) -> float:
        """Return the log probability of a sentence; in logarithms, so that nothing is too improbable for a number."""
        count = len(words)
        if not count or any(word not in self.is_word for word in words):
            return -math.inf
        with np.errstate(divide="ignore"):  # the logarithm of 0
            weight, chains = np.log(self.weight), np.log(np.maximum(self.chains, 0.0))
        chart = np.full((count, count + 1, self.size), -np.inf)
        for begin, word in enumerate(words):
            number, cell = self.place[word], chart[begin, begin + 1]
            for left, probability in self.of_word.get(number, []):
                cell[left] = np.logaddexp(cell[left], math.log(probability))
            cell[self.inner] = _log_sum(chains + cell[self.inner], axis=1)
            cell[number] = 0.0
        for begin, end, middle in _spans(count):
            products = chart[begin, middle][:, self.first] + chart[middle, end][:, self.second] + weight
            cell = np.full(self.size, -np.inf)
            np.logaddexp.at(cell, self.left, _log_sum(products, axis=0))
            chart[begin, end, self.inner] = _log_sum(chains + cell[self.inner], axis=1)
        return float(chart[0, count, self.start])


def _spans(count: int) -> Iterator[tuple[int, int, NDArray[np.int64]]]:
    """Yield begin, end and the places between of each span of at least two words, the shortest first."""
    for length in range(2, count + 1):
        for begin in range(count - length + 1):
            yield begin, begin + length, np.arange(begin + 1, begin + length)


def _log_sum(values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Return the logarithm of the sum of exponentials; -inf for no value above it."""
    highest = values.max(axis, keepdims=True, initial=-np.inf)
    finite = np.where(np.isfinite(highest), highest, 0.0)
    with np.errstate(divide="ignore"):
        total: NDArray[np.float64] = np.log(np.exp(values - finite).sum(axis)) + finite.squeeze(axis)
    return total
