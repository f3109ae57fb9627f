"""Two LSTMs over a pair of texts, with attention from each word of the second to the words of the first."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional

from treemem.checked_options import checked_probability
from treemem.device_copy import to_device
from treemem.errors import GraphError
from treemem.nn.attention_encoder import pair_lengths, pair_source
from treemem.nn.lstm_stack import LSTMStack
from treemem.nn.sequence_encoder import SequenceBatch, SequenceEncoder, SequenceOutput
from treemem.nn.sequence_states import SequenceStates
from treemem.ops.attention import additive_scores, attend
from treemem.ops.sequence_lengths import checked_lengths, within
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.tokens import TokenForm
from treemem.trees.vocabulary import Vocabulary


class WordByWordAttention(SequenceEncoder):
    """A cross-encoder with word-by-word attention (Rocktäschel et al. 2016, section 2.4).

    An LSTM reads the first tree of a pair, the premise. A second one starts from its cell state and reads the other
    tree, the hypothesis. With the outputs ``Y`` of the premise and ``h_t`` at a word of the hypothesis,

    ``a_t = softmax(w . tanh(W_y Y + W_h h_t + W_r r_(t-1)))``, ``r_t = Y a_t + tanh(W_t r_(t-1))``,

    from ``r_0 = 0``. The encoding of the pair is ``tanh(W_p r_N + W_x h_N)`` after the last word. The paper reads a
    delimiter before the hypothesis; here there is none. An empty premise has the weights 0.

    Args:
        hidden_size: width of both LSTMs, and of the encoding.
        vocabulary: the labels.
        dropout: probability that an entry of the LSTMs' inputs and of the encoding is dropped.
        form, embedding_size, embedding_bound, input_dropout: see :class:`treemem.nn.sequence_encoder.SequenceEncoder`.

    The trace has ``attention``, ``[pairs, 1, longest, longest]``: the weights of each position of ``start premise
    delimiter hypothesis extract``; 0 at the marks and from the premise.

    Example:
        >>> from treemem import Tree, TreeBatch
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> pair = [Tree("Add", [Tree("x"), Tree("1")]), Tree("x")]
        >>> batch = TreeBatch.from_trees(pair, vocabulary, trees_per_example=2)
        >>> WordByWordAttention(16, vocabulary)(batch).root.shape
        torch.Size([1, 1, 16])
    """

    joint = True
    """The pair has one encoding."""

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        form: TokenForm = "function",
        embedding_size: int | None = None,
        embedding_bound: float | None = None,
        input_dropout: float = 0.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(hidden_size, vocabulary, form, embedding_size, embedding_bound, input_dropout)
        self.dropout = checked_probability("dropout", dropout)
        self.premise = LSTMStack(self.embedding_size, [hidden_size])
        self.hypothesis = LSTMStack(self.embedding_size, [hidden_size])
        self.of_premise = nn.Linear(hidden_size, hidden_size, bias=False)  # W_y
        self.of_word = nn.Linear(hidden_size, hidden_size, bias=False)  # W_h
        self.of_readout = nn.Linear(hidden_size, hidden_size, bias=False)  # W_r
        self.score = nn.Linear(hidden_size, 1, bias=False)  # w
        self.carry = nn.Linear(hidden_size, hidden_size, bias=False)  # W_t
        self.last_readout = nn.Linear(hidden_size, hidden_size, bias=False)  # W_p
        self.last_word = nn.Linear(hidden_size, hidden_size, bias=False)  # W_x

    @property
    def trace_axes(self) -> Mapping[str, tuple[str, ...]]:
        return {"attention": ("sequences", "layers", "tokens", "tokens")}

    def forward(self, batch: SequenceBatch, feat: None = None, *, trace: bool = False) -> SequenceStates:
        """Read every pair of a batch.

        Returns:
            The states: ``root`` is ``[examples, 1, hidden_size]``; ``h`` and ``lengths`` count the marks.

        Raises:
            GraphError: examples that are not pairs of trees; features.
            VocabularyError: labels of another vocabulary.
        """
        if feat is not None or not isinstance(batch, TreeBatch) or batch.trees_per_example != 2:
            raise GraphError(
                f"{type(self).__name__} reads pairs of trees, without features; make a TreeBatch with "
                "trees_per_example=2"
            )
        tokens, lengths = self.tokens(batch)
        output = self.read(self.embed(tokens), lengths, trace=trace)
        together = to_device(pair_lengths(lengths), output.encoding.device)
        return SequenceStates(output.encoding[:, None], output.outputs, together, output.trace)

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
        premise = self.premise(inputs[::2], lengths[::2])
        cell = premise.state[0][1]
        hypothesis = self.hypothesis(inputs[1::2], lengths[1::2], [(torch.zeros_like(cell), cell)])
        present = to_device(within(lengths[::2], inputs.shape[1]), inputs.device)
        going = to_device(within(lengths[1::2], inputs.shape[1]), inputs.device)
        keys, queries = self.of_premise(premise.h), self.of_word(hypothesis.h)
        readout = torch.zeros_like(cell)
        attention = []
        for step in range(int(lengths[1::2].max()) if len(lengths) else 0):
            scores = additive_scores(queries[:, step] + self.of_readout(readout), keys, self.score.weight[0])
            mean, weights = attend(scores, premise.h, present)
            readout = torch.where(going[:, step, None], mean + torch.tanh(self.carry(readout)), readout)
            if trace:
                attention.append(weights.detach() * going[:, step, None])
        encoding = torch.tanh(self.last_readout(readout) + self.last_word(hypothesis.state[0][0]))
        encoding = functional.dropout(encoding, self.dropout, self.training).to(inputs.dtype)
        outputs = torch.stack([premise.h, hypothesis.h], 1).flatten(0, 2)
        source = pair_source(lengths, inputs.shape[1])
        is_word = (source >= 0) & (source < len(outputs))
        place, kept = to_device(source.where(is_word, len(outputs)), inputs.device), to_device(is_word, inputs.device)
        bank = torch.cat([outputs, outputs.new_zeros(1, self.hidden_size)])
        together = bank.index_select(0, place.flatten()).unflatten(0, place.shape) * kept[..., None]
        traced = {"attention": _at_positions(attention, lengths, source.shape[1], inputs)} if trace else {}
        return SequenceOutput(encoding, together, traced)


def _at_positions(
    attention: list[torch.Tensor], lengths: torch.Tensor, longest: int, like: torch.Tensor
) -> torch.Tensor:
    """Return weights ``[pairs, 1, longest, longest]`` at the positions of the words, from those of each step."""
    sizes = lengths.view(-1, 2).tolist()
    found = like.new_zeros(len(sizes), 1, longest, longest)
    for pair, (premise, hypothesis) in enumerate(sizes):
        for step in range(hypothesis):
            found[pair, 0, premise + 2 + step, 1 : premise + 1] = attention[step][pair, :premise]
    return found
