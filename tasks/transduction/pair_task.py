"""What tasks have in common whose networks write a target for a source."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from treemem.data.examples import PADDING, Examples, SequenceExamples, split_numbers
from treemem.data.sum_count import SumCount
from treemem.errors import GraphError
from treemem.task import Answer, ModelOutput, Task
from treemem.tasks.transduction.readers import FIELDS, PAIR, SourceRecords
from treemem.trees.forest import Forest
from treemem.trees.tokens import TokenForm


class Written(NamedTuple):
    """What a network wrote for a source.

    Attributes:
        symbols: as it read its own output, without ``</s>``.
        gold: the target, without ``</s>``.
        right: how many symbols of the target, ``</s>`` included, were the most probable ones after the target's symbols
            before them; 0 if the network was traced, which gives no logits.
    """

    symbols: list[int]
    gold: list[int]
    right: int


class PairTask(Task):
    """A task whose networks read a source and write a target.

    Data are forests of trees ``Pair(Sequence(source...), Sequence(target..., </s>))``, with ``tree_data["split"]`` if
    they are divided. A network gets a :class:`~treemem.data.token_batch.TokenBatch` of sources; its ``target`` holds
    the targets, which end in ``</s>``. The encoder output has the logits ``outputs [batch, longest target, leaves]``,
    of each symbol given those before it, and, in evaluation, ``decoded``: for each example the ids that it wrote,
    without ``</s>``.

    Attributes:
        separator: what stands between two symbols of a text.
    """

    text_columns: ClassVar[tuple[str, ...]] = FIELDS
    separator: ClassVar[str] = " "

    @property
    def token_form(self) -> TokenForm:
        """The leaves, which are the symbols."""
        return "leaves"

    @property
    def reader(self) -> SourceRecords:
        return SourceRecords(self.parse)

    @abstractmethod
    def groups(self, data: Forest, length: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return by what scores are reported, and by what a curriculum orders, ``[examples]`` each.

        Args:
            data: pairs, or sources alone.
            length: of the sources, ``[examples]``.
        """

    def examples(self, data: Forest) -> Examples:
        """Return the pairs of a forest, or sources alone as examples without labels.

        Raises:
            GraphError: trees that are neither.
        """
        if data.is_flat:
            group, _ = self.groups(data, np.diff(data.begin) - 1)
            return SequenceExamples(data, 1, {}, group, np.zeros(len(data), bool))
        root = data.begin[1:] - 1
        if any(data.labels[place] != PAIR for place in np.unique(data.label[root])) or (data.arity[root] != 2).any():
            raise GraphError(
                f"a pair is a tree of the root {PAIR!r} with two children; {type(self).__name__}.read_examples makes "
                "them"
            )
        sides = data.split_roots()
        group, difficulty = self.groups(data, np.diff(sides.begin)[::2] - 1)
        split = split_numbers(data.tree_data.get("split"))
        return SequenceExamples(sides, 2, {}, group, np.ones(len(data), bool), split, difficulty=difficulty)

    def head(self, hidden_size: int) -> nn.Module:
        return _Outputs()

    def loss(self, outputs: Tensor, targets: Mapping[str, Tensor]) -> SumCount:
        tokens = targets["tokens"]
        total = functional.cross_entropy(outputs.flatten(0, 1), tokens.flatten(), ignore_index=PADDING, reduction="sum")
        return SumCount(total, (tokens != PADDING).sum())

    def kept(self, output: ModelOutput, batch: Any, targets: Mapping[str, Tensor]) -> list[Written]:
        encoded = output.encoded
        if not targets:
            return [Written(symbols, [], 0) for symbols in encoded.decoded]
        tokens = targets["tokens"]
        is_traced = encoded.tokens is not None  # then the outputs are no logits
        right = [0] * len(tokens) if is_traced else (output.outputs.argmax(-1) == tokens).sum(1).tolist()
        gold = [[each for each in row if each != PADDING][:-1] for row in tokens.tolist()]
        return [Written(*each) for each in zip(encoded.decoded, gold, right, strict=True)]

    def correct(self, kept: list[Written], targets: Mapping[str, Any]) -> NDArray[np.bool_]:
        return np.array([each.symbols == each.gold for each in kept], bool)

    def answers(self, kept: list[Written], targets: Mapping[str, Any], **options: float) -> list[Answer]:
        """Return the symbols that were written, with the separator between them."""
        names = self.vocabulary.leaves
        return [Answer(self.separator.join(names[number] for number in each.symbols), None) for each in kept]


class _Outputs(nn.Module):
    """The logits that the network gives."""

    def forward(self, encoded: Any) -> Tensor:
        outputs: Tensor = encoded.outputs
        return outputs
