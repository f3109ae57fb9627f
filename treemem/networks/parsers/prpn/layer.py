"""The Parsing-Reading-Predict Network, a language model with a memory that follows its own parse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch.nn import functional

from treemem.checked_options import (
    Layers,
    Natural,
    Positive,
    Probability,
    Rows,
)
from treemem.device_copy import to_device
from treemem.engines.affine import Affine
from treemem.engines.sequence_lengths import checked_lengths, within
from treemem.errors import RecipeError
from treemem.evaluation_mode import in_evaluation_mode
from treemem.networks.parsers.prpn.cuda import cuda_layer
from treemem.networks.parsers.prpn.equations import ReaderWeights, read_back, read_layer, scaled_norm, slot_gates
from treemem.networks.resettable import Resettable
from treemem.networks.sequence_encoder import SequenceBatch, SequenceOutput
from treemem.networks.sequences.language_model.layer import TokenPredictor, after_end
from treemem.trees.induced import tree_from_distances
from treemem.trees.tokens import TokenForm
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

PRPNState = tuple[torch.Tensor, ...]
"""What a sequence goes on from.

The vectors of the last tokens, ``[sequences, lookback, embedding_size]``; the last distances, infinity where there is
none, ``[sequences, slots]``; and for each layer the last ``[h; c]``, ``[sequences, slots, 2 * hidden_size]``.
"""


class PRPN(TokenPredictor):
    """The Parsing-Reading-Predict Network (Shen et al. 2018), which predicts the next token at every token.

    The parsing network gives each token two syntactic distances, ``d`` and, for the next one, ``d'``, from the vectors
    ``e`` of the token and of the ``lookback`` before it::

        d_t, d'_t = sigmoid(w . relu(norm(W [e_(t-lookback); ...; e_t] + b)) + v)

    ``d`` reads the first half of the hidden layer and ``d'`` the second. They open or close the slots of a memory, see
    ``slot_gates``: a token reads back to the last one of a larger distance. The layers of the
    reading network are LSTMs that attend to their own states in the open slots, see
    ``read_layer``. To predict, the memory of the last layer is read again, with the gates of
    ``d'``::

        s = gated_softmax((W_p h_t + b_p) . h_(t-1-k) / sqrt(hidden_size), gate'),  m_t = sum_k s_k h_(t-1-k)
        y_t = tanh(norm(W_y [h_t; m_t] + b_y)),  logits = E y_t + b

    ``E`` are the tokens' vectors. ``norm`` of the parsing network and of the prediction is a batch normalisation over
    the tokens of a batch; so it cannot be trained in several processes. Padding does not count.

    This is what the authors' code runs. ``outputs`` are the logits, ``[sequences, longest, leaves]``. The encoding is
    the last layer's ``h`` after the last token. The trace has ``"distance"``, ``[sequences, longest]``, and ``"gate"``
    of the slots, the latest first, ``[sequences, longest, slots]``.

    Args:
        hidden_size: width of ``h`` and of the hidden layer of the parsing network; even.
        vocabulary: the words.
        num_layers: of the reading network.
        slots: how many tokens back a layer can read.
        lookback: how many tokens before it the parsing network reads.
        resolution: the difference of distances that closes a slot.
        hard: whether gates become exactly 0 and 1.
        residual_blocks: layers ``x = relu(x + norm(W relu(norm(V x))))`` on ``[h; m]``.
        input_dropout: probability that an entry is dropped of the vectors that the first layer reads.
        dropout: the same of what the parsing network, further layers, keys and predictions read.
        output_dropout: the same of ``y``.
        recurrent_dropout: probability that a unit of the ``h`` that a layer reads from its memory is dropped, for all
            tokens of a batch.
        form, embedding_size, embedding_bound: see :class:`~treemem.nn.SequenceEncoder`.

    Raises:
        RecipeError: an option outside its range.

    Example:
        >>> from treemem.data.token_batch import TokenBatch
        >>> vocabulary = Vocabulary(["<eos>", "the", "cat", "sat"], [])
        >>> model = PRPN(8, vocabulary, slots=3, lookback=1)
        >>> model(TokenBatch.from_sequences([[0, 1, 2, 3], [0, 1]])).outputs.shape
        torch.Size([2, 4, 4])
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        num_layers: Layers = 2,
        slots: Rows = 15,
        lookback: Natural = 5,
        resolution: Positive = 0.1,
        hard: bool = True,
        residual_blocks: Natural = 0,
        form: TokenForm = "leaves",
        embedding_size: int | None = None,
        embedding_bound: float | None = 0.01,
        input_dropout: float = 0.0,
        dropout: Probability = 0.0,
        output_dropout: Probability = 0.0,
        recurrent_dropout: Probability = 0.0,
    ) -> None:
        super().__init__(hidden_size, vocabulary, form, embedding_size, embedding_bound, input_dropout)
        if hidden_size % 2:
            raise RecipeError(f"hidden_size={hidden_size} must be even: each distance reads half of the hidden layer")
        self.slots = slots
        self.lookback = lookback
        self.resolution = resolution
        self.hard = hard
        self.dropout = dropout
        self.output_dropout = output_dropout
        self.recurrent_dropout = recurrent_dropout
        self.parser = _ParsingNetwork(self.embedding_size, hidden_size, lookback)
        widths = [self.embedding_size] + [hidden_size] * (num_layers - 1)
        self.layers = torch.nn.ModuleList(_Reader(width, hidden_size) for width in widths)
        self.predictor = _Predictor(hidden_size, self.embedding_size, residual_blocks)
        self.bias = torch.nn.Parameter(torch.zeros(self.embedding.num_embeddings))

    can_induce_trees = True

    @property
    def needs_whole_batch(self) -> str | None:
        return "batch normalisation"

    @property
    def trace_axes(self) -> Mapping[str, tuple[str, ...]]:
        return {"distance": ("sequences", "tokens"), "gate": ("sequences", "tokens", "slots")}

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """The vectors of tokens, ``[sequences, longest, embedding_size]``, without dropout."""
        return self.embedding(to_device(tokens, self.embedding.weight.device))

    def read(
        self, inputs: torch.Tensor, lengths: torch.Tensor, *, trace: bool = False, state: PRPNState | None = None
    ) -> SequenceOutput:
        """Run over sequences of vectors, from an empty memory unless there is a state.

        Raises:
            GraphError: inputs of another width, or lengths that do not fit them.
        """
        on_cpu = checked_lengths(lengths, inputs, self.embedding_size)
        there = to_device(on_cpu, inputs.device)
        present = within(there, inputs.shape[1])
        tokens = _Tokens.of(on_cpu, inputs.shape[1], inputs.device)
        dropout = self.dropout if self.training else 0.0
        earlier, distances, *memories = self._empty_state(inputs) if state is None else state
        with torch.autocast(inputs.device.type, enabled=False):
            inputs = inputs.masked_fill(~present[:, :, None], 0).to(self.bias.dtype)
            vectors = torch.cat([earlier, inputs], 1)
            distance, of_next = self.parser(vectors, tokens, dropout)
            distances = torch.cat([distances, distance], 1)
            gate, gate_of_next = (
                slot_gates(values, distances, self.slots, self.resolution, hard=self.hard)
                for values in (distance, of_next)
            )
            hidden, histories = inputs, []
            for number, (layer, memory) in enumerate(zip(self.layers, memories, strict=True)):
                hidden = functional.dropout(hidden, self.dropout if number else self.input_dropout, self.training)
                mask = None
                if self.training and self.recurrent_dropout:
                    mask = functional.dropout(self.bias.new_ones(self.hidden_size), self.recurrent_dropout)
                key_input = functional.dropout(hidden, dropout)
                histories.append(layer(hidden, key_input, gate, memory, mask))
                hidden = histories[-1][:, self.slots :, : self.hidden_size]
            history = histories[-1][..., : self.hidden_size]
            predicted = self.predictor(hidden, history, gate_of_next, tokens, dropout)
            predicted = functional.dropout(predicted, self.output_dropout, self.training)
            logits = functional.linear(predicted, self.vectors_of_tokens(), self.bias)
        logits = logits.masked_fill(~present[:, :, None], 0)
        after = (
            _last(vectors, there, self.lookback),
            _last(distances[:, :, None], there, self.slots).squeeze(2),
            *(_last(states, there, self.slots) for states in histories),
        )
        encoding = after[-1][:, -1, : self.hidden_size]
        traced = {"distance": distance.masked_fill(~present, 0), "gate": gate} if trace else {}
        return SequenceOutput(encoding, logits, traced, {}, after)

    def induced_trees(self, batch: SequenceBatch) -> list[Tree]:
        """Return the tree that the distances split each sentence into, without dropout.

        The model reads ``<eos>``, if its vocabulary has it, before each sentence, as after the sentence before it.

        Raises:
            GraphError: a distance that is not a number; names the sequence.
        """
        token, lengths, begin = after_end(self, batch)
        with in_evaluation_mode(self):
            vectors = self.embed(token)
            earlier, *_ = self._empty_state(vectors)
            read = _Tokens.of(lengths.cpu(), token.shape[1], vectors.device)
            distance, _ = self.parser(torch.cat([earlier, vectors], 1), read, 0.0)
        distance = distance[:, begin:]
        return self.trees_over_tokens(batch, distance, tree_from_distances)

    def _empty_state(self, inputs: torch.Tensor) -> PRPNState:
        count = len(inputs)
        empty = self.bias.new_zeros(count, self.slots, 2 * self.hidden_size)
        return (
            self.bias.new_zeros(count, self.lookback, self.embedding_size),
            self.bias.new_full((count, self.slots), torch.inf),
            *(empty for _ in self.layers),
        )


