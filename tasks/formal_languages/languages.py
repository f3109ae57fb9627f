"""The kinds of the task: functions of sequences (Delétang et al. 2023), and languages.

Each kind is a class with the shape of its examples, a function that draws one of a given length, and one that says what
is asked about a given input.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from itertools import groupby, pairwise
from typing import Literal, NamedTuple

import numpy as np

Kind = Literal[
    "even_pairs", "modular_arithmetic", "parity", "cycle_navigation",
    "stack_manipulation", "reverse_string", "modular_arithmetic_brackets", "solve_equation",
    "duplicate_string", "missing_duplicate", "odds_first", "binary_addition", "binary_multiplication", "compute_sqrt",
    "bucket_sort",
    "an_bn", "an_b2n", "an_bm_cnm", "dyck", "an_bn_cn", "an_bn_cn_dn",
]  # fmt: skip
END, BLANK = "$", "_"
"""The end of an output or of a word, and the symbol that is read where an output is written."""
MODULUS = 5
BITS = ("0", "1")
DIGITS = tuple(map(str, range(MODULUS)))

Words = list[str]
_Draw = Callable[[int, np.random.Generator], Words]


class Language(NamedTuple):
    """A kind of the task.

    Attributes:
        level: of the Chomsky hierarchy: ``"R"`` (regular), ``"DCF"`` (deterministic context-free), ``"CS"``
            (context-sensitive).
        symbols: of inputs.
        outputs: symbols that are asked for.
        draw: returns an input of a length.
        answer: returns what is asked about an input: the output of a function, without padding, or for each symbol of
            a word which symbols may come next.
        shortest, step: inputs have the lengths ``shortest``, ``shortest + step``, ...
        blanks: the number of output places after an input of a length; None for a language, which has an output at
            each symbol.
    """

    level: Literal["R", "DCF", "CS"]
    symbols: tuple[str, ...]
    outputs: tuple[str, ...]
    draw: _Draw
    answer: Callable[[Words], Words]
    shortest: int = 1
    step: int = 1
    blanks: Callable[[int], int] | None = lambda _: 1

    def lengths(self, shortest: int, longest: int) -> range:
        """Return the lengths of inputs from ``shortest`` to ``longest``."""
        first = max(shortest, self.shortest)
        return range(first + (self.shortest - first) % self.step, longest + 1, self.step)

    def example(self, words: Words) -> tuple[Words, Words]:
        """Return what a network reads and what it is asked at each place; ``BLANK`` where nothing is asked."""
        answer = self.answer(words)
        if self.blanks is None:
            return words, answer
        places = self.blanks(len(words))
        return self.padded(words), [BLANK] * len(words) + answer + [BLANK] * (places - len(answer))

    def padded(self, words: Words) -> Words:
        """Return an input with a ``BLANK`` at each output place."""
        return words if self.blanks is None else words + [BLANK] * self.blanks(len(words))


def _choices(symbols: tuple[str, ...]) -> _Draw:
    """Return a draw in which all sequences of a length are equally likely."""
    return lambda length, generator: [symbols[place] for place in generator.integers(len(symbols), size=length)]


def _one(value: int) -> Words:
    return [str(value)]


def _even_pairs(words: Words) -> Words:
    return _one(sum(one != other for one, other in pairwise(words)) % 2)


def _draw_flat_arithmetic(length: int, generator: np.random.Generator) -> Words:
    words = _choices(DIGITS)(length, generator)
    words[1::2] = _choices(("+", "-", "*"))(length // 2, generator)
    return words


def _flat_arithmetic(words: Words) -> Words:
    total, sign, product = 0, 1, int(words[0])
    for operator, digit in zip(words[1::2], words[2::2], strict=True):
        if operator == "*":
            product *= int(digit)
        else:
            total, sign, product = total + sign * product, 1 if operator == "+" else -1, int(digit)
    return _one((total + sign * product) % MODULUS)


def _draw_stack(length: int, generator: np.random.Generator) -> Words:
    held = 1 if length == 1 else int(generator.integers(1, length))
    return _choices(BITS)(held, generator) + _choices(("pop", "push0", "push1"))(length - held, generator)


def _stack(words: Words) -> Words:
    stack: Words = []
    for word in words:
        if word == "pop":
            del stack[-1:]
        else:
            stack.append(word[-1])
    return [*stack[::-1], END]


def _brackets(length: int, generator: np.random.Generator, operators: tuple[str, ...]) -> Words:
    """Return an expression of a length: ``d``, ``-d``, ``(d)``, ``(-d)`` or ``(left operator right)``."""
    if length <= 4:
        digit = DIGITS[generator.integers(MODULUS)]
        return {1: [digit], 2: ["-", digit], 3: ["(", digit, ")"], 4: ["(", "-", digit, ")"]}[length]
    left = int(generator.integers(1, length - 3))
    first = _brackets(left, generator, operators)
    second = _brackets(length - 3 - left, generator, operators)
    return ["(", *first, operators[generator.integers(len(operators))], *second, ")"]


def _value(words: Words, unknown: int = 0) -> int:
    """Return the value of an expression with brackets around each operation; ``unknown`` is the value of ``x``."""
    stack: list[int | str] = []
    for word in words:
        if word != ")":
            stack.append(unknown if word == "x" else int(word) if word in DIGITS else word)
            continue
        inside: list[int | str] = []
        while stack[-1] != "(":
            inside.insert(0, stack.pop())
        stack[-1] = _operation(inside)
    return _operation(stack) % MODULUS


def _operation(items: list[int | str]) -> int:
    """Return the value of ``d``, ``-d``, ``d operator d``, where each ``d`` may have a minus."""
    if items[0] == "-":
        items = [-int(items[1]), *items[2:]]
    if len(items) == 1:
        return int(items[0]) % MODULUS
    left, operator, right = int(items[0]), items[1], _operation(items[2:])
    return {"+": left + right, "-": left - right, "*": left * right}[str(operator)] % MODULUS


def _draw_equation(length: int, generator: np.random.Generator) -> Words:
    """Return ``expression = value`` where ``x`` stands for one of the expression's digits."""
    words = _brackets(length - 2, generator, ("+", "-"))
    value = _value(words)
    place = int(generator.integers(len(words)))
    while words[place] not in DIGITS:
        place = (place + 1) % len(words)
    words[place] = "x"
    return [*words, "=", str(value)]


