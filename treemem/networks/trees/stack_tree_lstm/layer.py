"""Tree-LSTM with a stack."""

from __future__ import annotations

from functools import partial

import torch
from typing_extensions import Unpack

from treemem.engines.activation import ActivationName
from treemem.engines.cell import State
from treemem.networks.trees.one_product_cell import OneProductCell
from treemem.networks.trees.parameter_sets import SetsByArity
from treemem.networks.trees.split_tree_cell import CellOptions
from treemem.networks.trees.stack_tree_lstm.equations import (
    Actions,
    Normalization,
    StackTreeLSTMOptions,
    stack_tree_lstm_gates,
    stack_tree_lstm_step,
)
from treemem.networks.trees.tree_layer import ArityOptions, TreeLayer
from treemem.trees.vocabulary import Vocabulary


class StackTreeLSTMCell(OneProductCell):
    """The cell of :class:`StackTreeLSTM`; arguments as there, ``sets`` saying which kinds share parameters."""

    def __init__(self, sets: SetsByArity, options: CellOptions, stack_options: StackTreeLSTMOptions) -> None:
        self.stack_options = stack_options
        super().__init__(sets, options)

    def extra_repr(self) -> str:
        """The actions, for printing: ``no_pop`` has a no-op too."""
        return f"actions of the stack: {', '.join(self.stack_options.action_names)}"

    def outputs(self, arity: int) -> int:
        """What the variant needs."""
        return self.stack_options.outputs(arity, self.hidden_size)

    def parts(self, arity: int) -> tuple[int, ...]:
        """Those of the variant."""
        return self.stack_options.parts(arity, self.hidden_size)

    @property
    def child_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of each child ``S``."""
        return {"S": (self.stack_options.stack_size, self.hidden_size)}

    def states(self, preactivation: torch.Tensor, children: State, dropout: float) -> State:
        """Gates, stack and its readout."""
        hidden, stack = stack_tree_lstm_step(preactivation, children["S"], self.stack_options, dropout)
        return {"h": hidden, "S": stack}

    def named_gates(self, preactivation: torch.Tensor, arity: int) -> State:
        """See ``stack_tree_lstm_gates``."""
        return stack_tree_lstm_gates(preactivation, arity, self.hidden_size, self.stack_options)


class StackTreeLSTM(TreeLayer):
    """Tree-LSTM whose cell is a stack of ``stack_size`` rows (Arabshahi et al. 2020, eq. 15-28).

    With ``f_k = sigmoid(U_f x + b_f)``, ``S_c[i] = sum_k f_k * S_k[i]`` and ``u = tanh(U_u x + b_u)``, row 0 the top::

        S[0] = a_push * u          + a_pop * S_c[1]     + a_no_op * S_c[0]
        S[i] = a_push * S_c[i - 1] + a_pop * S_c[i + 1] + a_no_op * S_c[i]      (S_c[stack_size] = 0)
        h = o * tanh(S[0])

    where ``x`` is the concatenation of the children's ``h``, followed by the features. The paper's Table 2 has three
    variants: no option, ``normalize=True``, and ``normalize=True, no_op=True``. Details that the paper does not give
    follow the published code. Dropout is on ``u`` of inner nodes.

    The trace has the gates that the variant has: ``forget``, ``[nodes, children, hidden_size]``; ``push``, ``pop``,
    ``no_op``, ``output``, ``input`` and ``update`` (before its dropout), ``[nodes, hidden_size]``; and ``readout``.

    Args:
        hidden_size: width of ``h`` and of a stack row.
        vocabulary: the labels and kinds. Without ``input_size``, leaves are embeddings of their labels, with stack 0.
        stack_size: number of stack rows.
        no_op: a third action beside push and pop, which leaves the stack as it is.
        normalize: make the actions sum to 1: True for ``"softmax_of_gates"``, as in the published code, or
            ``"divide"`` or ``"softmax"``. :class:`treemem.ops.StackTreeLSTMOptions` explains this and the next options.
        activation: function for the pushed vector ``u``.
        output_activation: function for the readout.
        actions: ``"elementwise"``, or ``"scalar"`` with ``normalize=False``.
        input_gate: multiply the pushed vector by an input gate.
        top_k: number of rows in the readout.
        gated_top_k: a gate for each coordinate of each row of the readout.
        no_pop: the actions are push and no-op, without pop. Leave ``no_op`` False.
        queue: push at the far end.
        input_size: width of the features; leaves then run the cell without children, on an empty stack.
        dropout: dropout probability of ``u`` at inner nodes.
        embedding_size, node_features, arities, shared_kinds, leaf, number_activation, max_arity, engine: see
            :class:`TreeLayer`.

    Raises:
        RecipeError: neither vocabulary nor ``input_size``, or options that are unknown or contradict each other.

    Example:
        >>> from treemem import Tree, TreeBatch, Vocabulary
        >>> vocabulary = Vocabulary(["x", "1"], [("Add", 2), ("sin", 1)])
        >>> layer = StackTreeLSTM(16, vocabulary, stack_size=5, normalize=True, no_op=True)
        >>> batch = TreeBatch.from_trees([Tree("sin", [Tree("x")]), Tree("x")], vocabulary)
        >>> layer(batch).S.shape
        torch.Size([3, 5, 16])
    """

    def __init__(
        self,
        hidden_size: int,
        vocabulary: Vocabulary | None = None,
        *,
        stack_size: int = 5,
        no_op: bool = False,
        normalize: Normalization | bool = False,
        activation: ActivationName = "tanh",
        output_activation: ActivationName = "tanh",
        actions: Actions = "elementwise",
        input_gate: bool = False,
        top_k: int = 1,
        gated_top_k: bool = False,
        no_pop: bool = False,
        queue: bool = False,
        **options: Unpack[ArityOptions],
    ) -> None:
        if isinstance(normalize, bool):
            normalize = "softmax_of_gates" if normalize else "none"
        stack = StackTreeLSTMOptions(
            stack_size=stack_size,
            activation=activation,
            output_activation=output_activation,
            actions=actions,
            normalize=normalize,
            no_op=no_op,
            no_pop=no_pop,
            input_gate=input_gate,
            top_k=top_k,
            gated_top_k=gated_top_k,
            queue=queue,
        )
        super().__init__(partial(StackTreeLSTMCell, stack_options=stack), hidden_size, vocabulary, **options)
        self.options["normalize"] = normalize