def _last(history: torch.Tensor, lengths: torch.Tensor, count: int) -> torch.Tensor:
    """Return the last entries of each sequence, ``[sequences, count, width]``, of those before it and its own."""
    place = lengths[:, None] + torch.arange(count, device=lengths.device)
    return history.gather(1, place[:, :, None].expand(-1, -1, history.shape[2]))


class _Tokens(NamedTuple):
    """The tokens of a padded batch.

    Attributes:
        number: how many.
        place: of each in the flat batch, int64 ``[tokens]``; None if there is no padding.
    """

    number: int
    place: torch.Tensor | None

    @classmethod
    def of(cls, lengths: torch.Tensor, longest: int, device: torch.device) -> _Tokens:
        """Those of sequences with lengths on the CPU."""
        count = int(lengths.sum())
        place = within(lengths, longest).flatten().nonzero().squeeze(1) if count < len(lengths) * longest else None
        return cls(count, None if place is None else to_device(place, device))

    def normalised(self, values: torch.Tensor, norm: torch.nn.BatchNorm1d) -> torch.Tensor:
        """Normalise ``[sequences, longest, width]`` by the statistics of the tokens.

        In evaluation, and for a single token, by the running statistics.
        """
        flat = values.flatten(0, 1)
        if not norm.training or self.number < 2:
            running = (norm.running_mean, norm.running_var, norm.weight, norm.bias)
            return functional.batch_norm(flat, *running).view_as(values)
        if self.place is None:
            return norm(flat).view_as(values)
        of_tokens = norm(flat.index_select(0, self.place))
        return torch.zeros_like(flat).index_copy(0, self.place, of_tokens).view_as(values)


