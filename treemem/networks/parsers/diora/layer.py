"""DIORA as a sequence encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch.nn import functional
from typing_extensions import Unpack

from treemem.checked_options import Natural
from treemem.data.sum_count import SumCount
from treemem.data.token_batch import TokenBatch
from treemem.device_copy import to_device
from treemem.engines.affine import Affine
from treemem.engines.sequence_lengths import within
from treemem.networks.parsers.diora.equations import (
    DIORAWeights,
    MLPWeights,
    PassWeights,
    TreeLSTMWeights,
    best_parses,
    unit,
)
from treemem.networks.parsers.diora.run import inside_outside
from treemem.networks.parsers.joining_encoder import JoiningEncoder, JoiningOptions, Vectors
from treemem.networks.sequence_encoder import SequenceOutput
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.vocabulary import Vocabulary

Composition = Literal["tree_lstm", "mlp"]


class DIORA(JoiningEncoder):
    """Deep inside-outside recursive autoencoder (Drozdov et al. 2019): a mean over all binary trees of a sequence.

    The inside pass gives each span ``(i, j)`` a vector ``h``, a cell ``c`` and a score ``s``, from its two parts and
    over all its splits ``k``; the scores of tokens are 0::

        s_k = h(i, k) . S h(k, j) + s(i, k) + s(k, j)        p = softmax(s_k)
        h(i, j) = unit(sum_k p_k h_k)    h_k, c_k = f((i, k), (k, j))
        c(i, j) = unit(sum_k p_k c_k)    s(i, j) = sum_k p_k s_k

    where ``unit(x) = x / max(|x|, 1e-8)``. The outside pass gives each span a vector of what is around it, in the same
    way: the mean is over its parents, ``f`` takes the inside of the sibling and the outside of the parent, and ``S``
    and ``f`` are other ones. The outside of the whole sequence is learned, and normalised.

    With ``"tree_lstm"`` ``f`` is a Tree-LSTM over two children, whose forget gates have 1 added to their bias in the
    inside pass. With ``"mlp"`` it is ``relu(W_1 relu(W_0 [l; r] + b_0) + b_1)``, and ``c`` is 0. A token with the
    vector ``e`` has the state of a Tree-LSTM without children, or ``tanh(V x + b_0)``, of ``x = M e``, with the biases
    of ``f`` of the inside pass; then ``unit``.

    The auxiliary loss ``"reconstruction"`` of training says how well the outside vector of a token tells which token it
    is. Its weight is 1, unless the training has another one in ``auxiliary_losses``. A token ``v`` has the score
    ``h . M' e_v``. By default the loss is the cross entropy over all tokens of the vocabulary. With ``negatives`` it is
    ``sum_v max(0, 1 - score + score_v) / (negatives + 1)`` over so many tokens ``v``, the same ones for a batch. The
    authors draw these by frequency; here all tokens are equally likely.

    The encoding is the inside ``h`` of the sequence, 0 for an empty one. Outputs at the tokens are their outside ``h``,
    or inside ``h`` without an outside pass. The induced tree has the largest sum of ``s_k`` over its splits (CKY).

    All weights start from the standard normal distribution, as the authors have it. Their embeddings are given and
    fixed. Time for a step grows with the cube of the length, memory with its square, and with a trace with its cube.

    The trace has ``"joined"``, ``[sequences, longest]``: how many tokens the constituent of the induced tree has that
    is split before the token; 0 at the first token, NaN if the encoding is not finite.

    Args:
        hidden_size: width of ``h`` and ``c``.
        vocabulary: the labels.
        composition: ``f``.
        outside: whether there is an outside pass, and so a loss of reconstruction.
        negatives: see above; 0: all tokens.
        form, embedding_size, embedding_bound, input_dropout: see :class:`treemem.nn.SequenceEncoder`.
        engine: ``"fused"`` (``"auto"``) computes all spans of a size of all sequences at once. ``"naive"``: sequence by
            sequence, span by span. Both give the same results.

    Raises:
        RecipeError: an option that is unknown or outside its range.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> states = DIORA(16, vocabulary)(batch)
        >>> states.root.shape
        torch.Size([2, 1, 16])
        >>> sorted(states.auxiliary_losses)
        ['reconstruction']
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        composition: Composition = "tree_lstm",
        outside: bool = True,
        negatives: Natural = 0,
        **joining: Unpack[JoiningOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **joining)
        self.composition: Composition = composition
        self.negatives = negatives
        self.input_map = torch.nn.Linear(self.embedding_size, hidden_size, bias=False)
        leaf_size = hidden_size if composition == "mlp" else 3 * hidden_size
        self.leaf_map = torch.nn.Linear(hidden_size, leaf_size, bias=False)
        self.inside = _Pass(hidden_size, composition, 1.0)
        self.outside = self.root = self.token_map = None
        if outside:
            self.outside = _Pass(hidden_size, composition, 0.0)
            self.root = torch.nn.Parameter(torch.empty(1 if composition == "mlp" else 2, hidden_size))  # h, c
            self.token_map = torch.nn.Linear(self.embedding_size, hidden_size, bias=False)
        self._draw()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        self.reset_embedding()
        self._draw()

    def _draw(self) -> None:
        for name, parameter in self.named_parameters():
            if not name.startswith("embedding."):
                torch.nn.init.normal_(parameter)

    @property
    def auxiliary_loss_weights(self) -> Mapping[str, float]:
        return {"reconstruction": 1.0} if self.reconstructs else {}

    @property
    def reconstructs(self) -> bool:
        """Whether training has a loss of reconstruction: there is an outside pass, and tokens are read."""
        return self.outside is not None and self.feature_size is None

    def weights(self) -> DIORAWeights:
        """The weights above the leaves, as the operation takes them."""
        if self.outside is None or self.root is None:
            return DIORAWeights(self.inside.weights(), None, self.inside.score.new_zeros(2, self.hidden_size))
        root = functional.pad(self.root, (0, 0, 0, 2 - len(self.root)))
        return DIORAWeights(self.inside.weights(), self.outside.weights(), root)

    def leaves(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return ``h`` and ``c`` of vectors ``[..., embedding_size]``, ``[2, ..., hidden_size]``."""
        mapped = self.leaf_map(self.input_map(inputs)) + self.inside.hidden.bias[: self.leaf_map.out_features]
        if self.composition == "mlp":
            h = mapped.tanh()
            return unit(torch.stack([h, torch.zeros_like(h)]))
        u, i, o = mapped.chunk(3, -1)
        c = i.sigmoid() * u.tanh()
        return unit(torch.stack([o.sigmoid() * c.tanh(), c]))

    def further_inputs(self, batch: TreeBatch | TokenBatch, items: torch.Tensor) -> dict[str, Any]:
        return {"tokens": items} if self.training and self.reconstructs else {}

    def join(self, vectors: Vectors, trace: bool, *, tokens: torch.Tensor | None = None) -> SequenceOutput:
        """Run both passes. ``tokens`` are which ones they are, for the loss of reconstruction."""
        leaves, lengths = self.leaves(vectors.values), vectors.lengths
        charts = inside_outside(leaves, lengths, self.weights(), engine=self.engine, splits=trace)
        sequences, longest = vectors.present.shape
        from_first = charts.inside.h[0] if longest else leaves.new_zeros(1, sequences, self.hidden_size)
        encoding = from_first[vectors.lengths_there, torch.arange(sequences, device=leaves.device)]
        chart = charts.inside if charts.outside is None else charts.outside
        outputs = vectors.without_padding(chart.h.diagonal(1).movedim(2, 1))
        losses = {}
        if tokens is not None and self.token_map is not None:
            place = within(lengths, longest).flatten().nonzero().squeeze(1)  # on the CPU, so that a GPU need not wait
            place = to_device(place, leaves.device)
            token_ids = to_device(tokens, leaves.device).flatten().index_select(0, place)
            losses["reconstruction"] = self._reconstruction(outputs.flatten(0, 1).index_select(0, place), token_ids)
        if not trace:
            return SequenceOutput(encoding, outputs, {}, losses)
        joined = to_device(best_parses(to_device(charts.scores, "cpu"), lengths), leaves.device).to(encoding.dtype)
        joined = joined.masked_fill(~encoding.detach().isfinite().all(1, keepdim=True), torch.nan)
        return SequenceOutput(encoding, outputs, {"joined": joined}, losses)

    def _reconstruction(self, outside: torch.Tensor, tokens: torch.Tensor) -> SumCount:
        """Return the loss of outside vectors ``[tokens, hidden_size]`` of tokens, which are numbers."""
        assert self.token_map is not None
        projected, known = outside @ self.token_map.weight, len(self.embedding.weight)
        if not self.negatives:
            vectors = self.embedding(torch.arange(known, device=tokens.device)).to(projected.dtype)
            loss = functional.cross_entropy(projected @ vectors.T, tokens, reduction="sum")
            return SumCount(loss, len(tokens))
        drawn = torch.randint(known, (self.negatives,), device=tokens.device)
        correct, others = (self.embedding(numbers).to(projected.dtype) for numbers in (tokens, drawn))
        return SumCount(margin_loss(projected, correct, others), len(tokens))


def margin_loss(projected: torch.Tensor, correct: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return the sum of ``max(0, 1 - score + score_v) / (negatives + 1)`` over tokens and negatives ``v``.

    Args:
        projected: what the scores of tokens are products with, ``[tokens, size]``.
        correct: vectors of the tokens, ``[tokens, size]``.
        others: vectors of the negatives, ``[negatives, size]``.
    """
    score = (projected * correct).sum(1, keepdim=True)
    return (1 - score + projected @ others.T).relu().sum() / (len(others) + 1)


class _Pass(torch.nn.Module):
    """The weights of a pass."""

    def __init__(self, size: int, composition: Composition, forget_bias: float) -> None:
        super().__init__()
        self.forget_bias = forget_bias
        self.score = torch.nn.Parameter(torch.empty(size, size))
        self.hidden = torch.nn.Linear(2 * size, size if composition == "mlp" else 5 * size)
        self.output = torch.nn.Linear(size, size) if composition == "mlp" else None

    def weights(self) -> PassWeights:
        """The parameters as the operation takes them."""
        hidden = Affine.of(self.hidden)
        if self.output is None:
            return PassWeights(TreeLSTMWeights(hidden, self.forget_bias), self.score)
        return PassWeights(MLPWeights(hidden, Affine.of(self.output)), self.score)
