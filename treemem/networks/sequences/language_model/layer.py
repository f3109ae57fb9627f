"""A word-level language model: layers of ON-LSTM or LSTM between an embedding and a softmax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch.nn import functional

from treemem.checked_options import Probability, checked_choice
from treemem.data.sum_count import SumCount
from treemem.data.token_batch import whole_numbers
from treemem.device_copy import to_device
from treemem.engines.sequence_engine import SequenceEngine
from treemem.engines.sequence_lengths import within
from treemem.errors import RecipeError
from treemem.evaluation_mode import in_evaluation_mode
from treemem.networks.parsers.on_lstm.layer import (
    OnLSTMStack,
    WeightDropoutScaling,
    distances_of_gates,
    layer_widths,
    parsing_layer,
)
from treemem.networks.sequence_encoder import SequenceBatch, SequenceEncoder, SequenceOutput
from treemem.networks.sequences.locked_dropout import locked_dropout
from treemem.networks.sequences.recurrent.lstm_stack import LSTMStack
from treemem.trees.induced import tree_from_distances
from treemem.trees.tokens import TokenForm
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

LanguageModelCell = Literal["ON-LSTM", "LSTM"]
END = "<eos>"
"""The word after each sentence, and before the first one."""


class TokenPredictor(SequenceEncoder):
    """A network whose outputs are logits of the next token, by the vectors of the tokens and a ``bias``."""

    bias: torch.nn.Parameter
    lengths_on_cpu = True
    carries_state = True

    def reset_parameters(self) -> None:
        super().reset_parameters()
        torch.nn.init.zeros_(self.bias)

    def read_features(self, width: int) -> None:
        name = type(self).__name__
        raise RecipeError(f"{name} predicts tokens with the vectors that it reads, so it cannot read features")


class LanguageModel(TokenPredictor):
    """Predicts the next token at every token, as AWD-LSTM (Merity et al. 2018) or ON-LSTM (Shen et al. 2019) does.

    ``outputs`` are the logits of the next token, ``[sequences, longest, leaves]``. The encoding is the last layer's
    ``h`` after the last token. In training, ``auxiliary_losses`` has ``"activation"``, the mean of ``h ** 2`` of the
    last layer, and ``"temporal_activation"``, the mean of ``(h_t - h_(t-1)) ** 2``; ``training.auxiliary_losses`` gives
    them weights. Both are of ``h`` before ``output_dropout``, as in the code of ON-LSTM; that of AWD-LSTM takes the
    first one after it.

    Args:
        hidden_size: width of the last layer.
        vocabulary: the words.
        cell: ``"ON-LSTM"`` or ``"LSTM"``.
        num_layers: number of layers of ``hidden_size``; 1 by default.
        layer_sizes: the width of each layer, instead of ``num_layers``; the last is ``hidden_size``.
        chunk_size: of ON-LSTM: adjacent units that share a master unit; divides every layer's size.
        embedding_dropout: probability that a word is dropped, at all its places in a batch.
        input_dropout, dropout, output_dropout: probability that an entry is dropped of the words' vectors, of what a
            layer hands to the next, and of the last layer's outputs; one draw for a sequence.
        weight_dropout: probability that an entry of the recurrent weights is dropped; one draw for a batch.
        weight_dropout_scaling: of ON-LSTM, see ``OnLSTMStack``. An LSTM always has
            ``"inverted"``, as AWD-LSTM does.
        tied: whether the words' vectors are the weights of the softmax, too; then ``embedding_size`` is
            ``hidden_size``.
        form, embedding_size, embedding_bound: see :class:`~treemem.nn.SequenceEncoder`.
        engine: of ON-LSTM: ``"auto"``, ``"fused"`` or ``"naive"``, which give the same numbers.

    Raises:
        RecipeError: an option outside its range, or two that contradict each other.

    Example:
        >>> from treemem.data.token_batch import TokenBatch
        >>> vocabulary = Vocabulary(["<eos>", "the", "cat", "sat"], [])
        >>> model = LanguageModel(8, vocabulary, num_layers=2, chunk_size=4)
        >>> model(TokenBatch.from_sequences([[0, 1, 2, 3], [0, 1]])).outputs.shape
        torch.Size([2, 4, 4])
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        cell: LanguageModelCell = "ON-LSTM",
        num_layers: int | None = None,
        layer_sizes: Sequence[int] | None = None,
        chunk_size: int = 10,
        tied: bool = True,
        form: TokenForm = "leaves",
        embedding_size: int | None = None,
        embedding_bound: float | None = 0.1,
        embedding_dropout: Probability = 0.0,
        input_dropout: float = 0.0,
        dropout: float = 0.0,
        output_dropout: Probability = 0.0,
        weight_dropout: float = 0.0,
        weight_dropout_scaling: WeightDropoutScaling = "published",
        engine: SequenceEngine = "auto",
    ) -> None:
        super().__init__(hidden_size, vocabulary, form, embedding_size, embedding_bound, input_dropout)
        if tied and self.embedding_size != hidden_size:
            raise RecipeError(
                f"the words' vectors have {self.embedding_size} numbers and the last layer {hidden_size}, so they "
                "cannot be the weights of the softmax, too; set tied=False"
            )
        self.cell = cell
        self.embedding_dropout = embedding_dropout
        self.output_dropout = output_dropout
        sizes = layer_widths(hidden_size, num_layers, layer_sizes)
        dropouts = {"dropout": dropout, "weight_dropout": weight_dropout}
        self.stack: OnLSTMStack | LSTMStack
        if cell == "ON-LSTM":
            self.stack = OnLSTMStack(
                self.embedding_size,
                sizes,
                chunk_size,
                **dropouts,
                weight_dropout_scaling=weight_dropout_scaling,
                engine=engine,
            )
        else:
            self.stack = LSTMStack(self.embedding_size, sizes, **dropouts)
        self.bias = torch.nn.Parameter(torch.zeros(self.embedding.num_embeddings))
        self.output_weight = None if tied else torch.nn.Parameter(torch.empty(len(self.bias), hidden_size))
        self._reset_output()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self._reset_output()

    def _reset_output(self) -> None:
        if self.output_weight is not None:
            torch.nn.init.uniform_(self.output_weight, -0.1, 0.1)  # as in the code of AWD-LSTM

    @property
    def can_induce_trees(self) -> bool:  # type: ignore[override]
        """Whether the layers have gates that trees can be read from."""
        return isinstance(self.stack, OnLSTMStack)

    @property
    def trace_axes(self) -> Mapping[str, tuple[str, ...]]:
        names = ("forget_distance", "input_distance") if self.can_induce_trees else ()
        return dict.fromkeys(names, ("sequences", "layers", "tokens"))

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """The vectors of tokens, ``[sequences, longest, embedding_size]``, in training with both dropouts."""
        tokens = to_device(tokens, self.embedding.weight.device)
        vectors = self.embedding(tokens)
        if self.training and self.embedding_dropout:
            kept = functional.dropout(vectors.new_ones(self.embedding.num_embeddings, 1), self.embedding_dropout)
            vectors = vectors * kept[tokens]
        return locked_dropout(vectors, self.input_dropout, self.training)

    def read(
        self, inputs: torch.Tensor, lengths: torch.Tensor, *, trace: bool = False, state: Any = None
    ) -> SequenceOutput:
        """Run over sequences of vectors, from the zero state unless one is given for each layer."""
        lengths = whole_numbers("lengths", lengths)
        ran = self.stack(inputs, lengths, state)
        outputs = locked_dropout(ran.h, self.output_dropout, self.training)
        weight = self.vectors_of_tokens() if self.output_weight is None else self.output_weight
        logits = functional.linear(outputs, weight, self.bias)
        traced = distances_of_gates(ran.layers, lengths) if trace and self.can_induce_trees else {}
        losses = _activation_losses(ran.h, lengths) if self.training else {}
        return SequenceOutput(ran.state[-1][0], logits, traced, losses, ran.state)

    def induced_trees(
        self, batch: SequenceBatch, *, layer: int | None = None, gate: Literal["forget", "input"] = "forget"
    ) -> list[Tree]:
        """Return the tree that the distances split each sentence into, without dropout.

        The model reads ``<eos>``, if its vocabulary has it, before each sentence, as after the sentence before it.

        Args:
            batch: the sentences.
            layer: whose distances, from 0; by default the second's, as Shen et al. 2019 read them, or the only one's.
            gate: whether the master forget gate's distances, as in the paper, or the master input gate's.

        Raises:
            RecipeError: the cell is an LSTM, or there is no such layer or gate.
            GraphError: a distance that is not a number; names the sequence.
        """
        checked_choice("gate", gate, ("forget", "input"))
        if not isinstance(self.stack, OnLSTMStack):
            raise RecipeError("a language model of LSTM layers induces no trees; train one with cell='ON-LSTM'")
        chosen = parsing_layer("the language model", layer, len(self.stack.layer_sizes))
        token, lengths, begin = after_end(self, batch)
        with in_evaluation_mode(self):
            layers = self.stack(self.embed(token), lengths).layers
        distances = distances_of_gates([layers[chosen]], lengths)[f"{gate}_distance"][:, 0, begin:]
        return self.trees_over_tokens(batch, distances, tree_from_distances)


def after_end(encoder: SequenceEncoder, batch: SequenceBatch) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return the tokens of sentences after ``<eos>``, if the vocabulary has it, and their lengths.

    Returns:
        Tokens ``[sequences, longest]``, lengths ``[sequences]``, and the place of the first word, 1 or 0.
    """
    token, lengths = encoder.tokens(batch)
    if END not in encoder.vocabulary.leaves:
        return token, lengths, 0
    first = token.new_full((len(token), 1), encoder.vocabulary.leaves.index(END))
    return torch.cat([first, token], 1), lengths + 1, 1


def _activation_losses(h: torch.Tensor, lengths: torch.Tensor) -> dict[str, SumCount]:
    """Return the sums and counts of squared outputs, and of squared differences from one token to the next."""
    lengths, width = lengths.cpu(), h.shape[2]
    has_next = to_device(within(lengths - 1, max(0, h.shape[1] - 1))[..., None], h.device)
    difference = (h[:, 1:] - h[:, :-1]) * has_next
    return {
        "activation": SumCount(h.square().sum(), float(lengths.sum() * width)),
        "temporal_activation": SumCount(difference.square().sum(), float((lengths - 1).clamp(min=0).sum() * width)),
    }
