"""Weights and options that earlier versions of treemem saved under other names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_GATES = ("encoder.gates.weight", "encoder.gates.bias")


def with_names_of_today(
    network: str, options: Mapping[str, Any], weights: Mapping[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The options and weights of a network as this version calls them; those of today as they are.

    The LSTM over tokens had all its gates in one matrix over ``[h; e]``, in the order input, forget, output, update,
    and its dropout was on the update. Now it is torch's, of the order input, forget, update, output.

    Args:
        network: name of its class.
        options: of the network, as in ``config.yaml``.
        weights: of the model.
    """
    options, weights = dict(options), dict(weights)
    if network != "LSTM" or not all(name in weights for name in _GATES):
        return options, weights
    weight, bias = (_in_the_order_of_torch(weights.pop(name)) for name in _GATES)
    size = weight.shape[1] // 2
    weights |= {
        "encoder.lstm.weight_ih_l0": weight[:, size:].contiguous(),
        "encoder.lstm.weight_hh_l0": weight[:, :size].contiguous(),
        "encoder.lstm.bias_ih_l0": bias,
        "encoder.lstm.bias_hh_l0": torch.zeros_like(bias),
    }
    if "dropout" in options:
        options["update_dropout"] = options.pop("dropout")
    return options, weights


def _in_the_order_of_torch(rows: Tensor) -> Tensor:
    input_gate, forget_gate, output_gate, update = rows.chunk(4)
    return torch.cat([input_gate, forget_gate, update, output_gate])
