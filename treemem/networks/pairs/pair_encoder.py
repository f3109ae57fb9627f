"""What encoders of a pair of texts have in common: LSTMs over both, attention from one to the other, one encoding."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch.nn import functional
from typing_extensions import Unpack

from treemem.checked_options import Probability
from treemem.device_copy import to_device
from treemem.engines.sequence_lengths import checked_lengths, reversed_within, within
from treemem.errors import GraphError
from treemem.networks.memories.attention.equations import additive_scores, attend
from treemem.networks.resettable import Resettable
from treemem.networks.sequence_encoder import SequenceEncoder, SequenceOutput, TokenOptions
from treemem.networks.sequences.attention_encoder import pair_source
from treemem.networks.sequences.recurrent.lstm_stack import LSTMStack
from treemem.trees.vocabulary import Vocabulary


class Side(NamedTuple):
    """The vectors of one text of each pair.

    Attributes:
        inputs: ``[pairs, longest, size]``, padded on the right with anything.
        lengths: int64 ``[pairs]``, on the CPU.
    """

    inputs: torch.Tensor
    lengths: torch.Tensor

    @property
    def present(self) -> torch.Tensor:
        """Where there are tokens, bool ``[pairs, longest]``."""
        return to_device(within(self.lengths, self.inputs.shape[1]), self.inputs.device)


class PairOutput(NamedTuple):
    """What :meth:`PairEncoder.run` returns.

    Attributes:
        encoding: ``[pairs, hidden_size]``.
        first, second: the outputs at the tokens of each side, ``[pairs, longest, hidden_size]``, 0 at padding.
        attention: weights of the tokens of the first side: for each token of the second side ``[pairs, longest second,
            longest first]``, or for all of them together ``[pairs, longest first]``. None without attention.
    """

    encoding: torch.Tensor
    first: torch.Tensor
    second: torch.Tensor
    attention: torch.Tensor | None = None


class PairOptions(TokenOptions, total=False):
    """The options of :class:`PairEncoder`."""

    dropout: float


class PairEncoder(SequenceEncoder):
    """A cross-encoder of LSTMs over the two texts of a pair.

    Subclasses define :meth:`run`.

    Args:
        hidden_size: width of the outputs and of the encoding.
        dropout: probability that an entry of the LSTMs' inputs and of the encoding is dropped.
        vocabulary, form, embedding_size, embedding_bound, input_dropout: see
            :class:`treemem.nn.SequenceEncoder`.
    """

    lengths_on_cpu = True

    joint = True

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        dropout: Probability = 0.0,
        **tokens: Unpack[TokenOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **tokens)
        self.dropout = dropout

    @property
    def trace_axes(self) -> Mapping[str, tuple[str, ...]]:
        return {"attention": ("sequences", "layers", "tokens", "tokens")}

    def read(self, inputs: torch.Tensor, lengths: torch.Tensor, *, trace: bool = False) -> SequenceOutput:
        """Run over pairs of sequences of vectors, which are adjacent.

        Returns:
            The outputs: of the pairs, ``[sequences / 2, ...]``, marks included.

        Raises:
            GraphError: inputs of another width, or lengths that do not fit them; an odd number of sequences.
        """
        if len(inputs) % 2:
            raise GraphError(f"{type(self).__name__} reads pairs of sequences, and these are {len(inputs)}")
        lengths = checked_lengths(lengths, inputs, self.embedding_size)
        inputs = functional.dropout(inputs, self.dropout, self.training)
        longest = inputs.shape[1]
        sides = [Side(inputs[side::2, : _most(lengths[side::2])], lengths[side::2]) for side in (0, 1)]
        ran = self.run(*sides)
        encoding = functional.dropout(ran.encoding, self.dropout, self.training).to(inputs.dtype)
        padded = [functional.pad(values, (0, 0, 0, longest - values.shape[1])) for values in (ran.first, ran.second)]
        outputs = torch.stack(padded, 1).flatten(0, 2)
        source = pair_source(lengths, longest)
        is_word = (source >= 0) & (source < len(outputs))
        place, kept = to_device(source.where(is_word, len(outputs)), inputs.device), to_device(is_word, inputs.device)
        bank = torch.cat([outputs, outputs.new_zeros(1, self.hidden_size)])
        together = bank.index_select(0, place.flatten()).unflatten(0, place.shape) * kept[..., None]
        traced = {}
        if trace and ran.attention is not None:
            traced["attention"] = _at_positions(ran.attention.detach(), lengths, source.shape[1])
        return SequenceOutput(encoding, together, traced)

    @abstractmethod
    def run(self, first: Side, second: Side) -> PairOutput:
        """Return the encodings, the outputs at the tokens, and the attention."""


class BidirectionalLSTM(Resettable):
    """An LSTM in each direction, each of half the size.

    Args:
        input_size: width of the vectors.
        hidden_size: width of both directions together, an even number.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.rightward = LSTMStack(input_size, [hidden_size // 2])
        self.leftward = LSTMStack(input_size, [hidden_size // 2])

    def forward(self, side: Side) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the outputs ``[sequences, longest, hidden_size]``, 0 at padding, and the last ones of each direction.

        The last ones are ``[sequences, hidden_size]``; 0 for an empty sequence.
        """
        inputs, lengths = side
        right, left = self.rightward(inputs, lengths), self.leftward(reversed_within(inputs, lengths), lengths)
        last = torch.cat([right.state[0][0], left.state[0][0]], 1)
        return torch.cat([right.h, reversed_within(left.h, lengths)], 2), last


def attend_step_by_step(
    memory: torch.Tensor,
    keys: torch.Tensor,
    present: torch.Tensor,
    queries: torch.Tensor,
    going: torch.Tensor,
    *,
    of_readout: Callable[[torch.Tensor], torch.Tensor],
    carry: Callable[[torch.Tensor], torch.Tensor],
    vector: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend to a memory at each step, with the readout of the step before.

    ``a_t = softmax(v . tanh(k + q_t + of_readout(r_(t-1))))``, ``r_t = a_t memory + tanh(carry(r_(t-1)))``, from
    ``r_0 = 0``.

    Args:
        memory, keys: ``[pairs, rows, size]``.
        present: which rows there are, bool ``[pairs, rows]``.
        queries: ``[pairs, steps, size]``.
        going: which steps there are, bool ``[pairs, steps]``.
        of_readout, carry: linear maps.
        vector: ``v``, ``[size]``.

    Returns:
        The last readout ``[pairs, size]`` and the weights ``[pairs, steps, rows]``.
    """
    readout = memory.new_zeros(len(memory), memory.shape[2])
    attention = [memory.new_zeros(len(memory), 0, memory.shape[1])]
    for step in range(queries.shape[1]):
        scores = additive_scores(queries[:, step] + of_readout(readout), keys, vector)
        mean, weights = attend(scores, memory, present)
        readout = torch.where(going[:, step, None], mean + torch.tanh(carry(readout)), readout)
        attention.append(weights[:, None])
    return readout, torch.cat(attention, 1) * going[..., None]


def _most(lengths: torch.Tensor) -> int:
    return int(lengths.max()) if len(lengths) else 0


def _at_positions(attention: torch.Tensor, lengths: torch.Tensor, longest: int) -> torch.Tensor:
    """Return weights ``[pairs, 1, longest, longest]`` at the positions of ``start first delimiter second extract``.

    Weights for all of the second side together are those of ``extract``.
    """
    sizes = lengths.view(-1, 2).tolist()
    placed = attention.new_zeros(len(sizes), 1, longest, longest)
    for pair, (first, second) in enumerate(sizes):
        after = first + 2
        if attention.dim() == 2:
            placed[pair, 0, after + second, 1 : first + 1] = attention[pair, :first]
        else:
            placed[pair, 0, after : after + second, 1 : first + 1] = attention[pair, :second, :first]
    return placed
