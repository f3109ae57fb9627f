from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tree_networks import LAYERS
from tree_strategies import VOCABULARY, random_forest

from treemem.errors import GraphError, RecipeError, VocabularyError
from treemem.nn import (
    LSTM,
    ChildSumTreeLSTM,
    EqualityHead,
    NumberDecoder,
    StackTreeLSTM,
    StackTreeRNN,
    TreeCell,
    TreeLayer,
    TreeLSTM,
    TreeNetwork,
    TreeRNN,
)
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.formats.equations.labels import BINARY_FUNCTIONS, LEAF_LABELS, NUMBER, UNARY_FUNCTIONS
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

EQUATIONS = Vocabulary(
    LEAF_LABELS,
    [*((name, 1) for name in UNARY_FUNCTIONS), *((name, 2) for name in BINARY_FUNCTIONS)],
    number=NUMBER,
)


@pytest.mark.parametrize(
    ("layer_class", "hidden_size", "options", "published"),
    [
        (TreeRNN, 45, {}, 73_937),
        (TreeRNN, 100, {}, 356_802),
        (TreeLSTM, 50, {}, 362_952),
        (TreeLSTM, 60, {}, 520_742),
        (StackTreeLSTM, 50, {"normalize": True, "no_op": True}, 530_852),
        (StackTreeLSTM, 60, {"normalize": True, "no_op": True}, 761_822),
    ],
)
def test_networks_are_as_large_as_the_published_ones(
    layer_class: type[TreeLayer], hidden_size: int, options: dict[str, Any], published: int
) -> None:
    modules = [layer_class(hidden_size, EQUATIONS, **options), NumberDecoder(hidden_size), EqualityHead()]
    assert sum(parameter.numel() for module in modules for parameter in module.parameters()) == published


def assert_uniform(values: torch.Tensor, bound: float) -> None:
    """Assert that values look drawn from U(-bound, bound)."""
    values = values.detach()
    assert values.abs().max() <= bound
    assert values.abs().max() > 0.98 * bound
    assert abs(float(values.mean())) < 0.03 * bound
    assert float(values.std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)


def test_affine_maps_start_as_those_of_the_published_code() -> None:
    torch.manual_seed(0)
    size, bound = 40, 1 / math.sqrt(40)
    lstm = TreeLSTM(size, EQUATIONS).cell.maps
    assert_uniform(lstm.of(1).weight, bound)
    assert_uniform(lstm.of(1).bias, bound)
    assert_uniform(lstm.of(2).weight, bound)  # two maps of one child each, not one of both
    assert not lstm.of(2).bias.any()
    for layer in (TreeRNN(size, EQUATIONS), StackTreeLSTM(size, EQUATIONS)):
        assert_uniform(layer.cell.maps.of(1).weight, bound)
        assert_uniform(layer.cell.maps.of(2).weight, bound / math.sqrt(2))
    assert_uniform(StackTreeLSTM(size, EQUATIONS).cell.maps.of(2).bias, bound / math.sqrt(2))
    cell = StackTreeRNN(200, EQUATIONS).cell
    for maps in (cell.maps, cell.memory_maps, cell.control_maps, cell.row_maps):
        assert_uniform(maps.of(2).weight, 1 / math.sqrt(400))
    gated = TreeCell(50, EQUATIONS).cell
    assert_uniform(gated.hidden_maps.of(2).weight, 1 / math.sqrt(100))
    assert_uniform(gated.gate_maps.of(2).weight, 1 / math.sqrt(200))
    assert gated.norm.weight.eq(1).all()
    assert not gated.norm.bias.any()
    embedding = TreeRNN(200, EQUATIONS).leaves.embedding.weight.detach()
    assert float(embedding.mean()) == pytest.approx(0, abs=0.03)
    assert float(embedding.std()) == pytest.approx(1, rel=0.03)


