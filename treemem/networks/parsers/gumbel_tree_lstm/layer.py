"""The Gumbel Tree-LSTM as a sequence encoder."""

from __future__ import annotations

from typing import Literal

import torch
from typing_extensions import Unpack

from treemem.checked_options import checked_scale
from treemem.engines.affine import Affine
from treemem.engines.choices import gumbel_noise
from treemem.engines.sequence_lengths import run_packed
from treemem.errors import RecipeError
from treemem.networks.parsers.gumbel_tree_lstm.equations import GumbelTreeWeights
from treemem.networks.parsers.gumbel_tree_lstm.run import attend_to_nodes, gumbel_trees
from treemem.networks.parsers.joining_encoder import JoiningEncoder, JoiningOptions, Vectors
from treemem.networks.parsers.pair_cell import LinearStateLeaves, PairCell, draw_lstm
from treemem.networks.recorded_options import SettableOption
from treemem.networks.sequence_encoder import SequenceOutput
from treemem.networks.sequences.recurrent.equations import naive_lstm
from treemem.trees.vocabulary import Vocabulary

GumbelLeaf = Literal["linear", "lstm", "bilstm"]


class GumbelTreeLSTM(JoiningEncoder):
    """The Gumbel Tree-LSTM (Choi et al. 2018), which chooses pair after pair and composes them by a Tree-LSTM.

    Leaves are states ``h, c``, a linear map of the token's vector or the states of an LSTM. A step composes every two
    adjacent nodes, chooses one of the compositions, and puts it in the place of its two nodes, until one is left::

        i, f_l, f_r, o = sigmoid(W [h_l; h_r] + b)
        u = tanh(W_u [h_l; h_r] + b_u)
        c = i * u + f_l * c_l + f_r * c_r,  h = o * tanh(c)
        s_j = q . h_j / sqrt(hidden_size)                  of each composition
        y = softmax((s + g) / temperature)                 g: Gumbel noise in training

    In training the composition with the largest ``s + g`` is chosen, and the gradient of the choice is that of ``y``
    (straight-through). In evaluation it is the one with the largest ``s``. The encoding is ``h`` of the root, 0 for an
    empty sequence. With ``intra_attention`` it is the mean of ``h`` of all nodes, leaves included, weighted by the
    softmax of ``h . m``, where ``m`` is their mean.

    This is what the authors' code runs, but the mean of a short sequence does not depend on the longest one of its
    batch. Where that code adds 1 to the forget gates, their biases start at 1 here. With ``leaf="bilstm"`` scores are
    divided by the root of the size of one direction, as there. ``W`` starts orthogonal, ``q`` from the normal
    distribution of deviation 0.01. What reads the tokens' vectors starts with the He initialisation.

    The outputs at the tokens are ``h`` of the leaves. The trace has ``"joined"``, ``[sequences, longest]``: the step,
    from 1, that joins the constituent that begins at a token with the constituent on its left; 0 at the first token.

    Args:
        hidden_size: width of ``h``.
        vocabulary: the labels.
        leaf: ``"linear"``; ``"lstm"``, over the tokens; or ``"bilstm"``, one in each direction, with half of
            ``hidden_size`` each.
        intra_attention: whether the encoding attends to all nodes.
        temperature: may be set at any time.
        noise: whether there is noise in training.
        form, embedding_size, embedding_bound, input_dropout: see :class:`treemem.nn.SequenceEncoder`.
        engine: ``"fused"`` (``"auto"``): on a CPU one operation in C++, or kernels on CUDA, which compose each pair
            once. Where neither can be used, ``"naive"`` runs instead: torch. Both give the same results.

    Raises:
        RecipeError: an option that is unknown or outside its range.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> states = GumbelTreeLSTM(16, vocabulary, leaf="lstm")(batch, trace=True)
        >>> states.root.shape
        torch.Size([2, 1, 16])
        >>> states.trace["joined"].shape
        torch.Size([2, 6])
    """

    temperature: SettableOption[float] = SettableOption(checked_scale)

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        leaf: GumbelLeaf = "linear",
        intra_attention: bool = False,
        temperature: float = 1.0,
        noise: bool = True,
        **joining: Unpack[JoiningOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **joining)
        self.intra_attention = intra_attention
        self.temperature = temperature
        self.noise = noise
        self.leaves: torch.nn.Module
        if leaf == "linear":
            self.leaves = LinearStateLeaves(self.embedding_size, hidden_size)
        else:
            self.leaves = _LSTMLeaves(self.embedding_size, hidden_size, leaf == "bilstm")
        self.cell = _Cell(hidden_size, hidden_size // 2 if leaf == "bilstm" else hidden_size)

    def join(self, vectors: Vectors, trace: bool) -> SequenceOutput:
        leaves = vectors.without_padding(self.leaves(vectors.values, vectors.lengths))
        trees = gumbel_trees(
            leaves,
            vectors.lengths,
            self.cell.weights(),
            temperature=self.temperature if self.training else None,
            noise=gumbel_noise(leaves) if self.training and self.noise else None,
            engine=self.engine,
            trace=trace,
        )
        hidden, inner, encoding = (states.chunk(2, -1)[0] for states in (leaves, trees.compositions, trees.roots))
        if self.intra_attention:
            encoding = attend_to_nodes(hidden, inner, vectors.lengths_there)
        return SequenceOutput(encoding, hidden, {} if trees.joined is None else {"joined": trees.joined})


class _LSTMLeaves(torch.nn.Module):
    """Leaves that are the states of an LSTM, or of one in each direction with half the size."""

    def __init__(self, input_size: int, hidden_size: int, bidirectional: bool) -> None:
        super().__init__()
        if bidirectional and hidden_size % 2:
            raise RecipeError(f"hidden_size={hidden_size} must be even: each direction has half of it")
        self._hidden_size = hidden_size
        self._suffixes = ("l0", "l0_reverse") if bidirectional else ("l0",)
        self.lstm = torch.nn.LSTM(input_size, hidden_size // len(self._suffixes), bidirectional=bidirectional)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        draw_lstm(self.lstm)

    def forward(self, inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return ``[h; c]``, ``[sequences, longest, 2 * hidden_size]``."""

        def run(packed: torch.Tensor, sizes: list[int], first: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
            read = [naive_lstm(packed, sizes, self.lstm, suffix) for suffix in self._suffixes]
            hidden, cells, _ = zip(*read, strict=True)
            return (torch.cat([*hidden, *cells], 1),)

        return run_packed(run, inputs, lengths, [inputs.new_zeros(len(inputs), 2 * self._hidden_size)])[0]


class _Cell(PairCell):
    def __init__(self, hidden_size: int, scaled_size: int) -> None:
        super().__init__(hidden_size)
        self._scale = scaled_size**0.5
        self.query = torch.nn.Parameter(torch.empty(hidden_size))
        torch.nn.init.normal_(self.query, std=0.01)

    def reset_parameters(self) -> None:
        """Draw new weights."""
        super().reset_parameters()
        torch.nn.init.normal_(self.query, std=0.01)

    def weights(self) -> GumbelTreeWeights:
        """The parameters as the operation takes them."""
        return GumbelTreeWeights(Affine.of(self.map), self.query, self._scale)
