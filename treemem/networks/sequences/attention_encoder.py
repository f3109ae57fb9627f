"""The base of the self-attention encoders: marks, positions, pairs as one sequence, and the readout."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, NamedTuple

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from typing_extensions import Unpack

from treemem.checked_options import Count, Probability, checked_count
from treemem.data.sum_count import SumCount
from treemem.device_copy import to_device_together
from treemem.engines.sequence_lengths import checked_lengths, entry_of_each, within
from treemem.errors import GraphError, RecipeError
from treemem.networks.sequence_encoder import NUM_MARKS, SequenceEncoder, SequenceOutput, TokenOptions, pair_lengths
from treemem.trees.vocabulary import Vocabulary

ReadPlace = Literal["extract", "mean", "first", "last"]
"""What the encoding is: the output at a learned vector after the last token, the mean, or the output at a token."""

_EXTRACT, _START, _DELIMITER = 0, 1, 2


class AttentionOutput(NamedTuple):
    """What :meth:`AttentionEncoder.run` returns.

    Attributes:
        outputs: of the last layer, ``[sequences, longest, hidden_size]``.
        trace: by name, ``[sequences, ...]``.
        auxiliary_losses: by name.
    """

    outputs: torch.Tensor
    trace: dict[str, torch.Tensor]
    auxiliary_losses: Mapping[str, SumCount] = {}


class AttentionOptions(TokenOptions, total=False):
    """The options of :class:`AttentionEncoder`."""

    num_heads: int
    feedforward_size: int | None
    dropout: float
    norm_first: bool
    read: ReadPlace
    joint: bool


class AttentionEncoder(SequenceEncoder, without=("embedding_size",)):
    """A network of self-attention over the tokens of each tree, or of both trees of an example together.

    Subclasses define :meth:`run`.

    Args:
        vocabulary: the labels.
        hidden_size, num_heads, feedforward_size, dropout, norm_first, read, joint: see :class:`treemem.nn.Transformer`.
        form, embedding_bound, input_dropout: see :class:`SequenceEncoder`.

    Attributes:
        joint: whether the two trees of an example are one sequence: ``start s1 delimiter s2 extract``.

    Raises:
        RecipeError: an option outside its range, or two that contradict each other.
    """

    lengths_on_cpu = True

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        num_heads: Count = 8,
        feedforward_size: int | None = None,
        dropout: Probability = 0.0,
        norm_first: bool = False,
        read: ReadPlace = "extract",
        joint: bool = False,
        **tokens: Unpack[TokenOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **tokens)
        self.num_heads = num_heads
        if self.hidden_size % self.num_heads:
            raise RecipeError(f"num_heads={self.num_heads} does not divide hidden_size={self.hidden_size}")
        inner = 4 * hidden_size if feedforward_size is None else feedforward_size
        self.feedforward_size = checked_count("feedforward_size", inner)
        self.dropout = dropout
        self.norm_first = norm_first
        self.readout_place: ReadPlace = read
        self.joint = joint
        if self.joint and self.readout_place != "extract":
            raise RecipeError(f"joint=True is read at its extract vector; leave out read={self.readout_place!r}")
        num_marks = NUM_MARKS if self.joint else 1
        self.marks = torch.nn.Embedding(num_marks, self.hidden_size) if self.readout_place == "extract" else None
        self._bound_marks()

    def new_layer(self) -> torch.nn.TransformerEncoderLayer:
        """A layer with the sizes and dropout of the options."""
        return torch.nn.TransformerEncoderLayer(
            self.hidden_size,
            self.num_heads,
            self.feedforward_size,
            self.dropout,
            batch_first=True,
            norm_first=self.norm_first,
        )

    def new_last_norm(self) -> torch.nn.Module:
        """The norm after the last layer; the identity if layers end with a norm."""
        return torch.nn.LayerNorm(self.hidden_size) if self.norm_first else torch.nn.Identity()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        super().reset_parameters()
        for module in self.modules():
            if isinstance(module, torch.nn.MultiheadAttention):
                module._reset_parameters()

    def reset_embedding(self) -> None:
        """Draw new vectors for the tokens and marks."""
        super().reset_embedding()
        self._bound_marks()

    def _bound_marks(self) -> None:
        """Draw the marks within ``embedding_bound``, if there are marks and a bound."""
        marks = getattr(self, "marks", None)
        if marks is not None and self.embedding_bound is not None:
            torch.nn.init.uniform_(marks.weight, -self.embedding_bound, self.embedding_bound)

    def read(self, inputs: torch.Tensor, lengths: torch.Tensor, *, trace: bool = False) -> SequenceOutput:
        """Run over sequences of vectors; with ``joint=True`` over pairs, which are adjacent.

        Args:
            inputs: ``[sequences, longest, hidden_size]``, padded on the right with anything.
            lengths: int64 ``[sequences]``, 0 to ``longest``. An empty sequence has the encoding 0.
            trace: whether to keep what the network did.

        Returns:
            The outputs; for pairs ``[sequences / 2, ...]``, marks included.

        Raises:
            GraphError: inputs of another width, or lengths that do not fit them; ``joint=True`` and an odd number of
                sequences; a sequence longer than the learned positions.
        """
        if self.joint and len(inputs) % 2:
            raise GraphError(f"joint=True reads pairs of sequences, one after the other, and these are {len(inputs)}")
        lengths = checked_lengths(lengths, inputs, self.hidden_size)
        longest = inputs.shape[1]
        source = pair_source(lengths, longest) if self.joint else _source(lengths, longest, self.marks is not None)
        has_padding = not bool((source >= 0).all())
        place, present, lengths_there = to_device_together([*self._places(source, inputs), lengths], inputs.device)
        outputs, traced, losses = self._attend(inputs, place, present, has_padding, trace)
        if trace:
            traced = {name: value.to(inputs.dtype) for name, value in traced.items()}
            both = present[:, None, :, None] & present[:, None, None, :]
            traced["attention"] = traced["attention"] * both
            of_tokens = {name: value for name, value in traced.items() if name != "attention"}
            traced |= {
                name: value * (present if value.dim() == 2 else present[:, None]) for name, value in of_tokens.items()
            }
        if self.joint:
            return SequenceOutput(entry_of_each(outputs, present.sum(1) - 1), outputs, traced, losses)
        encoding = self._read_out(outputs, lengths_there)
        outputs = outputs[:, :longest] * within(lengths_there, longest)[:, :, None]
        return SequenceOutput(encoding, outputs, traced, losses)

    @property
    def why_not_in_bucket(self) -> str | None:
        return "it reads pairs as one sequence" if self.joint else None

    def read_in_bucket(
        self, inputs: torch.Tensor, lengths: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, Mapping[str, SumCount]]:
        """Return encodings, outputs and auxiliary losses."""
        longest = inputs.shape[1]
        source = _source(lengths, longest, self.marks is not None)
        outputs, _, losses = self._attend(inputs, *self._places(source, inputs), True, False)
        return self._read_out(outputs, lengths), outputs[:, :longest] * within(lengths, longest)[:, :, None], losses

    def _places(self, source: torch.Tensor, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return where in the bank of ``_attend`` each token or mark is, and which are there."""
        present, padding = source >= 0, inputs.shape[:2].numel() + (0 if self.marks is None else len(self.marks.weight))
        return source.masked_fill(~present, padding), present

    def _attend(
        self, inputs: torch.Tensor, place: torch.Tensor, present: torch.Tensor, has_padding: bool, trace: bool
    ) -> AttentionOutput:
        """Run over tokens and marks at their places; outputs are 0 at padding."""
        marks = [] if self.marks is None else [self.marks.weight.to(inputs.dtype)]
        bank = torch.cat([inputs.flatten(0, 1), *marks, inputs.new_zeros(1, self.hidden_size)])  # the last is padding
        vectors = bank.index_select(0, place.flatten()).unflatten(0, place.shape)
        with _fast_attention(vectors.device):
            output = self.run(vectors, ~present if has_padding else None, trace)
        # autocast may have lowered their precision
        return output._replace(outputs=output.outputs.to(inputs.dtype) * present[:, :, None])

    def _read_out(self, outputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        if self.readout_place == "mean":
            return outputs.sum(1) / lengths.clamp(min=1)[:, None]
        places = {"first": torch.zeros_like(lengths), "last": lengths - 1, "extract": lengths}[self.readout_place]
        return entry_of_each(outputs, places.masked_fill(lengths == 0, -1))

    @abstractmethod
    def run(self, vectors: torch.Tensor, padding: torch.Tensor | None, trace: bool) -> AttentionOutput:
        """Return the outputs of the last layer, the trace and auxiliary losses.

        Args:
            vectors: tokens and marks, 0 where there is padding, ``[sequences, longest, hidden_size]``.
            padding: the padding mask, bool ``[sequences, longest]``; None if there is no padding.
            trace: whether to fill the trace; else it is empty.
        """


def _fast_attention(device: torch.device) -> AbstractContextManager[None]:
    """Avoid torch's fused attention where it is many times slower: on a CPU with short products."""
    is_slow = device.type == "cpu" and torch.get_float32_matmul_precision() == "medium"
    return sdpa_kernel(SDPBackend.MATH) if is_slow else nullcontext()


def absent_keys(padding: torch.Tensor | None) -> torch.Tensor | None:
    """The keys that are not attended to: padding, except one key of an empty sequence, to avoid NaN."""
    if padding is None:
        return None
    absent = padding.clone()
    absent[:, :1] &= ~padding.all(1, keepdim=True)
    return absent


def sinusoids(number: torch.Tensor, size: int) -> torch.Tensor:
    """Numbers as vectors of sines and cosines, ``[..., size]``, in float64 (Vaswani et al. 2017).

    Entry ``2 i`` is ``sin(number / 10000 ** (2 i / size))``, entry ``2 i + 1`` the cosine.
    """
    rate = 10000 ** (-torch.arange(0, size, 2, dtype=torch.float64, device=number.device) / size)
    angle = number.double()[..., None] * rate
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[..., :size]


@torch.no_grad()
def attention_weights(
    layer: torch.nn.TransformerEncoderLayer,
    inputs: torch.Tensor,
    absent: torch.Tensor | None,
    later: torch.Tensor | None = None,
) -> torch.Tensor:
    """What each position of a layer attends to, the mean of its heads, ``[sequences, longest, longest]``.

    Args:
        layer: the layer.
        inputs: what it reads, ``[sequences, longest, hidden_size]``.
        absent: those of :func:`absent_keys`.
        later: what each position does not look at, ``[longest, longest]``; None if it looks at all.
    """
    attention = layer.self_attn
    read = layer.norm1(inputs) if layer.norm_first else inputs
    both = functional.linear(read, attention.in_proj_weight, attention.in_proj_bias)[..., : 2 * inputs.shape[2]]
    query, key = both.unflatten(2, (2, attention.num_heads, -1)).permute(2, 0, 3, 1, 4)
    scores = query @ key.transpose(2, 3) / attention.head_dim**0.5
    if absent is not None:
        scores = scores.masked_fill(absent[:, None, None, :], -torch.inf)
    if later is not None:
        scores = scores.masked_fill(later, -torch.inf)
    return torch.softmax(scores, dim=3).mean(1)


def _source(lengths: torch.Tensor, longest: int, extract: bool) -> torch.Tensor:
    """The token (counted over all sequences) or mark at each place of each sequence; -1 for padding."""
    place = torch.arange(longest + extract, device=lengths.device)
    token = torch.arange(len(lengths), device=lengths.device)[:, None] * longest + place
    source = torch.where(place < lengths[:, None], token, -1)
    if not extract:
        return source
    ends = (place == lengths[:, None]) & (lengths[:, None] > 0)
    return torch.where(ends, len(lengths) * longest + _EXTRACT, source)


def pair_source(lengths: torch.Tensor, longest: int) -> torch.Tensor:
    """The same for pairs, as ``start s1 delimiter s2 extract``."""
    together = pair_lengths(lengths)[:, None]
    num_tokens, left = len(lengths) * longest, lengths.view(-1, 2)[:, :1]
    place = torch.arange(int(together.max()) if len(together) else NUM_MARKS).expand(len(together), -1)
    of_pair = torch.arange(len(together))[:, None] * 2 * longest
    source = torch.where(place <= left, of_pair + place - 1, of_pair + longest + place - left - 2)
    for mark, where in ((_START, 0), (_DELIMITER, left + 1), (_EXTRACT, together - 1)):
        source = torch.where(place == where, num_tokens + mark, source)
    return torch.where(place < together, source, -1)
