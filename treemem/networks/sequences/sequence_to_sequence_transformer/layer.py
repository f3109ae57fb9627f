"""The encoder and the decoder of a Transformer, from sequence to sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from treemem.checked_options import Count, Layers, Probability, Rows, checked_count
from treemem.data.token_batch import TokenBatch
from treemem.device_copy import to_device
from treemem.engines.sequence_lengths import within
from treemem.errors import RecipeError
from treemem.networks.encoder import Encoder
from treemem.networks.recorded_options import RecordedOptions
from treemem.networks.sequences.attention_encoder import sinusoids
from treemem.networks.sequences.sequence_to_sequence.beam_search import beam_search
from treemem.networks.sequences.sequence_to_sequence.layer import Seq2SeqOutput, checked_limits, end_and_between
from treemem.networks.sequences.stack_attention.named_layers import named_layers
from treemem.networks.sequences.stack_attention.sublayers import StackDecoderLayer, StackLayer, StackSublayer
from treemem.trees.vocabulary import Vocabulary


class SequenceToSequenceTransformer(RecordedOptions, Encoder, nn.Module):
    """A Transformer that reads a source and writes a target (Vaswani et al. 2017).

    The encoder reads the source and ``</s>``. The decoder begins with ``|||``; each symbol attends to those before it
    and to the encoder's outputs. Inputs are the sums of the symbols' vectors, without scaling, and the sinusoidal
    vectors of their positions, with dropout. Both sides have one table of vectors. Layers are torch's
    :class:`~torch.nn.TransformerEncoderLayer` and :class:`~torch.nn.TransformerDecoderLayer`.

    It trains and writes as :class:`~treemem.nn.SequenceToSequence`. With a trace, ``attention`` has what each symbol of
    the target attends to in the source, ``[sequences, layers, longest, longest]``, the mean over heads.

    Args:
        hidden_size: width of the vectors.
        vocabulary: its leaves are the symbols, including ``</s>`` and ``|||``.
        num_layers: layers of the encoder, and of the decoder.
        layers: the layers in order, in the place of ``num_layers``, as in
            :class:`~treemem.nn.StackAttentionTransformer`: in ``"2.superposition-32.2"``, the third layer of each side
            has a stack in the place of self-attention (DuSell & Chiang 2024). A stack reads from left to right, on both
            sides. Needs ``norm_first=True``.
        num_heads: heads of attention; divides ``hidden_size``.
        feedforward_size: width of the hidden layer of the feed-forward networks; None: ``4 * hidden_size``.
        dropout: dropout probability, as in torch's layers.
        norm_first: normalise before attention and the feed-forward network, and after the last layers. By default
            normalise after them, as published.
        beam_size: number of hypotheses in the beam; 1 is greedy.
        most_symbols: the most symbols of a target, its end included; None: twice the length of the source plus ten.

    Raises:
        RecipeError: an option out of its range, options that contradict each other, a layer that does not exist, or a
            vocabulary without the two symbols.

    Example:
        >>> from treemem.data.token_batch import TokenBatch
        >>> vocabulary = Vocabulary(["</s>", "|||", "a", "b"], [])
        >>> network = SequenceToSequenceTransformer(8, vocabulary, num_heads=2).eval()
        >>> len(network(TokenBatch.from_sequences([[2, 3, 3], [2]])).decoded)
        2
    """

    def __init__(
        self,
        hidden_size: Count,
        vocabulary: Vocabulary,
        *,
        num_layers: Layers = 2,
        layers: str | None = None,
        num_heads: Count = 8,
        feedforward_size: int | None = None,
        dropout: Probability = 0.0,
        norm_first: bool = False,
        beam_size: Rows = 1,
        most_symbols: Rows | None = None,
    ) -> None:
        super().__init__()
        if hidden_size % num_heads:
            raise RecipeError(f"num_heads={num_heads} does not divide hidden_size={hidden_size}")
        if layers is not None and not norm_first:
            raise RecipeError(f"layers={layers!r:.100} normalise first; add norm_first: true")
        if layers is not None and num_layers != 2:
            raise RecipeError(f"layers={layers!r:.100} says how many layers there are; leave out num_layers")
        self.end, self.between = end_and_between(vocabulary)
        self.hidden_size, self.vocabulary = hidden_size, vocabulary
        self.dropout, self.beam_size, self.most_symbols = dropout, beam_size, most_symbols
        inner = 4 * hidden_size if feedforward_size is None else checked_count("feedforward_size", feedforward_size)
        sizes = hidden_size, num_heads, inner, dropout

        def made(kind: type[nn.Module], with_stack: Callable[[StackSublayer], nn.Module]) -> nn.ModuleList:
            standard = partial(kind, *sizes, batch_first=True, norm_first=norm_first)
            if layers is None:
                return nn.ModuleList(standard() for _ in range(num_layers))
            return nn.ModuleList(named_layers(layers, hidden_size, standard, with_stack))

        def last_norm() -> nn.Module:
            return nn.LayerNorm(hidden_size) if norm_first else nn.Identity()

        self.embedding = nn.Embedding(len(vocabulary.leaves), hidden_size)
        self.encoder_layers = made(
            nn.TransformerEncoderLayer, lambda stack: StackLayer(stack, hidden_size, inner, dropout)
        )
        self.decoder_layers = made(nn.TransformerDecoderLayer, lambda stack: StackDecoderLayer(stack, *sizes))
        self.encoder_norm, self.decoder_norm = last_norm(), last_norm()
        self.symbol = nn.Linear(hidden_size, len(vocabulary.leaves))

    def check_batches(self, batches: Iterable[TokenBatch]) -> None:
        for batch in batches:
            checked_limits(batch, self.most_symbols, training=False)

    def forward(self, batch: TokenBatch, *, trace: bool = False) -> Seq2SeqOutput:
        """Return the logits of the target's symbols, given those before them; in evaluation also what it writes.

        Args:
            batch: the sources; in training with their targets.
            trace: whether to return, in evaluation, what the decoder attended to.

        Raises:
            GraphError: something that is no ``TokenBatch``, an empty source, no target in training, or one that is
                longer than what the network writes.
        """
        limits = checked_limits(batch, self.most_symbols, self.training)
        source = self._read(batch)
        ends = to_device(batch.lengths, source.outputs.device)[:, None, None]
        root = source.outputs.gather(1, ends.expand(-1, 1, self.hidden_size))
        if self.training:
            return Seq2SeqOutput(root, self._logits(batch, source), [], self.vocabulary)
        nothing = source.outputs.new_empty(len(root), 0, self.hidden_size)
        state = _Decoding((nothing,) * len(self.decoder_layers), source)
        decoded = beam_search(self._say, state, self.between, self.end, to_device(limits, root.device), self.beam_size)
        if trace and decoded:
            return self._traced(batch, root, decoded)
        return Seq2SeqOutput(root, self._logits(batch, source), decoded, self.vocabulary)

    @property
    def trace_axes(self) -> Mapping[str, tuple[str, ...]]:
        return {"attention": ("sequences", "layers", "tokens", "tokens")}

    def _read(self, batch: TokenBatch) -> _Source:
        """Return the encoder's outputs over the sources and their ends."""
        lengths = to_device(batch.lengths, self.embedding.weight.device)
        token = functional.pad(to_device(batch.token, lengths.device), (0, 1), value=self.end)
        return self._encoded(token.scatter(1, lengths[:, None], self.end), ~within(lengths + 1, token.shape[1]))

    def _encoded(self, symbols: torch.Tensor, is_padding: torch.Tensor) -> _Source:
        """Return the encoder's outputs."""
        values = self._embedded(symbols, 0)
        for layer in self.encoder_layers:
            values = layer(values, src_key_padding_mask=is_padding)
        return _Source(self.encoder_norm(values), is_padding)

    def _embedded(self, symbols: torch.Tensor, first: int) -> torch.Tensor:
        """Return the inputs of the layers, ``[batch, time, hidden_size]``, for symbols from a position on."""
        place = torch.arange(first, first + symbols.shape[1], device=symbols.device)
        vectors = self.embedding(symbols)
        return functional.dropout(vectors + sinusoids(place, self.hidden_size).to(vectors), self.dropout, self.training)

    def _logits(self, batch: TokenBatch, source: _Source) -> torch.Tensor:
        """Return the logits of the target's symbols, ``[batch, longest target, symbols]``; of none without a target."""
        if batch.target is None:
            return source.outputs.new_zeros(len(source.outputs), 0, len(self.vocabulary.leaves))
        target = to_device(batch.target.token, source.outputs.device)
        outputs, _ = self._decoded(functional.pad(target[:, :-1], (1, 0), value=self.between), source)
        logits: torch.Tensor = self.symbol(outputs)
        return logits

    def _decoded(self, symbols: torch.Tensor, source: _Source) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the decoder's outputs over whole targets, and each layer's attention to the source."""
        values, attention = self._embedded(symbols, 0), []
        longest = symbols.shape[1]
        later = torch.ones(longest, longest, dtype=torch.bool, device=symbols.device).triu(1)
        for layer in self.decoder_layers:
            values, weights = run_layer(layer, values, longest, source, later)  # type: ignore[arg-type]
            attention.append(weights)
        return self.decoder_norm(values), attention

    def _say(self, symbol: torch.Tensor, decoding: _Decoding) -> tuple[torch.Tensor, _Decoding]:
        """Return the logits of the symbols that may follow this one, ``[batch, symbols]``."""
        last = self._embedded(symbol[:, None], decoding.inputs[0].shape[1])
        inputs = []
        for layer, before in zip(self.decoder_layers, decoding.inputs, strict=True):
            inputs.append(torch.cat([before, last], 1))
            last, _ = run_layer(layer, inputs[-1], 1, decoding.source)  # type: ignore[arg-type]
        return self.symbol(self.decoder_norm(last[:, 0])), _Decoding(tuple(inputs), decoding.source)

    def _traced(self, batch: TokenBatch, root: torch.Tensor, decoded: list[list[int]]) -> Seq2SeqOutput:
        """Run each sequence again by itself."""
        symbols, outputs, maps = [], [], []
        for row, written in enumerate(decoded):
            read = batch.token[row, : batch.lengths[row]].tolist()
            source = self._read(TokenBatch.from_sequences([read]))
            target = torch.tensor([[self.between, *written]], device=root.device)
            after, attention = self._decoded(target, source)
            symbols.append([*read, self.end, self.between, *written])
            outputs.append(torch.cat([source.outputs, after], 1)[0])
            of_source, size = len(read) + 1, len(symbols[-1])
            weights = root.new_zeros(len(attention), size, size)
            weights[:, of_source:, :of_source] = torch.cat(attention)
            maps.append(weights)
        tokens = TokenBatch.from_sequences(symbols)
        longest = tokens.token.shape[1]
        trace = torch.stack(
            [functional.pad(one, (0, longest - one.shape[2], 0, longest - one.shape[1])) for one in maps]
        )
        states = pad_sequence(outputs, batch_first=True)
        return Seq2SeqOutput(root, states, decoded, self.vocabulary, tokens=tokens, trace={"attention": trace})


class _Source(NamedTuple):
    """What the decoder attends to.

    Attributes:
        outputs: of the encoder, ``[batch, longest, hidden_size]``.
        is_padding: bool ``[batch, longest]``.
    """

    outputs: torch.Tensor
    is_padding: torch.Tensor


class _Decoding(NamedTuple):
    """What the decoder has read.

    Attributes:
        inputs: of each layer, ``[batch, time, hidden_size]``.
        source: what it attends to.
    """

    inputs: tuple[torch.Tensor, ...]
    source: _Source


def run_layer(
    layer: nn.TransformerDecoderLayer,
    inputs: torch.Tensor,
    count: int,
    source: _Source,
    later: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the outputs of a decoder's layer at the last places, and what they attend to in the source.

    The same as the layer's own forward pass, which computes all places.

    Args:
        layer: of the decoder.
        inputs: all its inputs up to now, ``[batch, time, hidden_size]``.
        count: how many places, from the end.
        source: what it attends to.
        later: bool ``[count, time]``, the places that come after each; None: no place does.

    Returns:
        ``[batch, count, hidden_size]``, and the weights, the mean over heads, ``[batch, count, longest source]``.
    """

    def of_target(values: torch.Tensor) -> torch.Tensor:
        if isinstance(layer, StackDecoderLayer):
            return layer.dropout1(layer.stack(values)[:, -count:])
        attended, _ = layer.self_attn(values[:, -count:], values, values, attn_mask=later, need_weights=False)
        return layer.dropout1(attended)

    def of_source(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        attended, weights = layer.multihead_attn(
            values, source.outputs, source.outputs, key_padding_mask=source.is_padding
        )
        return layer.dropout2(attended), weights

    def fed(values: torch.Tensor) -> torch.Tensor:
        inner = layer.dropout(layer.activation(layer.linear1(values)))
        return layer.dropout3(layer.linear2(inner))

    last = inputs[:, -count:]
    if layer.norm_first:
        last = last + of_target(layer.norm1(inputs))
        attended, weights = of_source(layer.norm2(last))
        last = last + attended
        return last + fed(layer.norm3(last)), weights
    last = layer.norm1(last + of_target(inputs))
    attended, weights = of_source(last)
    last = layer.norm2(last + attended)
    return layer.norm3(last + fed(last)), weights
