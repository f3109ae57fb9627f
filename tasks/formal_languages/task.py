"""The task: write the outputs of an input, one at each place where one is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from treemem.checked_options import Count
from treemem.data.examples import PADDING, TaskData
from treemem.data.sum_count import SumCount
from treemem.data.token_batch import TokenBatch
from treemem.errors import RecipeError
from treemem.evaluation_mode import in_evaluation_mode
from treemem.metrics.score import Monitor, Score, scores_by_group
from treemem.networks import NetworkConfig
from treemem.task import Answer, ModelOutput
from treemem.task.sequences import SourceRecords, SourceTargetTask, Words, words_of
from treemem.tasks.formal_languages.data import FormalDataOptions, asked, draw_examples
from treemem.tasks.formal_languages.languages import BLANK, END, Kind, Language, language
from treemem.trees.forest import SEQUENCE, Forest
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary


def _networks() -> dict[str, NetworkConfig]:
    cells: dict[str, dict[str, Any]] = {"LSTM": {}, "GRU": {"cell": "GRU"}, "RNN": {"cell": "RNN"}}
    deep = {
        "superposition": {"memory_options": {"depth": 150, "empty": 0}},
        "list": {"memory_options": {"length": 301}},
    }
    networks = {
        cell if memory == "none" else f"{cell}+{memory}": NetworkConfig(
            "MemoryRNN",
            {"hidden_size": 256, **options, "memory": memory}
            | ({} if memory == "none" else {"memory_size": 8, **deep.get(memory, {})}),
        )
        for cell, options in cells.items()
        for memory in ("none", "stack", "queue", "deque", "superposition", "list", "register")
    }
    networks["LSTM"] = NetworkConfig("LSTM", {"hidden_size": 256})
    networks["Transformer"] = NetworkConfig(
        "Transformer", {"hidden_size": 64, "num_heads": 8, "num_layers": 5, "dropout": 0.1, "read": "mean"}
    )
    return networks


@dataclass(frozen=True)
class FormalLanguages(SourceTargetTask):
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
    group_width: ClassVar[int] = 20
    monitor: ClassVar[Monitor] = Monitor("symbol accuracy", ties="last")
    networks: ClassVar[Mapping[str, NetworkConfig]] = _networks()
    data_options: ClassVar[type] = FormalDataOptions
    end: ClassVar[tuple[str, ...]] = ()
    marks: ClassVar[tuple[str, ...]] = (BLANK,)

    kind: Kind = "reverse_string"
    pairs: Count = 2

    @property
    def language(self) -> Language:
        """The kind."""
        return language(self.kind, self.pairs)

    @property
    def vocabulary(self) -> Vocabulary:
        """The symbols of outputs, the symbols of inputs that are not among them, and the blank."""
        return Vocabulary(list(dict.fromkeys([*self.language.outputs, *self.language.symbols, BLANK])), [])

    def drawn(self, options: FormalDataOptions) -> TaskData:
        return draw_examples(self.kind, self.language, options)

    def words(self, text: str, side: str) -> Words:
        return words_of(text, self.language.symbols if side == "source" else self.language.outputs, side)

    def sequences(self, source: Words, target: Words | None = None) -> list[Words]:
        """Return an input with its blanks and, with an output, the output at each place."""
        return [self.language.padded(source)] if target is None else asked(self.language, source, target)

    def lengths(self, sources: Forest) -> NDArray[np.int64]:
        """Return the length of each input without blanks."""
        is_symbol = np.array([label not in (BLANK, SEQUENCE) for label in sources.labels], bool)[sources.label]
        return np.add.reduceat(is_symbol, sources.begin[:-1], dtype=np.int64)

    @property
    def reader(self) -> InputRecords:
        return InputRecords(self.parse)

    def prepared(self, network: nn.Module, vocabulary: Vocabulary) -> nn.Module:
        """Return the network.

        Raises:
            RecipeError: the kind is a language, and an output of the network depends on later symbols, which it would
                be asked about.
        """
        if self.language.blanks is None and _looks_ahead(network):
            raise RecipeError(
                f"the outputs of this {type(network).__name__} depend on later symbols, and {self.kind} asks at each "
                "symbol which may come next; take a network that reads from left to right: a MemoryRNN, an LSTM of one "
                "direction, or a StackAttentionTransformer with causal: true"
            )
        return network

    def head(self, hidden_size: int) -> nn.Module:
        return SymbolHead(hidden_size, len(self.language.outputs))

    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> SumCount:
        tokens = targets["tokens"].masked_fill(targets["tokens"] >= outputs.shape[2], PADDING)  # the blanks
        return super().loss(outputs, {"tokens": tokens})

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
        share = np.array([outputs.share_correct(len(self.language.outputs)) for outputs in kept])
        length = np.array([outputs.length for outputs in kept])
        counted = share if self.language.blanks is not None else (share == 1).astype(np.float64)

        def metrics(chosen: NDArray[np.bool_]) -> dict[str, float | None]:
            lengths, number = np.unique(length[chosen], return_inverse=True)
            of_length = np.bincount(number, counted[chosen]) / np.bincount(number, minlength=len(lengths))
            return {
                "symbol accuracy": float(share[chosen].mean()),
                "sequence accuracy": float((share[chosen] == 1).mean()),
                "worst length": float(of_length.min()),
            }

        return scores_by_group(group, metrics)

    def correct(self, kept: list[Any], targets: Mapping[str, Any]) -> NDArray[np.bool_]:
        return np.array([outputs.share_correct(len(self.language.outputs)) == 1 for outputs in kept], bool)

    def answers(self, kept: list[Any], targets: Mapping[str, Any], **options: float) -> list[Answer]:
        """Return the output with spaces between its symbols; that of a function up to ``$``."""
        names = self.vocabulary.leaves
        answers = []
        for outputs in kept:
            words = [names[number] for number in outputs.said]
            if self.language.blanks is not None and END in words:
                words = words[: words.index(END) + 1]
            answers.append(Answer(" ".join(words), None))
        return answers


def _looks_ahead(network: nn.Module) -> bool:
    """Return whether the output at the first of two symbols depends on the second."""
    if any(parameter.is_meta for parameter in network.parameters()):
        return False
    with in_evaluation_mode(network):
        outputs = network(TokenBatch.from_sequences([[0, 0], [0, 1]])).outputs[:, 0]
    return not bool(torch.allclose(outputs[0], outputs[1], rtol=1e-4, atol=1e-5))


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


class InputRecords(SourceRecords):
    """Reads inputs; those that are given as trees get their blanks too."""

    def checked_tree(self, tree: Tree) -> Tree:
        symbols = [child.label for child in super().checked_tree(tree).children]
        return self.parse(" ".join(symbol for symbol in symbols if symbol != BLANK))