@pytest.mark.parametrize("layer_class", LAYERS)
def test_reset_parameters_draws_everything_anew_and_follows_the_seed(layer_class: type[TreeLayer]) -> None:
    layer = layer_class(6, VOCABULARY)
    states = [{name: value.clone() for name, value in layer.state_dict().items()}]
    for _ in range(2):
        torch.manual_seed(3)
        layer.reset_parameters()
        states.append({name: value.clone() for name, value in layer.state_dict().items()})
    for name, value in states[1].items():
        assert torch.equal(value, states[2][name])
        assert bool((value == value.flatten()[0]).all()) or not torch.equal(value, states[0][name]), name


OPTIONS: list[tuple[Any, dict[str, Any]]] = [
    (TreeRNN, {"activation": "tanh", "dropout": 0.1, "direction": "down"}),
    (TreeLSTM, {"direction": "both"}),
    (TreeLSTM, {"input_size": 5, "node_features": True, "shared_kinds": True}),
    (ChildSumTreeLSTM, {"leaf": "two-layer", "shared_kinds": False}),
    (TreeCell, {"shared_kinds": True, "dropout": 0.2, "leaf_dropout": 0.1}),
    (TreeLSTM, {"embedding_size": 7}),
    (StackTreeRNN, {"stack_size": 3, "read": "own", "top_k": 2, "pop_zero": "after_map", "no_op": True}),
    (StackTreeLSTM, {"stack_size": 3, "normalize": True, "top_k": 2, "gated_top_k": True, "queue": True}),
]


@pytest.mark.parametrize(("layer_class", "options"), OPTIONS)
def test_a_layer_is_rebuilt_from_its_plain_options(layer_class: Any, options: dict[str, Any]) -> None:
    layer = layer_class(4, VOCABULARY, **options)
    plain = json.loads(json.dumps(layer.options))
    again = layer_class(vocabulary=VOCABULARY, **plain)
    again.load_state_dict(layer.state_dict())
    assert again.options == layer.options
    for name, value in options.items():
        assert layer.options[name] == ("softmax_of_gates" if name == "normalize" else value)
        assert f"{name}={layer.options[name]!r}" in repr(layer)


def test_two_layer_leaves_are_a_network_over_one_hot_symbols() -> None:
    vocabulary = Vocabulary(["x", "y", "z"], [("f", 1)])
    layer = TreeRNN(4, vocabulary, leaf="two-layer")
    batch = TreeBatch.from_trees([Tree("z"), Tree("x")], vocabulary)
    assert layer.leaves is not None
    assert layer.leaves.second is not None
    one_hot = torch.eye(3)[[2, 0]]
    hidden = torch.sigmoid(one_hot @ layer.leaves.embedding.weight)
    torch.testing.assert_close(layer(batch).root[:, 0], torch.sigmoid(layer.leaves.second(hidden)))


@pytest.mark.parametrize("layer_class", LAYERS)
def test_leaves_compute_the_cell_from_vectors_of_their_labels_as_from_features(layer_class: type[TreeLayer]) -> None:
    vocabulary = Vocabulary(["x", "y", "z"], [("f", 2)])
    trees = [Tree("f", [Tree("f", ["x", "y"]), "z"]), Tree("y")]
    layer = layer_class(4, vocabulary, embedding_size=2)
    of_features = layer_class(4, vocabulary, input_size=2, node_features=False)
    assert layer.leaves is not None
    assert layer.leaves.embedding.weight.shape == (3, 2)
    weights = {name: value for name, value in layer.state_dict().items() if not name.startswith("leaves.")}
    of_features.load_state_dict(weights)
    batch = TreeBatch.from_trees(trees, vocabulary, share_subtrees=False)
    vectors = layer.leaves.embedding.weight
    feat = torch.stack([torch.zeros(2) if node.children else vectors["xyz".index(node.label)] for node in nodes(trees)])
    states, expected = layer(batch), of_features(batch, feat)
    for name in expected.names:
        torch.testing.assert_close(states[name], expected[name])


def nodes(trees: list[Tree]) -> list[Tree]:
    return [node for tree in trees for node in tree.postorder()]


