"""The step of a Tree-LSTM of two children, for drivers in C++."""

from __future__ import annotations

import torch

from treemem.engines.printer.driven import DrivenStep
from treemem.ops.tree_lstm.step import tree_lstm_step

State = dict[str, torch.Tensor]


def _step(products: State, children: State) -> State:
    return dict(zip("hc", tree_lstm_step(products["gates"], children["c"]), strict=True))


tree_lstm_of_two = DrivenStep("TREE_LSTM_STEP", _step, {"gates": 5}, "hc", 2)
