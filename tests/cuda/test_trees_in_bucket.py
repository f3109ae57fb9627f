"""Batches of trees in buckets: what runs depends on the bucket alone, and gives what the batch gives."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from engine_parity import assert_same
from fake_device import DEVICE, HAS_INTERPRETER, DeviceTensor, FakeDevice, FakeLauncher, fake_device
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from tree_networks import make
from tree_strategies import VOCABULARY, forests

from treemem import Forest, RecipeError, TreeBatch
from treemem.engines.cuda import plan
from treemem.engines.cuda.plan import Layout, ProductLayout
from treemem.engines.cuda.trees_in_bucket import BucketPlans, PaddedTrees
from treemem.nn import ClassifierHead, TreeNetwork
from treemem.ops import CapturedStep
from treemem.schedule import padded

needs_interpreter = pytest.mark.skipif(not HAS_INTERPRETER, reason="Triton is not installed, or there is a GPU")
BATCHES = [
    ["(add (f x) (max x (g y) (f (g 1))))", "x", "(g y)"],
    ["(max (g x) x (add y 1))"],
    ["(f (g (f (add y y))))", "(add (f y) y)", "(max x (f y) 1)"],
]
"""Of one bucket, with 3, 2 and 4 levels of inner nodes."""


@pytest.fixture(autouse=True)
def _few_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(padded, "_FEWEST_TILES", 4)


def batch(texts: list[str], share: bool = True) -> TreeBatch:
    return TreeBatch.from_forest(Forest.from_trees(texts), VOCABULARY, share_subtrees=share)


def test_batches_of_a_bucket_have_the_same_sizes_and_others_have_not() -> None:
    sizes = {PaddedTrees(batch(texts), 4).sizes for texts in BATCHES}
    assert len(sizes) == 1
    (of_bucket,) = sizes
    assert (of_bucket.trees, len(of_bucket.tiles)) == (4, 4)
    larger = {PaddedTrees(batch(texts), 4).sizes for texts in ([*BATCHES[0], "x", "x"], BATCHES[0] + ["(add x y)"] * 9)}
    assert not larger & sizes


@given(forests())
@settings(max_examples=15, deadline=None)
def test_a_padded_batch_has_the_encodings_and_nodes_of_the_batch(forest: Forest) -> None:
    network, trees = make("tree lstm"), TreeBatch.from_forest(forest, VOCABULARY)
    found, expected = CapturedStep(network.in_bucket, network, examples=4)(trees), network(trees)
    assert len(found.root) % 4 == 0
    torch.testing.assert_close(found.root[: len(forest)], expected.root, rtol=0, atol=1e-14)
    torch.testing.assert_close(found.c[: forest.num_nodes], expected.c, rtol=0, atol=1e-14)
    for added in found.root[len(forest) :]:
        torch.testing.assert_close(added, expected.root[0], rtol=0, atol=1e-14)


def recorded(network: TreeNetwork, trees: list[TreeBatch]) -> list[list[Any]]:
    """What a training step on each batch runs on the device: kernels with their grids, operations with their shapes."""
    found: list[list[Any]] = []
    launch, dispatch = FakeLauncher.launch, FakeDevice.__torch_dispatch__

    def shapes(arguments: Any) -> Any:
        return tree_map(lambda x: (*x.shape, x.dtype) if isinstance(x, Tensor) else x, arguments)

    def launched(self: Any, kernel: Any, grid: Any, *arguments: Any, **options: Any) -> None:
        found[-1].append((kernel.__name__, grid, shapes(arguments)))
        launch(self, kernel, grid, *arguments, **options)

    def dispatched(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = dispatch(self, func, types, args, kwargs)
        if any(isinstance(x, DeviceTensor) for x in tree_leaves([args, outputs])):
            found[-1].append((str(func), shapes([args, outputs])))
        return outputs

    def step(given: Any, weight: Tensor) -> None:
        network.zero_grad()
        found.append([])
        with (
            mock.patch.object(FakeLauncher, "launch", launched),
            mock.patch.object(FakeDevice, "__torch_dispatch__", dispatched),
        ):
            (network.in_bucket(given).root.sum((1, 2)) * weight).sum().backward()

    captured = CapturedStep(step, network, examples=4, most_bytes=0)  # which runs as usual
    with fake_device(runs_kernels=False):
        network.to(DEVICE)
        for each in (trees[0], *trees):  # formulas are traced at first
            captured(each, torch.ones(each.num_trees).double())
    return found[1:]


@needs_interpreter
def test_batches_of_a_bucket_have_the_same_launches_grids_and_shapes() -> None:
    first, second, third, larger = recorded(make("child sum"), [batch(texts) for texts in (*BATCHES, BATCHES[1] * 9)])
    assert first == second == third
    assert first != larger
    kernels = [step for step in first if step[0] in ("forward", "backward")]
    assert [grid for _, grid, _ in kernels] == [(4,)] * 8


def outcome(network: TreeNetwork, trees: TreeBatch, feat: Tensor | None, device: Any) -> dict[str, Tensor]:
    """Encodings and gradients of a step in a bucket; on the CPU the step runs on the engine 'autograd'."""
    network.zero_grad()
    network.engine = "auto" if device == DEVICE else "autograd"

    def step(given: Any, weight: Tensor) -> dict[str, Tensor]:
        root = network.in_bucket(given).root
        (root.sin().sum((1, 2)) * weight).sum().backward()
        gradients = {
            name: torch.zeros_like(value) if value.grad is None else value.grad
            for name, value in network.named_parameters()
        }
        return {"root": root.detach(), **gradients}

    weight = torch.arange(1, trees.num_trees + 1).double()
    found = CapturedStep(step, network.to(device), examples=4)(trees.with_feat(feat), weight)
    return {name: value.cpu() for name, value in found.items()}


@needs_interpreter
@pytest.mark.usefixtures("unset_memory_is_nan")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("child sum", {"input_size": 2, "node_features": True}),
        pytest.param("tree cell shared kinds", {}, marks=pytest.mark.slow),
        pytest.param("stack rnn no-op", {"hidden_size": 65}, marks=pytest.mark.slow),
    ],
)
def test_outputs_and_gradients_are_those_of_the_batch(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "_FEWEST_ROWS", 2)  # so that gradients are sums of several parts
    monkeypatch.setattr(plan, "_FEWEST_EDGES", 2)
    network, trees = make(name, **options), batch(["(add (f x) 1)", "(add x (f x))"], share=not options)
    feat = torch.randn(trees.num_nodes, 2).double() if "input_size" in options else None
    with fake_device():
        found = outcome(network, trees, feat, DEVICE)
        network.cpu()
    assert_same(found, outcome(network, trees, feat, "cpu"), name)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Up to two products for each arity, whose weights arities may share."""
    products, begin = [], 0
    kinds_of_arity = VOCABULARY.kinds_of_arity
    sizes = st.integers(1, 40)
    for arity in sorted(kinds_of_arity):
        of_arity = []
        for _ in range(draw(st.integers(0, 2))):
            chosen = draw(st.one_of(st.none(), st.lists(st.integers(0, 2), min_size=9, max_size=9)))
            pairs = None if chosen is None else tuple(zip(kinds_of_arity[arity], chosen, strict=False))
            outputs, inputs, shared = draw(sizes), draw(sizes), draw(st.booleans())
            weight = 0 if shared else (begin := begin + 20000)
            of_arity.append(ProductLayout(draw(st.integers(1, 3)), outputs, inputs, pairs, weight, weight + 10000))
        products.append((arity, tuple(of_arity)))
    factors = tuple((arity, draw(st.integers(0, 2))) for arity, _ in products)
    return Layout(tuple(products), factors, begin + 20000, draw(st.sampled_from([2, 8, 16])))


