"""Tree-RNN."""

from __future__ import annotations

from functools import partial

import torch
from typing_extensions import Unpack

from treemem.engines.activation import ActivationName, checked_activation
from treemem.engines.cell import State
from treemem.engines.downward import Direction
from treemem.networks.trees.downward_cells import DownwardTreeRNNCell
from treemem.networks.trees.one_product_cell import OneProductCell
from treemem.networks.trees.parameter_sets import SetsByArity
from treemem.networks.trees.split_tree_cell import CellOptions
from treemem.networks.trees.tree_layer import ArityOptions, TreeLayer
from treemem.networks.trees.tree_rnn.equations import tree_rnn_step
from treemem.trees.vocabulary import Vocabulary


class TreeRNNCell(OneProductCell):
    """The cell of :class:`TreeRNN`; arguments as there, ``sets`` saying which kinds share parameters."""

    def __init__(self, sets: SetsByArity, options: CellOptions, activation_name: ActivationName) -> None:
        super().__init__(sets, options)
        self.activation_name = checked_activation(activation_name)

    def outputs(self, arity: int) -> int:
        """One block."""
        return self.hidden_size

    def states(self, preactivation: torch.Tensor, children: State, dropout: float) -> State:
        """The activation."""
        return {"h": tree_rnn_step(preactivation, self.activation_name, dropout)}


class TreeRNN(TreeLayer):
    """Tree-RNN: ``h = f(W x + b)``, where ``x`` is the concatenation of the children's ``h`` (Socher et al. 2011).

    Every kind of node has its own ``W``, ``[hidden_size, arity * hidden_size]``. Dropout is on ``h`` of inner nodes, as
    in the code published with Arabshahi et al. 2020.

    Args:
        hidden_size: width of ``h``.
        vocabulary: the labels and kinds. Without ``input_size``, leaves are embeddings of their labels.
        input_size: width of the features; leaves then have ``h = f(W x + b)``.
        activation: ``f``.
        dropout: dropout probability of ``h`` at inner nodes.
        direction: see :class:`TreeNetwork`. The downward step is ``h = f(W x + U_p h_parent + b)``, where ``x`` is the
            node's upward ``h`` and ``p`` its position among its siblings.
        embedding_size, node_features, arities, shared_kinds, leaf, number_activation, max_arity, engine: see
            :class:`TreeLayer`.

    Raises:
        RecipeError: neither vocabulary nor ``input_size``, or an unknown option.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2), ("sin", 1)])
        >>> layer = TreeRNN(16, vocabulary)
        >>> batch = TreeBatch.from_trees([Tree("sin", [Tree("x")]), Tree("x")], vocabulary)
        >>> layer(batch).root.shape
        torch.Size([2, 1, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary | None = None,
        *,
        activation: ActivationName = "sigmoid",
        direction: Direction = "up",
        **options: Unpack[ArityOptions],
    ) -> None:
        cell, down = (partial(kind, activation_name=activation) for kind in (TreeRNNCell, DownwardTreeRNNCell))
        super().__init__(cell, hidden_size, vocabulary, down, direction, **options)