class _ParsingNetwork(Resettable):
    def __init__(self, input_size: int, hidden_size: int, lookback: int) -> None:
        super().__init__()
        self.hidden_map = torch.nn.Conv1d(input_size, hidden_size, lookback + 1)
        self.norm = torch.nn.BatchNorm1d(hidden_size)
        self.distance_map = torch.nn.Conv1d(hidden_size, 2, 1, groups=2)

    def forward(self, vectors: torch.Tensor, tokens: _Tokens, dropout: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Return both distances of tokens, ``[sequences, longest]``, of ``[sequences, lookback + longest, width]``."""
        if not tokens.number:
            nothing = vectors.new_zeros(len(vectors), vectors.shape[1] - self.hidden_map.kernel_size[0] + 1)
            return nothing, nothing
        hidden = self.hidden_map(functional.dropout(vectors, dropout).transpose(1, 2)).transpose(1, 2)
        hidden = functional.dropout(tokens.normalised(hidden, self.norm).relu(), dropout)
        distance, of_next = self.distance_map(hidden.transpose(1, 2)).sigmoid().unbind(1)
        return distance, of_next


class _Reader(Resettable):
    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input_map = torch.nn.Linear(input_size, 4 * hidden_size)
        self.input_norm = torch.nn.LayerNorm(4 * hidden_size)
        self.hidden_map = torch.nn.Linear(hidden_size, 4 * hidden_size)
        self.hidden_norm = torch.nn.LayerNorm(4 * hidden_size)
        self.cell_norm = torch.nn.LayerNorm(hidden_size)
        self.key_map = torch.nn.Linear(input_size + hidden_size, hidden_size)

    def forward(
        self,
        inputs: torch.Tensor,
        key_inputs: torch.Tensor,
        gate: torch.Tensor,
        memory: torch.Tensor,
        mask: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return memory and states; see ``read_layer``."""
        of_input, of_hidden = self.key_map.weight.split([inputs.shape[2], self.key_map.out_features], 1)
        weights = ReaderWeights(
            of_hidden, Affine.of(self.hidden_map), Affine.of(self.hidden_norm), Affine.of(self.cell_norm)
        )
        of_gates = scaled_norm(self.input_map(inputs), Affine.of(self.input_norm))
        of_keys = functional.linear(key_inputs, of_input, self.key_map.bias)
        arguments = of_gates, of_keys, gate, memory, weights, mask
        history = cuda_layer(*arguments)
        return read_layer(*arguments) if history is None else history


class _ResidualBlock(Resettable):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.first_map, self.second_map = torch.nn.Linear(size, size), torch.nn.Linear(size, size)
        self.first_norm, self.second_norm = torch.nn.BatchNorm1d(size), torch.nn.BatchNorm1d(size)

    def forward(self, values: torch.Tensor, tokens: _Tokens, dropout: float) -> torch.Tensor:
        """Return ``[sequences, longest, size]``."""
        hidden = functional.dropout(tokens.normalised(self.first_map(values), self.first_norm).relu(), dropout)
        return (values + tokens.normalised(self.second_map(hidden), self.second_norm)).relu()


class _Predictor(Resettable):
    def __init__(self, hidden_size: int, output_size: int, residual_blocks: int) -> None:
        super().__init__()
        self.key_map = torch.nn.Linear(hidden_size, hidden_size)
        self.blocks = torch.nn.ModuleList(_ResidualBlock(2 * hidden_size) for _ in range(residual_blocks))
        self.map = torch.nn.Linear(2 * hidden_size, output_size)
        self.norm = torch.nn.BatchNorm1d(output_size)

    def forward(
        self, hidden: torch.Tensor, history: torch.Tensor, gate: torch.Tensor, tokens: _Tokens, dropout: float
    ) -> torch.Tensor:
        """Return ``y``, ``[sequences, longest, output_size]``; ``history`` is memory and ``hidden``."""
        memory = read_back(self.key_map(functional.dropout(hidden, dropout)), history, gate)
        values = torch.cat([hidden, memory], 2)
        for block in self.blocks:
            values = block(values, tokens, dropout)
        return tokens.normalised(self.map(functional.dropout(values, dropout)), self.norm).tanh()
