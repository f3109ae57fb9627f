"""A language model with carried state: the next letter of a text in which letters follow a cycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treemem.data.examples import PADDING, Examples, SequenceExamples, StreamExamples, TaskData, split_numbers
from treemem.data.sum_count import SumCount
from treemem.data.token_batch import TokenBatch
from treemem.metrics.accuracy import perplexity_scores
from treemem.metrics.score import Monitor, Score
from treemem.nn.encoder_output import EncoderOutput
from treemem.task import Answer, ModelOutput, Task
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

LETTERS = "abcdef"


@dataclass(frozen=True)
class TextOptions:
    """How many lines of text."""

    lines: int = 60


@dataclass(frozen=True)
class NextLetter(Task):
    """Predicts the next letter; perplexity chooses the best epoch."""

    name: ClassVar[str] = "next_letter"
    version: ClassVar[str] = "1"
    monitor: ClassVar[Monitor] = Monitor("perplexity", "min", percent=False)
    data_options: ClassVar[type] = TextOptions

    steps: int = 5

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(list(LETTERS), [])

    def make_data(self, options: TextOptions, *, progress: bool | None = None) -> TaskData:
        draw = np.random.default_rng(0)
        text = [
            [LETTERS[(number + place) % 6] for place in range(draw.integers(3, 9))] for number in range(options.lines)
        ]
        split = np.array(
            ["test" if not n % 5 else "validation" if not n % 4 else "train" for n in range(options.lines)]
        )
        trees = [Tree("Sequence", [Tree(letter) for letter in line]) for line in text]
        return TaskData(Forest.from_trees(trees, tree_data={"split": split}), "Letters.\n")

    def parse(self, text: str) -> Tree:
        return Tree("Sequence", [Tree(letter) for letter in text.split()])

    def examples(self, data: Forest) -> StreamExamples:
        every = np.ones(len(data), bool)
        split = split_numbers(data.tree_data.get("split"))
        return StreamExamples(data, 1, {}, np.zeros(len(data), np.int64), every, split, steps=self.steps)

    def examples_to_predict(self, data: Forest) -> Examples:
        return SequenceExamples(data, 1, {}, np.zeros(len(data), np.int64), np.ones(len(data), bool))

    def head(self, hidden_size: int) -> nn.Module:
        return OverTokens(hidden_size)

    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> SumCount:
        tokens = targets["tokens"]
        total = functional.cross_entropy(outputs.flatten(0, 1), tokens.flatten(), ignore_index=PADDING, reduction="sum")
        return SumCount(total, (tokens != PADDING).sum())

    def kept(self, output: ModelOutput, batch: TokenBatch, targets: Mapping[str, Tensor]) -> Tensor:
        tokens = targets.get("tokens")
        if tokens is None:  # a line on its own: each letter from those before it
            tokens = functional.pad(batch.token[:, 1:], (0, 1))
            tokens = tokens.masked_fill(torch.arange(tokens.shape[1]) >= batch.lengths[:, None] - 1, PADDING)
        loss = functional.cross_entropy(
            output.outputs.transpose(1, 2), tokens, ignore_index=PADDING, reduction="none"
        ).sum(1)
        return torch.stack([loss, (tokens != PADDING).sum(1)], 1)

    def scores(self, kept: Tensor, targets: Mapping[str, NDArray[Any]], group: NDArray[np.int64]) -> list[Score]:
        return perplexity_scores(kept[:, 0].double().numpy(), kept[:, 1].long().numpy(), group)

    def answers(self, kept: Tensor, targets: Mapping[str, Any], **options: float) -> list[Answer]:
        return [Answer(round(float(np.exp(loss / max(1, count))), 4), None) for loss, count in kept.tolist()]


class OverTokens(nn.Linear):
    """The logits of each letter at every token."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__(hidden_size, len(LETTERS))

    def forward(self, encoded: Any) -> Tensor:
        return super().forward(encoded.outputs)


class LetterLSTM(nn.Module):
    """An LSTM that goes on from the state of the batch before."""

    def __init__(self, hidden_size: int, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.embedding = nn.Embedding(vocabulary.num_leaves, hidden_size)
        self.lstm = nn.LSTM(hidden_size, hidden_size, batch_first=True)

    def forward(self, batch: TokenBatch) -> Any:
        outputs, state = self.lstm(self.embedding(batch.token), batch.state)
        return EncoderOutput(state[0][-1][:, None], outputs, state=state)
