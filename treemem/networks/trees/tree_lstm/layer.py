"""N-ary Tree-LSTM."""

from __future__ import annotations

import torch
from typing_extensions import Unpack

from treemem.engines.cell import State
from treemem.engines.downward import Direction
from treemem.networks.trees.downward_cells import DownwardTreeLSTMCell
from treemem.networks.trees.one_product_cell import OneProductCell
from treemem.networks.trees.stacked_linear import StackedLinear
from treemem.networks.trees.tree_layer import ArityOptions, TreeLayer
from treemem.networks.trees.tree_lstm.equations import tree_lstm_gates, tree_lstm_step
from treemem.trees.vocabulary import Vocabulary


class TreeLSTMCell(OneProductCell):
    """The cell of :class:`TreeLSTM`; arguments as there, ``sets`` saying which kinds share parameters."""

    def outputs(self, arity: int) -> int:
        """A block for each child and three more."""
        return (arity + 3) * self.hidden_size

    def new_map(self, arity: int) -> StackedLinear:
        """The map; each of several children has its own fan-in."""
        inputs = [self.hidden_size] * arity + [self.node_input_size or 0]
        return StackedLinear(self.sets.count(arity), inputs, self.outputs(arity), separate=arity > 1)

    @property
    def child_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of each child ``c``."""
        return {"c": (self.hidden_size,)}

    def states(self, preactivation: torch.Tensor, children: State, dropout: float) -> State:
        """Gates and cell."""
        hidden, cell = tree_lstm_step(preactivation, children["c"], dropout)
        return {"h": hidden, "c": cell}

    def named_gates(self, preactivation: torch.Tensor, arity: int) -> State:
        """See ``tree_lstm_gates``."""
        return tree_lstm_gates(preactivation, arity, self.hidden_size)


class TreeLSTM(TreeLayer):
    """N-ary Tree-LSTM: ordered children, with a forget gate for each (Tai et al. 2015, eq. 9-14).

    ``i, f_k, o = sigmoid(U x + b)``, ``u = tanh(U_u x + b_u)``, ``c = i * u + sum_k f_k * c_k``, ``h = o * tanh(c)``,
    where ``x`` is the concatenation of the children's ``h``, followed by the features. Each forget gate reads all
    children and has its own bias. Gates and initial weights are those of the code published with Arabshahi et al. 2020:
    for one child, weights start as those of ``nn.Linear``; for more, they are uniform in plus and minus
    ``1 / sqrt(hidden_size)`` and biases are 0. Dropout is on ``u`` of inner nodes.

    The trace has the gates ``forget``, ``[nodes, children, hidden_size]``, and ``input``, ``output`` and ``update``
    (before its dropout), ``[nodes, hidden_size]``.

    Args:
        hidden_size: width of ``h`` and ``c``.
        vocabulary: the labels and kinds. Without ``input_size`` and ``embedding_size``, leaves are embeddings of their
            labels, with ``c = 0``.
        input_size: width of the features; if given, a leaf computes the cell from its features alone, ``c = i * u``.
        embedding_size: width of the vectors of labels, which are read as features of leaves are.
        dropout: dropout probability of ``u`` at inner nodes.
        direction: see :class:`TreeNetwork`. The downward step is an LSTM step from the parent:
            ``i, f, o = sigmoid(W x + U_p h_parent + b)``, ``u = tanh(W_u x + U_pu h_parent + b_u)``,
            ``c = i * u + f * c_parent`` and ``h = o * tanh(c)``, where ``x`` is the node's upward ``h`` and ``p`` its
            position among its siblings. A root has ``h_parent = c_parent = 0``. The code of Teng and Zhang 2017 has
            this step with peepholes, and with the vector of a head word as ``x``.
        node_features, arities, shared_kinds, leaf, number_activation, max_arity, engine: see
            :class:`TreeLayer`.

    Raises:
        RecipeError: neither vocabulary nor ``input_size``, or an unknown option.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2), ("sin", 1)])
        >>> layer = TreeLSTM(16, vocabulary)
        >>> batch = TreeBatch.from_trees([Tree("sin", [Tree("x")]), Tree("x")], vocabulary)
        >>> states = layer(batch)
        >>> states.root.shape, states.c.shape
        (torch.Size([2, 1, 16]), torch.Size([3, 16]))
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary | None = None,
        *,
        direction: Direction = "up",
        **options: Unpack[ArityOptions],
    ) -> None:
        super().__init__(TreeLSTMCell, hidden_size, vocabulary, DownwardTreeLSTMCell, direction, **options)
