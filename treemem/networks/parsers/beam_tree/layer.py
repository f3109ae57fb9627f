"""Networks that search for the tree of a sequence with a beam."""

from __future__ import annotations

from typing import Literal

import torch
from typing_extensions import Unpack

from treemem.checked_options import (
    Count,
    Probability,
    checked_rows,
)
from treemem.engines.affine import Affine
from treemem.engines.choices import gumbel_noise
from treemem.errors import RecipeError
from treemem.networks.gated_cell.layer import GatedCell, Leaves
from treemem.networks.parsers.beam_tree.equations import BeamTreeWeights, ChildrenScore
from treemem.networks.parsers.beam_tree.run import beam_trees
from treemem.networks.parsers.joining_encoder import JoiningEncoder, JoiningOptions, Vectors
from treemem.networks.recorded_options import SettableOption
from treemem.networks.resettable import Resettable
from treemem.networks.sequence_encoder import SequenceOutput
from treemem.trees.vocabulary import Vocabulary

TopK = Literal["plain", "onesoft"]


class SearchOptions(JoiningOptions, total=False):
    """The options of :class:`BeamTreeEncoder` without the number of beams."""

    noise: bool
    dropout: float


class BeamOptions(SearchOptions, total=False):
    """The options of :class:`BeamTreeEncoder`."""

    beam_size: int


class BeamTreeEncoder(JoiningEncoder):
    """What the networks with a beam have in common; subclasses have a ``score`` of pairs.

    Args: see :class:`EfficientBeamTreeGRC`.
    """

    soft = False
    beam_size: SettableOption[int] = SettableOption(checked_rows)

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        beam_size: int = 5,
        noise: bool = True,
        dropout: Probability = 0.0,
        **joining: Unpack[JoiningOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **joining)
        self.beam_size = beam_size
        self.noise = noise
        self.dropout = dropout
        self.leaves = Leaves(self.embedding_size, hidden_size)
        self.cell = GatedCell(hidden_size)

    def weights(self) -> BeamTreeWeights:
        """The weights above the leaves, as the operation takes them."""
        raise NotImplementedError

    def join(self, vectors: Vectors, trace: bool) -> SequenceOutput:
        leaves = vectors.without_padding(self.leaves(vectors.values))
        trees = beam_trees(
            leaves,
            vectors.lengths,
            self.weights(),
            self.beam_size,
            soft=self.training and self.soft,
            noise=gumbel_noise(leaves) if self.training and self.noise else None,
            dropout=self.dropout if self.training else 0.0,
            engine=self.engine,
            trace=trace,
        )
        return SequenceOutput(trees.encoding, leaves, {} if trees.joined is None else {"joined": trees.joined})


