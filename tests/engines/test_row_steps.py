"""Steps of rows in Triton's interpreter, against autograd."""

from __future__ import annotations

import pytest
import torch
from engine_parity import assert_same
from fake_device import DEVICE, HAS_INTERPRETER, fake_device

from treemem.engines.cuda.row_steps import RowStep
from treemem.engines.printer.driven import DrivenStep
from treemem.networks.gated_cell.printed import gated_of_two
from treemem.networks.memories.controllers.equations import STEPS
from treemem.networks.parsers.on_lstm.equations import PRINTED
from treemem.networks.trees.tree_lstm.equations import tree_lstm_of_two

pytestmark = [
    pytest.mark.usefixtures("unset_memory_is_nan"),
    pytest.mark.skipif(not HAS_INTERPRETER, reason="Triton is not installed, or there is a GPU"),
]

State = dict[str, torch.Tensor]
ROWS = 11


def _score(products: State, children: State, weight: torch.Tensor) -> State:
    read = torch.nn.functional.dropout(torch.tanh(products["key"] * products["scale"]), 0.5)
    return {"score": (read * weight).mean(1, keepdim=True)}


CASES = {
    "LSTM": (STEPS["LSTM"].printed, 130),
    "GRU": (STEPS["GRU"].printed, 6),
    "Tree-LSTM": (tree_lstm_of_two, 17),
    "gated cell": (gated_of_two, 6),
    "master gates": (PRINTED[0], 115),
    "units": (PRINTED[1], 20),
    "score": (DrivenStep("SCORE_STEP", _score, {"key": 1, "scale": 0}, (), 0, 1, ("score",)), 9),
}
"""A step, and a width; those of the controllers and of units are pointwise."""


class Case:
    """A step and random tensors, in float64."""

    def __init__(self, printed: DrivenStep, width: int) -> None:
        torch.manual_seed(0)
        shape, self.width = printed.program.shape, width
        self.printed, self.learned = printed, [torch.randn(width).double() for _ in shape.learned]
        self.widths = [width if size == (shape.D,) else 1 for size in shape.states.values()]
        of_products = [width * len(parts) if parts[0] == shape.D else 1 for _, parts in shape.products.values()]
        self.products, self.children, self.d_states = (
            [torch.randn(ROWS, 2 * size, dtype=torch.float64)[:, :size] for size in sizes]  # rows have a distance
            for sizes in (of_products, [size for size in self.widths for _ in range(shape.arity)], self.widths)
        )
        self.factors = torch.rand(ROWS, width).double() if printed.program.dropouts else None

    def named(self, states: list[torch.Tensor], gradients: list[torch.Tensor]) -> State:
        names = [f"state {at}" for at in range(len(states))] + [f"gradient {at}" for at in range(len(gradients))]
        return dict(zip(names, [*states, *gradients], strict=True))

    def expected(self, monkeypatch: pytest.MonkeyPatch) -> State:
        monkeypatch.setattr(torch.nn.functional, "dropout", lambda x, rate: x * self.factors)
        read = [tensor.clone().requires_grad_() for tensor in (*self.products, *self.children, *self.learned)]
        products = dict(zip(self.printed.program.shape.products, read, strict=False))
        children = iter(read[len(products) :])
        of_states = {
            name: [next(children) for _ in range(self.printed.program.shape.arity)]
            for name in self.printed.program.shape.states
        }
        stacked = {name: torch.stack(of_state, 1) for name, of_state in of_states.items() if of_state}
        states = [*self.printed.step(products, stacked, *children).values()]
        gradients = torch.autograd.grad(states, read, self.d_states, allow_unused=True)
        of_each = zip(read, gradients, strict=True)
        return self.named(
            [state.detach() for state in states], [torch.zeros_like(x) if d is None else d for x, d in of_each]
        )

    def computed(self) -> State:
        step = RowStep(self.printed)
        with fake_device():
            products, children, learned, d_states = (
                [tensor.to(DEVICE) for tensor in tensors]
                for tensors in (self.products, self.children, self.learned, self.d_states)
            )
            factors = None if self.factors is None else self.factors.to(DEVICE)
            states = [products[0].new_empty(ROWS, width) for width in self.widths]
            step.forward(products, children, learned, states, factors)
            d_products, d_children = ([torch.empty_like(x) for x in tensors] for tensors in (products, children))
            d_learned = products[0].new_empty(step.programs(ROWS, self.width), len(learned), self.width)
            step.backward(products, children, learned, states, d_states, d_products, d_children, d_learned, factors)
            found = self.named(states, [*d_products, *d_children, *d_learned.sum(0)])
            return {name: value.cpu() for name, value in found.items()}


@pytest.mark.parametrize("name", CASES)
def test_steps_and_gradients_are_those_of_the_formula(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(*CASES[name])
    found = case.computed()
    assert_same(found, case.expected(monkeypatch), name)
