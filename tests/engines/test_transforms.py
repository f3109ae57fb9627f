"""Layers within torch.compile, torch.export and transforms of torch.func: the same numbers, or the way out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from engine_parity import ENGINES, needs_dgl
from torch.func import functional_call, grad, vmap
from tree_networks import ONE_OF_EACH, make
from tree_strategies import VOCABULARY as LABELS
from tree_strategies import random_forest

from treemem import Forest, TreeBatch, Vocabulary
from treemem.engines.propagate import Engine
from treemem.errors import RecipeError
from treemem.networks import NetworkConfig
from treemem.nn import ClassifierHead, StackTreeLSTM, TreeCell, TreeLSTM

FOREST = Forest.from_trees(["(f x y)", "(f (f x y) x)"])
VOCABULARY = Vocabulary.from_forest(FOREST)
BATCH, UNSHARED = (TreeBatch.from_forest(FOREST, VOCABULARY, share_subtrees=share) for share in (True, False))
CHOOSING: dict[str, tuple[str, dict[str, Any]]] = {
    "EfficientBeamTreeGRC": ("EfficientBeamTreeGRC", {}),
    "BeamTreeGRC": ("BeamTreeGRC", {}),
    "BeamTreeGRC with OneSoft": ("BeamTreeGRC", {"top_k": "onesoft"}),
    "GumbelTreeLSTM": ("GumbelTreeLSTM", {}),
    "CRvNN": ("CRvNN", {}),
    "SPINN": ("SPINN", {}),
    "RL-SPINN": ("SPINN", {"transitions": "reinforced"}),
    "RRNet": ("RRNet", {}),
}
WITH_NAIVE_ENGINE = {**CHOOSING, "DIORA": ("DIORA", {})}


class Classifier(torch.nn.Module):
    """A layer with a head of plain torch."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer: Any = NetworkConfig(name, {"hidden_size": 8, **options}).build(VOCABULARY)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, batch: TreeBatch) -> torch.Tensor:
        return self.head(torch.relu(self.layer(batch).root.squeeze(1)))


