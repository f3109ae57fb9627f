"""The task: write the outputs of an input, one at each place where one is asked for."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treemem.checked_options import Count, check_fields
from treemem.data.examples import PADDING, Examples, SequenceExamples, TaskData, split_and_group, split_numbers
from treemem.data.sum_count import SumCount
from treemem.errors import GraphError
from treemem.metrics.score import Monitor, Score, scores_by_group
from treemem.networks import NetworkConfig
from treemem.task import Answer, ModelOutput, Task
from treemem.tasks.formal_languages.data import FormalDataOptions, make_examples
from treemem.tasks.formal_languages.languages import BLANK, END, Kind, Language, language
from treemem.tasks.formal_languages.readers import InputRecords, read_forest
from treemem.tasks.transduction.readers import FIELDS, PAIR, words_of
from treemem.trees.forest import SEQUENCE, Forest
from treemem.trees.tokens import TokenForm
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

BIN = 20
"""The lengths that one group of scores holds."""


def _networks() -> dict[str, NetworkConfig]:
    cells: dict[str, dict[str, Any]] = {"LSTM": {}, "GRU": {"cell": "GRU"}, "RNN": {"cell": "RNN"}}
    deep = {
        "superposition": {"memory_options": {"depth": 150, "empty": 0}},
        "list": {"memory_options": {"length": 301}},
    }
    found = {
        cell if memory == "none" else f"{cell}+{memory}": NetworkConfig(
            "MemoryRNN",
            {"hidden_size": 256, **own, "memory": memory}
            | ({} if memory == "none" else {"memory_size": 8, **deep.get(memory, {})}),
        )
        for cell, own in cells.items()
        for memory in ("none", "stack", "queue", "deque", "superposition", "list", "register")
    }
    found["LSTM"] = NetworkConfig("LSTM", {"hidden_size": 256})
    found["Transformer"] = NetworkConfig(
        "Transformer", {"hidden_size": 64, "num_heads": 8, "num_layers": 5, "dropout": 0.1, "read": "mean"}
    )
    return found


@dataclass(frozen=True)
class FormalLanguages(Task):
    """Functions of sequences and formal languages, trained on short inputs, with scores by the length of the input.

    A network reads an input and, for a function, a blank for each symbol of the output; the output at a blank is the
    output symbol (Delétang et al. 2023). For a language it reads a word, and the output at each symbol is the set of
    symbols that may come next (Gers & Schmidhuber 2001).

    Data are forests of trees ``Pair(Sequence(read...), Sequence(asked...))`` of equal lengths, with a blank where
    nothing is asked, and ``tree_data["split"]`` if they are divided. A network is a sequence encoder; the head maps its
    output at each token to logits ``[batch, longest, outputs]``.

    Args:
        kind: a function or a language; the task's page lists them.
        pairs: number of pairs of brackets of ``"dyck"``.

    Raises:
        RecipeError: an unknown kind, or no pair.
    """

    name: ClassVar[str] = "formal_languages"
    version: ClassVar[str] = "1"
    group: ClassVar[str] = "length"
    monitor: ClassVar[Monitor] = Monitor("symbol accuracy", ties="last")
    networks: ClassVar[Mapping[str, NetworkConfig]] = _networks()
    data_options: ClassVar[type] = FormalDataOptions
    text_columns: ClassVar[tuple[str, ...]] = FIELDS
    record_fields: ClassVar[Mapping[str, str]] = {
        "source": "symbols separated by spaces",
        "target": "likewise; treemem predict does not need it",
        "split": "train, validation or test; may be left out",
    }

    kind: Kind = "reverse_string"
    pairs: Count = 2

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def language(self) -> Language:
        """The kind."""
        return language(self.kind, self.pairs)

    @property
    def vocabulary(self) -> Vocabulary:
        """The symbols of outputs, the symbols of inputs that are not among them, and the blank."""
        return Vocabulary(list(dict.fromkeys([*self.language.outputs, *self.language.symbols, BLANK])), [])

    @property
    def token_form(self) -> TokenForm:
        """The leaves, which are the symbols."""
        return "leaves"

    def make_data(self, options: FormalDataOptions, *, progress: bool | None = None) -> TaskData:
        """Return drawn or read examples; see :func:`~treemem.tasks.formal_languages.data.make_examples`."""
        return make_examples(self.kind, self.language, options, self.read_examples)

    def group_name(self, group: int) -> str:
        """Return the range of a bin of lengths, such as ``"21-40"``."""
        return f"{group - BIN + 1}-{group}"

    def parse(self, text: str) -> Tree:
        """Return the input that a text of symbols describes, with its blanks, as a flat tree.

        Raises:
            ParseError: an empty input.
            VocabularyError: a symbol that inputs do not have.
        """
        words = self.language.padded(words_of(text, self.language.symbols))
        return Tree(SEQUENCE, [Tree(word) for word in words])

    @property
    def reader(self) -> InputRecords:
        return InputRecords(self.parse)

    def records_of(self, data: Forest) -> Iterator[dict[str, Any]]:
        """Yield records with ``source``, ``target``, ``split`` and ``length``."""
        sides = data.split_roots().tokens("leaves").strings()
        examples = self.examples(data)
        assert examples.difficulty is not None  # the lengths
        rest = split_and_group(dataclasses.replace(examples, group=examples.difficulty), self.group)
        for source, target, more in zip(sides[::2], sides[1::2], rest, strict=True):
            texts = (" ".join(word for word in side if word != BLANK) for side in (source, target))
            yield {**dict(zip(FIELDS, texts, strict=True)), **more}

    def read_examples(self, source: str | os.PathLike[str], *, format: str | None = None) -> Forest:
        """Return the examples of a file; see :func:`~treemem.tasks.formal_languages.readers.read_forest`."""
        return read_forest(source, self.language, format=format)

    def examples(self, data: Forest) -> Examples:
        """Return the examples of a forest, or inputs alone as examples without labels.

        Raises:
            GraphError: trees that are neither.
        """
        if data.is_flat:
            return SequenceExamples(data, 1, {}, _bin(_lengths(data)), np.zeros(len(data), bool))
        root = data.begin[1:] - 1
        if any(data.labels[place] != PAIR for place in np.unique(data.label[root])) or (data.arity[root] != 2).any():
            raise GraphError(
                f"an example is a tree of the root {PAIR!r} with two children; FormalLanguages.read_examples makes them"
            )
        sides = data.split_roots()
        length = _lengths(sides)[::2]
        split = split_numbers(data.tree_data.get("split"))
        return SequenceExamples(sides, 2, {}, _bin(length), np.ones(len(data), bool), split, difficulty=length)

    def head(self, hidden_size: int) -> nn.Module:
        return SymbolHead(hidden_size, len(self.language.outputs))

    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> SumCount:
        tokens = targets["tokens"].masked_fill(targets["tokens"] >= outputs.shape[2], PADDING)  # the blanks
        total = functional.cross_entropy(outputs.flatten(0, 1), tokens.flatten(), ignore_index=PADDING, reduction="sum")
        return SumCount(total, (tokens != PADDING).sum())

    def kept(self, output: ModelOutput, batch: Any, targets: Mapping[str, Tensor]) -> list[Any]:
        """Return an :class:`Outputs` for each example."""
        blank = len(self.vocabulary.leaves) - 1
        said = output.outputs.argmax(2).cpu().numpy()
        token = batch.token.cpu().numpy()
        inside = np.arange(token.shape[1]) < batch.lengths.cpu().numpy()[:, None]
        places = inside if self.language.blanks is None else inside & (token == blank)
        gold = targets["tokens"].cpu().numpy() if targets else np.full_like(token, blank)
        length = (inside & (token != blank)).sum(1)
        rows = zip(places, said, gold, length.tolist(), strict=True)
        return [Outputs(row_said[place], row_gold[place], size) for place, row_said, row_gold, size in rows]

    def scores(self, kept: list[Any], targets: Mapping[str, Any], group: NDArray[np.int64]) -> list[Score]:
        """Return symbol accuracy, sequence accuracy and the accuracy at the worst length, by length.

        The symbol accuracy is the mean over examples of the share of correct symbols. At the worst length it is the
        symbol accuracy of a function, and the sequence accuracy of a language.
        """
        share = np.array([each.share_correct(len(self.language.outputs)) for each in kept])
        length = np.array([each.length for each in kept])
        counted = share if self.language.blanks is not None else (share == 1).astype(np.float64)

        def metrics(chosen: NDArray[np.bool_]) -> dict[str, float | None]:
            found, number = np.unique(length[chosen], return_inverse=True)
            of_length = np.bincount(number, counted[chosen]) / np.bincount(number, minlength=len(found))
            return {
                "symbol accuracy": float(share[chosen].mean()),
                "sequence accuracy": float((share[chosen] == 1).mean()),
                "worst length": float(of_length.min()),
            }

        return scores_by_group(group, metrics)

    def correct(self, kept: list[Any], targets: Mapping[str, Any]) -> NDArray[np.bool_]:
        return np.array([each.share_correct(len(self.language.outputs)) == 1 for each in kept], bool)

    def answers(self, kept: list[Any], targets: Mapping[str, Any], **options: float) -> list[Answer]:
        """Return the output with spaces between its symbols; that of a function up to ``$``."""
        names = self.vocabulary.leaves
        found = []
        for each in kept:
            words = [names[number] for number in each.said]
            if self.language.blanks is not None and END in words:
                words = words[: words.index(END) + 1]
            found.append(Answer(" ".join(words), None))
        return found


class Outputs(NamedTuple):
    """What was said about an example.

    Attributes:
        said: ids of outputs at the places where there is one, ``[places]``.
        gold: those that are correct, or the blank where nothing is asked.
        length: of the input.
    """

    said: NDArray[np.int64]
    gold: NDArray[np.int64]
    length: int

    def share_correct(self, num_outputs: int) -> float:
        """Return the share of correct outputs, 0 without any; ids from ``num_outputs`` on are not asked."""
        is_asked = self.gold < num_outputs
        return float((self.said == self.gold)[is_asked].sum() / max(1, is_asked.sum()))


class SymbolHead(nn.Module):
    """Logits of the output at each token: ``W h + b``.

    Args:
        hidden_size: width of the outputs of the encoder.
        num_outputs: number of output symbols.
    """

    def __init__(self, hidden_size: int, num_outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden_size, num_outputs)

    def forward(self, encoded: Any) -> Tensor:
        """Return logits, ``[batch, longest, num_outputs]``."""
        logits: Tensor = self.linear(encoded.outputs)
        return logits


def _lengths(data: Forest) -> NDArray[np.int64]:
    """Return the length of each sequence without blanks."""
    is_symbol = np.array([label not in (BLANK, SEQUENCE) for label in data.labels], bool)[data.label]
    return np.add.reduceat(is_symbol, data.begin[:-1], dtype=np.int64)


def _bin(length: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the upper end of the bin of a length."""
    return -(-length // BIN) * BIN
