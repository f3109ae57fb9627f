"""The task: write the target of a source."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import Count, check_fields
from treemem.data.examples import TaskData, split_and_group
from treemem.metrics.score import Monitor, Score, scores_by_group
from treemem.networks import NetworkConfig
from treemem.networks.sequences.sequence_to_sequence.layer import BETWEEN, END
from treemem.tasks.transduction.data import TransductionDataOptions, make_pairs
from treemem.tasks.transduction.grammars import Kind, symbols_of
from treemem.tasks.transduction.pair_task import PairTask, Written
from treemem.tasks.transduction.readers import FIELDS, read_pairs, source_tree, words_of
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary


def _networks() -> dict[str, NetworkConfig]:
    memory = {"hidden_size": 256, "memory_size": 256}
    found = {
        f"{cell}+{name}": NetworkConfig("SequenceToSequence", {**memory, **own, "memory": name})
        for cell, own in (("LSTM", {}), ("GRU", {"cell": "GRU"}), ("RNN", {"cell": "RNN"}))
        for name in ("stack", "queue", "deque", "superposition", "list", "register")
    }
    two = {"hidden_size": 256, "encoder": "separate"}
    found |= {
        "two LSTMs": NetworkConfig("SequenceToSequence", two),
        "LSTM+attention": NetworkConfig("SequenceToSequence", {**two, "attention": "additive"}),
        "LSTM+pointer": NetworkConfig("SequenceToSequence", {**two, "attention": "additive", "output": "pointer"}),
    }
    deep = {
        f"Deep LSTM, {layers} layer{'s' * (layers > 1)}": NetworkConfig(
            "SequenceToSequence", {"hidden_size": 256, "num_layers": layers}
        )
        for layers in (1, 2, 4, 8)
    }
    return {**found, **deep}


@dataclass(frozen=True)
class Transduction(PairTask):
    """Write the target of a source sequence (Grefenstette et al. 2015), with scores by the length of the source.

    See :class:`~treemem.tasks.transduction.pair_task.PairTask` for its data.

    Args:
        kind: ``"copy"``, ``"reversal"``, ``"bigram_flip"``, ``"associative_recall"``, ``"priority_sort"``, or a
            synchronous grammar: ``"svo_sov"``, ``"gender"``.
        alphabet: number of symbols; of a grammar, about the number of source symbols. The published examples need 128.

    Raises:
        RecipeError: an unknown kind, or no symbol.
    """

    name: ClassVar[str] = "transduction"
    version: ClassVar[str] = "1"
    group: ClassVar[str] = "length"
    monitor: ClassVar[Monitor] = Monitor("coarse accuracy", ties="last")
    networks: ClassVar[Mapping[str, NetworkConfig]] = _networks()
    data_options: ClassVar[type] = TransductionDataOptions
    record_fields: ClassVar[Mapping[str, str]] = {
        "source": "symbols separated by spaces",
        "target": "likewise; treemem predict does not need it",
        "split": "train, validation or test; may be left out",
    }

    kind: Kind = "copy"
    alphabet: Count = 128

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def vocabulary(self) -> Vocabulary:
        """``</s>`` (id 0), ``|||`` (id 1), the symbols of sources, and those of targets that are not among them."""
        source, target = symbols_of(self.kind, self.alphabet)
        return Vocabulary(list(dict.fromkeys([END, BETWEEN, *source, *target])), [])

    def make_data(self, options: TransductionDataOptions, *, progress: bool | None = None) -> TaskData:
        """Return the pairs that ``options`` ask for; see :func:`~treemem.tasks.transduction.data.make_pairs`."""
        return make_pairs(self.kind, self.alphabet, options, self.read_examples)

    def group_name(self, group: int) -> str:
        """Return the range of a bin of eight lengths, such as ``"9-16"``."""
        return f"{group - 7}-{group}"

    def parse(self, text: str) -> Tree:
        """Return the source that a text of symbols describes, as a flat tree.

        Raises:
            ParseError: an empty source.
            VocabularyError: a symbol that sources do not have.
        """
        return source_tree(text, self._source_symbols)

    @property
    def _source_symbols(self) -> frozenset[str]:
        return frozenset(symbols_of(self.kind, self.alphabet)[0])

    def records_of(self, data: Forest) -> Iterator[dict[str, Any]]:
        """Yield records with ``source``, ``target``, ``split`` and ``length``."""
        sides = data.split_roots().tokens("leaves").strings()
        examples = self.examples(data)
        length = np.array([len(source) for source in sides[::2]], np.int64)
        rest = split_and_group(dataclasses.replace(examples, group=length), self.group)
        for source, target, more in zip(sides[::2], sides[1::2], rest, strict=True):
            yield {"source": " ".join(source), "target": " ".join(target[:-1]), **more}

    def read_examples(self, source: str | os.PathLike[str], *, format: str | None = None) -> Forest:
        """Return the pairs of a file; see :func:`~treemem.tasks.transduction.readers.read_pairs`."""
        known = dict(zip(FIELDS, map(frozenset, symbols_of(self.kind, self.alphabet)), strict=True))
        return read_pairs(source, lambda text, side: words_of(text, known[side], side), format=format)

    def groups(self, data: Forest, length: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return _bin(length), length

    def scores(self, kept: list[Written], targets: Mapping[str, Any], group: NDArray[np.int64]) -> list[Score]:
        """Return coarse and fine accuracy by length.

        Coarse: the share of targets that are written without an error. Fine: the mean share of a target, ``</s>``
        included, that is written before the first error.
        """
        fine = np.array([_before_error(each.symbols, each.gold) for each in kept])

        def metrics(chosen: NDArray[np.bool_]) -> dict[str, float | None]:
            return {"coarse accuracy": float((fine[chosen] == 1).mean()), "fine accuracy": float(fine[chosen].mean())}

        return scores_by_group(group, metrics)


def _bin(length: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the upper end of the bin of eight lengths."""
    return -(-length // 8) * 8


def _before_error(written: list[int], gold: list[int]) -> float:
    """Return the share of the target, with its end, before the first error."""
    same = next((place for place, pair in enumerate(zip(written, gold, strict=False)) if pair[0] != pair[1]), None)
    if same is None:
        same = len(gold) + 1 if len(written) == len(gold) else min(len(written), len(gold))
    return same / (len(gold) + 1)
