from __future__ import annotations

import sys

import pytest
import torch
from hypothesis import given
from tree_strategies import LEAVES, NUMBER, VOCABULARY, forests, trees

from treemem.errors import GraphError, TreememError, VocabularyError
from treemem.trees.forest import Forest
from treemem.trees.pyg_bridge import MissingPyGError, forest_from_pyg, forest_to_pyg
from treemem.trees.tree import Tree

data = pytest.importorskip("torch_geometric.data", reason="torch-geometric is not installed")
LABELS = VOCABULARY.labels


@given(trees())
def test_tree_round_trip(tree: Tree) -> None:
    assert Tree.from_pyg(tree.to_pyg(LABELS), LABELS) == tree


@given(forests())
def test_forest_round_trip(forest: Forest) -> None:
    batch = forest_to_pyg(forest)
    assert forest_from_pyg(batch, forest.labels) == forest
    assert batch.num_graphs == len(forest)
    assert batch.ptr.diff().tolist() == [tree.size for tree in forest]
    assert torch.equal(batch.batch.bincount(minlength=len(forest)), batch.ptr.diff())


def test_graphs_that_pyg_batched_are_the_same_trees() -> None:
    number = Tree("f", [Tree(NUMBER, value=2.5)])
    forest = Forest.from_trees([Tree("f", [Tree("x")]), number, Tree("y"), Tree("add", [Tree("x"), Tree("1")])])
    graphs = [tree.to_pyg(LABELS) for tree in forest]
    assert forest_from_pyg(data.Batch.from_data_list(graphs), LABELS) == forest
    assert forest_from_pyg(data.Batch.from_data_list(graphs[::-1]), LABELS) == forest[::-1]


def test_the_fields_of_a_graph() -> None:
    graph = Tree("sub", [Tree("x"), Tree(NUMBER, value=2.5)]).to_pyg(("x", "sub", NUMBER))
    assert graph.edge_index.tolist() == [[0, 1], [2, 2]]
    assert graph.position.tolist() == [0, 1]
    assert graph.label.tolist() == [0, 2, 1]
    assert graph.value.tolist()[1] == 2.5
    assert graph.value.isnan().tolist() == [True, False, True]
    assert graph.num_nodes == 3


def test_labels_tell_how_many_nodes_there_are() -> None:
    graph = data.Data(edge_index=torch.empty(2, 0, dtype=torch.int64), label=torch.tensor([0, 1]))
    assert list(forest_from_pyg(graph, LEAVES)) == [Tree("x"), Tree("y")]


def test_graphs_batched_without_a_number_of_nodes_are_refused() -> None:
    single = data.Data(edge_index=torch.empty(2, 0, dtype=torch.int64), label=torch.tensor([0]))
    pair = data.Data(edge_index=torch.tensor([[0], [1]]), label=torch.tensor([0, 3]))
    with pytest.warns(UserWarning, match="Unable to accurately infer 'num_nodes'"):
        batch = data.Batch.from_data_list([single, pair])
    with pytest.raises(GraphError, match=r"'label' has 3 entries, and the graph has 2 nodes; .* num_nodes"):
        forest_from_pyg(batch, LEAVES)


def test_a_label_outside_the_table_is_refused() -> None:
    with pytest.raises(VocabularyError, match="'xx' is not among the 4 labels given; did you mean x"):
        Tree("xx").to_pyg(LEAVES)
    with pytest.raises(GraphError, match="node 0: its label 1 is no index into the 1 labels"):
        Tree.from_pyg(Tree("y").to_pyg(("x", "y")), ("x",))
    with pytest.raises(GraphError, match="the graph holds 2 trees, not one"):
        Tree.from_pyg(forest_to_pyg(Forest.from_trees([Tree("x"), Tree("y")])), ("x", "y"))


def test_graphs_of_another_form_are_refused() -> None:
    with pytest.raises(GraphError, match="no node field 'label'"):
        Tree.from_pyg(data.Data(edge_index=torch.tensor([[0], [1]])), LABELS)
    with pytest.raises(GraphError, match="a Data or Batch of torch_geometric with edge_index is needed, not list"):
        Tree.from_pyg([1], LABELS)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="has no edge_index"):
        Tree.from_pyg(data.Data(x=torch.ones(2, 1)), LABELS)
    with pytest.raises(GraphError, match=r"integer tensor .*\. It is torch.float32 \[2, 0\]"):
        Tree.from_pyg(data.Data(edge_index=torch.empty(2, 0)), LABELS)
    with pytest.raises(GraphError, match="of a HeteroData take the one sort of edges"):
        Tree.from_pyg(data.HeteroData(), LABELS)


def test_a_missing_pyg_is_told_by_what_makes_graphs_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Tree("x").to_pyg(LABELS)
    monkeypatch.setitem(sys.modules, "torch_geometric.data", None)
    with pytest.raises(MissingPyGError, match=r"pip install 'treemem\[pyg\]'") as caught:
        Tree("x").to_pyg(LABELS)
    assert isinstance(caught.value, TreememError)
    assert Tree.from_pyg(graph, LABELS) == Tree("x")
