"""The pairs of a data set: drawn, or read from a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from treemem.checked_options import Count, Natural, check_fields, count_range
from treemem.data.examples import TaskData
from treemem.errors import RecipeError
from treemem.tasks.transduction.grammars import DRAWS, Kind, Pair, has_length
from treemem.tasks.transduction.readers import forest_of_pairs
from treemem.trees.forest import Forest

_DRAWS_PER_PAIR = 100  # before giving up on one that is new


@dataclass(frozen=True)
class TransductionDataOptions:
    """How many pairs, and how long their sources are.

    Attributes:
        training_size, validation_size, test_size: numbers of pairs.
        train_lengths: the shortest and the longest source of training and validation. All lengths are equally likely
            that the kind has: of ``"bigram_flip"`` and ``"priority_sort"`` even ones, of ``"associative_recall"``
            multiples of 4 from 12 up. A length with few sources gets fewer, because no source occurs twice.
        test_lengths: of the test.
        seed: of all choices.
        path: use the pairs of this file instead. Its field ``split`` (train, validation, test) divides them.

    Raises:
        RecipeError: a number out of its range.
    """

    training_size: Count = 20_000
    validation_size: Count = 500
    test_size: Count = 1000
    train_lengths: tuple[int, int] = (8, 64)
    test_lengths: tuple[int, int] = (65, 128)
    seed: Natural = 12093
    path: str | None = None

    def __post_init__(self) -> None:
        check_sizes_and_lengths(self, least=3)


def check_sizes_and_lengths(options: Any, *, least: int) -> None:
    """Check options of generated sources; makes the lengths tuples.

    Args:
        options: with the fields of :class:`TransductionDataOptions`.
        least: the shortest source that there can be.

    Raises:
        RecipeError: a number out of its range.
    """
    check_fields(options, "data.")
    for name in ("train_lengths", "test_lengths"):
        given = getattr(options, name)
        value = count_range(given)
        if value is None or value[0] < least:
            raise RecipeError(f"data.{name} are the shortest and the longest input, from {least} up, not {given!r}")
        object.__setattr__(options, name, value)


def make_pairs(kind: Kind, alphabet: int, options: TransductionDataOptions, read: Callable[[str], Forest]) -> TaskData:
    """Return pairs of a kind with their splits. No source is generated twice.

    Args:
        kind, alphabet: of the task.
        options: what to generate or read.
        read: reads a file of pairs.

    Raises:
        RecipeError: there are too few sources of these lengths, or the file has no pairs.
        ParseError, VocabularyError: a record of the file is not a pair.
    """
    if options.path is not None:
        forest = read(options.path)
        return TaskData(forest, f"# Transduction\n\n{len(forest)} pairs of {options.path}.\n")
    generator = np.random.default_rng(options.seed)
    parts = (
        ("train", options.training_size, options.train_lengths),
        ("validation", options.validation_size, options.train_lengths),
        ("test", options.test_size, options.test_lengths),
    )
    pairs: list[Pair] = []
    seen: set[tuple[str, ...]] = set()
    rows = []
    for split, count, (shortest, longest) in parts:
        lengths = [each for each in range(shortest, longest + 1) if has_length(kind, each)]
        if not lengths:
            rule = "a multiple of 4, from 12 up" if kind == "associative_recall" else "even"
            raise RecipeError(
                f"the length of a source of {kind} is {rule}, and data asks {split} for {shortest} to {longest}"
            )
        first = len(pairs)
        for _ in range(_DRAWS_PER_PAIR * count):
            pair = DRAWS[kind](lengths[int(generator.integers(len(lengths)))], alphabet, generator)
            if tuple(pair[0]) not in seen:
                seen.add(tuple(pair[0]))
                pairs.append(pair)
                if len(pairs) == first + count:
                    break
        if len(pairs) < first + count:
            raise RecipeError(
                f"only {len(pairs) - first} of the {count} pairs for {split} have a source that no other pair has; "
                "ask for fewer, for longer ones, or for a larger alphabet"
            )
        found = [len(source) for source, _ in pairs[first:]]
        rows.append(f"| {split} | {count} | {min(found)} | {max(found)} | {sum(found) / count:.1f} |\n")
    card = (
        f"# Transduction\n\nPairs of `{kind}`, alphabet {alphabet}, seed {options.seed}. No source is there twice.\n\n"
        f"| split | pairs | shortest source | longest | mean |\n|---|---|---|---|---|\n{''.join(rows)}"
    )
    splits = np.repeat([part[0] for part in parts], [part[1] for part in parts])
    return TaskData(forest_of_pairs(pairs).with_data(tree_data={"split": splits}), card)
