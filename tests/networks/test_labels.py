"""Every network reads the label of every node, whatever shares parameters."""

from __future__ import annotations

from itertools import combinations
from typing import Any, get_args

import pytest
import torch
from engine_parity import ENGINES, HAS_DGL, needs_dgl
from tree_networks import NETWORKS as TREE_NETWORKS

from treemem.errors import GraphError
from treemem.networks import NetworkConfig, every_network
from treemem.networks.sequence_encoder import SequenceEncoder
from treemem.nn import ChildSumTreeLSTM, RowCache, TreeLayer, TreeLSTM, TreeNetwork
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.forest import Forest
from treemem.trees.token_layout import LEAVES_ALONE, TokenForm
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

OTHER_LEAF = ["(f (g (k x) y) (k y))", "(f (g (k y) y) (k y))"]
FEW_TOKENS = ["(f (k x) y)", "(g (k x) y)", "(f (l x) y)", "(f (k y) y)"]
OTHER_FUNCTION = [
    OTHER_LEAF[0],
    "(g (g (k x) y) (k y))",  # the root
    "(f (f (k x) y) (k y))",  # below it
    "(f (g (k x) y) (l y))",
    "(f (g (l x) y) (k y))",
]
UNKNOWN = ["(new (g (k x) y) (k y))", "(f (new (k x) y) (k y))", "(f (g (new x) y) (k y))", "(f (g (k x) y) (new y))"]
FOREST = Forest.from_trees([*OTHER_FUNCTION, OTHER_LEAF[1]])
VOCABULARIES: dict[str, dict[str, Any]] = {
    "labels": {},
    "arities": {"kinds": "arity"},
    "arities, unknown labels": {"kinds": "arity", "unknown": "<unk>"},
    "arities, numbers": {"kinds": "arity", "number": "Number"},
    "labels, unknown leaves, numbers": {"unknown": "<unk>", "number": "Number"},
}
FORMS: tuple[TokenForm, ...] = get_args(TokenForm)


def assert_all_differ(encodings: torch.Tensor) -> None:
    assert encodings.isfinite().all()
    for first, second in combinations(range(len(encodings)), 2):
        difference = (encodings[first] - encodings[second]).abs().max()
        assert difference > 1e-11 * encodings.abs().max(), (first, second)


def encoded(network: Any, batch: TreeBatch) -> torch.Tensor:
    with torch.no_grad():
        return network(batch).root.flatten(1)


def forest_of(vocabulary: Vocabulary) -> Forest:
    trees = list(FOREST)
    if vocabulary.accepts_unknown_functions:
        trees += Forest.from_trees(UNKNOWN)
    if vocabulary.unknown is not None:
        trees += Forest.from_trees(["(f (g (k x) y) (k unseen))"])
    if vocabulary.number is not None:
        trees += [Tree("f", [Tree("x"), Tree("Number", value=value)]) for value in (0.5, -1.5)]
    return Forest.from_trees(trees)


