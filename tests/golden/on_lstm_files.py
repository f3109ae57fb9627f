"""Checks of golden files of the ON-LSTM.

Names there are the paper's: ``W_x``, ``b_x`` read the input, ``W_h``, ``b_h`` the previous ``h``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args
from unittest.mock import patch

import torch
from golden.stack_tree_files import same
from golden.stack_tree_networks import Arrays
from torch.nn import functional

from treemem.engines.sequence_engine import SequenceEngine
from treemem.networks.parsers.on_lstm.equations import OnLSTMWeights, on_lstm_gates
from treemem.networks.parsers.on_lstm.layer import OnLSTMLayer, OnLSTMStack
from treemem.nn import ONLSTM
from treemem.trees.vocabulary import Vocabulary

ENGINES = [engine for engine in get_args(SequenceEngine) if engine != "auto"]
LAYER_WEIGHTS = {"W_x": "of_input.weight", "b_x": "of_input.bias", "W_h": "of_hidden.weight", "b_h": "of_hidden.bias"}


def load_layer(layer: OnLSTMLayer, arrays: Arrays, prefix: str = "") -> None:
    """Give a layer the weights of a file."""
    layer.load_state_dict({ours: torch.from_numpy(arrays[prefix + theirs]) for theirs, ours in LAYER_WEIGHTS.items()})


def cell_of(arrays: Arrays, **options: float) -> OnLSTMStack:
    """One layer with the weights of a file of a cell."""
    sizes = arrays["x"].shape[1], arrays["h_prev"].shape[1]
    stack = OnLSTMStack(sizes[0], [sizes[1]], int(arrays["chunk_size"]), **options).double()  # type: ignore[arg-type]
    load_layer(stack.layers[0], arrays)  # type: ignore[arg-type]
    return stack


def check_cell(arrays: Arrays) -> None:
    """One step: gates, states, distances, and the gradient of every weight."""
    stack = cell_of(arrays)
    x, hidden, cell = (torch.from_numpy(arrays[name]) for name in ("x", "h_prev", "c_prev"))
    weights = OnLSTMWeights(*(torch.from_numpy(arrays[name]) for name in LAYER_WEIGHTS))
    preactivation = functional.linear(x, *weights[:2]) + functional.linear(hidden, *weights[2:])
    gates = on_lstm_gates(preactivation, stack.chunk_size)
    same(preactivation, arrays["pre_activation"], "pre_activation")
    for ours, theirs in (("forget", "f_hat"), ("input", "i_hat")):
        same(gates[ours], arrays[theirs], theirs)
    for engine in ENGINES:
        stack.engine = engine
        stack.zero_grad()
        outputs = stack(x[:, None], state=[(hidden, cell)]).layers[0]
        (outputs.h[:, 0] * torch.from_numpy(arrays["loss_weight"])).sum().backward()
        found = {"h": outputs.hidden, "c": outputs.cell}
        found["master_input"], found["master_forget"] = outputs.masters[:, 0].unbind(1)
        found["dist_forget"] = 1 - found["master_forget"].mean(1)
        found["dist_input"] = found["master_input"].mean(1)
        gradients = {name: parameter.grad for name, parameter in stack.layers[0].named_parameters()}
        found |= {f"grad_{theirs}": gradients[ours] for theirs, ours in LAYER_WEIGHTS.items()}  # type: ignore[misc]
        for name, value in found.items():
            same(value, arrays[name], f"{name} ({engine})")


def check_weight_dropout_in_training(arrays: Arrays) -> None:
    """One step whose recurrent weights are dropped where the file says."""
    stack = cell_of(arrays, weight_dropout=0.45)
    x, hidden, cell = (torch.from_numpy(arrays[name]) for name in ("x", "h_prev", "c_prev"))
    kept = torch.from_numpy(arrays["keep_mask"]).double()
    for engine in ENGINES:
        stack.engine = engine
        with patch("torch.rand_like", return_value=kept):  # kept where the draw is not below the probability
            outputs = stack(x[:, None], state=[(hidden, cell)])
        same(outputs.state[0][0], arrays["h"], f"h ({engine})")
        same(outputs.state[0][1], arrays["c"], f"c ({engine})")


def check_stack(arrays: Arrays) -> None:
    """Two layers of different sizes in evaluation, as the sentence encoder runs them."""
    sizes = [arrays[f"h_layer{number}"].shape[2] for number in (1, 2)]
    encoder = ONLSTM(
        sizes[-1],
        Vocabulary(["x"], [("f", 1)]),
        layer_sizes=sizes,
        chunk_size=int(arrays["chunk_size"]),
        embedding_size=arrays["X"].shape[2],
        weight_dropout=float(arrays["dropconnect"]),
    )
    encoder.double().eval()
    for number, layer in enumerate(encoder.stack.layers, start=1):
        load_layer(layer, arrays, f"l{number}_")  # type: ignore[arg-type]
    inputs = torch.from_numpy(arrays["X"]).transpose(0, 1)
    for engine in ENGINES:
        encoder.engine = engine
        ran = encoder.stack(inputs)
        for number, (layer, (hidden, cell)) in enumerate(zip(ran.layers, ran.state, strict=True), start=1):
            same(layer.h.transpose(0, 1), arrays[f"h_layer{number}"], f"h_layer{number} ({engine})")
            same(hidden, arrays[f"h{number}_last"], f"h{number}_last ({engine})")
            same(cell, arrays[f"c{number}_last"], f"c{number}_last ({engine})")
        reading = encoder.read(inputs, torch.full((len(inputs),), inputs.shape[1]), trace=True)
        same(reading.encoding, arrays["h2_last"], f"encoding ({engine})")
        same(reading.trace["forget_distance"].permute(1, 2, 0), arrays["dist_forget"], f"dist_forget ({engine})")
        same(reading.trace["input_distance"].permute(1, 2, 0), arrays["dist_input"], f"dist_input ({engine})")


CHECKS: dict[str, Callable[[Arrays], None]] = {
    "onlstm_cell.npz": check_cell,
    "onlstm_cell_weightdrop_train.npz": check_weight_dropout_in_training,
    "onlstm_stack.npz": check_stack,
    "onlstm_stack_weightdrop_eval.npz": check_stack,
}
