"""One network for each option of the tree layers that their engines must agree on."""

from __future__ import annotations

from typing import Any

import torch
from tree_strategies import VOCABULARY

from treemem.nn import (
    ChildSumTreeLSTM,
    StackTreeLSTM,
    StackTreeRNN,
    TreeCell,
    TreeLayer,
    TreeLSTM,
    TreeNetwork,
    TreeRNN,
)
from treemem.ops import State

LAYERS: list[type[TreeLayer]] = [TreeRNN, TreeLSTM, ChildSumTreeLSTM, TreeCell, StackTreeRNN, StackTreeLSTM]

NETWORKS: dict[str, tuple[type[TreeLayer], dict[str, Any]]] = {
    "tree rnn": (TreeRNN, {}),
    "tree rnn relu": (TreeRNN, {"activation": "relu"}),
    "tree rnn elu": (TreeRNN, {"activation": "elu"}),
    "tree rnn elu both ways": (TreeRNN, {"activation": "elu", "direction": "both"}),
    "tree rnn shared kinds": (TreeRNN, {"shared_kinds": True, "activation": "tanh"}),
    "tree lstm": (TreeLSTM, {}),
    "tree lstm two-layer leaves": (TreeLSTM, {"leaf": "two-layer"}),
    "tree lstm shared kinds": (TreeLSTM, {"shared_kinds": True}),
    "tree lstm leaves of the cell": (TreeLSTM, {"embedding_size": 5, "shared_kinds": True}),
    "child sum": (ChildSumTreeLSTM, {}),
    "child sum per kind": (ChildSumTreeLSTM, {"shared_kinds": False}),
    "child sum leaves of the cell": (ChildSumTreeLSTM, {"embedding_size": 5}),
    "tree rnn down": (TreeRNN, {"direction": "down", "activation": "tanh"}),
    "tree lstm both ways": (TreeLSTM, {"direction": "both"}),
    "tree cell": (TreeCell, {}),
    "tree cell shared kinds": (TreeCell, {"shared_kinds": True, "leaf": "two-layer"}),
    "stack rnn": (StackTreeRNN, {"stack_size": 3}),
    "stack rnn no-op": (StackTreeRNN, {"stack_size": 2, "no_op": True, "shared_stack": False}),
    "stack rnn zero after map": (StackTreeRNN, {"stack_size": 3, "pop_zero": "after_map", "activation": "relu"}),
    "stack rnn of one row": (StackTreeRNN, {"stack_size": 1, "no_op": True}),
    "stack rnn own": (StackTreeRNN, {"stack_size": 3, "read": "own", "top_k": 2, "no_op": True}),
    "stack rnn leaves of the cell": (StackTreeRNN, {"embedding_size": 2, "stack_size": 3}),
    "stack rnn own zero after map": (StackTreeRNN, {"stack_size": 2, "read": "own", "pop_zero": "after_map"}),
    "stack lstm": (StackTreeLSTM, {"stack_size": 3}),
    "stack lstm normalize": (StackTreeLSTM, {"stack_size": 3, "normalize": True}),
    "stack lstm normalize no-op": (StackTreeLSTM, {"stack_size": 4, "normalize": True, "no_op": True}),
    "stack lstm no-pop normalize": (StackTreeLSTM, {"stack_size": 3, "no_pop": True, "normalize": True}),
    "stack lstm of one row": (StackTreeLSTM, {"stack_size": 1, "no_op": True}),
    "stack lstm sigmoid": (StackTreeLSTM, {"activation": "sigmoid", "output_activation": "relu", "stack_size": 2}),
    "stack lstm shared kinds": (StackTreeLSTM, {"shared_kinds": True, "normalize": True, "stack_size": 2}),
    "stack lstm divide": (StackTreeLSTM, {"normalize": "divide", "no_op": True, "stack_size": 3}),
    "stack lstm softmax": (StackTreeLSTM, {"normalize": "softmax", "stack_size": 3}),
    "stack lstm scalar": (StackTreeLSTM, {"actions": "scalar", "no_op": True, "stack_size": 3}),
    "stack lstm top 2": (StackTreeLSTM, {"top_k": 2, "input_gate": True, "stack_size": 3}),
    "stack lstm gated top 2": (StackTreeLSTM, {"top_k": 2, "gated_top_k": True, "stack_size": 2}),
    "stack lstm queue": (StackTreeLSTM, {"queue": True, "actions": "scalar", "no_op": True, "stack_size": 3}),
    "stack lstm leaves of the cell": (StackTreeLSTM, {"embedding_size": 2, "normalize": True, "stack_size": 3}),
    "stack lstm gated queue": (StackTreeLSTM, {"queue": True, "normalize": True, "stack_size": 3}),
}
ONE_OF_EACH = [
    "tree rnn",
    "tree lstm",
    "child sum",
    "tree cell",
    "stack rnn",
    "stack rnn own",
    "stack lstm normalize no-op",
]


def make(name: str, hidden_size: int = 3, **more: Any) -> TreeLayer:
    layer_class, options = NETWORKS[name]
    torch.manual_seed(0)
    if "input_size" in more:
        options = {name: value for name, value in options.items() if name != "embedding_size"}
    layer = layer_class(hidden_size, VOCABULARY, **{**options, **more}).double()
    if isinstance(layer, TreeCell):  # a layer norm starts with a gain of 1 and a bias of 0, which would hide mistakes
        torch.nn.init.uniform_(layer.cell.norm.weight, 0.5, 1.5)
        torch.nn.init.normal_(layer.cell.norm.bias)
    return layer


class PlainMean(torch.nn.Module):
    """A cell as a user writes one: the mean of the children through weights, and in whole numbers how many nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def leaf(self, x: torch.Tensor, kind: int) -> State:
        return {"h": x, "size": torch.ones(len(x), dtype=torch.int64)}

    def forward(self, children: State, x: torch.Tensor | None, kind: int) -> State:
        return {"h": torch.tanh(children["h"].mean(1) * self.weight), "size": children["size"].sum(1) + 1}


def small_networks(**options: Any) -> list[TreeNetwork]:
    """One of each layer, one with leaves of two layers, and one of a user's cell, in double precision."""
    torch.manual_seed(0)
    made: list[TreeNetwork] = [layer(3, VOCABULARY, **options) for layer in LAYERS]
    made += [StackTreeLSTM(3, VOCABULARY, leaf="two-layer")]
    made += [TreeNetwork(PlainMean(), vocabulary=VOCABULARY, embedding_size=3)]
    return [network.double() for network in made]