def _equation(words: Words) -> Words:
    return _one(next(x for x in range(MODULUS) if _value(words[:-2], x) == int(words[-1])))


def _draw_missing(length: int, generator: np.random.Generator) -> Words:
    words = 2 * _choices(BITS)(length // 2, generator)
    words[generator.integers(len(words))] = "?"
    return words + ["."] * (length % 2)


def _missing(words: Words) -> Words:
    half, place = len(words) // 2, words.index("?")
    return [words[(place + half) % (2 * half)]]


def _number(bits: Words) -> int:
    """Return the number of little-endian bits."""
    return int("".join(reversed(bits)), 2)


def _bits(number: int) -> Words:
    return list(reversed(f"{number:b}"))


def _nonzero(length: int, generator: np.random.Generator) -> Words:
    while "1" not in (bits := _choices(BITS)(length, generator)):
        pass
    return bits


def _draw_two_numbers(operator: str) -> _Draw:
    def draw(length: int, generator: np.random.Generator) -> Words:
        first = int(generator.integers(1, length - 1))
        return [*_nonzero(first, generator), operator, *_nonzero(length - 1 - first, generator)]

    return draw


def _two_numbers(operator: str, result: Callable[[int, int], int]) -> Callable[[Words], Words]:
    def answer(words: Words) -> Words:
        place = words.index(operator)
        return [*_bits(result(_number(words[:place]), _number(words[place + 1 :]))), END]

    return answer


def _half(length: int) -> int:
    return -(-length // 2)


def _root(words: Words) -> Words:
    return list(f"{math.isqrt(_number(words[::-1])):0{_half(len(words))}b}")


def _function(
    level: Literal["R", "DCF", "CS"],
    symbols: tuple[str, ...],
    answer: Callable[[Words], Words],
    blanks: Callable[[int], int] = lambda length: length,
    outputs: tuple[str, ...] = BITS,
    draw: _Draw | None = None,
    shortest: int = 1,
    step: int = 1,
) -> Language:
    return Language(level, symbols, outputs, draw or _choices(symbols), answer, shortest, step, blanks)


def _counted(letters: str, times: tuple[int, ...], level: Literal["DCF", "CS"]) -> Language:
    """Return the language in which each letter stands ``times * n`` times, one letter after the other."""
    step = sum(times)

    def draw(length: int, _: np.random.Generator) -> Words:
        return [letter for letter, count in zip(letters, times, strict=True) for _ in range(count * length // step)]

    def answer(words: Words) -> Words:
        runs = [len(list(run)) for _, run in groupby(words)]
        output = ["".join(letters[:2])] * runs[0]
        for place in range(1, len(letters)):
            following = letters[place + 1] if place + 1 < len(letters) else END
            output += [letters[place]] * (runs[place] - 1) + [following]
        return output

    return Language(level, (*letters,), (letters[:2], *letters[1:], END), draw, answer, step, step, None)


def _draw_two_counts(length: int, generator: np.random.Generator) -> Words:
    half = length // 2
    first = int(generator.integers(1, half))
    return ["a"] * first + ["b"] * (half - first) + ["c"] * half


def _two_counts(words: Words) -> Words:
    half = len(words) // 2
    first = words.count("a")
    return ["ab"] * first + ["bc"] * (half - first) + ["c"] * (half - 1) + [END]


@functools.cache
def _dyck(pairs: int) -> Language:
    opening, closing = ([f"{mark}{number}" for number in range(1, pairs + 1)] for mark in "()")

    def draw(length: int, generator: np.random.Generator) -> Words:
        words: Words = []
        opened: Words = []
        for place, chance in enumerate(generator.random(length)):
            if not opened or (chance < 0.5 and len(opened) < length - place):
                opened.append(str(generator.integers(1, pairs + 1)))
                words.append(f"({opened[-1]}")
            else:
                words.append(f"){opened.pop()}")
        return words

    def answer(words: Words) -> Words:
        output: Words = []
        opened: Words = []
        for word in words:
            if word[0] == "(":
                opened.append(word[1:])
            else:
                opened.pop()
            output.append(f"){opened[-1]}" if opened else END)
        return output

    return Language("DCF", (*opening, *closing), (*closing, END), draw, answer, 2, 2, None)


_SIGNS = ("+", "-", "*")
_LANGUAGES: dict[str, Language] = {
    "even_pairs": _function("R", BITS, _even_pairs, lambda _: 1),
    "modular_arithmetic": _function(
        "R", (*DIGITS, *_SIGNS), _flat_arithmetic, lambda _: 1, DIGITS, _draw_flat_arithmetic, 1, 2
    ),
    "parity": _function("R", BITS, lambda words: _one(words.count("1") % 2), lambda _: 1),
    "cycle_navigation": _function(
        "R",
        ("left", "stay", "right"),
        lambda words: _one((words.count("right") - words.count("left")) % MODULUS),
        lambda _: 1,
        DIGITS,
    ),
    "stack_manipulation": _function(
        "DCF", (*BITS, "pop", "push0", "push1"), _stack, lambda length: length + 1, (*BITS, END), _draw_stack
    ),
    "reverse_string": _function("DCF", BITS, lambda words: words[::-1]),
    "modular_arithmetic_brackets": _function(
        "DCF",
        (*DIGITS, *_SIGNS, "(", ")"),
        lambda words: _one(_value(words)),
        lambda _: 1,
        DIGITS,
        lambda length, generator: _brackets(length, generator, _SIGNS),
    ),
    "solve_equation": _function(
        "DCF", (*DIGITS, "+", "-", "(", ")", "x", "="), _equation, lambda _: 1, DIGITS, _draw_equation, 3
    ),
    "duplicate_string": _function("CS", BITS, lambda words: 2 * words, lambda length: 2 * length),
    "missing_duplicate": _function("CS", (*BITS, "?", "."), _missing, lambda _: 1, draw=_draw_missing, shortest=2),
    "odds_first": _function("CS", BITS, lambda words: words[1::2] + words[::2]),
    "binary_addition": _function(
        "CS",
        (*BITS, "+"),
        _two_numbers("+", lambda one, other: one + other),
        lambda length: length + 1,
        (*BITS, END),
        _draw_two_numbers("+"),
        3,
    ),
    "binary_multiplication": _function(
        "CS",
        (*BITS, "*"),
        _two_numbers("*", lambda one, other: one * other),
        outputs=(*BITS, END),
        draw=_draw_two_numbers("*"),
        shortest=3,
    ),
    "compute_sqrt": _function("CS", BITS, _root, _half, draw=_nonzero),
    "bucket_sort": _function("CS", DIGITS, sorted, outputs=DIGITS),
    "an_bn": _counted("ab", (1, 1), "DCF"),
    "an_b2n": _counted("ab", (1, 2), "DCF"),
    "an_bm_cnm": Language("DCF", ("a", "b", "c"), ("ab", "bc", "c", END), _draw_two_counts, _two_counts, 4, 2, None),
    "an_bn_cn": _counted("abc", (1, 1, 1), "CS"),
    "an_bn_cn_dn": _counted("abcd", (1, 1, 1, 1), "CS"),
}


def language(kind: Kind, pairs: int) -> Language:
    """Return a kind by its name; ``pairs`` is the number of pairs of brackets of ``"dyck"``."""
    return _dyck(pairs) if kind == "dyck" else _LANGUAGES[kind]


def drawn_words(language: Language, lengths: range, count: int, generator: np.random.Generator) -> list[Words]:
    """Return ``count`` inputs; there are as many of each length, as far as possible."""
    return [language.draw(lengths[place % len(lengths)], generator) for place in range(count)]
