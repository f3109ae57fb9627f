"""The networks of the golden vectors of stack-augmented trees, and where their weights go.

A file's prefix names the network and its options; the names of weights are the paper's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from treemem.networks.trees.stacked_linear import StackedLinear
from treemem.nn import StackTreeLSTM, StackTreeRNN, TreeLayer, TreeLSTM, TreeRNN
from treemem.trees.vocabulary import Vocabulary

Arrays = Mapping[str, NDArray[Any]]

# What the words after the network's name mean.
STACK_LSTM_OPTIONS: dict[str, dict[str, Any]] = {
    "normalize": {"normalize": True},
    "noop": {"no_op": True},
    "nopop": {"no_pop": True},
    "gated": {"gated_top_k": True},
    "scalar_action": {"actions": "scalar"},
    "inputgate": {"input_gate": True},
    "sigmoid": {"activation": "sigmoid", "output_activation": "sigmoid"},
}


class Network(NamedTuple):
    """A network as a file's prefix names it."""

    layer: type[TreeLayer]
    options: dict[str, Any]


class Place(NamedTuple):
    """Where one golden weight goes: ``module.weight[set, rows]``, or ``bias``."""

    module: StackedLinear
    set: int
    rows: slice

    def parameter(self, name: str) -> torch.nn.Parameter:
        return self.module.bias if name.startswith("b") else self.module.weight

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The golden weight's part of ``tensor``, shaped like the parameter."""
        return tensor[self.set, self.rows]


def network_of(prefix: str) -> Network | None:
    """The network that a prefix names; None for one that this module does not know."""
    name = prefix.removeprefix("x_")
    if name in ("tree_rnn", "tree_rnn_tanh"):
        return Network(TreeRNN, {"activation": "tanh"} if name.endswith("tanh") else {})
    if name in ("tree_rnn_stack", "tree_rnn_stack_noop"):
        return Network(StackTreeRNN, {"no_op": name.endswith("noop")})
    if name == "tree_lstm":
        return Network(TreeLSTM, {})
    if not name.startswith("tree_lstm_stack"):
        return None
    words = name.removeprefix("tree_lstm_stack").replace("_scalar_action", "_scalar-action").split("_")[1:]
    options: dict[str, Any] = {}
    for word in (word.replace("-", "_") for word in words):
        top = re.fullmatch(r"top(\d+)", word)
        if top is None and word not in STACK_LSTM_OPTIONS:
            return None
        options.update({"top_k": int(top[1])} if top else STACK_LSTM_OPTIONS[word])
    return Network(StackTreeLSTM, options)


def stack_size_of(path: Path, prefix: str) -> int:
    """The number of stack rows: that of the file, else of another file of the same network, else of the same set."""
    for pattern in (path.name, f"{prefix}_[btu]*.npz", "*_binary.npz", "*_unary.npz", "*_tree.npz"):
        for sibling in sorted(path.parent.glob(pattern)):
            arrays = np.load(sibling)
            for name in ("in_S", "in_S1", "out_S"):
                if name in arrays:
                    return int(arrays[name].shape[-2])
    raise AssertionError(f"no file beside {path.name} says how many rows its stack has")


def build(path: Path, prefix: str, network: Network, hidden_size: int, vocabulary: Vocabulary) -> TreeLayer:
    """The layer of a golden file, in float64."""
    options = dict(network.options)
    if network.layer in (StackTreeRNN, StackTreeLSTM):
        options["stack_size"] = stack_size_of(path, prefix)
    return network.layer(hidden_size, vocabulary, **options).double()


def functions_of(arrays: Arrays, hidden_size: int) -> list[tuple[str, int]]:
    """The functions of a file and their arities, by the widths of their weights."""
    found = {}
    for name, value in arrays.items():
        function, dot, weight = name.removeprefix("w_").partition(".")
        if name.startswith("w_") and dot and weight in ("W", "U_u") and not function.startswith("shared"):
            found[function] = value.shape[1] // hidden_size
    return list(found.items())