@pytest.mark.parametrize("kinds", VOCABULARIES)
@pytest.mark.parametrize(
    "name",
    [
        "tree rnn",
        "tree lstm shared kinds",
        "child sum",
        "tree lstm both ways",
        "tree cell",
        "stack rnn",
        "stack lstm queue",
    ],
)
def test_tree_layers_read_the_label_of_every_node_on_every_engine(name: str, kinds: str) -> None:
    vocabulary = Vocabulary.from_forest(FOREST, **VOCABULARIES[kinds])
    layer_class, options = TREE_NETWORKS[name]
    torch.manual_seed(0)
    if options.get("queue"):
        options = {**options, "stack_size": 1}  # lower trees than a longer queue leave its front empty
    layer = layer_class(3, vocabulary, **options, engine="autograd").double().eval()
    forest = forest_of(vocabulary)
    batch = TreeBatch.from_forest(forest, vocabulary)
    found = encoded(layer, batch)
    assert_all_differ(found)
    assert layer.cell.reads_labels == (
        kinds.startswith("arities") or layer.options.get("shared_kinds", False)
    )  # parameters are those of the published networks where each label has its own
    unshared = TreeBatch.from_forest(forest, vocabulary, share_subtrees=False)
    torch.testing.assert_close(encoded(layer, unshared), found, rtol=0, atol=1e-12)
    for engine in ENGINES if kinds == "arities, unknown labels" else ("naive",) if HAS_DGL else ():
        layer.engine = engine
        torch.testing.assert_close(encoded(layer, batch), found, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kinds", ["labels", "arities"])
@pytest.mark.parametrize(("name", "network"), every_network(12).items())
def test_every_network_reads_the_label_of_every_node(name: str, network: NetworkConfig, kinds: str) -> None:
    vocabulary = Vocabulary.from_forest(FOREST, **VOCABULARIES[kinds])
    reads_tokens = issubclass(network.constructor(), SequenceEncoder)  # type: ignore[arg-type]
    for form in FORMS if reads_tokens and kinds == "arities" else FORMS[:1]:  # tokens do not depend on kinds
        torch.manual_seed(0)
        encoder = network.build(vocabulary, form=form).double().eval()
        trees = OTHER_LEAF if form in LEAVES_ALONE else FEW_TOKENS
        assert_all_differ(encoded(encoder, TreeBatch.from_forest(Forest.from_trees(trees), vocabulary)))


@pytest.mark.parametrize("form", FORMS)
def test_tokens_of_unknown_functions_are_the_unknown_token(form: TokenForm) -> None:
    vocabulary = Vocabulary.from_forest(FOREST, kinds="arity", unknown="<unk>")
    batch = TreeBatch.from_trees(Forest.from_trees(["(new x y)", "(new2 x y)", "(f x y)"]), vocabulary)
    tokens, _ = batch.tokens(form)
    assert torch.equal(tokens[0], tokens[1])
    assert torch.equal(tokens[0], tokens[2]) == (form in LEAVES_ALONE)


class PlainCell(torch.nn.Module):
    """One map for all kinds, as users write it who trust in ``x``."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.map = torch.nn.Linear(size, size)

    def leaf(self, x: torch.Tensor, kind: int) -> dict[str, torch.Tensor]:
        return {"h": x}

    def forward(self, children: dict[str, torch.Tensor], x: torch.Tensor, kind: int) -> dict[str, torch.Tensor]:
        return {"h": torch.tanh(self.map(children["h"]).sum(1) + x)}


@pytest.mark.parametrize("engine", ["auto", "autograd", pytest.param("naive", marks=needs_dgl)])
@pytest.mark.parametrize(("kinds", "node_features"), [("arity", False), ("label", True)])
def test_a_cell_of_ones_own_reads_the_labels_of_inner_nodes(kinds: Any, node_features: bool, engine: Any) -> None:
    vocabulary = Vocabulary.from_forest(FOREST, kinds=kinds)
    network = TreeNetwork(
        PlainCell(4), vocabulary=vocabulary, embedding_size=4, node_features=node_features, engine=engine
    )
    assert_all_differ(encoded(network.double(), TreeBatch.from_forest(FOREST, vocabulary)))


def test_a_label_has_one_vector_at_leaves_and_at_inner_nodes_if_these_read_labels() -> None:
    vocabulary = Vocabulary(["the", "cat"], [("eats", 2), ("cat", 1)])
    layer = ChildSumTreeLSTM(4, vocabulary)
    batch = TreeBatch.from_trees(Forest.from_trees(["(eats (cat the) cat)"]), vocabulary)
    table = layer.leaves.embedding.weight  # type: ignore[union-attr]
    assert torch.equal(layer.leaves.of_functions(batch.schedule), table[[1, 2]])  # type: ignore[union-attr]
    assert torch.equal(layer.leaves(batch.schedule), table[[0, 1]])  # type: ignore[misc]
    binary = Vocabulary(["x", "y"], [("X", 2)], kinds="arity")
    for plain in (TreeLSTM(4, binary, shared_kinds=True), ChildSumTreeLSTM(4, binary)):
        assert not plain.cell.reads_labels
        assert len(plain.leaves.embedding.weight) == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("layer_class", [TreeLSTM, ChildSumTreeLSTM])
def test_inner_nodes_read_labels_beside_features_of_leaves(layer_class: type[TreeLayer]) -> None:
    vocabulary = Vocabulary.from_forest(FOREST, kinds="arity", number="Number")
    feat = torch.randn(FOREST.num_nodes, 3)
    feat[:] = feat[0]
    batch = TreeBatch.from_forest(FOREST[:5], vocabulary, share_subtrees=False)
    batch.feat = feat[: batch.num_nodes]
    made_so = layer_class(4, vocabulary, input_size=3, node_features=False)
    later = layer_class(4, vocabulary)
    later.read_features(3)
    for layer in (made_so, later):
        assert_all_differ(encoded(layer, batch))
        layer(batch).root.sum().backward()
        assert all(parameter.grad is not None for parameter in layer.parameters())


@needs_dgl
@pytest.mark.parametrize("name", ["tree lstm", "tree lstm both ways"])
def test_graphs_of_dgl_give_the_labels_of_inner_nodes(name: str) -> None:
    vocabulary = Vocabulary.from_forest(FOREST, kinds="arity")
    layer_class, options = TREE_NETWORKS[name]
    layer, batch = layer_class(6, vocabulary, **options).double(), TreeBatch.from_forest(FOREST, vocabulary)
    expected = layer(batch)[layer.output]
    by_symbol = batch.graph.local_var()
    torch.testing.assert_close(layer(by_symbol), expected, rtol=0, atol=1e-12)
    labels = by_symbol.ndata.pop("label")
    by_symbol.ndata["symbol"] = labels.clone()
    torch.testing.assert_close(layer(by_symbol), expected, rtol=0, atol=1e-12)
    by_symbol.ndata["symbol"][6] = 0  # the first root
    with pytest.raises(GraphError, match="node 6 has symbol 0"):
        layer(by_symbol)
    by_symbol.ndata["symbol"] = labels.masked_fill(by_symbol.in_degrees() > 0, -1)
    with pytest.raises(GraphError, match="node 1 has children and no label"):
        layer(by_symbol)
    of_kinds = ChildSumTreeLSTM(4, Vocabulary.from_forest(FOREST))  # a kind of one label tells it
    trees = TreeBatch.from_forest(FOREST, of_kinds.vocabulary)
    graph = trees.graph.local_var()
    graph.ndata["symbol"] = graph.ndata.pop("label").masked_fill(graph.in_degrees() > 0, -1)
    torch.testing.assert_close(of_kinds(graph), of_kinds(trees).h)


def test_graphs_of_pyg_give_the_labels_of_inner_nodes() -> None:
    pytest.importorskip("torch_geometric")
    vocabulary = Vocabulary.from_forest(FOREST, kinds="arity")
    layer, batch = TreeLSTM(4, vocabulary), TreeBatch.from_forest(FOREST, vocabulary)
    again = TreeBatch.from_pyg(batch.to_pyg(), vocabulary).to_pyg()
    assert "label" not in again
    for data in (batch.to_pyg(), again):
        torch.testing.assert_close(layer(data), layer(batch).h)


def test_cached_rows_and_parts_keep_labels_apart() -> None:
    vocabulary = Vocabulary.from_forest(FOREST, kinds="arity")
    layer = TreeLSTM(4, vocabulary).eval()
    index = SubtreeIndex(FOREST, vocabulary)
    expected = encoded(layer, TreeBatch.from_index(index))
    cache = RowCache(layer, index)
    with torch.no_grad():
        for _ in range(2):
            found = torch.cat([cache.encode([example]).flatten(1) for example in range(len(FOREST))])
            torch.testing.assert_close(found, expected)
        parts = layer(TreeBatch.from_index(index), keep="roots", rows_at_once=2)
    torch.testing.assert_close(parts.root.flatten(1), expected)
