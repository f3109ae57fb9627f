"""The questions of a data set: drawn, or read from files."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from treemem.checked_options import Count, Natural, Range, check_fields, count_range
from treemem.data.data_card import data_card
from treemem.data.examples import TaskData
from treemem.errors import RecipeError
from treemem.tasks.reading.documents import RELATIONS, Question, draw_question, guesses, most_facts
from treemem.tasks.reading.readers import forest_of_sentences
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import SPLITS
from treemem.trees.pairs import with_pair_data

_TRIES = 1000


@dataclass(frozen=True)
class ReadingDataOptions:
    """How many questions, and how many facts a document has.

    Attributes:
        training_size, validation_size, test_size: numbers of questions.
        train_facts: the fewest and the most facts of a document in training and validation. There are as many documents
            of each number.
        test_facts: of the test.
        entities: from which the facts of a document are drawn, at least 3.
        relations: how many relations there are, 2 to 10.
        seed: of all choices.

    Raises:
        RecipeError: a number out of its range.
    """

    training_size: Count = 20_000
    validation_size: Count = 1000
    test_size: Count = 3000
    train_facts: tuple[int, int] = (2, 8)
    test_facts: tuple[int, int] = (2, 32)
    entities: Annotated[int, Range(3)] = 6
    relations: Annotated[int, Range(2, len(RELATIONS))] = len(RELATIONS)
    seed: Natural = 12093

    def __post_init__(self) -> None:
        check_fields(self, "data.")
        most = most_facts(self.entities, self.relations)
        for name in ("train_facts", "test_facts"):
            given = getattr(self, name)
            value = count_range(given)
            if value is None or not 1 <= value[0] <= value[1] <= most:
                raise RecipeError(
                    f"data.{name} are the fewest and the most facts of a document, from 1 to {most} with "
                    f"data.entities={self.entities} and data.relations={self.relations}, not {given!r}"
                )
            object.__setattr__(self, name, value)


class Asked(NamedTuple):
    """A question with its entities named.

    Attributes:
        document, query: their tokens.
        answer: an entity marker.
    """

    document: list[str]
    query: list[str]
    answer: str


def split_of_question(question: Question) -> str:
    """Return the split that a question belongs to, whatever its entities are called, so that it is in one alone."""
    text = " ".join(map(str, [*question.document, *question.query]))
    return SPLITS[zlib.crc32(text.encode()) % len(SPLITS)]


def drawn_questions(
    split: str,
    count: int,
    bounds: tuple[int, int],
    options: ReadingDataOptions,
    markers: Sequence[str],
    generator: random.Random,
) -> list[Asked]:
    """Return questions of a split whose entities have random markers.

    Raises:
        RecipeError: there are too few different questions.
    """
    questions = []
    fewest, most = bounds
    for place in range(count):
        facts = fewest + place % (most - fewest + 1)
        for _ in range(_TRIES):
            question = draw_question(facts, options.entities, options.relations, generator)
            if split_of_question(question) == split:
                break
        else:
            raise RecipeError(f"there are too few different documents of {facts} facts for the split {split!r}")
        questions.append(Asked(*question.renamed(generator.sample(markers, options.entities))))
    return questions


def make_questions(options: ReadingDataOptions, markers: Sequence[str]) -> TaskData:
    """Return drawn questions with their splits. The card has the accuracy of baselines without a network.

    Args:
        options: what to draw.
        markers: the entity markers.

    Raises:
        RecipeError: a document has more entities than there are markers.
    """
    if options.entities > len(markers):
        raise RecipeError(
            f"data.entities={options.entities} is more than the {len(markers)} entity markers; raise "
            "task_options.num_entities"
        )
    generator = random.Random(options.seed)
    parts = {
        split: drawn_questions(split, count, bounds, options, markers, generator)
        for split, count, bounds in (
            ("train", options.training_size, options.train_facts),
            ("validation", options.validation_size, options.train_facts),
            ("test", options.test_size, options.test_facts),
        )
    }
    number = {marker: place for place, marker in enumerate(markers)}
    questions = [question for drawn in parts.values() for question in drawn]
    data = {
        "label": np.array([number[question.answer] for question in questions]),
        "split": np.repeat(list(parts), [len(drawn) for drawn in parts.values()]),
    }
    sentences = (text for question in questions for text in question[:2])
    forest = with_pair_data(forest_of_sentences(sentences), data)
    train, test = ("-".join(map(str, bounds)) for bounds in (options.train_facts, options.test_facts))
    about = (
        f"Facts of {options.relations} relations between {options.entities} entities, seed {options.seed}: {train} "
        f"facts a document in training and validation, {test} in the test."
    )
    return TaskData(forest, reading_card(about, parts))


def read_questions(forest: Forest, path: str, markers: Sequence[str]) -> TaskData:
    """Return the questions of files, with the accuracy of the baselines on those with an answer in the card.

    Args:
        forest: documents and queries, adjacent.
        path: where they come from.
        markers: the entity markers.
    """
    tokens = forest.tokens("leaves").strings()
    parts: dict[str, list[Asked]] = {}
    label, split = forest.tree_data["label"], forest.tree_data.get("split", np.full(len(forest), "all"))
    for place in range(0, len(tokens), 2):
        if label[place] >= 0:
            asked = Asked(tokens[place], tokens[place + 1], markers[label[place]])
            parts.setdefault(str(split[place]), []).append(asked)
    return TaskData(forest, reading_card(f"Questions of {path}.", parts))


def reading_card(about: str, parts: dict[str, list[Asked]]) -> str:
    """Return what the data are, with the accuracy of baselines on each split, as Markdown."""
    names = list(guesses([], []))
    rows = []
    for split, questions in parts.items():
        guessed = [guesses(question.document, question.query) for question in questions]
        shares = [
            np.mean([guess[name] == question.answer for guess, question in zip(guessed, questions, strict=True)])
            for name in names
        ]
        rows.append([split, len(questions), *(f"{100 * share:.1f}" for share in shares)])
    about = f"# Reading\n\n{about} Accuracy of baselines without a network, in percent:"
    return data_card(about, ["split", "questions", *names], rows)
