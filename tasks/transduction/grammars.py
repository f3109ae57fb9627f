"""The pairs of the task: three functions of a sequence, and two synchronous grammars.

A synchronous grammar derives source and target together. Each rule says in which order its parts stand on either side.
The grammars are our own: the paper's are in an appendix that gives no probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

Kind = Literal["copy", "reversal", "bigram_flip", "svo_sov", "gender"]
Pair = tuple[list[str], list[str]]
_Draw = Callable[[int, int, np.random.Generator], Pair]

_ARTICLE = {"n": "das", "m": "der", "f": "die"}


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
    """Return a sequence of even length (one more, if it is odd), and the same with neighbours swapped: 2 1 4 3 ..."""
    source = _symbols(length + length % 2, alphabet, generator)
    return source, [symbol for place in range(0, len(source), 2) for symbol in source[place : place + 2][::-1]]


def svo_sov(length: int, alphabet: int, generator: np.random.Generator) -> Pair:
    """Return a sentence of subject, verb and objects, and the same with the verb of its main clause last.

    ``sentence -> <subject verb objects, subject objects verb>``; ``objects -> <objects object, objects object>``,
    ``<object, object>``, and at their end ``<subject rp clause, subject rp clause>``; ``clause -> <subject verb
    objects, subject verb objects>``. Source symbols end in i, target symbols in o: ``si3 vi1 oi2``, ``so3 oo2 vo1``.
    """
    number = max(1, alphabet // 3)

    def clause(rest: int) -> list[tuple[str, int | None]]:
        """A subject, a verb, and ``rest - 2`` further symbols, as their sort and number."""
        found: list[tuple[str, int | None]] = [(sort, int(generator.integers(number))) for sort in "sv"]
        rest -= 2
        has_clause = rest >= 6 and generator.random() < 0.7
        objects = int(generator.integers(1, rest - 4)) if has_clause else rest
        found += [("o", int(place)) for place in generator.integers(number, size=objects)]
        if has_clause:
            found += [("s", int(generator.integers(number))), ("rp", None), *clause(rest - objects - 2)]
        return found

    words = clause(max(3, length))

    def written(sentence: list[tuple[str, int | None]], side: str) -> list[str]:
        return [f"{sort}{side}{'' if place is None else place}" for sort, place in sentence]

    return written(words, "i"), written([words[0], *words[2:], words[1]], "o")


def gender(length: int, alphabet: int, generator: np.random.Generator) -> Pair:
    """Return a text whose articles do not show gender, and one where they agree with their noun.

    ``text -> <text unit, text unit>``, ``<unit, unit>``; ``unit -> <we, wg>``, ``<and, und>``, and for each gender
    ``<the words noun, article words noun>`` with up to three words ``<we, wg>``. Articles are ``das`` before a noun
    ``gn``, ``der`` before ``gm``, ``die`` before ``gf``. Up to three words stand between article and noun.
    """
    number = max(1, alphabet // 4)
    source: list[str] = []
    target: list[str] = []

    def word() -> None:
        place = int(generator.integers(number))
        source.append(f"we{place}")
        target.append(f"wg{place}")

    while len(source) < length:
        rest, sort = length - len(source), generator.random()
        if rest >= 2 and sort < 0.5:
            of = "nmf"[generator.integers(3)]
            source.append("the")
            target.append(_ARTICLE[of])
            for _ in range(int(generator.integers(0, min(3, rest - 2) + 1))):
                word()
            place = int(generator.integers(number))
            source.append(f"e{of}{place}")
            target.append(f"g{of}{place}")
        elif rest >= 2 and source and sort < 0.6 and source[-1] != "and":
            source.append("and")
            target.append("und")
        else:
            word()
    return source, target


DRAWS: dict[Kind, _Draw] = {
    "copy": copy,
    "reversal": reversal,
    "bigram_flip": bigram_flip,
    "svo_sov": svo_sov,
    "gender": gender,
}


def symbols_of(kind: Kind, alphabet: int) -> list[str]:
    """Return all symbols of the sources and targets of a kind."""
    if kind == "svo_sov":
        words = [f"{sort}{side}{place}" for side in "io" for sort in "svo" for place in range(max(1, alphabet // 3))]
        return [*words, "rpi", "rpo"]
    if kind == "gender":
        sorts = [f"{language}{sort}" for language in "eg" for sort in "nmf"] + ["we", "wg"]
        words = [f"{sort}{place}" for sort in sorts for place in range(max(1, alphabet // 4))]
        return ["the", "and", "und", *_ARTICLE.values(), *words]
    return [str(symbol) for symbol in range(alphabet)]
