"""A batch of graphs has a row for each graph, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from engine_parity import needs_dgl

from treemem.dgl_import import import_dgl
from treemem.errors import GraphError
from treemem.nn import LSTM, TreeLSTM
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees import forest_from_dgl, forest_from_pyg
from treemem.trees.forest import Forest
from treemem.trees.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["x"], [("f", 1)])


def of_dgl(counts: list[int]) -> Any:
    """A batch of DGL graphs with so many trees of one node each."""
    dgl = import_dgl()
    graphs = [dgl.graph(([], []), num_nodes=count) for count in counts]
    for graph in graphs:
        graph.ndata["label"] = torch.zeros(graph.num_nodes(), dtype=torch.int64)
    return dgl.batch(graphs)


def of_pyg(counts: list[int]) -> Any:
    data = pytest.importorskip("torch_geometric.data")
    nothing = torch.zeros(2, 0, dtype=torch.int64)
    graphs = [data.Data(edge_index=nothing, num_nodes=n, label=torch.zeros(n, dtype=torch.int64)) for n in counts]
    return data.Batch.from_data_list(graphs)


MAKERS = [pytest.param(of_dgl, marks=needs_dgl), of_pyg]


def doors(make: Callable[[list[int]], Any]) -> list[Callable[[Any], Any]]:
    """What reads graphs and returns a row or tree for each."""
    by_tree: Any = TreeBatch.from_dgl if make is of_dgl else TreeBatch.from_pyg
    forest: Any = forest_from_dgl if make is of_dgl else forest_from_pyg
    return [
        lambda graph: by_tree(graph, VOCABULARY).num_trees,
        lambda graph: len(TreeLSTM(4, VOCABULARY)(by_tree(graph, VOCABULARY)).root),
        lambda graph: len(forest(graph, VOCABULARY.labels)),
        lambda graph: len(LSTM(4, VOCABULARY)(graph).root),
    ]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(("counts", "problem"), [([1, 0, 2], "graph 1 .* holds 0"), ([1, 1, 2], "graph 2 .* holds 2")])
def test_graphs_with_other_numbers_of_trees_are_refused(make: Any, counts: list[int], problem: str) -> None:
    for door in doors(make):
        with pytest.raises(GraphError, match=problem):
            door(make(counts))


@pytest.mark.parametrize("make", MAKERS)
def test_graphs_of_one_tree_have_a_row_each_and_one_graph_may_hold_any_number(make: Any) -> None:
    for door in doors(make):
        assert door(make([1, 1, 1])) == 3
        assert door(make([2])) == 2


@pytest.mark.parametrize("make", MAKERS)
def test_each_graph_may_hold_a_pair(make: Any) -> None:
    from_graph: Any = TreeBatch.from_dgl if make is of_dgl else TreeBatch.from_pyg
    assert from_graph(make([2, 2]), VOCABULARY, trees_per_example=2).num_examples == 2
    assert from_graph(make([1, 1]), VOCABULARY, trees_per_example=2).num_examples == 1
    with pytest.raises(GraphError, match="graph 1 of the batch holds 4 trees"):
        from_graph(make([2, 4]), VOCABULARY, trees_per_example=2)
    with pytest.raises(GraphError, match="graph 0 of the batch holds 2 trees"):
        from_graph(make([2, 2]), VOCABULARY)


@pytest.mark.parametrize("make", MAKERS)
def test_states_of_nodes_do_not_need_a_tree_in_each_graph(make: Any) -> None:
    assert TreeLSTM(4, VOCABULARY)(make([1, 0, 2])).shape == (3, 4)


@needs_dgl
def test_a_forest_of_graphs_has_a_tree_of_each() -> None:
    with pytest.raises(GraphError, match="item 2: the graph holds no tree"):
        Forest.from_trees([of_dgl([1]), of_dgl([0]), of_dgl([2])], labels=VOCABULARY.labels)
