"""The task: write the target of a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from treemem.checked_options import Count
from treemem.data.examples import TaskData
from treemem.metrics.score import Monitor, Score, scores_by_group
from treemem.networks import NetworkConfig
from treemem.networks.sequences.sequence_to_sequence.layer import BETWEEN, END
from treemem.task.sequences import FIELDS, Words, WritingTask, Written, words_of
from treemem.tasks.transduction.data import TransductionDataOptions, draw_pairs
from treemem.tasks.transduction.grammars import Kind, symbols_of
from treemem.trees.vocabulary import Vocabulary


def _networks() -> dict[str, NetworkConfig]:
    memory = {"hidden_size": 256, "memory_size": 256}
    networks = {
        f"{cell}+{name}": NetworkConfig("SequenceToSequence", {**memory, **options, "memory": name})
        for cell, options in (("LSTM", {}), ("GRU", {"cell": "GRU"}), ("RNN", {"cell": "RNN"}))
        for name in ("stack", "queue", "deque", "superposition", "list", "register")
    }
    two = {"hidden_size": 256, "encoder": "separate"}
    networks |= {
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
    return {**networks, **deep}


@dataclass(frozen=True)
class Transduction(WritingTask):
    """Write the target of a source sequence (Grefenstette et al. 2015), with scores by the length of the source.

    See :class:`~treemem.task.sequences.SourceTargetTask` for its data.

    Args:
        kind: ``"copy"``, ``"reversal"``, ``"bigram_flip"``, ``"associative_recall"``, ``"priority_sort"``, or a
            synchronous grammar: ``"svo_sov"``, ``"gender"``.
        alphabet: number of symbols; of a grammar, about the number of source symbols. The published examples need 128.

    Raises:
        RecipeError: an unknown kind, or no symbol.
    """

    name: ClassVar[str] = "transduction"
    version: ClassVar[str] = "1"
    unit: ClassVar[str] = "pairs"
    group: ClassVar[str] = "length"
    group_width: ClassVar[int] = 8
    monitor: ClassVar[Monitor] = Monitor("coarse accuracy", ties="last")
    networks: ClassVar[Mapping[str, NetworkConfig]] = _networks()
    data_options: ClassVar[type] = TransductionDataOptions

    kind: Kind = "copy"
    alphabet: Count = 128

    @property
    def vocabulary(self) -> Vocabulary:
        """``</s>`` (id 0), ``|||`` (id 1), the symbols of sources, and those of targets that are not among them."""
        source, target = symbols_of(self.kind, self.alphabet)
        return Vocabulary(list(dict.fromkeys([END, BETWEEN, *source, *target])), [])

    def drawn(self, options: TransductionDataOptions) -> TaskData:
        return draw_pairs(self.kind, self.alphabet, options)

    @cached_property
    def _symbols(self) -> dict[str, frozenset[str]]:
        return dict(zip(FIELDS, map(frozenset, symbols_of(self.kind, self.alphabet)), strict=True))

    def words(self, text: str, side: str) -> Words:
        return words_of(text, self._symbols[side], side)

    def scores(self, kept: list[Written], targets: Mapping[str, Any], group: NDArray[np.int64]) -> list[Score]:
        """Return coarse and fine accuracy by length.

        Coarse: the share of targets that are written without an error. Fine: the mean share of a target, ``</s>``
        included, that is written before the first error.
        """
        fine = np.array([_before_error(written) for written in kept])

        def metrics(chosen: NDArray[np.bool_]) -> dict[str, float | None]:
            return {"coarse accuracy": float((fine[chosen] == 1).mean()), "fine accuracy": float(fine[chosen].mean())}

        return scores_by_group(group, metrics)


def _before_error(written: Written) -> float:
    """Return the share of the target, with its end, before the first error."""
    symbols, gold = written.symbols, written.gold
    same = next((place for place, pair in enumerate(zip(symbols, gold, strict=False)) if pair[0] != pair[1]), None)
    if same is None:
        same = len(gold) + 1 if len(symbols) == len(gold) else min(len(symbols), len(gold))
    return same / (len(gold) + 1)
