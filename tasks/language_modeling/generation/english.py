"""A grammar of English with long-distance agreement, reflexives and polarity items, and its minimal pairs.

Nouns are masculine, feminine (both singular) or plural. The grammar has no ambiguous sentence. A noun phrase has at
most one prepositional phrase or relative clause, so each belongs to the nearest noun before it. Verb phrases are
coordinated only in a main or complement clause, and the parts of a coordination contain no complement clause. So the
entropy of a derivation is the entropy of a sentence.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from treemem.errors import RecipeError
from treemem.trees.pcfg import Grammar, Rules

FEWEST_WORDS = 100
_NUMBER = {"m": "s", "f": "s", "p": "p"}  # singular or plural, of masculine, feminine and plural
_WRONG_NUMBER = {"s": "p", "p": "s"}
_REFLEXIVES = {"m": "himself", "f": "herself", "p": "themselves"}

_RULES = """
S            3    NP[x] VP[x]
S            1    NoNP[x] NoVP[x]
NP[x]        70   Base[x]
NP[x]        14   Base[x] PP
NP[x]        12   Base[x] SBAR[x]
NoNP[x]      70   NoBase[x]
NoNP[x]      14   NoBase[x] PP
NoNP[x]      12   NoBase[x] SBAR[x]
Base[x]      3    D[x] N[x]
Base[x]      1    D[x] A N[x]
NoBase[x]    3    no N[x]
NoBase[x]    1    no A N[x]
PP           1    P Object
Object       1    NP[y]
SBAR[x]      4    that Subject[x]
SBAR[x]      2    that Gap
SBAR[x]      2    Gap
Subject[x]   2    VI[x]
Subject[x]   1    VI[x] Adv
Subject[x]   3    VT[x] Object
Gap          5    NP[y] VT[y]
Gap          1    NoNP[y] VT[y]
VP[x]        60   Simple[x]
VP[x]        12   Simple[x] and Simple[x]
VP[x]        8    VS[x] Complement
VP[x]        8    VS[x] S
VP[x]        12   VT[x] Self[x]
NoVP[x]      1    VP[x]
NoVP[x]      1    ever Simple[x]
Simple[x]    3    VI[x]
Simple[x]    2    VI[x] Adv
Simple[x]    5    VT[x] Object
Complement   1    that S
"""
"""Symbol, weight, parts. ``x`` stands for each of m, f, p in the whole rule; a rule with ``y`` is there for each y."""

_LABELS = {
    "NoNP": "NP", "Base": "NP", "NoBase": "NP", "Object": "NP",
    "Subject": "VP", "NoVP": "VP", "Simple": "VP", "Gap": "S", "Complement": "SBAR",
}  # fmt: skip

_REAL_WORDS = {
    "m": "boy man king actor father brother waiter farmer poet pilot",
    "f": "girl lady queen actress mother sister waitress singer nurse doctor",
    "VI": "laughs smiles sleeps arrives waits sings works jumps falls travels",
    "VT": "likes sees helps admires follows knows teaches trusts watches blames",
    "VS": "says thinks believes hopes claims",
    "A": "old young tall happy quiet clever famous kind rich brave",
    "Adv": "often loudly today slowly well again quickly badly here together",
}
_IRREGULAR = {"man": "men", "lady": "ladies"}
_STEM_ENDINGS = {"m": "k", "f": "n", "VI": "p", "VT": "t", "VS": "d", "A": "l", "Adv": "r"}
_SHARES = {"m": 0.1, "f": 0.1, "VI": 0.07, "VT": 0.1, "VS": 0.02, "A": 0.14, "Adv": 0.08}
"""The share of each sort of stem in the words that are not function words; nouns and verbs have two forms each."""

_FUNCTION_WORDS = {
    "D[s]": "the a this every",
    "D[p]": "the some these many",
    "P": "near behind beside with",
}


@functools.cache
def english_grammar(words: int = 1000) -> Grammar:
    """Return the grammar with about this many words; its symbols are those of ``_RULES`` and its own lexicon.

    The first ten words or so of each sort are English, further ones are invented. The probability of the r-th word of
    a sort is proportional to ``1 / (r + 2)``.

    Raises:
        RecipeError: fewer than 100 words.

    Example:
        >>> grammar = english_grammar(200)
        >>> grammar.num_derivations("the boy that the girls see laughs".split())
        1
        >>> grammar.num_derivations("the boy that the girls see laugh".split())
        0
    """
    if words < FEWEST_WORDS:
        raise RecipeError(f"words must be at least {FEWEST_WORDS}, not {words}; each sort of word needs some")
    rules: dict[str, list[tuple[float, Sequence[str]]]] = {}
    for line in _RULES.strip().splitlines():
        left, weight, *parts = line.split()
        for x, y in itertools.product("mfp", repeat=2):
            made = [_symbol(part.replace("[x]", f"[{x}]").replace("[y]", f"[{y}]")) for part in (left, *parts)]
            both = rules.setdefault(made[0], [])
            if (float(weight), tuple(made[1:])) not in both:
                both.append((float(weight), tuple(made[1:])))
    return Grammar({**rules, **_lexicon(words)})


def _symbol(part: str) -> str:
    """Return the symbol of a part, whose text up to ``[`` is the label of its nodes."""
    name, bracket, feature = part.partition("[")
    if name in ("D", "VI", "VT", "VS") and bracket:
        feature = f"{_NUMBER[feature[0]]}]"
    if name not in _LABELS:
        return name + bracket + feature
    return f"{_LABELS[name]}[{name} {feature.rstrip(']')}]"


def _lexicon(words: int) -> Rules:
    """Return the rules of words."""
    stems = _stems(words)
    words_of_symbol: dict[str, list[str]] = {
        "N[m]": stems["m"],
        "N[f]": stems["f"],
        "N[p]": [_plural(noun) for pair in itertools.zip_longest(stems["m"], stems["f"]) for noun in pair if noun],
        "A": stems["A"],
        "Adv": stems["Adv"],
    }
    for sort in ("VI", "VT", "VS"):
        words_of_symbol[f"{sort}[s]"] = stems[sort]
        words_of_symbol[f"{sort}[p]"] = [_without_s(verb) for verb in stems[sort]]
    words_of_symbol.update({symbol: line.split() for symbol, line in _FUNCTION_WORDS.items()})
    words_of_symbol.update({f"Self[{x}]": [word] for x, word in _REFLEXIVES.items()})
    return {
        symbol: [(1 / (rank + 3), (word,)) for rank, word in enumerate(members)]
        for symbol, members in words_of_symbol.items()
    }


def _stems(words: int) -> dict[str, list[str]]:
    """Return the nouns and verbs in the singular, and the other words, of each sort, the commonest first."""
    fixed = {word for line in _FUNCTION_WORDS.values() for word in line.split()} | {"no", "that", "and", "ever"}
    rest = words - len(fixed) - len(_REFLEXIVES)
    used = {word for line in _REAL_WORDS.values() for word in line.split()}
    stems = {}
    for sort, share in _SHARES.items():
        real = _REAL_WORDS[sort].split()
        invented = (stem for stem in _invented(_STEM_ENDINGS[sort]) if stem not in used)
        is_verb = sort.startswith("V")
        more = (f"{stem}s" if is_verb else stem for stem in invented)
        stems[sort] = list(itertools.islice(itertools.chain(real, more), max(2, round(share * rest))))
    return stems


def _invented(ending: str) -> Iterator[str]:
    """Yield pronounceable stems with an ending, the shortest first."""
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
    for length in itertools.count(2):
        for parts in itertools.product(syllables, repeat=length):
            yield "".join(parts) + ending


def _plural(noun: str) -> str:
    return _IRREGULAR.get(noun) or (f"{noun}es" if noun.endswith("ss") else f"{noun}s")


def _without_s(verb: str) -> str:
    return verb.removesuffix("es") if verb.endswith("ches") else verb.removesuffix("s")


class MinimalPair(NamedTuple):
    """Two sentences that differ in a word or two, of which the grammar has only the first.

    Attributes:
        construction: what they are about, such as ``"agreement: across a prepositional phrase"``.
        good, bad: the sentences.
    """

    construction: str
    good: tuple[str, ...]
    bad: tuple[str, ...]


_TEMPLATES: Mapping[str, str] = {
    "agreement: simple": "D[x] N[x] *VI[x]",
    "agreement: sentential complement": "D[y] N[y] VS[y] that D[x] N[x] *VI[x]",
    "agreement: sentential complement without that": "D[y] N[y] VS[y] D[x] N[x] *VI[x]",
    "agreement: short VP coordination": "D[x] N[x] VI[x] and *VI[x]",
    "agreement: long VP coordination": "D[x] N[x] VT[x] D[y] N[y] and *VT[x] D[z] N[z]",
    "agreement: across a prepositional phrase": "D[x] N[x] P D[y] N[y] *VI[x]",
    "agreement: across a subject relative": "D[x] N[x] that VT[x] D[y] N[y] *VI[x]",
    "agreement: across an object relative": "D[x] N[x] that D[y] N[y] VT[y] *VI[x]",
    "agreement: across an object relative without that": "D[x] N[x] D[y] N[y] VT[y] *VI[x]",
    "agreement: across two prepositional phrases": "D[x] N[x] P D[y] N[y] P D[z] N[z] *VI[x]",
    "agreement: across nested object relatives": "D[x] N[x] that D[y] N[y] that D[z] N[z] VT[z] VT[y] *VI[x]",
    "agreement: in nested object relatives": "D[x] N[x] that D[y] N[y] that D[z] N[z] VT[z] *VT[y] VI[x]",
    "agreement: in an object relative": "D[y] N[y] that D[x] N[x] *VT[x] VI[y]",
    "agreement: in an object relative without that": "D[y] N[y] D[x] N[x] *VT[x] VI[y]",
    "reflexive: simple": "D[x] N[x] VT[x] *Self[x]",
    "reflexive: sentential complement": "D[y] N[y] VS[y] that D[x] N[x] VT[x] *Self[x]",
    "reflexive: across an object relative": "D[x] N[x] that D[y] N[y] VT[y] VT[x] *Self[x]",
    "reflexive: across nested object relatives": "D[x] N[x] that D[y] N[y] that D[z] N[z] VT[z] VT[y] VT[x] *Self[x]",
    "polarity: simple": "*no N[x] ever VI[x]",
    "polarity: across an object relative": "*no N[x] that D[y] N[y] VT[y] ever VI[x]",
    "polarity: across an object relative with no": "*no N[x] that *D[y] N[y] VT[y] ever VI[x]",
}
"""The part with ``*`` is wrong in the bad sentence: of the other number, or the other determiner."""

CONSTRUCTIONS = tuple(_TEMPLATES)


def minimal_pairs(grammar: Grammar, count: int, seed: int = 0) -> list[MinimalPair]:
    """Return up to ``count`` minimal pairs of each construction, without duplicates.

    The constructions are those of Marvin & Linzen 2018, and deeper ones. Words are drawn as the grammar draws them;
    number and gender uniformly. In half of the pairs, about, the noun between subject and verb has the number of the
    wrong verb.

    Args:
        grammar: of :func:`english_grammar`.
        count: fewer come if the grammar has too few words for so many.
        seed: of all choices.

    Example:
        >>> pair = minimal_pairs(english_grammar(200), 1)[0]
        >>> len(pair.good), pair.good[:-1] == pair.bad[:-1]
        (3, True)
    """
    generator = np.random.default_rng(seed)
    pairs: dict[MinimalPair, None] = {}
    for construction, template in _TEMPLATES.items():
        of_construction: dict[MinimalPair, None] = {}
        for _ in range(20 * count):
            of_construction.setdefault(_pair(grammar, construction, template.split(), generator))
            if len(of_construction) == count:
                break
        pairs.update(of_construction)
    return list(pairs)


def _pair(grammar: Grammar, construction: str, template: Sequence[str], generator: np.random.Generator) -> MinimalPair:
    feature = {name: "mmffpppp"[int(generator.integers(8))] for name in "xyz"}
    good, bad = [], []
    for part in template:
        name, bracket, variable = part.lstrip("*").partition("[")
        x = feature[variable[0]] if bracket else ""
        symbol = f"{name}[{x if name in ('N', 'Self') else _NUMBER[x]}]" if bracket else name
        word = _draw(grammar, symbol, generator)
        good.append(word)
        bad.append(_wrong(grammar, name, x or feature["x"], word, generator) if part.startswith("*") else word)
    return MinimalPair(construction, tuple(good), tuple(bad))


def _draw(grammar: Grammar, symbol: str, generator: np.random.Generator) -> str:
    choices = grammar.rules.get(symbol)
    if choices is None:
        return symbol
    return choices[int(generator.choice(len(choices), p=[probability for probability, _ in choices]))][1][0]


def _wrong(grammar: Grammar, name: str, x: str, word: str, generator: np.random.Generator) -> str:
    """Return what the bad sentence has in place of a word."""
    if name == "no":
        return _draw(grammar, f"D[{_NUMBER[x]}]", generator)
    if name == "D":
        return "no"
    if name == "Self":
        others = [other for other in "mfp" if _NUMBER[other] != _NUMBER[x]]
        return _REFLEXIVES[others[int(generator.integers(len(others)))]]
    of_number = [parts[0] for _, parts in grammar.rules[f"{name}[{_NUMBER[x]}]"]]
    return grammar.rules[f"{name}[{_WRONG_NUMBER[_NUMBER[x]]}]"][of_number.index(word)][1][0]
