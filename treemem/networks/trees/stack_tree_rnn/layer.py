"""Tree-RNN with a stack."""

from __future__ import annotations

from functools import partial
from typing import Literal, get_args

import torch
from torch.nn.functional import dropout as drop
from typing_extensions import Unpack

from treemem.checked_options import checked_choice, checked_count, checked_flag, checked_rows
from treemem.engines.activation import ActivationName, activation, checked_activation
from treemem.engines.cell import Product, State
from treemem.engines.product_input import children_and_tops, children_in_order, stack_rows, stack_rows_and_zeros
from treemem.errors import RecipeError
from treemem.networks.trees.parameter_sets import SetsByArity
from treemem.networks.trees.split_tree_cell import CellOptions, SplitTreeCell
from treemem.networks.trees.stack_tree_rnn.equations import (
    own_stack_readout,
    stack_tree_rnn_step,
    stack_update,
)
from treemem.networks.trees.stacked_linear import Kinds, LinearByArity, Maps, StackedLinear, linear_by_kind
from treemem.networks.trees.tree_layer import ArityOptions, TreeLayer
from treemem.trees.vocabulary import Vocabulary

StackReadout = Literal["children", "own"]
PopZero = Literal["before_map", "after_map"]


class StackTreeRNNCell(SplitTreeCell):
    """The cell of :class:`StackTreeRNN`; arguments as there, ``sets`` saying which kinds share parameters."""

    def __init__(
        self,
        sets: SetsByArity,
        options: CellOptions,
        *,
        stack_size: int,
        activation_name: ActivationName,
        no_op: bool,
        read: StackReadout,
        top_k: int,
        shared_stack: bool,
        pop_zero: PopZero,
    ) -> None:
        super().__init__(sets, options)
        hidden_size = self.hidden_size
        self.stack_size = checked_rows("stack_size", stack_size)
        self.activation_name = checked_activation(activation_name)
        self.no_op = checked_flag("no_op", no_op)
        self.read: StackReadout = checked_choice("read", read, get_args(StackReadout))
        self.top_k = checked_count("top_k", top_k)
        self.shared_stack = checked_flag("shared_stack", shared_stack)
        self.pop_zero_before_map = checked_choice("pop_zero", pop_zero, get_args(PopZero)) == "before_map"
        if top_k > stack_size:
            raise RecipeError(f"top_k={top_k} must lie between 1 and stack_size={stack_size}")
        if top_k > 1 and read == "children":
            raise RecipeError('top_k goes with read="own"; the children\'s stacks are read at the top only')
        actions, extra, reads_own = 2 + no_op, self.node_input_size or 0, read == "own"
        self.maps, self.memory_maps = LinearByArity(), LinearByArity()
        self.control_maps, self.row_maps = LinearByArity(), LinearByArity()
        for arity in sets.arities:
            count, width = sets.count(arity), arity * hidden_size
            stacks = 1 if shared_stack else count
            self.maps[str(arity)] = StackedLinear(count, (width + extra,), hidden_size + (top_k if reads_own else 0))
            self.memory_maps[str(arity)] = StackedLinear(count, (hidden_size if reads_own else width,), hidden_size)
            self.control_maps[str(arity)] = StackedLinear(stacks, (width + extra,), hidden_size + actions)
            self.row_maps[str(arity)] = StackedLinear(stacks, (width,), actions * hidden_size)
        inputs = self.input_size
        self.leaf_map = None if inputs is None else StackedLinear(1, (inputs,), hidden_size)

    def products(self, arity: int) -> tuple[Product, ...]:
        """``hidden``, the argument of the activation; ``control`` and ``rows``, which make the stack."""
        kinds = self.sets.set_of_kind(arity)
        stack_kinds = None if self.shared_stack else kinds
        key = LinearByArity.key
        hidden = children_and_tops if self.read == "children" else children_in_order
        rows = stack_rows_and_zeros if self.pop_zero_before_map else stack_rows
        control = (self.hidden_size, *[1] * (2 + self.no_op))
        return (
            Product("hidden", key("hidden", arity), hidden, kinds),
            Product("control", key("control", arity), children_in_order, stack_kinds, parts=control),
            Product("rows", key("rows", arity), rows, stack_kinds),
        )

    def weights(self) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """By product and arity; ``h`` with ``read="children"`` is one product of the children's ``h`` and tops."""
        of_maps = {
            **self.maps.weights("hidden"),
            **self.control_maps.weights("control"),
            **self.row_maps.weights("rows"),
        }
        if self.read == "own":
            of_maps |= self.memory_maps.weights("memory")
        else:
            for key, (weight, bias) in self.memory_maps.weights("hidden").items():
                of_states, of_features = of_maps[key][0].tensor_split([weight.shape[2]], dim=2)
                of_maps[key] = torch.cat([of_states, weight, of_features], dim=2), of_maps[key][1] + bias
        return of_maps

    def step(self, products: State, children: State) -> State:
        """The activation, and the new stack."""
        hidden, stack = stack_tree_rnn_step(
            products["hidden"],
            products["control"],
            self._by_row(products),
            activation_name=self.activation_name,
            no_op=self.no_op,
            pop_zero_before_map=self.pop_zero_before_map,
            dropout=self.dropout_now,
        )
        return {"h": hidden, "S": stack}

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        """``h = f(W x + b)`` of features; a vector is ``h`` already. The stack is empty, ``S = 0``."""
        hidden = x
        if self.leaf_map is not None:
            hidden = activation(self.activation_name)(self.leaf_map(x))
        return {"h": hidden, "S": hidden.new_zeros(len(x), self.stack_size, self.hidden_size)}

    def trace(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        """The weights of the actions and what is pushed; with ``read="own"`` the weights of the rows read, too."""
        products = self.products_of(children, x, kind)
        update, weights = products["control"].tensor_split([self.hidden_size], dim=1)
        actions = torch.softmax(weights, dim=1).split(1, dim=1)
        traced = dict(zip(("push", "pop", "no_op"), actions, strict=False)) | {"update": torch.sigmoid(update)}
        if self.read == "own":
            traced["readout"] = torch.sigmoid(products["hidden"][:, self.hidden_size :])
        return traced

    def _by_row(self, products: State) -> torch.Tensor:
        return products["rows"].unflatten(0, (-1, self.stack_size + self.pop_zero_before_map))


class OwnStackTreeRNNCell(StackTreeRNNCell):
    """The cell of :class:`StackTreeRNN` with ``read="own"``. Its ``h`` needs a product after the stack is made."""

    step = None  # type: ignore[assignment]

    def forward_kinds(self, children: State, x: torch.Tensor | None, kinds: Kinds, maps: Maps) -> State:
        """The stack first, then ``h`` with the readout of it (eq. 10-11)."""
        products = self.run_products(children, x, kinds, maps)
        by_row, no_op, before_map = self._by_row(products), self.no_op, self.pop_zero_before_map
        stack = stack_update(products["control"], by_row, self.hidden_size, no_op, before_map)
        preactivation, weights = products["hidden"].split([self.hidden_size, self.top_k], dim=1)
        arity = children["h"].shape[1]
        memory, sets = maps[LinearByArity.key("memory", arity)], self.sets.set_of_kind(arity)
        readout = linear_by_kind(own_stack_readout(stack, weights), memory, sets, kinds)
        hidden = activation(self.activation_name)(preactivation + readout)
        return {"h": drop(hidden, self.dropout_now) if self.dropout_now else hidden, "S": stack}


class StackTreeRNN(TreeLayer):
    """Tree-RNN in which every node has a stack of ``stack_size`` rows (Arabshahi et al. 2020, eq. 3-14).

    The stack is a sum of push, pop and, with ``no_op``, the unchanged stack, weighted by ``a = softmax(A x + b_A)``.
    ``S_c`` is the concatenation of the children's stacks. Row 0 is the top::

        push: sigmoid(U_u x + b_u) on top, sigmoid(U_push S_c[i - 1] + b_push) below
        pop:  sigmoid(U_pop S_c[i + 1] + b_pop)            no-op: sigmoid(U_noop S_c[i] + b_noop)

    The output: ``h = f(W x + b + W_mem m + b_mem)``. In the published code ``m`` holds the tops of the children's
    stacks. With ``read="own"`` it is ``sum_{j < top_k} p_j S[j]`` of the node's own new stack, with
    ``p = sigmoid(U_p x + b_p)`` (the paper's eq. 10-11). The paper's ``sigma`` is a softmax in eq. 3 only. Dropout is
    on ``h`` of inner nodes.

    The trace of inner nodes has ``push``, ``pop`` and ``no_op``, each ``[nodes, 1]``; ``update``,
    ``sigmoid(U_u x + b_u)``, ``[nodes, hidden_size]``; and with ``read="own"``, ``p`` as ``readout``,
    ``[nodes, top_k]``.

    Args:
        hidden_size: width of ``h`` and of a stack row.
        vocabulary: the labels and kinds. Without ``input_size``, leaves are embeddings of their labels, with stack 0.
        stack_size: number of stack rows.
        activation: ``f``.
        no_op: a third action beside push and pop, which leaves the stack as it is.
        read: ``"children"`` (the published code) or ``"own"`` (the paper).
        top_k: with ``read="own"``, how many rows are read.
        shared_stack: one set of stack parameters (``A``, ``U_u``, ``U_push``, ``U_pop``, ``U_noop``) for all kinds of
            an arity (the published code); otherwise each kind has its own (the paper).
        pop_zero: the row that pops in at the bottom: ``"before_map"``: zeros through the map, ``sigmoid(b_pop)`` (the
            published code); ``"after_map"``: zeros (the paper's eq. 9).
        input_size: width of the features; leaves then have ``h = f(W x + b)``.
        dropout: dropout probability of ``h`` at inner nodes.
        embedding_size, node_features, arities, shared_kinds, leaf, number_activation, max_arity, engine: see
            :class:`TreeLayer`.

    Raises:
        RecipeError: neither vocabulary nor ``input_size``, or an unknown option.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2), ("sin", 1)])
        >>> layer = StackTreeRNN(16, vocabulary, stack_size=3, no_op=True)
        >>> batch = TreeBatch.from_trees([Tree("sin", [Tree("x")]), Tree("x")], vocabulary)
        >>> layer(batch).S.shape
        torch.Size([3, 3, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary | None = None,
        *,
        stack_size: int = 5,
        activation: ActivationName = "sigmoid",
        no_op: bool = False,
        read: StackReadout = "children",
        top_k: int = 1,
        shared_stack: bool = True,
        pop_zero: PopZero = "before_map",
        **options: Unpack[ArityOptions],
    ) -> None:
        new_cell = partial(
            StackTreeRNNCell if read == "children" else OwnStackTreeRNNCell,
            stack_size=stack_size,
            activation_name=activation,
            no_op=no_op,
            read=read,
            top_k=top_k,
            shared_stack=shared_stack,
            pop_zero=pop_zero,
        )
        super().__init__(new_cell, hidden_size, vocabulary, **options)
