from __future__ import annotations

import pytest
import torch
from engine_parity import HAS_DGL, NO_DGL
from hypothesis import given
from tree_strategies import LEAVES, NUMBER, VOCABULARY, forests, trees

from treemem.dgl_import import import_dgl
from treemem.errors import GraphError, VocabularyError
from treemem.trees.dgl_bridge import forest_from_dgl, forest_to_dgl
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree

if not HAS_DGL:
    pytest.skip(NO_DGL, allow_module_level=True)
dgl = import_dgl()
LABELS = VOCABULARY.labels


@given(trees())
def test_tree_round_trip(tree: Tree) -> None:
    assert Tree.from_dgl(tree.to_dgl(LABELS), LABELS) == tree


@given(forests())
def test_forest_round_trip(forest: Forest) -> None:
    graph = forest_to_dgl(forest)
    assert graph.batch_num_nodes().tolist() == [tree.size for tree in forest]
    assert graph.batch_num_edges().tolist() == [tree.size - 1 for tree in forest]
    assert forest_from_dgl(graph, forest.labels) == forest
    if len(forest):
        graphs = dgl.unbatch(graph)
        assert [Tree.from_dgl(single, forest.labels) for single in graphs] == list(forest)
        assert forest_from_dgl(dgl.batch(graphs[::-1]), forest.labels) == forest[::-1]


def test_the_fields_of_a_graph() -> None:
    graph = Tree("sub", [Tree("x"), Tree(NUMBER, value=2.5)]).to_dgl(("x", "sub", NUMBER))
    assert [ends.tolist() for ends in graph.edges()] == [[0, 1], [2, 2]]
    assert graph.edata["position"].tolist() == [0, 1]
    assert graph.ndata["label"].tolist() == [0, 2, 1]
    assert graph.ndata["value"].tolist()[1] == 2.5
    assert graph.ndata["value"].isnan().tolist() == [True, False, True]


def test_a_graph_of_several_trees_is_no_tree() -> None:
    graph = forest_to_dgl(Forest.from_trees([Tree("x"), Tree("y")]))
    with pytest.raises(GraphError, match="the graph holds 2 trees, not one"):
        Tree.from_dgl(graph, ("x", "y"))


def test_a_label_outside_the_table_is_refused() -> None:
    with pytest.raises(VocabularyError, match="'xx' is not among the 4 labels given; did you mean x"):
        Tree("xx").to_dgl(LEAVES)
    graph = Tree("y").to_dgl(("x", "y"))
    with pytest.raises(GraphError, match="node 0: its label 1 is no index into the 1 labels"):
        Tree.from_dgl(graph, ("x",))


def test_graphs_of_another_form_are_refused() -> None:
    graph = dgl.graph(([0], [1]))
    with pytest.raises(GraphError, match="no node field 'label'"):
        Tree.from_dgl(graph, LABELS)
    graph.ndata["label"] = torch.zeros(2)
    with pytest.raises(GraphError, match=r"the field 'label' must hold one integer each, not float32 of shape \(2,\)"):
        Tree.from_dgl(graph, LABELS)
    with pytest.raises(GraphError, match="a DGLGraph is needed, not list"):
        Tree.from_dgl([1], LABELS)  # type: ignore[arg-type]
    other = dgl.heterograph({("a", "to", "b"): ([0], [0])})
    with pytest.raises(GraphError, match=r"node types \['a', 'b'\]"):
        Tree.from_dgl(other, LABELS)
