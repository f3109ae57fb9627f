"""Readers of a document and a query: attentive, impatient, and one LSTM over both (Hermann et al. 2015)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import nn
from typing_extensions import Unpack

from treemem.checked_options import Count
from treemem.errors import RecipeError
from treemem.networks.memories.attention.equations import additive_scores, attend, dot_scores
from treemem.networks.pairs.pair_encoder import (
    BidirectionalLSTM,
    PairEncoder,
    PairOptions,
    PairOutput,
    Side,
    attend_step_by_step,
)
from treemem.networks.sequences.recurrent.lstm_stack import LSTMStack
from treemem.trees.vocabulary import Vocabulary


class _AttendingReader(PairEncoder):
    """A bidirectional LSTM over the document, another one over the query, and attention to the document."""

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        attention: Literal["additive", "bilinear"] = "additive",
        **options: Unpack[PairOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **options)
        self.attention: str = attention
        if hidden_size % 2:
            raise RecipeError(f"hidden_size={hidden_size} must be even: each direction has half of it")
        self.document = BidirectionalLSTM(self.embedding_size, hidden_size)
        self.query = BidirectionalLSTM(self.embedding_size, hidden_size)
        if attention == "additive":
            self.of_token = nn.Linear(hidden_size, hidden_size, bias=False)  # W_ym, W_dm
            self.score = nn.Linear(hidden_size, 1, bias=False)  # w_ms
        self.of_query = nn.Linear(hidden_size, hidden_size, bias=False)  # W_um, W_qm; W_s
        self.last_readout = nn.Linear(hidden_size, hidden_size, bias=False)  # W_rg
        self.last_query = nn.Linear(hidden_size, hidden_size, bias=False)  # W_ug, W_qg


class AttentiveReader(_AttendingReader):
    """The Attentive Reader (Hermann et al. 2015, section 3.2).

    A bidirectional LSTM reads the document, ``y_d(t)``, and another one the query. ``u`` is the query's last output in
    the one direction and its last output in the other. The weights of the document's tokens and the encoding are

    ``m(t) = tanh(W_ym y_d(t) + W_um u)``, ``s(t) = softmax_t(w_ms . m(t))``, ``r = sum_t s(t) y_d(t)``,
    ``g = tanh(W_rg r + W_ug u)``.

    With ``attention="bilinear"``, ``s(t) = softmax_t(y_d(t) . W_s u)`` (Chen, Bolton & Manning 2016, section 3.2.2).

    The first tree of a pair is the document, the second one the query. The paper's LSTMs have peepholes; these are
    torch's. An empty document has the readout 0.

    Args:
        hidden_size: width of ``y_d``, ``u``, ``m`` and ``g``; even, as each direction of an LSTM has half of it.
        vocabulary: the labels.
        dropout: probability that an entry of the LSTMs' inputs and of the encoding is dropped.
        attention: ``"additive"``, which has ``m(t)``, or ``"bilinear"``.
        form, embedding_size, embedding_bound, input_dropout: see :class:`treemem.nn.SequenceEncoder`.

    The trace has ``attention``, ``[pairs, 1, longest, longest]``, over the positions of ``start document delimiter
    query extract``. The row of ``extract`` has the weights ``s``; the others are 0.

    Raises:
        RecipeError: an option outside its range.

    Example:
        >>> from treemem import Tree, TreeBatch
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> pair = [Tree("Add", [Tree("x"), Tree("1")]), Tree("x")]
        >>> batch = TreeBatch.from_trees(pair, vocabulary, trees_per_example=2)
        >>> AttentiveReader(16, vocabulary)(batch).root.shape
        torch.Size([1, 1, 16])
    """

    def run(self, first: Side, second: Side) -> PairOutput:
        document, _ = self.document(first)
        query, summary = self.query(second)
        asked = self.of_query(summary)
        if self.attention == "bilinear":
            scores = dot_scores(asked, document)
        else:
            scores = additive_scores(asked, self.of_token(document), self.score.weight[0])
        readout, weights = attend(scores, document, first.present)
        encoding = torch.tanh(self.last_readout(readout) + self.last_query(summary))
        return PairOutput(encoding, document, query, weights)


class ImpatientReader(_AttendingReader, without=("attention",)):
    """The Impatient Reader (Hermann et al. 2015, section 3.3), which reads the document again at each query token.

    With ``y_d``, ``y_q`` and ``u`` as in :class:`AttentiveReader`, and for each token ``i`` of the query

    ``m(i, t) = tanh(W_dm y_d(t) + W_rm r(i-1) + W_qm y_q(i))``, ``s(i, t) = softmax_t(w_ms . m(i, t))``,
    ``r(i) = sum_t s(i, t) y_d(t) + tanh(W_rr r(i-1))``, ``g = tanh(W_rg r(|q|) + W_qg u)``.

    The paper does not say what ``r(0)`` is; here it is 0.

    Args:
        hidden_size, vocabulary, dropout, form, embedding_size, embedding_bound, input_dropout: see
            :class:`AttentiveReader`.

    The trace has ``attention``, ``[pairs, 1, longest, longest]``, over the positions of ``start document delimiter
    query extract``. The row of each query token has its weights; the others are 0.

    Raises:
        RecipeError: an option outside its range.

    Example:
        >>> from treemem import Tree, TreeBatch
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> pair = [Tree("Add", [Tree("x"), Tree("1")]), Tree("x")]
        >>> batch = TreeBatch.from_trees(pair, vocabulary, trees_per_example=2)
        >>> ImpatientReader(16, vocabulary)(batch).root.shape
        torch.Size([1, 1, 16])
    """

    def __init__(self, hidden_size: int, vocabulary: Vocabulary, **options: Unpack[PairOptions]) -> None:
        super().__init__(hidden_size, vocabulary, **options)
        self.of_readout = nn.Linear(hidden_size, hidden_size, bias=False)  # W_rm
        self.carry = nn.Linear(hidden_size, hidden_size, bias=False)  # W_rr

    def run(self, first: Side, second: Side) -> PairOutput:
        document, _ = self.document(first)
        query, summary = self.query(second)
        readout, weights = attend_step_by_step(
            document,
            self.of_token(document),
            first.present,
            self.of_query(query),
            second.present,
            of_readout=self.of_readout,
            carry=self.carry,
            vector=self.score.weight[0],
        )
        encoding = torch.tanh(self.last_readout(readout) + self.last_query(summary))
        return PairOutput(encoding, document, query, weights)


class DeepLSTMReader(PairEncoder):
    """The Deep LSTM Reader (Hermann et al. 2015, section 3.1): one LSTM reads ``query delimiter document``.

    Each layer reads the token's vector and the output of the layer below. The encoding is the concatenation of the last
    outputs of all layers. The paper's LSTMs have peepholes; these are torch's. The first tree of a pair is the
    document, the second one the query.

    Args:
        hidden_size: width of the encoding; each layer has an equal part of it.
        vocabulary: the labels.
        num_layers: number of layers.
        dropout: probability that an entry of the LSTMs' inputs and of the encoding is dropped.
        form, embedding_size, embedding_bound, input_dropout: see :class:`treemem.nn.SequenceEncoder`.

    Raises:
        RecipeError: an option outside its range.

    Example:
        >>> from treemem import Tree, TreeBatch
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> pair = [Tree("Add", [Tree("x"), Tree("1")]), Tree("x")]
        >>> batch = TreeBatch.from_trees(pair, vocabulary, trees_per_example=2)
        >>> DeepLSTMReader(16, vocabulary)(batch).root.shape
        torch.Size([1, 1, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        num_layers: Count = 2,
        **options: Unpack[PairOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **options)
        if hidden_size % num_layers:
            raise RecipeError(f"num_layers={num_layers} does not divide hidden_size={hidden_size}")
        width = hidden_size // num_layers
        self.delimiter = nn.Embedding(1, self.embedding_size)
        self.layers = nn.ModuleList(
            LSTMStack(self.embedding_size + (width if layer else 0), [width]) for layer in range(num_layers)
        )

    @property
    def trace_axes(self) -> Mapping[str, tuple[str, ...]]:
        return {}

    def run(self, first: Side, second: Side) -> PairOutput:
        mark = self.delimiter.weight.to(first.inputs.dtype)[None].expand(len(first.inputs), -1, -1)
        marked = torch.cat([mark, first.inputs], 1)
        query, document = second.inputs, marked
        of_query, of_document, last = [], [], []
        for layer in self.layers:
            read = layer(query, second.lengths)
            of_query.append(read.h)
            read = layer(document, first.lengths + 1, read.state)
            of_document.append(read.h)
            last.append(read.state[0][0])
            query = torch.cat([second.inputs, of_query[-1]], 2)
            document = torch.cat([marked, of_document[-1]], 2)
        return PairOutput(torch.cat(last, 1), torch.cat(of_document, 2)[:, 1:], torch.cat(of_query, 2))
