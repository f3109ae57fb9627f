"""torch.compile and torch.func around models that hold a layer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.func import functional_call, grad

from treemem import Forest, TreeBatch, Vocabulary
from treemem.nn import LSTM, MemoryRNN, OrderedMemory, Transformer, TreeLSTM

FOREST = Forest.from_trees(["(f x y)", "(f (f x y) x)"])
VOCABULARY = Vocabulary.from_forest(FOREST)
LAYERS = [TreeLSTM, LSTM, OrderedMemory, Transformer]


class Classifier(torch.nn.Module):
    """A layer with a head of plain torch."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.head = torch.nn.Linear(8, 3)

    def forward(self, batch: TreeBatch) -> torch.Tensor:
        return self.head(torch.relu(self.layer(batch).root.squeeze(1)))


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch reads it while it traces
@pytest.mark.parametrize("layer_class", LAYERS)
def test_a_compiled_model_calls_the_layer_as_it_is(
    layer_class: type[torch.nn.Module], capfd: pytest.CaptureFixture[str]
) -> None:
    model, batch = Classifier(layer_class(8, VOCABULARY)), TreeBatch.from_forest(FOREST, VOCABULARY)
    expected = model(batch)
    found = torch.compile(model, backend="aot_eager")(batch)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    assert all(parameter.grad is not None for parameter in model.head.parameters())
    assert "Graph break" not in capfd.readouterr().err


def total_of(model: Classifier) -> Callable[[dict[str, torch.Tensor]], torch.Tensor]:
    batch = TreeBatch.from_forest(FOREST, VOCABULARY)
    return lambda values: functional_call(model, values, (batch,)).sum()


@pytest.mark.parametrize("layer_class", [TreeLSTM, LSTM])
def test_transforms_are_refused_in_plain_words(layer_class: type[torch.nn.Module]) -> None:
    model = Classifier(layer_class(8, VOCABULARY))
    with pytest.raises(RuntimeError, match=r"does not run within torch.func transforms"):
        grad(total_of(model))(dict(model.named_parameters()))


@pytest.mark.parametrize(
    "layer",
    [
        TreeLSTM(8, VOCABULARY, engine="recursive"),
        OrderedMemory(8, VOCABULARY),
        *(MemoryRNN(8, VOCABULARY, cell=cell, memory="none") for cell in ("RNN", "GRU", "LSTM")),
    ],
)
def test_transforms_give_the_gradients(layer: torch.nn.Module) -> None:
    model = Classifier(layer)
    parameters = dict(model.named_parameters())
    found = grad(total_of(model))(parameters)
    expected = torch.autograd.grad(total_of(model)(parameters), [*parameters.values()], allow_unused=True)
    for gradient, other in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(gradient, torch.zeros_like(gradient) if other is None else other)
