"""The pairs of a data set: drawn, or read from a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from treemem.data.data_card import data_card
from treemem.data.examples import TaskData
from treemem.errors import RecipeError
from treemem.task.sequences import SourceDataOptions, forest_of_pairs
from treemem.tasks.transduction.grammars import DRAWS, Kind, Pair, grammar, has_length, is_grammar

_DRAWS_PER_PAIR = 100  # before giving up on one that is new


@dataclass(frozen=True)
class TransductionDataOptions(SourceDataOptions):
    """How many pairs, and how long their sources are.

    Attributes:
        training_size, validation_size, test_size: numbers of pairs.
        train_lengths: the shortest and the longest source of training and validation. All lengths are equally likely
            that the kind has: of ``"bigram_flip"`` and ``"priority_sort"`` even ones, of ``"associative_recall"``
            multiples of 4 from 12 up. A length with few sources gets fewer, because no source occurs twice.
        lengths: ``"uniform"``, or ``"grammar"``: lengths of a synchronous grammar as likely as it makes them, so most
            are short.
        path: use the pairs of this file instead. Its field ``split`` (train, validation, test) divides them.

    Raises:
        RecipeError: a number out of its range.
    """

    least_length: ClassVar[int] = 3

    lengths: Literal["uniform", "grammar"] = "uniform"


def draw_pairs(kind: Kind, alphabet: int, options: TransductionDataOptions) -> TaskData:
    """Return pairs of a kind with their splits. No source is generated twice.

    Args:
        kind, alphabet: of the task.
        options: what to generate.

    Raises:
        RecipeError: there are too few sources of these lengths.
    """
    if options.lengths == "grammar" and not is_grammar(kind):
        raise RecipeError(f"data.lengths=grammar is for svo_sov and gender; {kind} has no grammar, so set uniform")
    generator = np.random.default_rng(options.seed)
    pairs: list[Pair] = []
    seen: set[tuple[str, ...]] = set()
    rows = []
    for split, (count, (shortest, longest)) in options.parts.items():
        lengths = [length for length in range(shortest, longest + 1) if has_length(kind, length)]
        if not lengths:
            rule = "a multiple of 4, from 12 up" if kind == "associative_recall" else "even"
            raise RecipeError(
                f"the length of a source of {kind} is {rule}, and data asks {split} for {shortest} to {longest}"
            )
        first = len(pairs)
        chances = grammar(kind).length_chances(lengths) if options.lengths == "grammar" else None
        for _ in range(_DRAWS_PER_PAIR * count):
            place = generator.integers(len(lengths)) if chances is None else generator.choice(len(lengths), p=chances)
            pair = DRAWS[kind](lengths[int(place)], alphabet, generator)
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
        drawn = [len(source) for source, _ in pairs[first:]]
        rows.append([split, count, min(drawn), max(drawn), f"{sum(drawn) / count:.1f}"])
    about = f"# Transduction\n\nPairs of `{kind}`, alphabet {alphabet}, seed {options.seed}. No source is there twice."
    card = data_card(about, ["split", "pairs", "shortest source", "longest", "mean"], rows)
    splits = np.repeat([*options.parts], [count for count, _ in options.parts.values()])
    return TaskData(forest_of_pairs(pairs).with_data(tree_data={"split": splits}), card)