def batch_of(**options: Any) -> TreeBatch:
    return TreeBatch.from_forest(random_forest(seed=6, num_trees=6, size=12, widest=2), VOCABULARY, **options)


@pytest.mark.parametrize("layer_class", LAYERS)
def test_states_are_in_node_order_and_pairs_come_as_pairs(layer_class: type[TreeLayer]) -> None:
    layer, batch = layer_class(3, VOCABULARY), batch_of()
    states, pairs = layer(batch), layer(batch_of(trees_per_example=2))
    assert batch.forest is not None
    for name in states.names:
        assert torch.equal(states[name], states.rows[name][batch.schedule.row_of_node])
    assert torch.equal(states.h[torch.from_numpy(batch.forest.begin[1:] - 1)], states.root[:, 0])
    assert states.h is states.h, "gathered once"
    torch.testing.assert_close(pairs.root, states.root.view(3, 2, 3))
    with pytest.raises(AttributeError, match="no state 'z'; there are 'h'"):
        states.z  # noqa: B018


def test_states_that_were_looked_at_without_gradients_have_them_afterwards() -> None:
    layer = TreeLSTM(4, VOCABULARY)
    for without in (torch.no_grad, torch.inference_mode):
        states = layer(batch_of())
        with without():
            assert not states.h.requires_grad
        states.h.square().sum().backward()


def test_features_of_another_precision_are_read_in_that_of_the_layer() -> None:
    layer, batch = TreeLSTM(3, VOCABULARY, input_size=2), batch_of(share_subtrees=False)
    feat = torch.randint(0, 3, (batch.num_nodes, 2))
    torch.testing.assert_close(layer(batch, feat).root, layer(batch, feat.double()).root)


def test_subclasses_copies_and_layers_without_a_vocabulary_know_their_options() -> None:
    class PassedOn(TreeLSTM):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)

    layer = PassedOn(3, VOCABULARY, arities=None, dropout=0.1)
    assert layer.options == TreeLSTM(3, VOCABULARY, dropout=0.1).options
    layer.engine = "naive"
    assert copy.deepcopy(layer).options == layer.options
    for options in ({}, {"arities": (1, 3)}):
        layer = TreeLSTM(4, input_size=3, **options)
        again = TreeLSTM(vocabulary=None, **json.loads(json.dumps(layer.options)))
        assert again.cell.sets.arities == layer.cell.sets.arities == options.get("arities", (2,))
    same = Vocabulary.from_dict(VOCABULARY.to_dict())
    assert TreeLSTM(3, same)(FEW).root.shape == (1, 1, 3)


def test_no_attribute_is_named_by_a_label() -> None:
    vocabulary = Vocabulary(["x", "weight"], [("pop", 1), ("a.b", 1), ("forward", 2), ("", 2)])
    tree = Tree("forward", [Tree("pop", ["x"]), Tree("", ["weight", Tree("a.b", ["x"])])])
    for layer_class in LAYERS:
        layer = layer_class(3, vocabulary)
        assert layer(TreeBatch.from_trees([tree], vocabulary)).root.isfinite().all()
        assert not any("pop" in name or "a.b" in name for name in layer.state_dict())


def trees_of(*trees: Tree | str, vocabulary: Vocabulary = VOCABULARY, **options: Any) -> TreeBatch:
    return TreeBatch.from_trees([*trees], vocabulary, **options)


