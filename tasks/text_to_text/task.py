"""The task: write the target text of a source text."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import Count
from treemem.data.data_card import data_card
from treemem.data.examples import Examples, TaskData
from treemem.errors import RecipeError, VocabularyError, near_names
from treemem.metrics.score import Monitor, PublishedFigure, Score, scores_by_group
from treemem.networks import NetworkConfig
from treemem.networks.sequences.sequence_to_sequence.layer import BETWEEN, END
from treemem.task.sequences import Words, WritingTask, Written, forest_of_pairs, words_of
from treemem.task.words import UNKNOWN
from treemem.tasks.text_to_text.data import Pair, PairRecords, TextDataOptions, divided, read_pairs, source_and_target
from treemem.tasks.text_to_text.published import PUBLISHED
from treemem.trees.forest import Forest
from treemem.trees.formats.record_reader import SPLITS
from treemem.trees.formats.source_text import decode_source
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary


def _networks() -> dict[str, NetworkConfig]:
    size = {"hidden_size": 200, "embedding_size": 200, "encoder": "separate", "dropout": 0.5}
    memory = {**size, "memory_size": 64}
    return {
        "LSTM, 2 layers": NetworkConfig("SequenceToSequence", {**size, "num_layers": 2}),
        "LSTM+attention": NetworkConfig("SequenceToSequence", {**size, "attention": "bilinear"}),
        **{
            f"LSTM+{name}": NetworkConfig("SequenceToSequence", {**memory, "memory": name})
            for name in ("stack", "queue", "deque")
        },
        "Transformer": NetworkConfig(
            "SequenceToSequenceTransformer", {"hidden_size": 128, "dropout": 0.1, "norm_first": True}
        ),
    }


@dataclass(frozen=True)
class TextToText(WritingTask):
    """Write the target text of a source text; the pairs are those of the user's files.

    Words are separated by spaces. A model stores its vocabulary, so it needs no file.

    Args:
        path: the training pairs, a file in CSV, JSONL, Parquet or text. Without the two files below, its column
            ``split`` or ``data`` divides it.
        validation_path: the pairs to validate with.
        test_path: the pairs to test with.
        least_count: None: a word that ``path`` does not have, on either side, is an error. A number: words that it has
            less often are read as ``<unk>``. Of 1, the vector of ``<unk>`` is not trained. A target with an unknown
            word counts as wrong.
        group_by: whether scores are by the length of the ``"source"`` or of the ``"target"``.

    Raises:
        RecipeError: an option out of its range, or ``validation_path`` or ``test_path`` without ``path``.
    """

    name: ClassVar[str] = "text_to_text"
    version: ClassVar[str] = "1"
    unit: ClassVar[str] = "pairs"
    group: ClassVar[str] = "length"
    group_width: ClassVar[int] = 8
    monitor: ClassVar[Monitor] = Monitor("exact match", ties="last")
    published: ClassVar[tuple[PublishedFigure, ...]] = PUBLISHED
    networks: ClassVar[Mapping[str, NetworkConfig]] = _networks()
    data_options: ClassVar[type] = TextDataOptions
    file_options: ClassVar[frozenset[str]] = frozenset({"path", "validation_path", "test_path"})
    scoring_options: ClassVar[frozenset[str]] = frozenset({"group_by"})
    record_fields: ClassVar[Mapping[str, str]] = {
        "source": "words separated by spaces",
        "target": "likewise; treemem predict does not need it",
    }

    path: str | None = None
    validation_path: str | None = None
    test_path: str | None = None
    least_count: Count | None = None
    group_by: Literal["source", "target"] = "source"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.path is None and (self.validation_path or self.test_path):
            raise RecipeError("validation_path and test_path need the training pairs; give task_options.path=FILE")

    @property
    def reader(self) -> PairRecords:
        return PairRecords(self.parse)

    @cached_property
    def pairs(self) -> dict[str, list[Pair]]:
        """The pairs of each file.

        Raises:
            RecipeError: ``path`` is not given, a file is missing or empty, or its column ``split`` contradicts others.
            ParseError, VocabularyError: a record that is no pair; with file and line.
        """
        if self.path is None:
            raise RecipeError(
                f"{self.name} learns from your pairs of texts; give their file with task_options.path=FILE"
            )
        further = {"validation": self.validation_path, "test": self.test_path}
        pairs = {self.path: read_pairs(self.path, self.reader)}
        for split, path in further.items():
            if path is None:
                continue
            if any(pair.split == split for pair in pairs[self.path]):
                raise RecipeError(f"{self.path} has {split} pairs in its column split, and {path} has others; give one")
            if path in pairs:
                raise RecipeError(f"{path} is given twice; give the pairs of each split a file of their own")
            pairs[path] = read_pairs(path, self.reader, split)
        self._check_known(pairs)
        return pairs

    def _known(self, pairs: Mapping[str, list[Pair]]) -> list[str]:
        """Return the words of the vocabulary: those of the training file that are frequent enough."""
        training = (pair for pair in pairs[str(self.path)] if pair.split not in SPLITS[1:])
        counts = Counter(itertools.chain.from_iterable((*pair.source, *pair.target) for pair in training))
        return [word for word, count in counts.items() if count >= (self.least_count or 1)]

    def _check_known(self, pairs: Mapping[str, list[Pair]]) -> None:
        known = dict.fromkeys(self._known(pairs))  # in order, so that the names that an error gives are the same
        if not known:
            raise RecipeError(f"{self.path} has no training pair, or no word {self.least_count or 1} times in them")
        for path, of_file in pairs.items() if self.least_count is None else ():
            for pair in of_file:
                for side, words in (("source", pair.source), ("target", pair.target)):
                    if (word := next((word for word in words if word not in known), None)) is not None:
                        near = near_names(word, known)
                        problem = (
                            f"the word {word!r:.60} of the {side} is not in the training pairs{near}; correct it, or "
                            "let task_options.least_count=1 read it as <unk>"
                        )
                        offset = len(" ".join([*words[: words.index(word)], ""]))
                        raise VocabularyError(problem, " ".join(words), offset).at(pair.line, path)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """``</s>`` (id 0), ``|||`` (id 1), ``<unk>`` with ``least_count``, and the words of the training file."""
        unknown = None if self.least_count is None else UNKNOWN
        words = [] if self.path is None else self._known(self.pairs)
        return Vocabulary(list(dict.fromkeys([END, BETWEEN, *[UNKNOWN] * bool(unknown), *words])), [], unknown=unknown)

    def drawn(self, options: TextDataOptions) -> TaskData:
        """Return the pairs of the files, divided.

        Raises:
            RecipeError: as :attr:`pairs`, or a split would be empty.
            ParseError, VocabularyError: as :attr:`pairs`.
        """
        pairs = [pair for of_file in self.pairs.values() for pair in of_file]
        further = {"validation": self.validation_path, "test": self.test_path}
        has_column = any(pair.split for pair in self.pairs[str(self.path)])
        drawn = [] if has_column else [split for split, path in further.items() if path is None]
        split = divided(pairs, options, drawn)
        rows = []
        for name in SPLITS:
            part = [pair for pair, of_pair in zip(pairs, split.tolist(), strict=True) if of_pair == name]
            sides = ([len(pair.source) for pair in part], [len(pair.target) for pair in part])
            rows.append([name, len(part), *(f"{min(side)}-{max(side)}" if side else "" for side in sides)])
        about = f"# Text to text\n\nThe pairs of {', '.join(self.pairs)}."
        card = data_card(about, ["split", "pairs", "words of sources", "words of targets"], rows)
        forest = forest_of_pairs((pair.source, pair.target) for pair in pairs)
        return TaskData(forest.with_data(tree_data={"split": split}), card)

    def example_name(self, number: int, count: int) -> str:
        places = [] if self.path is None else [(path, pair) for path, part in self.pairs.items() for pair in part]
        if len(places) != count:  # examples of another file
            return super().example_name(number, count)
        path, pair = places[number]
        return f"{path}, line {pair.line}"

    def words(self, text: str, side: str) -> Words:
        return words_of(text, None, side)

    def parse(self, text: str) -> Tree:
        """Return the source of a text, or of a line such as ``IN: source OUT: target``. Raises as :meth:`words`."""
        return super().parse(source_and_target({"source": decode_source(text)})["source"])

    def examples(self, data: Forest) -> Examples:
        examples = super().examples(data)
        if self.group_by == "source" or data.is_flat:
            return examples
        length = np.diff(examples.forest[1::2].begin) - 1 - len(self.end)
        return dataclasses.replace(examples, group=self.binned(length), difficulty=length)

    def scores(self, kept: list[Written], targets: Mapping[str, Any], group: NDArray[np.int64]) -> list[Score]:
        """Return exact match and token accuracy by length.

        Exact match: the share of targets that are written without an error. Token accuracy: the share of the words of
        all targets, ends included, that are written at their places.
        """
        exact = self.correct(kept, targets)
        right = np.array([written.num_correct for written in kept])
        size = np.array([len(written.gold) + 1 for written in kept])

        def metrics(chosen: NDArray[np.bool_]) -> dict[str, float | None]:
            return {
                "exact match": float(exact[chosen].mean()),
                "token accuracy": float(right[chosen].sum() / size[chosen].sum()),
            }

        return scores_by_group(group, metrics)
