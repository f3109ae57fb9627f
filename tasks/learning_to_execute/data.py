"""The programs of a data set: drawn by a curriculum, or read from a file."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import numpy as np

from treemem.checked_options import Count, Natural, Range, check_fields
from treemem.data.data_card import data_card
from treemem.data.examples import TaskData
from treemem.task.sequences import forest_of_pairs
from treemem.tasks.learning_to_execute.programs import MAX_NESTING, draw_program, printed
from treemem.trees.formats.record_reader import SPLITS

MAX_LENGTH = 99
"""Groups of scores are ``100 * nesting + length``, so a length has at most two digits."""
_TARGET_SHARE = 0.75  # of the programs of a naive curriculum: the paper leaves earlier levels behind; here they stay
Curriculum = Literal["none", "naive", "mix", "combined"]


@dataclass(frozen=True)
class ProgramDataOptions:
    """How many programs, and how difficult.

    A level is a length of numbers and a nesting. The levels are ordered by nesting, then by length, up to the target
    level. Training programs come from the levels that the curriculum says; the stages of ``training.curriculum`` count
    levels.

    Attributes:
        training_size, validation_size, test_size: numbers of programs.
        length, nesting: the target level: digits of numbers, at most 99, and operations of a program, at most 10.
        curriculum: ``"none"``: training has programs of the target level alone. ``"naive"``: three quarters are of the
            target level, the others of the levels before it; a stage up to n has the first n levels. ``"mix"``:
            programs of random levels, all from the start. ``"combined"``: half naive, half mix.
        seed: of all choices.
        path: use the programs of this file instead. Its field ``split`` (train, validation, test) divides them.

    Raises:
        RecipeError: a number out of its range, or an unknown curriculum.
    """

    training_size: Count = 100_000
    validation_size: Count = 1000
    test_size: Count = 3000
    length: Annotated[int, Range(1, MAX_LENGTH)] = 3
    nesting: Annotated[int, Range(1, MAX_NESTING)] = 1
    curriculum: Curriculum = "combined"
    seed: Natural = 12093
    path: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, "data.")

    @property
    def levels(self) -> list[tuple[int, int]]:
        """The levels ``(length, nesting)``, the easiest first."""
        return [(length + 1, nesting + 1) for nesting in range(self.nesting) for length in range(self.length)]


class Program(NamedTuple):
    """A drawn program.

    Attributes:
        text: of the program.
        length, nesting: of its level.
        stage: the stage of the curriculum in which it comes, from 1.
    """

    text: str
    length: int
    nesting: int
    stage: int


def split_of_program(text: str) -> str:
    """Return the split that a program belongs to, so that no program is in two."""
    return SPLITS[zlib.crc32(text.encode()) % 3]


def drawn_programs(split: str, levels: Sequence[tuple[int, int, int]], generator: random.Random) -> list[Program]:
    """Return a program of a split for each level ``(length, nesting, stage)``."""
    programs = []
    for length, nesting, stage in levels:
        text = draw_program(length, nesting, generator)
        while split_of_program(text) != split:
            text = draw_program(length, nesting, generator)
        programs.append(Program(text, length, nesting, stage))
    return programs


def _training_levels(options: ProgramDataOptions, generator: random.Random) -> list[tuple[int, int, int]]:
    levels, size = options.levels, options.training_size
    if options.curriculum == "none":
        return [(*levels[-1], 1)] * size
    drawn, last = [], len(levels) - 1
    for place in range(size):
        if options.curriculum == "mix" or (options.curriculum == "combined" and place % 2 == 0):
            drawn.append((*levels[generator.randrange(len(levels))], 1))
        else:
            number = last if generator.random() < _TARGET_SHARE else generator.randrange(max(1, last))
            drawn.append((*levels[number], number + 1))
    return drawn


def draw_programs(options: ProgramDataOptions) -> TaskData:
    """Return programs with what they print, their levels and splits.

    Validation has the target level; the test has as many programs of each level.
    """
    generator = random.Random(options.seed)
    levels = options.levels
    tested = [(*levels[place % len(levels)], 1) for place in range(options.test_size)]
    parts = {
        "train": _training_levels(options, generator),
        "validation": [(*levels[-1], 1)] * options.validation_size,
        "test": tested,
    }
    programs = [program for split, part in parts.items() for program in drawn_programs(split, part, generator)]
    sizes = {split: len(part) for split, part in parts.items()}
    about = (
        f"# Learning to execute\n\nPrograms up to length {options.length} and nesting {options.nesting}, curriculum "
        f"`{options.curriculum}`, seed {options.seed}."
    )
    card = data_card(about, ["split", "programs"], sizes.items())
    forest = forest_of_pairs([([*program.text], [*str(printed(program.text))]) for program in programs])
    numbers = {
        name: np.array([getattr(program, name) for program in programs]) for name in ("length", "nesting", "stage")
    }
    split = np.repeat([*sizes], [*sizes.values()])
    return TaskData(forest.with_data(tree_data={"split": split, **numbers}), card)