@given(forests(), layouts(), st.booleans(), st.sampled_from([1, 3]))
@settings(max_examples=50, deadline=None)
def test_all_tables_of_a_batch_fit_into_those_of_its_bucket(
    forest: Forest, layout: Layout, share: bool, most_parts: int
) -> None:
    with mock.patch.object(padded, "_FEWEST_ROWS", 1):
        given = PaddedTrees(TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=share), 1)
    sizes = given.sizes
    layout = layout._replace(
        products=tuple(pair for pair in layout.products if pair[0] in dict(sizes.inner)),
        factors=tuple(pair for pair in layout.factors if pair[0] in dict(sizes.inner)),
    )
    if not layout.products:
        return
    with mock.patch.multiple(plan, _FEWEST_ROWS=2, _FEWEST_EDGES=2, _MOST_PARTS=most_parts), fake_device():
        plans = BucketPlans(sizes, DEVICE)
        given.given(given.tensors, plans)
        made = plans.of(layout)
        tiles, jobs = made.tiles.cpu().numpy(), made.jobs.cpu().numpy()
    of_level = [tiles[first : first + count, 2].sum() for first, count in made.levels]
    expected = [level.end - level.begin for level in given.on(torch.device("cpu")).schedule.levels[1:]]
    assert of_level == expected + [0] * (len(of_level) - len(expected))
    used = jobs[jobs[:, 3] > 0]
    assert (used[:, 6] + used[:, 3] <= made.num_parts * layout.num_weights).all()
    assert len(np.unique(used[:, 5:], axis=0)) == len(used), "two jobs write to one place"
    assert (used[:, 0] + used[:, 2] * used[:, 3] <= made.num_products).all()
    assert (used[:, 1] + used[:, 2] * used[:, 4] <= made.num_inputs).all()


