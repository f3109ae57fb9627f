"""State dicts with the names of the published code, made of the weights of golden files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

Weights = dict[str, Tensor]

# The modules of recursiveMemNet by the paper's names of their weights; "{f}" is the function.
TREE_RNN = {"W": "{f}.linear", "W_mem": "{f}.memory_linear"}
SHARED_STACK = {
    "A": "{f}.action",
    "U_u": "{f}.input_linear",
    "U_push": "{f}.push_linear",
    "U_pop": "{f}.pop_linear",
    "U_noop": "{f}.no_op_linear",
}
UNARY_TREE_LSTM = {"U_inp": "{f}.data", "U_f": "{f}.forget", "U_o": "{f}.output", "U_u": "{f}.input"}
# Left part, right part and bias.
BINARY_TREE_LSTM = {
    "inp": ("data_left", "data_right", "data_bias"),
    "f1": ("forget_left_by_left", "forget_left_by_right", "forget_bias_left"),
    "f2": ("forget_right_by_left", "forget_right_by_right", "forget_bias_right"),
    "o": ("output_left", "output_right", "output_bias"),
    "u": ("input_left", "input_right", "input_bias"),
}
STACK_TREE_LSTM = {
    "U_o": "{f}.o_linear",
    "A": "{f}_stack.action",
    "A_push": "{f}_stack.push_gate_linear",
    "A_pop": "{f}_stack.pop_gate_linear",
    "A_noop": "{f}_stack.no_op_gate_linear",
    "U_f": "{f}_stack.gate_linear",
    "U_f1": "{f}_stack.gate_linear_l",
    "U_f2": "{f}_stack.gate_linear_r",
    "U_u": "{f}_stack.input_linear",
    "U_inp": "{f}_stack.data_linear",
    "U_p": "{f}.pos_linear",
    **{f"U_p{row}": f"{{f}}.pos_linear_{row}" for row in (1, 2, 3)},
}
ORDERED_MEMORY = {
    "W_in": "input_projection.0.weight",
    "b_in": "input_projection.0.bias",
    "ln_g": "input_projection.1.weight",
    "ln_b": "input_projection.1.bias",
    "W_q": "distribution.query.1.weight",
    "b_q": "distribution.query.1.bias",
    "lnq_g": "distribution.query.2.weight",
    "lnq_b": "distribution.query.2.bias",
    "W_k": "distribution.key.1.weight",
    "b_k": "distribution.key.1.bias",
    "lnk_g": "distribution.key.2.weight",
    "lnk_b": "distribution.key.2.bias",
    "w_beta": "distribution.beta.2.weight",
    "b_beta": "distribution.beta.2.bias",
    "W1": "cell.input_t.1.weight",
    "b1": "cell.input_t.1.bias",
    "W2": "cell.input_t.4.weight",
    "b2": "cell.input_t.4.bias",
}
ON_LSTM = {"W_x": "ih.0.weight", "b_x": "ih.0.bias", "W_h": "hh.weight", "b_h": "hh.bias"}


def random_weights(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def equation_weights(arrays: Mapping[str, Any], network: str) -> Weights:
    """A state dict of recursiveMemNet; ``network`` is the name of a golden file, which says what it is."""
    table = "w_E" if "w_E" in arrays else "w_E_NegativeOne"
    leaves = torch.from_numpy(np.atleast_2d(arrays[table]))
    size = leaves.shape[1]
    bias = torch.from_numpy(arrays["w_bias"]) if "w_bias" in arrays else torch.zeros(1, dtype=torch.float64)
    found = {"Symbol.weight": leaves, "bias": bias}
    for name in (key.removeprefix("w_") for key in arrays if key.startswith("w_") and "." in key):
        value = torch.from_numpy(arrays[f"w_{name}"])
        function, _, weight = name.partition(".")
        part = "bias" if weight.startswith("b") else "weight"
        if function in ("enc", "dec"):
            found[f"Number_{function}.linear{weight[1:]}.{part}"] = value
        elif "tree_lstm" in network and "stack" not in network and f"w_{function}.U_f1" in arrays:
            left, right, published_bias = BINARY_TREE_LSTM[weight.partition("_")[2]]
            if part == "bias":
                found[f"{function}.{published_bias}"] = value
            else:
                found[f"{function}.{left}.weight"] = value[:, :size].clone()
                found[f"{function}.{right}.weight"] = value[:, size:].clone()
        else:
            names = _module_names(network, function)
            key = weight if part == "weight" else _matrix_of(weight, names)
            module = names[key].replace("{f}", function.removeprefix("shared_"))
            found[f"{module}.{part}"] = value
    return found


def _module_names(network: str, function: str) -> dict[str, str]:
    if function.startswith("shared_"):
        return SHARED_STACK
    if "tree_rnn" in network:
        return TREE_RNN
    return STACK_TREE_LSTM if "stack" in network else UNARY_TREE_LSTM


def _matrix_of(bias: str, names: Mapping[str, str]) -> str:
    """The matrix beside a bias: ``W_mem`` for ``b_mem``, ``A_push`` or ``U_push`` for ``b_push``."""
    suffix = bias.removeprefix("b").removeprefix("_")
    wanted = {"": ["W"], "A": ["A"], "mem": ["W_mem"]}.get(suffix, [f"A_{suffix}", f"U_{suffix}"])
    return next(name for name in wanted if name in names)


def whole_equation_network(size: int) -> Weights:
    """A Tree-LSTM with a stack of every published function, with no-op, as it is saved: 34 leaves, numbers too."""
    unary = "sin cos csc sec tan cot asin acos acsc asec atan acot sinh cosh csch sech tanh coth "
    unary += "asinh acosh acsch asech atanh acoth exp"
    found = {"bias": random_weights(1), "Symbol.weight": random_weights(34, size)}
    for name, inputs, outputs in (
        ("Number_enc.linear1", 1, size),
        ("Number_enc.linear2", size, size),
        ("Number_dec.linear1", size, size),
        ("Number_dec.linear2", size, 1),
    ):
        found |= {f"{name}.weight": random_weights(outputs, inputs), f"{name}.bias": random_weights(outputs)}
    for functions, arity, gates in (
        (unary.split(), 1, ("U_f",)),
        (["Add", "Mul", "Pow", "log"], 2, ("U_f1", "U_f2")),
    ):
        for function in functions:
            for gate in ("A_push", "A_pop", "A_noop", *gates, "U_u", "U_o"):
                module = STACK_TREE_LSTM[gate].replace("{f}", function)
                found[f"{module}.weight"] = random_weights(size, arity * size) / size
                found[f"{module}.bias"] = random_weights(size)
    return found


def memory_weights(arrays: Mapping[str, Any]) -> Weights:
    """The encoder of Ordered-Memory, its shared layer norm under each of its names."""
    found = {}
    for prefix, direction in (("", "forward"), ("fw_", "forward"), ("bw_", "backward")):
        for golden, published in ORDERED_MEMORY.items():
            if prefix + golden not in arrays:
                continue
            value = torch.from_numpy(arrays[prefix + golden])
            found[f"encoder.OM_{direction}.{published}"] = value
            if published.startswith("input_projection.1."):
                part = published.rpartition(".")[2]
                found[f"encoder.OM_{direction}.activation.{part}"] = value
                found[f"encoder.OM_{direction}.cell.activation.{part}"] = value
    return found


def on_lstm_weights(arrays: Mapping[str, Any]) -> Weights:
    """The encoder of Ordered-Neurons."""
    return {
        f"encoder.cells.{layer}.{published}": torch.from_numpy(arrays[f"l{layer + 1}_{golden}"])
        for layer in (0, 1)
        for golden, published in ON_LSTM.items()
    }


def listops_weights(size: int, width: int) -> Weights:
    """What stands around an encoder of ``listops.py``: vectors of 20 tokens and a classifier of one layer."""
    return {
        "embedding.weight": random_weights(20, width),
        "mlp.1.weight": random_weights(10, size),
        "mlp.1.bias": random_weights(10),
    }


def logic_weights(size: int, width: int) -> Weights:
    """What stands around an encoder of ``proplog.py``: vectors of 12 tokens and a classifier of two layers."""
    return {
        "embedding.weight": random_weights(12, width),
        "mlp.1.weight": random_weights(size, 4 * size),
        "mlp.1.bias": random_weights(size),
        "mlp.4.weight": random_weights(7, size),
        "mlp.4.bias": random_weights(7),
    }


def save_weights(folder: Path, weights: Weights) -> Path:
    """A file as the published code writes it."""
    path = folder / "model.checkpoint"
    torch.save(weights, path)
    return path
