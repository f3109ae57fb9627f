"""The examples of a data set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treemem.checked_options import Count
from treemem.data.data_card import data_card
from treemem.data.examples import TaskData
from treemem.errors import ParseError, RecipeError
from treemem.task.sequences import SourceDataOptions, forest_of_pairs
from treemem.tasks.formal_languages.languages import BLANK, Kind, Language, Words, drawn_words


@dataclass(frozen=True)
class FormalDataOptions(SourceDataOptions):
    """How many examples, and how long their inputs are.

    Attributes:
        train_lengths: the shortest and the longest input of training and validation, in symbols. There are as many
            examples of each length; lengths that a kind does not have are left out.

    Raises:
        RecipeError: a number out of its range.
    """

    training_size: Count = 10_000
    validation_size: Count = 800
    test_size: Count = 1400
    train_lengths: tuple[int, int] = (1, 40)
    test_lengths: tuple[int, int] = (1, 140)


def draw_examples(kind: Kind, language: Language, options: FormalDataOptions) -> TaskData:
    """Return examples of a kind with their splits.

    Args:
        kind, language: of the task.
        options: what to generate.

    Raises:
        RecipeError: there is no input of these lengths.
    """
    generator = np.random.default_rng(options.seed)
    examples, rows = [], []
    for split, (count, bounds) in options.parts.items():
        lengths = language.lengths(*bounds)
        if not lengths:
            name = "test_lengths" if split == "test" else "train_lengths"
            known = ", ".join(str(language.shortest + number * language.step) for number in range(3))
            raise RecipeError(f"data.{name}={list(bounds)} has no length of {kind}, whose lengths are {known}, ...")
        inputs = drawn_words(language, lengths, count, generator)
        examples += [language.example(words) for words in inputs]
        drawn = [len(words) for words in inputs]
        rows.append([split, count, min(drawn), max(drawn)])
    about = f"# Formal languages\n\nExamples of `{kind}`, seed {options.seed}."
    card = data_card(about, ["split", "examples", "shortest input", "longest"], rows)
    splits = np.repeat([*options.parts], [count for count, _ in options.parts.values()])
    return TaskData(forest_of_pairs(examples, end=()).with_data(tree_data={"split": splits}), card)


def asked(language: Language, source: Words, target: Words) -> list[Words]:
    """Return the example of an input and its output, which need not be the correct one.

    Raises:
        ParseError: an output of another length than the input's.
    """
    places = len(source) if language.blanks is None else language.blanks(len(source))
    if len(target) > places or (language.blanks is None and len(target) < places):
        raise ParseError(f"an input of {len(source)} symbols has {places} outputs, not {len(target)}")
    before = [] if language.blanks is None else [BLANK] * len(source)
    return [language.padded(source), before + target + [BLANK] * (places - len(target))]
