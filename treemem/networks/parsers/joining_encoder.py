"""Base class of the sequence encoders that build a binary tree of their own over the tokens."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from typing_extensions import Unpack

from treemem.device_copy import to_device
from treemem.engines.sequence_engine import SequenceEngine, checked_engine
from treemem.engines.sequence_lengths import checked_lengths, within
from treemem.evaluation_mode import in_evaluation_mode
from treemem.networks.recorded_options import SettableOption
from treemem.networks.sequence_encoder import SequenceEncoder, SequenceOutput, TokenOptions
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.induced import tree_from_splits
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary


class Vectors(NamedTuple):
    """Sequences of vectors, of the type of the weights and 0 at padding.

    Attributes:
        values: ``[sequences, longest, embedding_size]``.
        lengths: int64 ``[sequences]``, on the CPU.
        lengths_there: the same, where the vectors are.
        present: where there are tokens, bool ``[sequences, longest]``.
    """

    values: torch.Tensor
    lengths: torch.Tensor
    lengths_there: torch.Tensor
    present: torch.Tensor

    def without_padding(self, values: torch.Tensor) -> torch.Tensor:
        """Return ``values [sequences, longest, size]``, 0 at padding."""
        return values.masked_fill(~self.present[:, :, None], 0)


class JoiningOptions(TokenOptions, total=False):
    """The options of :class:`JoiningEncoder`."""

    engine: SequenceEngine


class JoiningEncoder(SequenceEncoder):
    """A sequence encoder that joins neighbours step by step, and whose trace ``"joined"`` tells its tree.

    ``"joined"``, ``[sequences, longest]``, is the larger, the later the constituent that begins at a token is joined
    with the constituent on its left. It is 0 at the first token, and NaN where the network's own numbers are not
    finite.

    Subclasses define :meth:`join`.
    """

    engine: SettableOption[SequenceEngine] = SettableOption(checked_engine)

    lengths_on_cpu = True

    can_induce_trees = True

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        engine: SequenceEngine = "auto",
        **tokens: Unpack[TokenOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **tokens)
        self.engine = engine

    def read(
        self, inputs: torch.Tensor, lengths: torch.Tensor, *, trace: bool = False, **further: Any
    ) -> SequenceOutput:
        """Run over sequences of vectors; the class says what outputs and trace have.

        Args:
            inputs, lengths, trace: see :meth:`SequenceEncoder.read`.
            further: what :meth:`further_inputs` gives.

        Raises:
            GraphError: inputs of another width, or lengths that do not fit them.
        """
        on_cpu = checked_lengths(lengths, inputs, self.embedding_size)
        there = to_device(on_cpu, inputs.device)
        present = within(there, inputs.shape[1])
        with torch.autocast(inputs.device.type, enabled=False):
            values = inputs.masked_fill(~present[:, :, None], 0).to(self.embedding.weight.dtype)
            return self.join(Vectors(values, on_cpu, there, present), trace, **further)

    @abstractmethod
    def join(self, *arguments: Any, **further: Any) -> SequenceOutput:
        """Run over :class:`Vectors`, without autocast, with or without a trace; see :meth:`read`."""

    @property
    def trace_axes(self) -> Mapping[str, tuple[str, ...]]:
        return {"joined": ("sequences", "tokens")}

    def induced_trees(self, batch: TreeBatch) -> list[Tree]:
        """Return the tree over each sequence, which splits it where ``"joined"`` is largest, without noise and dropout.

        Raises:
            GraphError: a batch made from a graph, an empty sequence, or an encoding that is not finite; names the
                sequence.
        """
        with in_evaluation_mode(self):
            joined = self(batch, trace=True).trace["joined"]
        return self.trees_over_tokens(batch, joined, tree_from_splits)