def places(layer: TreeLayer, kind: int, arity: int) -> dict[str, Place]:
    """Where the weights of one function go, by the paper's names."""
    cell, size = layer.cell, layer.hidden_size
    sets = cell.sets.set_of_kind(arity)
    own = 0 if sets is None else sets[kind]

    def rows(module: StackedLinear, begin: int, number: int, used: int = own) -> Place:
        return Place(module, used, slice(begin, begin + number))

    if isinstance(layer, TreeRNN):
        return {name: rows(cell.maps.of(arity), 0, size) for name in ("W", "b")}
    if isinstance(layer, StackTreeRNN):
        found = {name: rows(cell.maps.of(arity), 0, size) for name in ("W", "b")}
        found |= {name: rows(cell.memory_maps.of(arity), 0, size) for name in ("W_mem", "b_mem")}
        control, stack = cell.control_maps.of(arity), cell.row_maps.of(arity)
        found |= {name: rows(control, size, 2 + cell.no_op, 0) for name in ("A", "b_A")}
        found |= {name: rows(control, 0, size, 0) for name in ("U_u", "b_u")}
        for position, action in enumerate(("push", "pop", "noop")[: 2 + cell.no_op]):
            found |= {name: rows(stack, position * size, size, 0) for name in (f"U_{action}", f"b_{action}")}
        return found
    module = cell.maps.of(arity)
    forgets = ["f"] if arity == 1 else [f"f{position}" for position in range(1, arity + 1)]
    if isinstance(layer, TreeLSTM):
        gates = ["inp", *forgets, "o", "u"]
        return {
            f"{letter}_{gate}": rows(module, position * size, size)
            for position, gate in enumerate(gates)
            for letter in "Ub"
        }
    return _stack_lstm_places(layer, arity, forgets, lambda begin, number: rows(module, begin, number))


def _stack_lstm_places(layer: TreeLayer, arity: int, forgets: list[str], rows: Any) -> dict[str, Place]:
    size, stack = layer.hidden_size, layer.cell.stack_options
    begin = {name: block.start for name, block in stack.blocks(arity, size).items()}
    blocks = [(f"U_{name}", f"b_{name}", "forget", position, size) for position, name in enumerate(forgets)]
    blocks += [("U_o", "b_o", "output", 0, size), ("U_u", "b_u", "update", 0, size)]
    if stack.actions == "scalar":
        blocks += [("A", "b_A", "actions", 0, len(stack.action_names))]
    else:
        names = [name.replace("_", "") for name in stack.action_names]
        blocks += [(f"A_{name}", f"b_{name}", "actions", position, size) for position, name in enumerate(names)]
    if stack.input_gate:
        blocks += [("U_inp", "b_inp", "input", 0, size)]
    if stack.gated_top_k:
        blocks += [(f"U_p{row + 1}", f"b_p{row + 1}", "readout", row, size) for row in range(stack.top_k)]
    elif stack.top_k > 1:
        blocks += [("U_p", "b_p", "readout", 0, stack.top_k)]
    return {
        name: rows(begin[block] + position * number, number)
        for weight, bias, block, position, number in blocks
        for name in (weight, bias)
    }


def weight_places(layer: TreeLayer, arrays: Arrays) -> dict[str, Place]:
    """Where every weight of a file of whole trees goes, by its name without ``w_``."""
    vocabulary = layer.vocabulary
    assert vocabulary is not None
    found = {}
    for label, arity in vocabulary.functions:
        kind = vocabulary.kinds_of_arity[arity][
            [name for name, own in vocabulary.functions if own == arity].index(label)
        ]
        for name, place in places(layer, kind, arity).items():
            shared = f"shared_{'unary' if arity == 1 else 'binary'}_stack.{name}"
            key = shared if f"w_{shared}" in arrays else f"{label}.{name}"
            found[key] = place
    return found


def load_weights(layer: TreeLayer, arrays: Arrays, where: Mapping[str, Place]) -> None:
    """Copy every ``w_`` of a file that has a place; every place must be filled."""
    with torch.no_grad():
        for name, place in where.items():
            parameter = place.parameter(name.rpartition(".")[2])
            place.of(parameter).copy_(torch.from_numpy(arrays[f"w_{name}"]).to(parameter.dtype))
