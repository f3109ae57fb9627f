"""The step of a gated recursive cell of two children, for drivers in C++."""

from __future__ import annotations

import torch

from treemem.engines.printer.driven import DrivenStep
from treemem.networks.gated_cell.equations import gated_recursive_step

State = dict[str, torch.Tensor]


def _step(products: State, children: State, gain: torch.Tensor, shift: torch.Tensor) -> State:
    return {"h": gated_recursive_step(products["gates"], children["h"], gain, shift)}


gated_of_two = DrivenStep("GATED_STEP", _step, {"gates": 4}, "h", 2, learned=2)
