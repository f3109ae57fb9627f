"""The task: write what a program prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from treemem.data.examples import TaskData, split_column
from treemem.errors import ParseError, VocabularyError, near_names
from treemem.metrics.score import Monitor, Score, scores_by_group
from treemem.networks import NetworkConfig
from treemem.networks.sequences.sequence_to_sequence.layer import BETWEEN, END
from treemem.records import records_of_columns
from treemem.task import Groups, TreeData
from treemem.task.sequences import Words, WritingTask, Written
from treemem.tasks.learning_to_execute.data import MAX_LENGTH, ProgramDataOptions, draw_programs
from treemem.tasks.learning_to_execute.programs import MAX_NESTING, OUTPUTS, SYMBOLS
from treemem.trees.forest import Forest
from treemem.trees.vocabulary import Vocabulary

LEVEL_FIELDS = {"length": MAX_LENGTH, "nesting": MAX_NESTING, "stage": MAX_LENGTH * MAX_NESTING}
"""Of a file: a program's level, and the stage of the curriculum at which it enters; with the largest values."""
_BASE = MAX_LENGTH + 1  # a group is _BASE * nesting + length


def _networks() -> dict[str, NetworkConfig]:
    size = {"hidden_size": 400, "embedding_size": 64}
    attention = {"cell": "GRU", "encoder": "bidirectional", "attention": "bilinear"}
    return {
        "LSTM, 2 layers": NetworkConfig("SequenceToSequence", {**size, "num_layers": 2}),
        "LSTM, 1 layer": NetworkConfig("SequenceToSequence", size),
        "GRU, 1 layer": NetworkConfig("SequenceToSequence", {**size, "cell": "GRU"}),
        "GRU+attention": NetworkConfig("SequenceToSequence", {**size, **attention}),
        "LSTM+stack": NetworkConfig("SequenceToSequence", {**size, "memory": "stack", "memory_size": 64}),
        "LSTM+register": NetworkConfig("SequenceToSequence", {**size, "memory": "register", "memory_size": 64}),
    }


@dataclass(frozen=True)
class LearningToExecute(WritingTask):
    """Read a program character by character and write what it prints (Zaremba & Sutskever 2014).

    Scores are by level: the length of the numbers, and the nesting. See
    :class:`~treemem.task.sequences.SourceTargetTask` for the data; ``tree_data`` has ``length``, ``nesting`` and
    ``stage`` besides.
    """

    name: ClassVar[str] = "learning_to_execute"
    version: ClassVar[str] = "2"
    unit: ClassVar[str] = "programs"
    group: ClassVar[str] = "level"
    monitor: ClassVar[Monitor] = Monitor("digit accuracy", ties="last")
    networks: ClassVar[Mapping[str, NetworkConfig]] = _networks()
    data_options: ClassVar[type] = ProgramDataOptions
    separator: ClassVar[str] = ""
    number_fields: ClassVar[Mapping[str, int]] = LEVEL_FIELDS
    record_fields: ClassVar[Mapping[str, str]] = {
        "source": "a program; lines end with a newline, or with a backslash and n",
        "target": "what it prints; treemem predict does not need it",
        "length": "digits of its numbers; may be left out",
        "nesting": "number of its operations; may be left out",
        "stage": "the stage of the curriculum in which it comes; may be left out",
    }

    @property
    def vocabulary(self) -> Vocabulary:
        """``</s>`` (id 0), ``|||`` (id 1) and the characters of programs."""
        return Vocabulary([END, BETWEEN, *SYMBOLS], [])

    def drawn(self, options: ProgramDataOptions) -> TaskData:
        return draw_programs(options)

    def words(self, text: str, side: str) -> Words:
        return characters_of(text, side)

    def group_name(self, group: int) -> str:
        """Return the length and nesting of a level, or ``"unknown"``."""
        return f"length {group % _BASE}, nesting {group // _BASE}" if group else "unknown"

    def groups(self, forest: Forest, tree_data: TreeData) -> Groups:
        """Return the levels, and the stages of the curriculum."""
        digits, nesting, stage = (
            np.asarray(tree_data.get(name, np.zeros(len(forest), np.int64)), np.int64) for name in LEVEL_FIELDS
        )
        return Groups(_BASE * nesting + digits, stage)

    def records_of(self, data: Forest) -> Iterator[dict[str, Any]]:
        """Yield records with ``source``, ``target``, ``split``, ``length``, ``nesting`` and ``stage``."""
        levels = {name: data.tree_data[name].tolist() for name in LEVEL_FIELDS if name in data.tree_data}
        return records_of_columns({**self.text_columns_of(data), **split_column(self.examples(data)), **levels})

    def scores(self, kept: list[Written], targets: Mapping[str, Any], group: NDArray[np.int64]) -> list[Score]:
        """Return digit and answer accuracy by level.

        Digit accuracy: the share of the characters of the correct answers, ends included, that are the most probable
        ones after the correct characters before them (Zaremba & Sutskever 2014). Free digit accuracy: the share that is
        written at the same place, as the network reads its own output. Answer accuracy: the share of answers that are
        written without an error.
        """
        given = np.array([written.right for written in kept])
        free = np.array([written.num_correct for written in kept])
        size = np.array([len(written.gold) + 1 for written in kept])
        whole = self.correct(kept, targets)

        def metrics(chosen: NDArray[np.bool_]) -> dict[str, float | None]:
            return {
                "digit accuracy": float(given[chosen].sum() / size[chosen].sum()),
                "free digit accuracy": float(free[chosen].sum() / size[chosen].sum()),
                "answer accuracy": float(whole[chosen].mean()),
            }

        return scores_by_group(group, metrics)


def characters_of(text: str, side: str = "source") -> Words:
    """Return the characters of a program (``"source"``), or of what it prints (``"target"``).

    Raises:
        ParseError: an empty text.
        VocabularyError: a character that these do not have.
    """
    text = text.replace("\\n", "\n")
    if not text:
        raise ParseError(f"the {side} is empty", text, 0, "a program" if side == "source" else "a number")
    known = SYMBOLS if side == "source" else OUTPUTS
    for place, character in enumerate(text):
        if character not in known:
            problem = f"unknown character {character!r} in the {side}{near_names(character, known)}"
            raise VocabularyError(problem, text, place)
    return list(text)
