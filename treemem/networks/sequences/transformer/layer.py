"""A Transformer over the tokens of trees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from torch.nn import functional
from typing_extensions import Unpack

from treemem.checked_options import Count, Layers
from treemem.errors import GraphError, RecipeError
from treemem.networks.sequence_encoder import SequenceBatch, pair_lengths
from treemem.networks.sequences.attention_encoder import (
    AttentionEncoder,
    AttentionOptions,
    AttentionOutput,
    absent_keys,
    attention_weights,
    sinusoids,
)
from treemem.trees.vocabulary import Vocabulary

Positions = Literal["sinusoidal", "learned"]


class Transformer(AttentionEncoder):
    """The encoder of a Transformer (Vaswani et al. 2017) over the tokens of each tree, or of both trees of an example.

    The input is the sum of the tokens' vectors, without scaling, and the vectors of their positions, with dropout. It
    goes through ``num_layers`` of :class:`torch.nn.TransformerEncoderLayer`. With ``joint=True`` the network is a
    cross-encoder: it reads the two trees of an example as one sequence, ``start s1 delimiter s2 extract``, as in
    Radford et al. 2018, and the pair has one encoding. Start, delimiter and extract are learned vectors.

    Args:
        hidden_size: width of the vectors and of the encoding.
        vocabulary: the labels.
        num_layers: number of layers.
        num_heads: heads of attention; divides ``hidden_size``.
        feedforward_size: width of the hidden layer of the feed-forward network; None: ``4 * hidden_size``.
        dropout: dropout probability, as in torch's layer.
        norm_first: normalise before the attention and the feed-forward network, and after the last layer. By default
            normalise after them, as published.
        positions: ``"sinusoidal"``, for sequences of any length; ``"learned"``: a vector for each of ``max_length``.
        max_length: the longest sequence for learned positions, including start, delimiter and extract.
        read: the encoding: ``"extract"``: the output at a learned vector after the last token; ``"mean"``: the mean
            over the tokens; ``"first"`` or ``"last"``: the output at this token. An empty sequence has the encoding 0.
        joint: read both trees of an example as one sequence.
        form, embedding_bound, input_dropout: see :class:`treemem.nn.SequenceEncoder`.

    The trace has ``attention``, ``[sequences, layers, longest, longest]``: the attention weights of each position,
    including start, delimiter and extract. They are the mean over heads, without dropout and gradients; 0 at padding.

    Second derivatives need ``torch.nn.attention.sdpa_kernel(SDPBackend.MATH)`` around the forward pass.

    Raises:
        RecipeError: an option outside its range, or two that contradict each other.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> pair = [Tree("Add", [Tree("x"), Tree("1")]), Tree("x")]
        >>> batch = TreeBatch.from_trees(pair, vocabulary, trees_per_example=2)
        >>> Transformer(16, vocabulary, num_layers=2, num_heads=4)(batch).root.shape
        torch.Size([1, 2, 16])
        >>> Transformer(16, vocabulary, num_layers=2, num_heads=4, joint=True)(batch).root.shape
        torch.Size([1, 1, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        num_layers: Layers = 6,
        positions: Positions = "sinusoidal",
        max_length: Count | None = None,
        **options: Unpack[AttentionOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **options)
        if (positions == "learned") != (max_length is not None):
            raise RecipeError('max_length goes with positions="learned", and these need it')
        learned = max_length
        self.positions = None if learned is None else torch.nn.Embedding(learned, hidden_size)
        self.layers = torch.nn.ModuleList(self.new_layer() for _ in range(num_layers))
        self.last_norm = self.new_last_norm()

    @property
    def trace_axes(self) -> Mapping[str, tuple[str, ...]]:
        return {"attention": ("sequences", "layers", "tokens", "tokens")}

    @property
    def longest_in_bucket(self) -> int | None:  # type: ignore[override]
        return None if self.positions is None else self.positions.num_embeddings - (self.marks is not None)

    def check_batches(self, batches: Iterable[SequenceBatch]) -> None:
        for batch in batches if self.positions is not None else ():
            _, lengths = self.items(batch)
            read = pair_lengths(lengths) if self.joint else lengths + (self.marks is not None)
            self._positions(int(read.max()) if len(read) else 0)

    def run(self, vectors: torch.Tensor, padding: torch.Tensor | None, trace: bool) -> AttentionOutput:
        """Run all layers; see :meth:`AttentionEncoder.run`."""
        sequences, longest = vectors.shape[:2]
        values = functional.dropout(vectors + self._positions(longest).to(vectors), self.dropout, self.training)
        absent = absent_keys(padding)
        attention = []
        for layer in self.layers if values.numel() else ():
            if trace:
                attention.append(attention_weights(layer, values, absent))  # type: ignore[arg-type]
            values = layer(values, src_key_padding_mask=absent)
        nothing = values.new_zeros(sequences, len(self.layers), longest, longest)
        traced = {"attention": torch.stack(attention, 1) if attention else nothing} if trace else {}
        return AttentionOutput(self.last_norm(values), traced)

    def _positions(self, longest: int) -> torch.Tensor:
        if self.positions is None:
            return sinusoids(torch.arange(longest, device=self.embedding.weight.device), self.hidden_size)
        if longest > self.positions.num_embeddings:
            raise GraphError(
                f"a sequence of {longest}, marks counted, is longer than max_length={self.positions.num_embeddings}; "
                f"sinusoidal positions take any length"
            )
        return self.positions.weight[:longest]
