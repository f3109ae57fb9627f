"""A sequence-to-sequence copier with greedy decoding; the share of exact copies chooses the best epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

from treemem.data.examples import PADDING, Examples, SequenceExamples, TaskData, split_numbers
from treemem.data.sum_count import SumCount
from treemem.data.token_batch import TokenBatch
from treemem.metrics.score import Monitor, Score, scores_by_group
from treemem.nn.encoder_output import EncoderOutput
from treemem.task import Answer, ModelOutput, Task
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

LETTERS = "abc"


@dataclass(frozen=True)
class PairOptions:
    """How many pairs."""

    pairs: int = 120


@dataclass(frozen=True)
class Copy(Task):
    """Writes a sequence of letters again."""

    name: ClassVar[str] = "copy_letters"
    version: ClassVar[str] = "1"
    monitor: ClassVar[Monitor] = Monitor("exact match", "max")
    data_options: ClassVar[type] = PairOptions

    vocabulary: ClassVar[Vocabulary] = Vocabulary(["<end>", *LETTERS], [])

    def make_data(self, options: PairOptions, *, progress: bool | None = None) -> TaskData:
        draw = np.random.default_rng(1)
        trees = []
        for _ in range(options.pairs):
            letters = [Tree(LETTERS[draw.integers(3)]) for _ in range(draw.integers(1, 4))]
            trees.append(Tree("Pair", [Tree("Sequence", letters), Tree("Sequence", [*letters, Tree("<end>")])]))
        names = ["test" if not n % 5 else "validation" if not n % 4 else "train" for n in range(options.pairs)]
        return TaskData(Forest.from_trees(trees, tree_data={"split": np.array(names)}), "Pairs.\n")

    def parse(self, text: str) -> Tree:
        return Tree("Sequence", [Tree(letter) for letter in text.split()])

    def examples(self, data: Forest) -> SequenceExamples:
        sides = data.split_roots()
        split = split_numbers(data.tree_data.get("split"))
        return SequenceExamples(sides, 2, {}, np.diff(sides.begin)[::2] - 1, np.ones(len(data), bool), split)

    def examples_to_predict(self, data: Forest) -> Examples:
        return SequenceExamples(data, 1, {}, np.diff(data.begin) - 1, np.ones(len(data), bool))

    def head(self, hidden_size: int) -> nn.Module:
        return Outputs()

    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> SumCount:
        tokens = targets["tokens"]
        total = functional.cross_entropy(outputs.flatten(0, 1), tokens.flatten(), ignore_index=PADDING, reduction="sum")
        return SumCount(total, (tokens != PADDING).sum())

    def kept(self, output: ModelOutput, batch: TokenBatch, targets: Mapping[str, Tensor]) -> list[Any]:
        gold = targets["tokens"].tolist() if targets else [[]] * batch.num_examples
        return list(zip(output.encoded.decoded, [[each for each in row if each >= 0] for row in gold], strict=True))

    def scores(self, kept: list[Any], targets: Mapping[str, Any], group: NDArray[np.int64]) -> list[Score]:
        exact = np.array([written == gold for written, gold in kept])
        return scores_by_group(group, lambda chosen: {"exact match": float(exact[chosen].mean())})

    def answers(self, kept: list[Any], targets: Mapping[str, Any], **options: float) -> list[Answer]:
        return [Answer("".join(["", *LETTERS][token] for token in written), None) for written, _ in kept]


class Outputs(nn.Module):
    """The logits that the network gives."""

    def forward(self, encoded: Any) -> Tensor:
        return encoded.outputs


class Copier(nn.Module):
    """A GRU over the source and one over the target; greedy decoding in evaluation mode."""

    def __init__(self, hidden_size: int, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.hidden_size, self.embedding = hidden_size, nn.Embedding(vocabulary.num_leaves, hidden_size)
        self.read, self.write = (nn.GRU(hidden_size, hidden_size, batch_first=True) for _ in range(2))
        self.token = nn.Linear(hidden_size, vocabulary.num_leaves)

    def forward(self, batch: TokenBatch) -> Any:
        source = pack_padded_sequence(self.embedding(batch.token), batch.lengths, True, enforce_sorted=False)
        state = self.read(source)[1]
        target = functional.pad(batch.token, (0, 1)) if batch.target is None else batch.target.token
        before = functional.pad(target[:, :-1], (1, 0))
        output = EncoderOutput(state[-1][:, None], self.token(self.write(self.embedding(before), state)[0]))
        output.decoded = [] if self.training else self.greedy(state)
        return output

    def greedy(self, state: Tensor, most: int = 6) -> list[list[int]]:
        token, written = torch.zeros(state.shape[1], 1, dtype=torch.int64), []
        for _ in range(most):
            outputs, state = self.write(self.embedding(token), state)
            token = self.token(outputs).argmax(2)
            written.append(token)
        rows = torch.cat(written, 1).tolist()
        return [row[: row.index(0) + 1] if 0 in row else row for row in rows]
