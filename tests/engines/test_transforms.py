"""torch.compile and torch.func around models that hold a layer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.func import functional_call, grad, vmap

from treemem import Forest, TreeBatch, Vocabulary
from treemem.nn import (
    DIORA,
    LSTM,
    ONLSTM,
    SPINN,
    BeamTreeGRC,
    CRvNN,
    DisjointTreeLSTM,
    EfficientBeamTreeGRC,
    GumbelTreeLSTM,
    MemoryRNN,
    OrderedMemory,
    RRNet,
    Transformer,
    TreeLSTM,
)

FOREST = Forest.from_trees(["(f x y)", "(f (f x y) x)"])
VOCABULARY = Vocabulary.from_forest(FOREST)
LAYERS = [TreeLSTM, LSTM, OrderedMemory, Transformer]
CHOOSING: dict[str, Callable[..., torch.nn.Module]] = {
    "EfficientBeamTreeGRC": EfficientBeamTreeGRC,
    "BeamTreeGRC": BeamTreeGRC,
    "BeamTreeGRC with OneSoft": partial(BeamTreeGRC, top_k="onesoft"),
    "GumbelTreeLSTM": GumbelTreeLSTM,
    "CRvNN": CRvNN,
    "SPINN": SPINN,
    "RL-SPINN": partial(SPINN, transitions="reinforced"),
    "RRNet": RRNet,
}
WITH_NAIVE_ENGINE = {**CHOOSING, "DIORA": DIORA}


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


@pytest.mark.parametrize("layer_class", [LSTM, DisjointTreeLSTM])
def test_transforms_are_refused_in_plain_words(layer_class: type[torch.nn.Module]) -> None:
    model = Classifier(layer_class(8, VOCABULARY))
    with pytest.raises(RuntimeError, match=r"does not run within torch.func transforms"):
        grad(total_of(model))(dict(model.named_parameters()))


@pytest.mark.parametrize("make", WITH_NAIVE_ENGINE.values(), ids=WITH_NAIVE_ENGINE)
def test_the_fused_engine_refuses_transforms_and_names_the_naive_one(make: Callable[..., torch.nn.Module]) -> None:
    model = Classifier(make(8, VOCABULARY)).eval()
    with pytest.raises(RuntimeError, match=r"set layer\.engine to 'naive'"):
        grad(total_of(model))(dict(model.named_parameters()))


@pytest.mark.parametrize("engine", ["fused", "naive"])
@pytest.mark.parametrize("make", CHOOSING.values(), ids=CHOOSING)
def test_layers_that_choose_their_trees_refuse_vmap(make: Callable[..., torch.nn.Module], engine: str) -> None:
    model = Classifier(make(8, VOCABULARY, engine=engine)).eval()
    several = {name: torch.stack([value, value]).detach() for name, value in model.named_parameters()}
    with pytest.raises(RuntimeError, match="does not run within vmap, on any engine; use a loop"):
        vmap(total_of(model))(several)


@pytest.mark.parametrize(
    "layer",
    [
        TreeLSTM(8, VOCABULARY),
        OrderedMemory(8, VOCABULARY),
        *(ONLSTM(8, VOCABULARY, chunk_size=2, engine=engine) for engine in ("auto", "naive")),
        *(MemoryRNN(8, VOCABULARY, cell=cell, memory="none") for cell in ("RNN", "GRU", "LSTM")),
        *(make(8, VOCABULARY, engine="naive") for make in WITH_NAIVE_ENGINE.values()),
    ],
)
def test_transforms_give_the_gradients(layer: torch.nn.Module) -> None:
    model = Classifier(layer).eval()
    parameters = dict(model.named_parameters())
    found = grad(total_of(model))(parameters)
    expected = torch.autograd.grad(total_of(model)(parameters), [*parameters.values()], allow_unused=True)
    for gradient, other in zip(found.values(), expected, strict=True):
        torch.testing.assert_close(gradient, torch.zeros_like(gradient) if other is None else other)
