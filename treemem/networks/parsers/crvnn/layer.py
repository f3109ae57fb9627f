"""The continuous recursive network as a sequence encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import torch
from torch.nn import functional
from typing_extensions import Unpack

from treemem.checked_options import (
    Count,
    Natural,
    Probability,
    Range,
    checked_probability,
)
from treemem.data.sum_count import SumCount
from treemem.engines.affine import EPSILON, Affine, layer_norm, linear
from treemem.errors import RecipeError
from treemem.networks.gated_cell.equations import CellActivation
from treemem.networks.gated_cell.layer import GatedCell
from treemem.networks.parsers.crvnn.equations import CRvNNWeights, NeighborEquation, TransitionFeatures
from treemem.networks.parsers.crvnn.run import continuous_recursion
from treemem.networks.parsers.joining_encoder import JoiningEncoder, JoiningOptions, Vectors
from treemem.networks.recorded_options import SettableOption
from treemem.networks.sequence_encoder import SequenceOutput
from treemem.trees.vocabulary import Vocabulary


class CRvNN(JoiningEncoder):
    """The continuous recursive network (Ray Chowdhury and Caragea 2021), whose tokens give way to each other softly.

    Each position has a state ``s`` and an existence ``e``, at first ``LN(W v + b)`` and 1. Positions are the tokens
    between START and END, which have vectors ``v`` of their own. ``R_ij`` says how far ``j`` is the next position on
    the right of ``i``: it is ``e_j`` while their sum from ``i`` on is at most 1, and then the rest to 1. ``L_ij`` is
    the same on the left. A step is::

        z_i = w . gelu(W_c [(L L s)_i; (L s)_i; s_i; (R s)_i; (R R s)_i; f_i] + b_c) + b    with window=5
        f_i = t_i f_yes + (1 - t_i) f_no                    t of the step before, at first 0
        a_i = exp(z_i - m)                                  m: the largest z of the sequence, at least 0
        p_i = a_i / (a_i + exp(-m) + (L a)_i + (R a)_i + 4e-8)
        t_i = (L p)_i
        s_i = t_i cell((L s)_i, s_i) + (1 - t_i) s_i
        e_i = e_i (1 - p_i)
        cell(l, r) = LN(sigmoid(a) * l + sigmoid(b) * r + sigmoid(c) * u)
        a, b, c, u = W_2 drop(gelu(W_1 [l; r] + b_1)) + b_2

    where ``a`` and ``p`` are 0 at START, END and the last token. So a token gives way to its right neighbour, which
    takes the composition. The steps end when at most one token has an existence above ``threshold``, and after as many
    steps as there are tokens. The encoding is the state of the last token, 0 for an empty sequence. Outputs at the
    tokens are the states at the end.

    The auxiliary loss ``"halt"`` is ``-log(e_n / sum(e))`` at the end for the last token ``n``, and 0 where at some
    step the last token was the only one left. Its weight is 0.01, as in the authors' code, unless the training has
    another one in ``auxiliary_losses``.

    This is what the authors' code runs on one sequence. In a batch their ``m`` is the largest of the batch, and a
    sequence shorter than the longest can take one step more than it has tokens; here a sequence is read as if alone.
    With ``transition_features=0, separate_norms=True, threshold=0.1`` it is the CRvNN of the authors' code of 2023.

    With ``equation=6``, as the paper's equation 6 and the class ``CRvNN2`` of the authors' code have it, ``R_ij`` is
    ``e_j`` times the product of ``1 - e_m`` over the positions ``m`` between. ``f`` is as wide as a state: the score
    reads windows of ``s + f``, and the left side of the cell is ``(L (s + f))_i``. The constant is 1e-9 in place of
    1e-8, ``"halt"`` has no exception, and the maps start as torch has it.

    Weights start Glorot uniform, biases at 0, START, END, ``f_yes`` and ``f_no`` from the standard normal distribution.

    The trace has ``"joined"``, ``[sequences, longest]``: the expected step, from 1, at which the token before gives
    way, the sum of its ``e`` over the steps; 0 at the first token, NaN if the encoding is not finite. The induced tree
    splits at the largest of them first, which is this library's definition.

    Args:
        hidden_size: width of states.
        vocabulary: the labels.
        window: how many positions the score reads, odd, at least 3.
        transition_features: width of ``f``; 0: the score does not read it. With ``equation=6`` it is 0 or
            ``hidden_size``. None: 64, or ``hidden_size``.
        equation: of the paper, 5 or 6, by which neighbours are computed.
        modulated: whether ``p`` has ``(L a)_i`` and ``(R a)_i``; without them there is ``2e-8`` in place of ``4e-8``.
        threshold: see above.
        separate_norms: whether leaves have a layer norm of their own, not that of the cell.
        cell_size: width of the cell's hidden layer; None: ``4 * hidden_size``.
        activation: of the cell, ``"gelu"`` or ``"relu"``.
        dropout: probability that an entry of the cell's hidden layer is dropped in training.
        form, embedding_size, embedding_bound, input_dropout: see :class:`treemem.nn.SequenceEncoder`.
        engine: ``"fused"`` (``"auto"``): on a CPU one operation in C++, compiled at first use. Elsewhere, and
            without a C++ compiler, ``"naive"`` runs instead: torch. Both give the same results, but other dropout. On
            CUDA ``"fused"`` takes kernels if they are asked for, see :func:`treemem.ops.cuda_kernels`.

    Raises:
        RecipeError: an option that is unknown or outside its range.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2)])
        >>> batch = TreeBatch.from_trees([Tree("Add", [Tree("x"), Tree("1")]), Tree("x")], vocabulary)
        >>> states = CRvNN(16, vocabulary)(batch)
        >>> states.root.shape
        torch.Size([2, 1, 16])
        >>> sorted(states.auxiliary_losses)
        ['halt']
    """

    threshold: SettableOption[float] = SettableOption(checked_probability)

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary,
        *,
        window: Annotated[int, Range(3)] = 5,
        transition_features: Natural | None = None,
        equation: NeighborEquation = 5,
        modulated: bool = True,
        threshold: float = 0.01,
        separate_norms: bool = False,
        cell_size: Count | None = None,
        activation: CellActivation = "gelu",
        dropout: Probability = 0.0,
        **joining: Unpack[JoiningOptions],
    ) -> None:
        super().__init__(hidden_size, vocabulary, **joining)
        if window % 2 == 0:
            raise RecipeError(f"window={window} must be odd: as many neighbours on the left as on the right")
        self.equation: NeighborEquation = equation
        if transition_features is None:
            transition_features = 64 if equation == 5 else hidden_size
        if equation == 6 and transition_features not in (0, hidden_size):
            raise RecipeError(
                f"transition_features={transition_features}: equation 6 adds them to states of width {hidden_size}; "
                f"set 0 or {hidden_size}"
            )
        self.window = window
        self.modulated = modulated
        self.threshold = threshold
        self.activation: CellActivation = activation
        self.dropout = dropout
        self.ends = _Vectors(2, self.embedding_size)
        self.leaf_map = torch.nn.Linear(self.embedding_size, hidden_size)
        self.leaf_norm = torch.nn.LayerNorm(hidden_size, eps=EPSILON) if separate_norms else None
        self.cell = GatedCell(hidden_size, cell_size)
        read = window * hidden_size + (transition_features if equation == 5 else 0)
        self.window_map = torch.nn.Linear(read, hidden_size)
        self.score_map = torch.nn.Linear(hidden_size, 1)
        self.features = _Vectors(2, transition_features) if transition_features else None
        self._reset_maps()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        super().reset_parameters()
        self._reset_maps()

    def _reset_maps(self) -> None:
        if self.equation == 6:  # they start as torch has it
            return
        for module in self.modules():
            if isinstance(module, torch.nn.Linear):
                torch.nn.init.xavier_uniform_(module.weight)
                torch.nn.init.zeros_(module.bias)

    @property
    def auxiliary_loss_weights(self) -> Mapping[str, float]:
        return {"halt": 0.01}

    def weights(self) -> CRvNNWeights:
        """The weights above the leaves, and the options, as the operation takes them."""
        return CRvNNWeights(
            self.cell.weights(),
            Affine.of(self.window_map),
            Affine.of(self.score_map),
            None if self.features is None else TransitionFeatures(*self.features.vectors),
            equation=self.equation,
            num_neighbors=self.window // 2,
            modulated=self.modulated,
            activation=self.activation,
            threshold=self.threshold,
            dropout=self.dropout if self.training else 0.0,
        )

    def leaves(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the first states of vectors ``[..., embedding_size]``."""
        norm = self.cell.norm if self.leaf_norm is None else self.leaf_norm
        return layer_norm(linear(inputs, Affine.of(self.leaf_map)), Affine.of(norm))

    def join(self, vectors: Vectors, trace: bool) -> SequenceOutput:
        ends = self.leaves(self.ends.vectors)
        leaves = self.leaves(vectors.values)
        recursion = continuous_recursion(leaves, ends, vectors.lengths, self.weights(), engine=self.engine)
        halt = SumCount(recursion.penalty.sum(), len(vectors.lengths))
        if not trace:
            return SequenceOutput(recursion.encoding, recursion.states, {}, {"halt": halt})
        joined = functional.pad(recursion.existence, (1, 0))[:, : leaves.shape[1]].masked_fill(~vectors.present, 0)
        joined = joined.masked_fill(~recursion.encoding.detach().isfinite().all(1, keepdim=True), torch.nan)
        return SequenceOutput(recursion.encoding, recursion.states, {"joined": joined}, {"halt": halt})


class _Vectors(torch.nn.Module):
    """Vectors from the standard normal distribution, ``[count, size]``."""

    def __init__(self, count: int, size: int) -> None:
        super().__init__()
        self.vectors = torch.nn.Parameter(torch.empty(count, size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new vectors."""
        torch.nn.init.normal_(self.vectors)