def test_labels_of_nodes_are_padded_as_the_nodes_are() -> None:
    network, head = make("tree rnn"), ClassifierHead(3, 2, nodes="every").double()
    trees, label = batch(BATCHES[0]), torch.arange(batch(BATCHES[0]).num_nodes) % 2

    def step(given: Any, label: Tensor) -> Tensor:
        return head.loss(head(network.in_bucket(given)), label)

    found = CapturedStep(step, network, examples=5, padding=(-1,), of_nodes=(0,))(trees, label)
    torch.testing.assert_close(found, head.loss(head(network(trees)), label), rtol=0, atol=1e-14)


@needs_interpreter
@pytest.mark.usefixtures("unset_memory_is_nan")
def test_dropout_is_drawn_anew_at_each_replay_and_added_rows_are_numbers() -> None:
    network = make("tree rnn", dropout=0.5)
    with fake_device():
        step = CapturedStep(lambda given: network.in_bucket(given).rows["h"], network.to(DEVICE), examples=4)
        first, second, third = (step(batch(BATCHES[0])).detach().cpu() for _ in range(3))
        assert step.num_graphs == 1
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)
    assert not third.isnan().any()


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("tree lstm both ways", {}, "TreeLSTM cannot run trees in buckets: the way down is made for each batch"),
        ("tree lstm", {"engine": "naive"}, "the engine 'naive' passes messages by DGL"),
        ("tree lstm", {"engine": "autograd"}, "in a CUDA graph trees run on the engine 'cuda', not on 'autograd'"),
        ("stack rnn own", {}, "the engine 'cuda' cannot run here: .*; run the step with enabled=False"),
    ],
)
def test_what_is_not_captured_is_refused(name: str, options: dict[str, Any], reason: str) -> None:
    network = make(name, **options)
    with fake_device():
        step = CapturedStep(network.in_bucket, network.to(DEVICE))
        with pytest.raises(RecipeError, match=reason):
            step(batch(BATCHES[0]))


def test_layers_that_the_first_batch_did_not_run_are_refused() -> None:
    layers = torch.nn.ModuleList([make("tree rnn"), make("tree rnn", hidden_size=4)])
    in_turn = iter(layers)
    with fake_device(runs_kernels=False):
        step = CapturedStep(lambda given: next(in_turn).in_bucket(given).root, layers.to(DEVICE))
        step(batch(BATCHES[0]))
        with pytest.raises(RecipeError, match="runs other layers over its trees than before"):
            step(batch(BATCHES[0]))
