"""The examples of a data set: drawn, or read from a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from treemem.checked_options import Count, Natural
from treemem.data.examples import TaskData
from treemem.errors import RecipeError
from treemem.tasks.formal_languages.languages import Kind, Language, drawn_words
from treemem.tasks.transduction.data import check_sizes_and_lengths
from treemem.tasks.transduction.readers import forest_of_pairs
from treemem.trees.forest import Forest


@dataclass(frozen=True)
class FormalDataOptions:
    """How many examples, and how long their inputs are.

    Attributes:
        training_size, validation_size, test_size: numbers of examples.
        train_lengths: the shortest and the longest input of training and validation, in symbols. There are as many
            examples of each length; lengths that a kind does not have are left out.
        test_lengths: of the test.
        seed: of all choices.
        path: use the examples of this file instead. Its field ``split`` (train, validation, test) divides them.

    Raises:
        RecipeError: a number out of its range.
    """

    training_size: Count = 10_000
    validation_size: Count = 800
    test_size: Count = 1400
    train_lengths: tuple[int, int] = (1, 40)
    test_lengths: tuple[int, int] = (1, 140)
    seed: Natural = 12093
    path: str | None = None

    def __post_init__(self) -> None:
        check_sizes_and_lengths(self, least=1)


def make_examples(
    kind: Kind, language: Language, options: FormalDataOptions, read: Callable[[str], Forest]
) -> TaskData:
    """Return examples of a kind with their splits.

    Args:
        kind, language: of the task.
        options: what to generate or read.
        read: reads a file of examples.

    Raises:
        RecipeError: there is no input of these lengths, or the file has no examples.
        ParseError, VocabularyError: a record of the file is not an example.
    """
    if options.path is not None:
        forest = read(options.path)
        return TaskData(forest, f"# Formal languages\n\n{len(forest)} examples of {options.path}.\n")
    generator = np.random.default_rng(options.seed)
    parts = (
        ("train", options.training_size, options.train_lengths),
        ("validation", options.validation_size, options.train_lengths),
        ("test", options.test_size, options.test_lengths),
    )
    examples, rows = [], []
    for split, count, bounds in parts:
        lengths = language.lengths(*bounds)
        if not lengths:
            name = "test_lengths" if split == "test" else "train_lengths"
            known = ", ".join(str(language.shortest + number * language.step) for number in range(3))
            raise RecipeError(f"data.{name}={list(bounds)} has no length of {kind}, whose lengths are {known}, ...")
        words = drawn_words(language, lengths, count, generator)
        examples += [language.example(each) for each in words]
        found = [len(each) for each in words]
        rows.append(f"| {split} | {count} | {min(found)} | {max(found)} |\n")
    card = (
        f"# Formal languages\n\nExamples of `{kind}`, seed {options.seed}.\n\n"
        f"| split | examples | shortest input | longest |\n|---|---|---|---|\n{''.join(rows)}"
    )
    splits = np.repeat([part[0] for part in parts], [part[1] for part in parts])
    return TaskData(forest_of_pairs(examples, end=()).with_data(tree_data={"split": splits}), card)