def total_of(model: Classifier) -> Callable[[dict[str, torch.Tensor]], torch.Tensor]:
    return lambda values: functional_call(model, values, (BATCH,)).sum()


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch reads it while it traces
@pytest.mark.parametrize("name", ["TreeLSTM", "LSTM", "OrderedMemory", "Transformer"])
def test_a_compiled_model_calls_the_layer_as_it_is(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    model = Classifier(name)
    found = torch.compile(model, backend="aot_eager")(BATCH)
    torch.testing.assert_close(found, model(BATCH))
    found.sum().backward()
    assert all(parameter.grad is not None for parameter in model.head.parameters())
    assert "Graph break" not in capfd.readouterr().err


@pytest.mark.parametrize("name", ["LSTM", "DisjointTreeLSTM"])
def test_transforms_are_refused_in_plain_words(name: str) -> None:
    model = Classifier(name)
    with pytest.raises(RuntimeError, match=r"does not run within torch.func transforms"):
        grad(total_of(model))(dict(model.named_parameters()))


@pytest.mark.parametrize("name", WITH_NAIVE_ENGINE)
def test_the_fused_engine_refuses_transforms_and_names_the_naive_one(name: str) -> None:
    network, options = WITH_NAIVE_ENGINE[name]
    model = Classifier(network, **options).eval()
    with pytest.raises(RuntimeError, match=r"set layer\.engine to 'naive'"):
        grad(total_of(model))(dict(model.named_parameters()))


@pytest.mark.parametrize("engine", ["fused", "naive"])
@pytest.mark.parametrize("name", CHOOSING)
def test_layers_that_choose_their_trees_refuse_vmap(name: str, engine: str) -> None:
    network, options = CHOOSING[name]
    model = Classifier(network, **options, engine=engine).eval()
    several = {name: torch.stack([value, value]).detach() for name, value in model.named_parameters()}
    with pytest.raises(RuntimeError, match="does not run within vmap, on any engine; use a loop"):
        vmap(total_of(model))(several)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(("TreeLSTM", {"engine": engine}) for engine in ENGINES if engine != "naive"),
        ("OrderedMemory", {}),
        *(("ONLSTM", {"chunk_size": 2, "engine": engine}) for engine in ("auto", "naive")),
        *(("MemoryRNN", {"cell": cell, "memory": "none"}) for cell in ("RNN", "GRU", "LSTM")),
        *((name, {**options, "engine": "naive"}) for name, options in WITH_NAIVE_ENGINE.values()),
    ],
    ids=str,
)
def test_transforms_give_the_gradients(name: str, options: dict[str, Any]) -> None:
    model = Classifier(name, **options).eval()
    parameters = dict(model.named_parameters())
    found = grad(total_of(model))(parameters)
    expected = torch.autograd.grad(total_of(model)(parameters), [*parameters.values()], materialize_grads=True)
    torch.testing.assert_close([*found.values()], [*expected])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {"engine": engine}) for name in ("TreeLSTM", "TreeCell") for engine in ENGINES),
        *(("OrderedMemory", {"slots": 4, "engine": engine}) for engine in ("auto", "naive")),
        *(("ONLSTM", {"chunk_size": 2, "engine": engine}) for engine in ("auto", "naive")),
    ],
    ids=str,
)
def test_several_sets_of_weights_run_within_vmap(name: str, options: dict[str, Any]) -> None:
    model = Classifier(name, **options).double()
    several = {
        name: torch.stack([value, 2 * value]).detach().requires_grad_() for name, value in model.named_parameters()
    }
    found = vmap(total_of(model))(several)
    sets = [{name: value[place] for name, value in several.items()} for place in range(2)]
    expected = torch.stack([total_of(model)(each) for each in sets])
    torch.testing.assert_close(found, expected)
    ours, theirs = (
        torch.autograd.grad(each.square().sum(), [*several.values()], materialize_grads=True)
        for each in (found, expected)
    )
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_jacobians_and_hessians_are_those_of_differences(name: str) -> None:
    layer = make(name, input_size=2)
    trees = TreeBatch.from_forest(random_forest(2, 1, 6, widest=3), LABELS, share_subtrees=False)
    feat = torch.randn(trees.num_nodes, 2, dtype=torch.float64)
    tangent = torch.randn_like(feat)

    def root(feat: torch.Tensor) -> torch.Tensor:
        return layer(trees, feat).root.flatten()

    def loss(feat: torch.Tensor) -> torch.Tensor:
        return root(feat).square().sum()

    value, forward = torch.func.jvp(root, (feat,), (tangent,))
    torch.testing.assert_close(value, root(feat))
    torch.testing.assert_close(forward, difference(root, feat, tangent), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close((torch.func.jacrev(root)(feat) * tangent).sum((1, 2)), forward)
    expected = difference(grad(loss), feat, tangent)
    torch.testing.assert_close((torch.func.hessian(loss)(feat) * tangent).sum((2, 3)), expected, rtol=1e-5, atol=1e-5)
    several = torch.stack([feat, 2 * feat])
    torch.testing.assert_close(vmap(loss)(several), torch.stack([loss(each) for each in several]))


def difference(function: Any, at: torch.Tensor, along: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return (function(at + 1e-6 * along) - function(at - 1e-6 * along)) / 2e-6


def test_a_batch_that_ran_in_inference_mode_and_in_a_transform_before_is_trained() -> None:
    layer = TreeLSTM(3, VOCABULARY, input_size=2, engine="autograd").double()
    trees, fresh = (TreeBatch.from_forest(FOREST, VOCABULARY, share_subtrees=False) for _ in range(2))
    feat = torch.randn(trees.num_nodes, 2, dtype=torch.float64, requires_grad=True)
    with torch.inference_mode():
        layer(trees, feat)
    grad(lambda feat: layer(trees, feat).root.sum())(feat)
    torch.testing.assert_close(*(torch.autograd.grad(layer(batch, feat).root.sum(), feat) for batch in (trees, fresh)))


class Scorer(torch.nn.Module):
    """A class for each of some trees, of given shapes and inner labels, from the symbols of their leaves."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer, self.head = layer, ClassifierHead(layer.hidden_size, 2)

    def forward(self, symbol: torch.Tensor) -> torch.Tensor:
        schedule = dataclasses.replace(UNSHARED.schedule, symbol=symbol)
        return self.head(self.layer(TreeBatch(schedule, UNSHARED.vocabulary)))


@pytest.mark.parametrize("layer_class", [TreeCell, StackTreeLSTM])
def test_an_exported_layer_gives_the_same_scores_for_other_symbols(layer_class: Any) -> None:
    torch.manual_seed(0)
    module, symbol = Scorer(layer_class(4, VOCABULARY)).eval(), UNSHARED.schedule.symbol
    program = torch.export.export(module, (symbol,)).module()
    for other in (symbol, symbol.flip(0), torch.full_like(symbol, 1)):
        torch.testing.assert_close(program(other), module(other))
    assert not torch.equal(module(symbol), module(torch.full_like(symbol, 1)))


def test_an_exported_layer_reads_other_features() -> None:
    layer = TreeLSTM(4, VOCABULARY, input_size=3, node_features=True).eval()

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, feat: torch.Tensor) -> torch.Tensor:
            return self.layer(UNSHARED, feat).root

    feat = torch.randn(UNSHARED.num_nodes, 3)
    program = torch.export.export(Encoder(), (feat,)).module()
    torch.testing.assert_close(program(2 * feat), layer(UNSHARED, 2 * feat).root)


@pytest.mark.parametrize("engine", ["native", pytest.param("naive", marks=needs_dgl)])
def test_engines_that_nothing_can_follow_are_refused_with_the_way_out(engine: Engine) -> None:
    remedy = "'autograd'"
    layer = TreeLSTM(3, VOCABULARY, input_size=2, engine=engine)
    with pytest.raises((RuntimeError, RecipeError), match=remedy):
        grad(lambda feat: layer(UNSHARED, feat).root.sum())(torch.randn(UNSHARED.num_nodes, 2))
    scorer = Scorer(TreeLSTM(4, VOCABULARY, engine=engine))
    with pytest.raises(RecipeError, match=f"torch.export.*{remedy}|{engine}.*torch.export.*{remedy}"):
        torch.export.export(scorer, (UNSHARED.schedule.symbol,))
