"""Two LSTMs over a pair of texts, with attention from each word of the second to the words of the first."""

from __future__ import annotations

import torch
from torch import nn
from typing_extensions import Unpack

from treemem.networks.pairs.pair_encoder import PairEncoder, PairOptions, PairOutput, Side, attend_step_by_step
from treemem.networks.sequences.recurrent.lstm_stack import LSTMStack
from treemem.trees.vocabulary import Vocabulary


class WordByWordAttention(PairEncoder):
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
        form, embedding_size, embedding_bound, input_dropout: see :class:`treemem.nn.SequenceEncoder`.

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

    def __init__(self, hidden_size: int, vocabulary: Vocabulary, **options: Unpack[PairOptions]) -> None:
        super().__init__(hidden_size, vocabulary, **options)
        self.premise = LSTMStack(self.embedding_size, [hidden_size])
        self.hypothesis = LSTMStack(self.embedding_size, [hidden_size])
        self.of_premise = nn.Linear(hidden_size, hidden_size, bias=False)  # W_y
        self.of_word = nn.Linear(hidden_size, hidden_size, bias=False)  # W_h
        self.of_readout = nn.Linear(hidden_size, hidden_size, bias=False)  # W_r
        self.score = nn.Linear(hidden_size, 1, bias=False)  # w
        self.carry = nn.Linear(hidden_size, hidden_size, bias=False)  # W_t
        self.last_readout = nn.Linear(hidden_size, hidden_size, bias=False)  # W_p
        self.last_word = nn.Linear(hidden_size, hidden_size, bias=False)  # W_x

    def run(self, first: Side, second: Side) -> PairOutput:
        premise = self.premise(*first)
        cell = premise.state[0][1]
        hypothesis = self.hypothesis(*second, [(torch.zeros_like(cell), cell)])
        readout, attention = attend_step_by_step(
            premise.h,
            self.of_premise(premise.h),
            first.present,
            self.of_word(hypothesis.h),
            second.present,
            of_readout=self.of_readout,
            carry=self.carry,
            vector=self.score.weight[0],
        )
        encoding = torch.tanh(self.last_readout(readout) + self.last_word(hypothesis.state[0][0]))
        return PairOutput(encoding, premise.h, hypothesis.h, attention)
