"""The pointwise steps of torch's recurrent cells, from which C++ is printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from treemem.engines.printer.driven import DrivenStep

State = dict[str, torch.Tensor]


def rnn_step(products: State, children: State) -> State:
    """``h = tanh(.)``, as :class:`torch.nn.RNNCell`."""
    return {"h": torch.tanh(products["blocks"])}


def lstm_step(products: State, children: State) -> State:
    """``c = f * c + i * g``, ``h = o * tanh(c)``, as :class:`torch.nn.LSTMCell`; the blocks are ``i, f, g, o``."""
    enter, forget, candidate, output = products["blocks"].chunk(4, 1)
    cell = torch.sigmoid(forget) * children["c"].squeeze(1) + torch.sigmoid(enter) * torch.tanh(candidate)
    return {"h": torch.sigmoid(output) * torch.tanh(cell), "c": cell}


def gru_step(products: State, children: State) -> State:
    """``n = tanh(n_x + r * n_h)``, ``h = n + z * (h - n)``, as :class:`torch.nn.GRUCell`.

    The blocks are ``n_x, r, z, n_h``: what the state gives the candidate is by itself.
    """
    of_input, reset, update, of_state = products["blocks"].chunk(4, 1)
    candidate = torch.tanh(of_input + torch.sigmoid(reset) * of_state)
    return {"h": candidate + torch.sigmoid(update) * (children["h"].squeeze(1) - candidate)}


class ControllerStep(NamedTuple):
    """The step of a cell in C++.

    Attributes:
        printed: of ``step``.
        blocks: that it reads.
        products: to how many of them, the last ones, the state before adds.
    """

    printed: DrivenStep
    blocks: int
    products: int

    @classmethod
    def of(cls, step: Callable[[State, State], State], states: str, blocks: int, products: int) -> ControllerStep:
        return cls(DrivenStep("CONTROLLER_STEP", step, {"blocks": blocks}, states, 1), blocks, products)


STEPS = {
    "RNN": ControllerStep.of(rnn_step, "h", 1, 1),
    "LSTM": ControllerStep.of(lstm_step, "hc", 4, 4),
    "GRU": ControllerStep.of(gru_step, "h", 4, 3),
}
