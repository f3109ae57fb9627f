"""What the engines meet where it is not alone: hooks, transforms, subclasses, features of odd widths."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from engine_parity import ENGINES, assert_same, needs_dgl, results
from fake_device import DEVICE, fake_device
from torch.utils.checkpoint import checkpoint
from tree_networks import ONE_OF_EACH, make
from tree_strategies import VOCABULARY, random_forest

from treemem.engines.propagate import Engine
from treemem.errors import RecipeError
from treemem.native import compile_mode
from treemem.nn import ONLSTM, OrderedMemory, RowCache, StackTreeLSTM, TreeCell, TreeLayer, TreeLSTM
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

needs_compiler = pytest.mark.skipif(not compile_mode.compiler(), reason="there is no C++ compiler")


def trees() -> list[Tree]:
    x, y = Tree("x"), Tree("y")
    deep = Tree("f", [Tree("g", [Tree("f", [Tree("add", [x, Tree("g", [y])])])])])
    return [deep, Tree("add", [Tree("g", [x]), Tree("f", [Tree("add", [y, x])])]), x]


def batch() -> TreeBatch:
    return TreeBatch.from_trees(trees(), VOCABULARY, share_subtrees=False)


def features(width: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(batch().num_nodes, width, dtype=dtype, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("layer_class", [TreeLSTM, StackTreeLSTM])
def test_features_of_several_kinds_run_under_autocast(layer_class: type[TreeLayer]) -> None:
    torch.manual_seed(0)
    layer, feat = layer_class(3, VOCABULARY, input_size=2, node_features=True), features(2, torch.float32)
    found = {}
    for engine in ("auto", "autograd"):
        layer.engine = engine  # type: ignore[assignment]
        with torch.autocast("cpu", torch.bfloat16):
            states = layer(batch(), feat)
        assert states.h.dtype == torch.float32
        found[engine] = states.h.detach()
    torch.testing.assert_close(found["auto"], found["autograd"], rtol=0, atol=0.03)


def test_float64_stays_exact_under_autocast() -> None:
    torch.manual_seed(0)
    layer, feat = TreeLSTM(3, VOCABULARY, input_size=2).double(), features(2)
    exact = layer(batch(), feat).h
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(layer(batch(), feat).h, exact, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("layer_class", "node_features"), [(TreeLSTM, False), (StackTreeLSTM, True)])
def test_features_may_have_the_width_0(layer_class: type[TreeLayer], node_features: bool) -> None:
    torch.manual_seed(0)
    layer = layer_class(3, VOCABULARY, input_size=0, node_features=node_features).double()
    found = results(layer, batch(), "auto", features(0))
    assert_same(found, results(layer, batch(), "autograd", features(0)), "")


def test_layers_can_be_checkpointed() -> None:
    torch.manual_seed(0)
    layer, feat = TreeLSTM(3, VOCABULARY, input_size=2).double(), features(2).requires_grad_()
    (expected,) = torch.autograd.grad(layer(batch(), feat).root.sum(), feat)
    root = checkpoint(lambda given: layer(batch(), given).root, feat, use_reentrant=False)
    (found,) = torch.autograd.grad(root.sum(), feat)
    torch.testing.assert_close(found, expected)


def transposed_memory(value: torch.Tensor) -> torch.Tensor:
    return value.t().contiguous().t() if value.dim() == 2 else value


def shortened(value: torch.Tensor) -> torch.Tensor:
    return value.float() if value.is_floating_point() else value


@pytest.mark.parametrize("engine", ENGINES)
def test_saved_tensors_may_come_back_with_other_strides(engine: Engine) -> None:
    assert_gradients_with_hooks_agree(engine, transposed_memory)


@needs_compiler
def test_in_cpp_saved_tensors_may_come_back_in_another_precision() -> None:
    assert_gradients_with_hooks_agree("native", shortened)


def assert_gradients_with_hooks_agree(engine: Engine, unpack: Any) -> None:
    torch.manual_seed(0)
    layer = StackTreeLSTM(3, VOCABULARY, stack_size=3, engine=engine).double()
    parameters = list(layer.parameters())
    expected = torch.autograd.grad(layer(batch()).root.sum(), parameters, materialize_grads=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda value: value, unpack):
        found = torch.autograd.grad(layer(batch()).root.sum(), parameters, materialize_grads=True)
    for value, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(value, wanted, rtol=0, atol=1e-5, check_dtype=False)


@needs_compiler
def test_in_cpp_masks_are_gone_after_the_backward_pass_though_a_state_stays() -> None:
    layer = TreeCell(3, VOCABULARY, dropout=0.5, engine="native").double()
    states = layer(batch())
    root = states.root
    function: Any = states.rows["h"].grad_fn
    masks = [weakref.ref(mask) for mask in function.run.masks.values()]
    root.sum().backward()
    gc.collect()
    assert masks
    assert all(mask() is None for mask in masks)


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.vmap])
def test_within_transforms_the_layer_runs_in_plain_autograd(transform: Any) -> None:
    layer = TreeLSTM(3, VOCABULARY, input_size=2).double()
    given = features(2) if transform is torch.func.grad else torch.stack([features(2), 2 * features(2)])
    trees = batch()
    found = transform(lambda feat: layer(trees, feat).root.sum())(given)
    if transform is torch.func.vmap:
        torch.testing.assert_close(found, torch.stack([layer(trees, feat).root.sum() for feat in given]))
        return
    feat = given.requires_grad_()
    torch.testing.assert_close(found, *torch.autograd.grad(layer(trees, feat).root.sum(), feat))


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_jacobians_and_hessians_are_those_of_differences(name: str) -> None:
    layer = make(name, input_size=2)
    trees = TreeBatch.from_forest(
        random_forest(seed=2, num_trees=1, size=6, widest=3), VOCABULARY, share_subtrees=False
    )
    feat = torch.randn(trees.num_nodes, 2, dtype=torch.float64)
    tangent = torch.randn_like(feat)

    def root(feat: torch.Tensor) -> torch.Tensor:
        return layer(trees, feat).root.flatten()

    def slope(feat: torch.Tensor) -> torch.Tensor:
        return torch.func.jacrev(root)(feat)

    value, forward = torch.func.jvp(root, (feat,), (tangent,))
    torch.testing.assert_close(value, root(feat))
    torch.testing.assert_close(forward, difference(root, feat, tangent), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close((slope(feat) * tangent).sum((1, 2)), forward)
    hessian = torch.func.hessian(lambda feat: root(feat).square().sum())(feat)
    expected = difference(torch.func.grad(lambda feat: root(feat).square().sum()), feat, tangent)
    torch.testing.assert_close((hessian * tangent).sum((2, 3)), expected, rtol=1e-5, atol=1e-5)


def difference(function: Any, at: torch.Tensor, along: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return (function(at + 1e-6 * along) - function(at - 1e-6 * along)) / 2e-6


@pytest.mark.parametrize(
    ("engine", "remedy"),
    [("native", "'auto' or 'autograd'"), pytest.param("naive", "'autograd'", marks=needs_dgl)],
)
def test_transforms_are_refused_with_the_way_out(engine: Engine, remedy: str) -> None:
    layer = TreeLSTM(3, VOCABULARY, input_size=2, engine=engine)
    with pytest.raises((RuntimeError, RecipeError), match=remedy):
        torch.func.grad(lambda feat: layer(batch(), feat).root.sum())(features(2, torch.float32))


def test_a_batch_that_ran_in_inference_mode_and_in_a_transform_before_is_trained() -> None:
    layer, trees = TreeLSTM(3, VOCABULARY, input_size=2, engine="autograd").double(), batch()
    feat = features(2).requires_grad_()
    with torch.inference_mode():
        layer(trees, feat)
    torch.func.grad(lambda feat: layer(trees, feat).root.sum())(feat)
    layer(trees, feat).root.sum().backward()
    found, feat.grad = feat.grad, None
    layer(batch(), feat).root.sum().backward()
    torch.testing.assert_close(found, feat.grad)


def of_each(layer: torch.nn.Module, batch: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return the roots as a function of the weights, and two sets of weights as one."""
    several = {name: torch.stack([value, 2 * value]).detach() for name, value in layer.named_parameters()}
    return lambda weights: torch.func.functional_call(layer, weights, (batch,)).root, several


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("layer_class", [TreeLSTM, TreeCell])
def test_several_sets_of_weights_run_within_vmap(layer_class: Any, engine: Engine) -> None:
    roots, weights = of_each(layer_class(3, VOCABULARY, engine=engine).double(), batch())
    weights = {name: value.requires_grad_() for name, value in weights.items()}
    found = torch.func.vmap(roots)(weights)
    expected = torch.stack([roots({name: value[place] for name, value in weights.items()}) for place in range(2)])
    torch.testing.assert_close(found, expected)
    for gradient, other in zip(
        torch.autograd.grad(found.square().sum(), [*weights.values()], materialize_grads=True),
        torch.autograd.grad(expected.square().sum(), [*weights.values()], materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(gradient, other)


@pytest.mark.parametrize("engine", ["auto", "naive"])
def test_the_ordered_memory_runs_within_vmap(engine: Any) -> None:
    roots, weights = of_each(OrderedMemory(3, VOCABULARY, slots=4, engine=engine).double(), batch())
    found = torch.func.vmap(roots)(weights)
    for place, root in enumerate(found):
        torch.testing.assert_close(root, roots({name: value[place] for name, value in weights.items()}))


@pytest.mark.parametrize("engine", ["auto", "naive"])
def test_on_lstm_runs_within_transforms(engine: Any) -> None:
    torch.manual_seed(0)
    layer, lengths = ONLSTM(4, VOCABULARY, chunk_size=2, engine=engine).double(), torch.tensor([3, 2])
    given = torch.randn(2, 2, 3, 4, dtype=torch.float64, requires_grad=True)

    def loss(inputs: torch.Tensor) -> torch.Tensor:
        return layer.read(inputs, lengths).encoding.square().sum()

    of_each = torch.stack([loss(each) for each in given])
    torch.testing.assert_close(torch.func.vmap(loss)(given), of_each)
    expected = torch.autograd.grad(of_each[0], given)[0][0]
    torch.testing.assert_close(torch.func.grad(loss)(given[0].detach()), expected)


def test_a_cache_of_rows_goes_on_from_inference_mode() -> None:
    torch.manual_seed(0)
    layer = TreeLSTM(3, VOCABULARY).eval()
    first, second, _ = trees()
    cache = RowCache(layer, SubtreeIndex(Forest.from_trees([first, first, second, second]), VOCABULARY))
    with torch.inference_mode():
        cache.encode(slice(0, 1))
    with torch.no_grad():
        found = cache.encode(slice(2, 3))  # keeps rows that it has not met before
        torch.testing.assert_close(found, layer(TreeBatch.from_trees([second], VOCABULARY)).root)


@needs_dgl
def test_the_naive_engine_is_refused_on_another_device() -> None:
    layer = TreeLSTM(2, VOCABULARY, engine="naive")
    batch = TreeBatch.from_trees([Tree("x")], VOCABULARY)
    with fake_device(), pytest.raises(RecipeError, match=r"runs on a CPU only.*set layer.engine to 'auto'"):
        layer.to(DEVICE)(batch)
