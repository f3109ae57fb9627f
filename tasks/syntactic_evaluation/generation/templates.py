"""The minimal pairs of Marvin & Linzen (2018), generated from templates.

``templates.yaml`` has the words and the templates. In a sort of words, phrases are separated by commas, and ``is/are``
has two forms, singular and plural. In a template

- ``acts[x]`` stands for every phrase of the sort ``acts``, in the number ``x``. ``x`` and ``y`` are each singular, then
  plural; ``[plural]`` is always plural, and phrases with one form need no number: ``said[]``;
- ``*acts[x]`` is of the other number in the ungrammatical sentence;
- ``no|the|most`` is ``no`` in the grammatical, ``the`` in the intrusive and ``most`` in the ungrammatical sentence.

A sort that comes twice gives different phrases.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from treemem.plain_yaml import load_yaml
from treemem.tasks.language_modeling.generation.english import MinimalPair
from treemem.tasks.syntactic_evaluation.published import compared

_Words = tuple[str, ...]
_Sentences = tuple[_Words, ...]


def template_pairs(file: str | None = None, *, stop: bool = False) -> list[MinimalPair]:
    """Return the 184,772 minimal pairs of the templates; their constructions are the rows of the published table.

    A triple of polarity items, grammatical, intrusive and ungrammatical, is three pairs.

    Args:
        file: the pairs of one published file, such as ``"simple_agrmt"``; by default of all 18.
        stop: whether to end each sentence with ``.``, as the published evaluation does.

    Raises:
        KeyError: there is no such file.

    Example:
        >>> for pair in template_pairs("simple_npi_anim")[:3]:
        ...     print(" ".join(pair.good), "|", " ".join(pair.bad))
        no authors have ever been popular | the authors have ever been popular
        the authors have ever been popular | most authors have ever been popular
        no authors have ever been popular | most authors have ever been popular
    """
    data = load_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    sorts = {sort: [_forms(phrase) for phrase in phrases.split(", ")] for sort, phrases in data["words"].items()}
    files = data["templates"]
    return [
        pair
        for templates in (files.values() if file is None else [files[file]])
        for construction, of_construction in templates.items()
        for template in of_construction
        for sentences in _sentences([*template.split(), *(["."] if stop else [])], sorts)
        for pair in compared(construction, sentences)
    ]


def _forms(phrase: str) -> tuple[_Words, _Words]:
    """Return the words of a phrase in the singular and in the plural."""
    words = [word.split("/") for word in phrase.split()]
    return tuple(word[0] for word in words), tuple(word[-1] for word in words)


def _sentences(template: Sequence[str], sorts: Mapping[str, Sequence[tuple[_Words, _Words]]]) -> Iterator[_Sentences]:
    """Yield the sentences that a template makes: grammatical and ungrammatical, or with the intrusive one between."""
    versions = 1 + max(1, *(part.count("|") for part in template))
    variables = [name for name in "xy" if any(part.endswith(f"[{name}]") for part in template)]
    sort = [part.strip("*").partition("[")[0] for part in template]
    twice = [(sort.index(name), place) for place, name in enumerate(sort) if name in sorts and name in sort[:place]]
    for numbers in itertools.product((0, 1), repeat=len(variables)):
        number = {"": 0, "plural": 1, **dict(zip(variables, numbers, strict=True))}
        choices = [_choices(part, sorts, number, versions) for part in template]
        for chosen in itertools.product(*choices):
            if all(chosen[first][0] != chosen[second][0] for first, second in twice):
                yield tuple(tuple(itertools.chain.from_iterable(version)) for version in zip(*chosen, strict=True))


def _choices(
    part: str, sorts: Mapping[str, Sequence[tuple[_Words, _Words]]], number: Mapping[str, int], versions: int
) -> list[_Sentences]:
    """Return what may stand for a part of a template: its words in each version of the sentence."""
    if "|" in part:
        return [tuple((word,) for word in part.split("|"))]
    sort, bracket, name = part.strip("*").rstrip("]").partition("[")
    if not bracket:
        return [((part,),) * versions]
    form = number[name]
    wrong = 1 - form if part.startswith("*") else form
    return [(forms[form],) * (versions - 1) + (forms[wrong],) for forms in sorts[sort]]