WIDE = Vocabulary(["x"], [("f", 50_000), ("g", 2)])
FEW = trees_of(Tree("g", [Tree("x")]), share_subtrees=False)
CELL = TreeLSTM(4, VOCABULARY).cell
REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    *(
        (lambda layer=layer: layer(2, WIDE)(wide()), GraphError, "50000 has 50000 children.* raise max_arity=32")
        for layer in (TreeRNN, TreeLSTM, TreeCell, StackTreeRNN, StackTreeLSTM)
    ),
    (lambda: TreeRNN(2, WIDE, max_arity=1)(pair()), GraphError, "node 2 has 2 children.* raise max_arity=1,"),
    (lambda: TreeLSTM(3, OTHER)(FEW), VocabularyError, "another vocabulary"),
    (lambda: LSTM(3, OTHER)(FEW), VocabularyError, "another vocabulary"),
    (lambda: TreeLSTM(3, VOCABULARY)("f(x)"), GraphError, "a DGLGraph or a Data of PyG, not str"),
    (lambda: LSTM(3, VOCABULARY)("f(x)"), GraphError, "a DGLGraph or a Data of PyG, not str"),
    (lambda: TreeRNN(4, input_size=3, arities=2), RecipeError, "arities must be whole numbers in a sequence"),
    (lambda: TreeRNN(4, input_size=3, arities="12"), RecipeError, "arities must be whole numbers in a sequence"),
    (lambda: TreeRNN(4, input_size=3, arities=[2.0]), RecipeError, r"arities must be a whole number, not 2\.0"),
    (lambda: TreeRNN(4, input_size=3, arities=[0]), RecipeError, "arities must be at least 1"),
    (lambda: TreeRNN(4, VOCABULARY, max_arity=None), RecipeError, "max_arity must be a whole number"),
    (lambda: TreeRNN(4, VOCABULARY, arities=(1, 2)), RecipeError, "arities go with a layer without a vocabulary"),
    (lambda: network_of(embedding_size=3, input_size=5), RecipeError, "embedding_size and input_size"),
    (lambda: TreeLSTM(4, VOCABULARY, embedding_size=3, input_size=5), RecipeError, "embedding_size and input_size"),
    (lambda: TreeLSTM(4, VOCABULARY, embedding_size=0), RecipeError, "embedding_size must be at least 1"),
    (lambda: TreeLSTM(4, embedding_size=3, input_size=None), RecipeError, "needs a vocabulary, or input_size"),
    (lambda: network_of(embedding_size="3"), RecipeError, "embedding_size must be a whole number"),
    *((lambda layer=layer: layer(4), RecipeError, "needs a vocabulary, or input_size") for layer in LAYERS),
    (lambda: ChildSumTreeLSTM(4, input_size=2, shared_kinds=False), RecipeError, "shared_kinds=False needs a vocabul"),
    (lambda: TreeNetwork(CELL, embedding_size=4), RecipeError, "embedding_size needs a vocabulary"),
    (lambda: reader()(trees_of("(g x)"), torch.zeros(2, 2)), GraphError, "share_subtrees=False"),
    (lambda: reader()(FEW), GraphError, "this layer reads features"),
    (lambda: reader()(FEW, torch.zeros(1, 2)), GraphError, r"feat must be \[2, 2\], not \[1, 2\]"),
    (lambda: reader()(FEW, torch.zeros(2, 3)), GraphError, r"feat must be \[2, 2\], not \[2, 3\]"),
    (lambda: reader()(FEW, torch.zeros(2)), GraphError, r"feat must be \[2, 2\], not \[2\]"),
    (lambda: TreeLSTM(3, VOCABULARY)(FEW, torch.zeros(2, 2)), GraphError, "this layer takes no features"),
]
OTHER = Vocabulary(["x"], [("f", 1)])


def wide() -> TreeBatch:
    return trees_of(Tree("f", [Tree("x")] * 50_000), vocabulary=WIDE)


def pair() -> TreeBatch:
    return trees_of(Tree("g", [Tree("x")] * 2), vocabulary=WIDE, share_subtrees=False)


def network_of(**options: Any) -> TreeNetwork:
    return TreeNetwork(CELL, vocabulary=VOCABULARY, **options)


def reader() -> TreeLSTM:
    return TreeLSTM(3, VOCABULARY, input_size=2)


@pytest.mark.parametrize(("run", "error", "words"), REFUSED)
def test_what_does_not_fit_is_refused(run: Callable[[], object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        run()