class EfficientBeamTreeGRC(BeamTreeEncoder):
    """EBT-GRC (Ray Chowdhury and Caragea 2023): a beam search for a tree, which scores pairs by their two nodes.

    Leaves are ``LN(W e + b)``, where ``e`` is the token's vector. A beam is a sequence of nodes. A step replaces two
    adjacent nodes of each beam by one::

        s_j = w . gelu(W_s [l_j; r_j] + b_s) + b           of the first scored_size entries of the two nodes
        log p = log_softmax(s)                             over the pairs of a beam
        cell(l, r) = LN(sigmoid(a) * l + sigmoid(b) * r + sigmoid(c) * u)
        a, b, c, u = W_2 drop(gelu(W_1 [l; r] + b_1)) + b_2

    Each beam proposes its ``beam_size`` most likely pairs. The new beams are the ``beam_size`` proposals with the
    largest sums of log probabilities. The last step has only one pair, so it makes no choice. The encoding is the mean
    of the roots, weighted by the softmax of these sums; 0 for an empty sequence. In training, Gumbel noise is added
    before both choices; the sums themselves stay without noise. Leaves and cell have a layer norm each. Maps start as
    those of ``nn.Linear``.

    The equations are those of the authors' code. But results do not depend on the batch, and of equally likely pairs
    the first is chosen. The outputs at the tokens are the leaves. The trace has ``"joined"``, ``[sequences, longest]``,
    of the most likely tree: for each token the step, counted from 1, that joins the constituent beginning at this token
    with the constituent before it; 0 at the first token.

    Args:
        hidden_size: width of nodes and encoding.
        vocabulary: the labels.
        beam_size: number of beams. You may set it at any time. The authors use 5.
        scored_size: number of entries of each node that the score reads, and width of its hidden layer. None: 64, as
            the authors, or ``hidden_size`` if that is smaller.
        noise: whether to add Gumbel noise in training.
        form, embedding_size, embedding_bound, input_dropout: see :class:`treemem.nn.SequenceEncoder`.
        dropout: dropout probability of the cell's hidden layer.
        engine: ``"fused"`` (``"auto"``) searches without gradients, in kernels where they can be used; then it computes
            gradients, on a CPU only for the nodes that the last beams are built from, in C++. ``"naive"``: sequence by
            sequence and beam by beam. Both give the same results, but other noise and dropout; only ``"naive"`` has
            second derivatives.

    Raises:
        RecipeError: an option that is unknown or outside its range.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> states = EfficientBeamTreeGRC(16, vocabulary, beam_size=3)(batch, trace=True)
        >>> states.root.shape
        torch.Size([2, 1, 16])
        >>> states.trace["joined"].shape
        torch.Size([2, 6])
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        scored_size: Count | None = None,
        **beams: Unpack[BeamOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **beams)
        size = min(64, hidden_size) if scored_size is None else scored_size
        if size > hidden_size:
            raise RecipeError(f"scored_size={size} must be at most hidden_size={hidden_size}")
        self.score = _ChildrenScore(size)

    def weights(self) -> BeamTreeWeights:
        """The weights above the leaves, as the operation takes them."""
        return BeamTreeWeights(
            self.cell.weights(), ChildrenScore(Affine.of(self.score.hidden_map), Affine.of(self.score.score_map))
        )


class BeamTreeGRC(BeamTreeEncoder):
    """BT-GRC (Ray Chowdhury and Caragea 2023): a beam search for a tree, which scores compositions.

    As :class:`EfficientBeamTreeGRC`, with another score: ``s_j = v . cell(l_j, r_j) + b``.

    With ``top_k="onesoft"`` the last beam is soft in training, so that it has the gradients that a hard choice lacks.
    There ``"joined"`` comes from a search of its own, without a soft beam and noise.
    The first ``beam_size - 1`` proposals are kept. The last beam is the mean of all others, weighted by the softmax of
    their sums: the means of the sums, nodes, compositions and choices. With the mean choice ``c`` and its cumulative
    sum ``C``, its nodes are ``c_j * composition_j + (1 - C_j) * node_j + (C_j - c_j) * node_(j+1)``. Only the choice of
    pairs has noise. Evaluation has hard beams.

    The noise is that of the code of 2023; the authors' later code has no noise. Here a step composes the new pairs of
    each beam; the other pairs keep their composition, and with it the dropout mask. The authors' code composes all
    pairs of all beams again in each step.

    Args:
        top_k: ``"plain"`` or ``"onesoft"``.
        hidden_size, vocabulary, beam_size, noise: see :class:`EfficientBeamTreeGRC`.
        form, embedding_size, embedding_bound, dropout, input_dropout, engine: see :class:`EfficientBeamTreeGRC`.

    Raises:
        RecipeError: an option that is unknown or outside its range.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> BeamTreeGRC(16, vocabulary, beam_size=3, top_k="onesoft")(batch).root.shape
        torch.Size([2, 1, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        top_k: TopK = "plain",
        **beams: Unpack[BeamOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **beams)
        self.soft = top_k == "onesoft"
        self.score_map = torch.nn.Linear(hidden_size, 1)

    def weights(self) -> BeamTreeWeights:
        """The weights above the leaves, as the operation takes them."""
        return BeamTreeWeights(self.cell.weights(), Affine.of(self.score_map))


class _ChildrenScore(Resettable):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.hidden_map = torch.nn.Linear(2 * size, size)
        self.score_map = torch.nn.Linear(size, 1)
