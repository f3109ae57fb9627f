"""The task: write the target of a source."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treemem.checked_options import checked_choice, checked_count
from treemem.data.examples import PADDING, Examples, SequenceExamples, TaskData, split_and_group, split_numbers
from treemem.data.sum_count import SumCount
from treemem.errors import ParseError, RecipeError, VocabularyError
from treemem.metrics.score import Monitor, Score, scores_by_group
from treemem.networks import NetworkConfig
from treemem.nn.sequence_to_sequence import BETWEEN, END
from treemem.records import read_records
from treemem.task import Answer, ModelOutput, Task
from treemem.tasks.transduction.data import (
    SourceRecords,
    TransductionDataOptions,
    forest_of_pairs,
    make_pairs,
    source_tree,
    words_of,
)
from treemem.tasks.transduction.grammars import Kind, symbols_of
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary


def _networks() -> dict[str, NetworkConfig]:
    memory = {"hidden_size": 256, "memory_size": 256}
    found = {
        f"LSTM+{name}": NetworkConfig("SequenceToSequence", {**memory, "memory": name})
        for name in ("stack", "queue", "deque", "superposition", "list")
    }
    deep = {
        f"Deep LSTM, {layers} layer{'s' * (layers > 1)}": NetworkConfig(
            "SequenceToSequence", {"hidden_size": 256, "num_layers": layers}
        )
        for layers in (1, 2, 4, 8)
    }
    return {**found, **deep}


@dataclass(frozen=True)
class Transduction(Task):
    """Write the target of a source sequence, with scores by the length of the source.

    Args:
        kind: ``"copy"``, ``"reversal"``, ``"bigram_flip"``, or a synchronous grammar: ``"svo_sov"``, ``"gender"``.
        alphabet: number of symbols; of a grammar, about the number of source symbols.

    Raises:
        RecipeError: an unknown kind, or no symbol.
    """

    name: ClassVar[str] = "transduction"
    version: ClassVar[str] = "1"
    group: ClassVar[str] = "length"
    monitor: ClassVar[Monitor] = Monitor("coarse accuracy")
    networks: ClassVar[Mapping[str, NetworkConfig]] = _networks()
    data_options: ClassVar[type] = TransductionDataOptions
    text_columns: ClassVar[tuple[str, ...]] = ("source", "target")
    record_fields: ClassVar[Mapping[str, str]] = {
        "source": "symbols with spaces between them",
        "target": "the same of the target",
        "split": "train, validation or test; may be left out",
    }

    kind: Kind = "copy"
    alphabet: int = 128

    def __post_init__(self) -> None:
        checked_choice("kind", self.kind, get_args(Kind))
        checked_count("alphabet", self.alphabet)

    @property
    def vocabulary(self) -> Vocabulary:
        """``</s>``, ``|||`` and the symbols of sources and targets."""
        return Vocabulary([END, BETWEEN, *symbols_of(self.kind, self.alphabet)], [])

    def make_data(self, options: TransductionDataOptions, *, progress: bool | None = None) -> TaskData:
        return make_pairs(self.kind, self.alphabet, options)

    def group_name(self, group: int) -> str:
        """Return the range of a bin of eight lengths, such as ``"9-16"``."""
        return f"{group - 7}-{group}"

    def parse(self, text: str) -> Tree:
        return source_tree(text, self.vocabulary.leaves)

    @property
    def reader(self) -> SourceRecords:
        return SourceRecords(self.vocabulary.leaves)

    def records_of(self, data: Forest) -> Iterator[dict[str, Any]]:
        """Yield records with ``source``, ``target``, ``split`` and ``length``."""
        sides = data.split_roots().tokens("leaves").strings()
        examples = self.examples(data)
        length = np.array([len(source) for source in sides[::2]], np.int64)
        rest = split_and_group(dataclasses.replace(examples, group=length), self.group)
        for source, target, more in zip(sides[::2], sides[1::2], rest, strict=True):
            yield {"source": " ".join(source), "target": " ".join(target[:-1]), **more}

    def read_examples(self, source: str | os.PathLike[str], *, format: str | None = None) -> Forest:
        """Return the pairs of a file.

        Raises:
            RecipeError: no pair, or no such file.
            ParseError, VocabularyError: an empty source or target, or an unknown symbol, with its line.
        """
        pairs, splits, symbols = [], [], self.vocabulary.leaves
        records = read_records(source, format=format, text_fields=self.text_columns, one_of=("source",))
        for record in records:
            try:
                sides = [words_of(str(record.fields.get(name) or ""), symbols, name) for name in self.text_columns]
            except (ParseError, VocabularyError) as error:
                raise error.at(record.line, os.fspath(source)) from error
            pairs.append((sides[0], sides[1]))
            splits.append(record.fields.get("split") or "")
        if not pairs:
            raise RecipeError(f"there is no pair in {os.fspath(source)}")
        forest = forest_of_pairs(pairs)
        return forest.with_data(tree_data={"split": np.array(splits)}) if any(splits) else forest

    def examples(self, data: Forest) -> Examples:
        if data.is_flat:  # sources alone
            return self.examples_to_predict(data)
        sides = data.split_roots()
        length = np.diff(sides.begin)[::2] - 1
        split = split_numbers(data.tree_data.get("split"))
        return SequenceExamples(sides, 2, {}, _bin(length), np.ones(len(data), bool), split, difficulty=length)

    def examples_to_predict(self, data: Forest) -> Examples:
        if not data.is_flat:
            return self.examples(data)
        return SequenceExamples(data, 1, {}, _bin(np.diff(data.begin) - 1), np.zeros(len(data), bool))

    def head(self, hidden_size: int) -> nn.Module:
        return _Outputs()

    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> SumCount:
        tokens = targets["tokens"]
        total = functional.cross_entropy(outputs.flatten(0, 1), tokens.flatten(), ignore_index=PADDING, reduction="sum")
        return SumCount(total, (tokens != PADDING).sum())

    def kept(self, output: ModelOutput, batch: Any, targets: Mapping[str, Tensor]) -> list[Any]:
        """Return what was written and what was to be written, both without ``</s>``, for each example."""
        gold = targets["tokens"].tolist() if targets else [[]] * batch.num_examples
        known = [[each for each in row if each != PADDING][:-1] for row in gold]
        return list(zip(output.encoded.decoded, known, strict=True))

    def scores(self, kept: list[Any], targets: Mapping[str, Any], group: NDArray[np.int64]) -> list[Score]:
        """Return coarse and fine accuracy by length.

        Coarse: the share of targets that are written without an error. Fine: the mean share of a target, ``</s>``
        included, that is written before the first error.
        """
        fine = np.array([_before_error(written, gold) for written, gold in kept])

        def metrics(chosen: NDArray[np.bool_]) -> dict[str, float | None]:
            return {"coarse accuracy": float((fine[chosen] == 1).mean()), "fine accuracy": float(fine[chosen].mean())}

        return scores_by_group(group, metrics)

    def correct(self, kept: list[Any], targets: Mapping[str, Any]) -> NDArray[np.bool_]:
        return np.array([written == gold for written, gold in kept], bool)

    def answers(self, kept: list[Any], targets: Mapping[str, Any], **options: float) -> list[Answer]:
        """Return the symbols that were written, with spaces between them."""
        names = self.vocabulary.leaves
        return [Answer(" ".join(names[number] for number in written), None) for written, _ in kept]


def _bin(length: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the upper end of the bin of eight lengths."""
    return -(-length // 8) * 8


def _before_error(written: list[int], gold: list[int]) -> float:
    """Return the share of the target, with its end, before the first error."""
    same = next((place for place, pair in enumerate(zip(written, gold, strict=False)) if pair[0] != pair[1]), None)
    if same is None:
        same = len(gold) + 1 if len(written) == len(gold) else min(len(written), len(gold))
    return same / (len(gold) + 1)


class _Outputs(nn.Module):
    """The logits that the network gives."""

    def forward(self, encoded: Any) -> Tensor:
        outputs: Tensor = encoded.outputs
        return outputs
