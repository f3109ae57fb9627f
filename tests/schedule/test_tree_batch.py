from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from engine_parity import HAS_DGL, needs_dgl
from hypothesis import given
from hypothesis import strategies as st
from tree_strategies import NUMBER, VOCABULARY, forests, random_forest, rebuilt_rows, subtrees, trees

from treemem.dgl_import import import_dgl
from treemem.errors import GraphError, VocabularyError
from treemem.nn import TreeLSTM
from treemem.schedule.schedule import Schedule
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.schedule.tree_batch import TreeBatch
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.parser import parse_expression
from treemem.trees.tokens import token_table
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

dgl: Any = import_dgl() if HAS_DGL else None
PAIR = ([0, 1], [2, 2])
ADD = VOCABULARY.find("add", 2)[0]  # type: ignore[index]


def roots(batch: TreeBatch, labels: list[str], values: list[float | None]) -> list[Tree]:
    """The trees of a batch, rebuilt from its schedule."""
    rows = rebuilt_rows(batch.schedule, labels, values)
    return [rows[row] for row in batch.schedule.row_of_root.tolist()]


def shuffled_graph(forest: Forest, vocabulary: Vocabulary, seed: int) -> Any:
    """The graph of ``forest`` with its nodes renumbered (roots in order) and its edges in another order."""
    graph = TreeBatch.from_forest(forest, vocabulary).graph
    generator = np.random.default_rng(seed)
    renamed = generator.permutation(forest.num_nodes)
    root = forest.begin[1:] - 1
    renamed[root] = np.sort(renamed[root])
    renamed = torch.from_numpy(renamed)
    source, target = graph.edges()
    order = torch.from_numpy(generator.permutation(len(source)))
    other = dgl.graph((renamed[source][order], renamed[target][order]), num_nodes=forest.num_nodes)
    other.edata["position"] = graph.edata["position"][order]
    for name, field in graph.ndata.items():
        other.ndata[name] = torch.empty_like(field).index_copy(0, renamed, field)
    return other, renamed


@given(st.lists(trees(), max_size=5), st.booleans())
def test_a_batch_of_trees(given_trees: list[Tree], share_subtrees: bool) -> None:
    batch = TreeBatch.from_trees(given_trees, VOCABULARY, share_subtrees=share_subtrees)
    nodes = [node for tree in given_trees for node in tree.postorder()]
    assert (batch.num_trees, batch.num_examples, len(batch)) == (len(given_trees),) * 3
    assert batch.num_nodes == len(nodes)
    assert list(batch.forest) == given_trees
    assert roots(batch, [node.label for node in nodes], [node.value for node in nodes]) == given_trees


def test_pairs_are_examples_of_two_trees() -> None:
    forest = random_forest(0, 10, 6)
    batch = TreeBatch.from_index(SubtreeIndex(forest, VOCABULARY), [4, 1], trees_per_example=2)
    assert (batch.num_examples, batch.num_trees) == (2, 4)
    assert list(batch.forest) == [forest[tree] for tree in (8, 9, 2, 3)]
    assert batch.example_ids.tolist() == [4, 1]


@pytest.mark.parametrize(
    ("examples", "expected"),
    [
        (None, [0, 1, 2, 3]),
        (slice(1, None, 2), [1, 3]),
        ([True, False, False, True], [0, 3]),
        ([], []),
        ([2, 2], [2, 2]),
    ],
)
def test_examples_are_chosen_by_number_slice_or_mask(examples: Any, expected: list[int]) -> None:
    forest = random_forest(1, 4, 6)
    batch = TreeBatch.from_index(SubtreeIndex(forest, VOCABULARY), examples)
    assert batch.example_ids.tolist() == expected
    assert list(batch.forest) == [forest[tree] for tree in expected]


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([4], "examples 4 to 4 are asked for; there are 4, from 0"),
        ([-1, 2], "examples -1 to 2 are asked for"),
        ([0.5], "examples must be integers or a mask of 4 booleans, not float64"),
        ([True], "examples must be integers or a mask of 4 booleans"),
    ],
)
def test_examples_that_are_not_there_are_refused(examples: Any, message: str) -> None:
    index = SubtreeIndex(random_forest(1, 4, 6), VOCABULARY)
    with pytest.raises(GraphError, match=message):
        TreeBatch.from_index(index, examples)


def test_what_is_no_vocabulary_and_what_is_no_forest_is_refused() -> None:
    for vocabulary in (None, ["x"], "x"):
        with pytest.raises(VocabularyError, match=f"a Vocabulary is needed, not {type(vocabulary).__name__}"):
            TreeBatch.from_trees([Tree("x")], vocabulary)  # type: ignore[arg-type]
        if vocabulary is not None and HAS_DGL:
            with pytest.raises(VocabularyError, match="a Vocabulary is needed"):
                TreeBatch.from_dgl(dgl.graph(PAIR), vocabulary)
    with pytest.raises(GraphError, match=r"a list of trees is needed, not .*; put a single tree in a list"):
        TreeBatch.from_trees(Tree("x"), VOCABULARY)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="a Forest is needed, not list"):
        TreeBatch.from_forest([Tree("x")], VOCABULARY)  # type: ignore[arg-type]


@pytest.mark.parametrize("trees_per_example", [2, 0])
def test_trees_that_do_not_make_whole_examples_are_refused(trees_per_example: int) -> None:
    forest = random_forest(1, 3, 6)
    message = f"3 trees cannot be split into examples of {trees_per_example} trees each"
    with pytest.raises(GraphError, match=message):
        TreeBatch.from_forest(forest, VOCABULARY, trees_per_example=trees_per_example)
    with pytest.raises(GraphError, match=message):
        TreeBatch.from_index(SubtreeIndex(forest, VOCABULARY), trees_per_example=trees_per_example)


@needs_dgl
@given(forests(), st.booleans())
def test_the_graph_says_what_the_forest_says(forest: Forest, share_subtrees: bool) -> None:
    batch = TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=share_subtrees)
    graph = batch.graph
    assert graph.batch_num_nodes().tolist() == [tree.size for tree in forest]
    assert graph.batch_num_edges().tolist() == [tree.size - 1 for tree in forest]
    source, target = (ends.tolist() for ends in graph.edges())
    assert list(zip(source, target, strict=True)) == sorted(
        ((child, parent) for child, parent in enumerate(forest.parent().tolist()) if parent >= 0),
        key=lambda edge: (edge[1], edge[0]),
    )
    nodes = subtrees(forest)
    assert [VOCABULARY.labels[label] for label in graph.ndata["label"].tolist()] == [node.label for node in nodes]
    kinds = [VOCABULARY.kinds[kind] for kind in graph.ndata["kind"].tolist()]
    assert [kind.arity for kind in kinds] == [node.arity for node in nodes]
    assert ("value" in graph.ndata) == (forest.value is not None)


@needs_dgl
def test_unknown_leaves_have_the_unknown_label_in_the_graph() -> None:
    vocabulary = Vocabulary(["x", "<unk>"], [("add", 2)], unknown="<unk>")
    batch = TreeBatch.from_trees([Tree("add", [Tree("z"), Tree("add")])], vocabulary)
    assert [vocabulary.labels[label] for label in batch.graph.ndata["label"].tolist()] == ["<unk>", "<unk>", "add"]


@needs_dgl
@given(forests(), st.integers(0, 99))
def test_a_graph_gives_its_trees_whatever_the_order_of_nodes_and_edges(forest: Forest, seed: int) -> None:
    graph, renamed = shuffled_graph(forest, VOCABULARY, seed)
    batch = TreeBatch.from_dgl(graph, VOCABULARY)
    labels = [VOCABULARY.labels[label] for label in graph.ndata["label"].tolist()]
    values: list[float | None] = [None] * forest.num_nodes
    if "value" in graph.ndata:
        values = [None if value != value else value for value in graph.ndata["value"].tolist()]
    assert roots(batch, labels, values) == list(forest)
    assert list(batch.forest or []) == list(forest)

    unshared = TreeBatch.from_forest(forest, VOCABULARY, share_subtrees=False).schedule
    assert batch.schedule.levels == unshared.levels
    assert torch.equal(batch.schedule.kind_of_row, unshared.kind_of_row)
    symbol = torch.empty(forest.num_nodes, dtype=torch.int64)
    symbol[batch.schedule.node_of_row] = torch.cat([batch.schedule.symbol, batch.schedule.function])
    assert symbol[renamed].tolist() == VOCABULARY.encode(forest).symbol.tolist()


@needs_dgl
def test_a_graph_made_batch_keeps_its_graph_with_positions_and_kinds() -> None:
    graph = dgl.batch([dgl.graph(([1, 0], [2, 2])), dgl.graph(([], []), num_nodes=1)])
    graph.ndata["h"] = torch.ones(4, 3)
    batch = TreeBatch.from_dgl(graph)
    assert batch.graph.edata["position"].tolist() == [0, 1]
    assert batch.graph.ndata["kind"].tolist() == [0, 0, 1, 0]
    assert batch.graph.batch_num_nodes().tolist() == [3, 1]
    assert torch.equal(batch.graph.ndata["h"], graph.ndata["h"])
    assert "kind" not in graph.ndata
    assert "position" not in graph.edata
    assert batch.vocabulary is None
    assert batch.num_trees == 2


@needs_dgl
def test_labels_may_index_a_table_of_their_own_or_be_kinds() -> None:
    graph = with_fields(dgl.graph(PAIR), label=[1, 2, 0])
    batch = TreeBatch.from_dgl(graph, VOCABULARY, labels=["add", "y", "x"])
    assert batch.schedule.symbol.tolist() == [1, 0]
    assert VOCABULARY.kinds[batch.schedule.kind_of_row[2]].label == "add"
    graph = with_fields(dgl.graph(PAIR), kind=[0, 0, ADD])
    assert TreeBatch.from_dgl(graph, VOCABULARY).schedule.symbol.tolist() == [-1, -1]
    graph = with_fields(graph, symbol=[1, 0, -1])
    assert TreeBatch.from_dgl(graph, VOCABULARY).schedule.symbol.tolist() == [1, 0]
    assert TreeBatch.from_dgl(with_fields(graph, kind=[0, 7, 3])).schedule.kind_of_row.tolist() == [0, 7, 3]


@needs_dgl
def test_arity_alone_gives_the_kind_where_kinds_go_by_arity() -> None:
    by_arity = Vocabulary([], [("a", 2), ("b", 2), ("c", 1), ("d", 3)], kinds="arity")
    graph = dgl.graph(([0, 1, 2], [1, 3, 3]))
    assert TreeBatch.from_dgl(graph, by_arity).schedule.kind_of_row.tolist() == [0, 0, 1, 2]
    assert TreeBatch.from_dgl(graph).schedule.kind_of_row.tolist() == [0, 0, 1, 2]
    with pytest.raises(GraphError, match="node 3 has 2 children, which may be any of 2 kinds"):
        TreeBatch.from_dgl(graph, Vocabulary([], [("a", 2), ("b", 2), ("c", 1)]))
    with pytest.raises(GraphError, match=r"node 3 has 2 children; .* these numbers of children: 1"):
        TreeBatch.from_dgl(graph, Vocabulary([], [("c", 1)]))


def with_fields(graph: Any, **fields: list[float]) -> Any:
    for name, values in fields.items():
        (graph.edata if name == "position" else graph.ndata)[name] = torch.tensor(values)
    return graph


@needs_dgl
@pytest.mark.parametrize(
    ("edges", "fields", "options", "message"),
    [
        (([0, 1, 2], [1, 2, 1]), {}, {}, "a cycle of 2 nodes, from child to parent: node"),
        (([0, 0], [1, 2]), {}, {}, "node 0 has 2 parents"),
        (([0], [0]), {}, {}, "node 0 has an edge to itself"),
        (PAIR, {"position": [0, 2]}, {}, "node 2 has 2 children at the positions 0, 2"),
        (PAIR, {"position": [1, 1]}, {}, "node 2 has 2 children at the positions 1, 1"),
        (PAIR, {"position": [0.0, 1.0]}, {}, "'position' must hold one integer each"),
        (PAIR, {}, {"labels": ["x"]}, "labels say nothing without a vocabulary"),
        (PAIR, {}, {"vocabulary": VOCABULARY, "labels": ["x"]}, "no node field 'label' that could index"),
        (PAIR, {}, {"trees_per_example": 2}, "1 trees cannot be split into examples of 2"),
        (PAIR, {"label": [0, 1, 99]}, {"vocabulary": VOCABULARY}, "node 2: its label 99 .* 8 labels"),
        (PAIR, {"kind": [0, 0, 99]}, {"vocabulary": VOCABULARY}, "node 2 has kind 99; the vocabulary has 9 kinds"),
        (PAIR, {"kind": [0, 0, 2]}, {"vocabulary": VOCABULARY}, "node 2 has 2 children; its kind 'f' has 1"),
        (
            PAIR,
            {"kind": [0, 0, 4], "symbol": [0, 4, -1]},
            {"vocabulary": VOCABULARY},
            "node 1 has symbol 4; .* 4 leaves",
        ),
    ],
)
def test_graphs_that_cannot_be_read_are_refused(
    edges: Any, fields: dict[str, list[float]], options: dict[str, Any], message: str
) -> None:
    graph = with_fields(dgl.graph(edges), **fields)
    with pytest.raises(GraphError, match=message):
        TreeBatch.from_dgl(graph, **options)


@needs_dgl
@pytest.mark.parametrize(
    "fields",
    [{"kind": [0, 1, ADD]}, {"label": [0, 4, VOCABULARY.labels.index("add")]}],
    ids=["kinds", "labels"],
)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "node 1: the number leaf 'Number' needs a value"),
        ([np.nan, np.nan, np.nan], "node 1: the number leaf 'Number' needs a value"),
        ([np.nan, np.inf, np.nan], "node 1: the value of '[nN]umber' must be finite, not inf"),
        ([np.nan, 1.0, 2.0], "node 2: 'add' has the value 2.0, which this vocabulary would lose"),
        ([3.0, 1.0, np.nan], "node 0: '.*' has the value 3.0, which this vocabulary would lose"),
    ],
)
def test_values_of_graphs_are_checked_however_they_say_their_kinds(
    fields: dict[str, list[float]], value: list[float] | None, message: str
) -> None:
    graph = with_fields(dgl.graph(PAIR), **fields, **({} if value is None else {"value": value}))
    with pytest.raises(VocabularyError, match=message):
        TreeBatch.from_dgl(graph, VOCABULARY)


@needs_dgl
def test_values_are_checked_if_the_arity_says_the_kinds() -> None:
    vocabulary = Vocabulary(["x"], [("add", 2)], number=NUMBER)
    graphs = [
        with_fields(dgl.graph(PAIR), value=[first, np.nan, last])
        for first, last in ((2.5, np.nan), (np.inf, np.nan), (2.5, 1.0))
    ]
    assert TreeBatch.from_dgl(graphs[0], vocabulary).schedule.kind_of_row.tolist() == [0, 1, 2]
    for graph, known, message in (
        (graphs[1], vocabulary, "node 0: the value of 'number' must be finite"),
        (graphs[2], vocabulary, r"node 2: 'add' has the value 1\.0"),
        (graphs[0], Vocabulary(["x"], [("add", 2)]), r"node 0: 'symbol' has the value 2\.5.*it has no number leaves"),
    ):
        with pytest.raises(VocabularyError, match=message):
            TreeBatch.from_dgl(graph, known)


@needs_dgl
def test_a_label_with_an_arity_that_the_vocabulary_does_not_know_is_refused() -> None:
    graph = with_fields(dgl.graph(([0, 1, 2], [3, 3, 3])), label=[0, 0, 0, VOCABULARY.labels.index("add")])
    with pytest.raises(VocabularyError, match="node 3: 'add' is known with 2 children and has 3 here"):
        TreeBatch.from_dgl(graph, VOCABULARY)


@needs_dgl
@pytest.mark.parametrize("num_nodes", [0, 1, 3])
def test_a_graph_without_edges_is_a_forest_of_leaves(num_nodes: int) -> None:
    batch = TreeBatch.from_dgl(dgl.graph(([], []), num_nodes=num_nodes))
    assert batch.num_trees == batch.num_nodes == num_nodes
    assert batch.graph.num_nodes() == num_nodes


@given(forests(), st.sampled_from(["function", "leaves"]))
def test_tokens_have_the_ids_of_the_vocabulary(forest: Forest, form: Any) -> None:
    table = token_table(VOCABULARY, form)
    token, length = TreeBatch.from_forest(forest, VOCABULARY).tokens(form)
    assert token.dtype == length.dtype == torch.int64
    assert token.shape == (len(forest), max(length.tolist(), default=0))
    words = [[table[index] for index in row[:end]] for row, end in zip(token.tolist(), length.tolist(), strict=True)]
    assert words == forest.tokens(form).strings()


@needs_dgl
def test_a_batch_of_a_graph_has_the_tokens_of_its_trees() -> None:
    forest = random_forest(0, 4, 5)
    graph, _ = shuffled_graph(forest, VOCABULARY, 0)
    batch = TreeBatch.from_dgl(graph, VOCABULARY)
    trees = {str(tree) for tree in forest}
    assert {str(tree) for tree in batch.forest or []} == trees
    expected = TreeBatch.from_forest(batch.forest, VOCABULARY).tokens("function")
    assert all(torch.equal(*pair) for pair in zip(batch.tokens("function"), expected, strict=True))


@needs_dgl
def test_without_labels_a_batch_of_a_graph_has_no_tokens() -> None:
    graph = dgl.graph(([0], [1]))
    with pytest.raises(GraphError, match="a graph without a vocabulary has no tokens"):
        TreeBatch.from_dgl(graph).tokens("leaves")
    with pytest.raises(GraphError, match="node 0 has no label"):
        TreeBatch.from_dgl(graph, Vocabulary(["x", "y"], [("f", 1)])).tokens("leaves")


@pytest.mark.parametrize("make", ["from_trees", "from_forest", "from_index", pytest.param("from_dgl", marks=needs_dgl)])
def test_an_empty_batch(make: str) -> None:
    empty = Forest.from_trees([])
    source: dict[str, Any] = {"from_trees": [], "from_forest": empty}
    if make == "from_dgl":
        source[make] = dgl.graph(([], []), num_nodes=0)
    if make == "from_index":
        batch = TreeBatch.from_index(SubtreeIndex(random_forest(0, 4, 5), VOCABULARY), [], trees_per_example=2)
    else:
        batch = getattr(TreeBatch, make)(source[make], VOCABULARY, trees_per_example=2)
    assert batch.num_trees == batch.num_examples == batch.num_nodes == 0
    assert not HAS_DGL or batch.graph.num_nodes() == 0
    if batch.forest is not None:
        assert batch.tokens("function")[0].shape == (0, 0)


def test_moving_a_batch_moves_its_schedule() -> None:
    batch = TreeBatch.from_index(SubtreeIndex(random_forest(0, 4, 5), VOCABULARY), [1, 0], trees_per_example=2)
    moved = batch.to("meta")
    assert moved.device.type == "meta"
    assert (moved.num_examples, moved.example_ids.tolist()) == (2, [1, 0])
    assert list(moved.forest) == list(batch.forest)
    assert batch.device.type == "cpu"


def test_a_pickled_batch_takes_its_own_trees_along_and_no_others() -> None:
    forest = random_forest(0, 400, 20)
    batch = TreeBatch.from_index(SubtreeIndex(forest, VOCABULARY), [3])
    pickled = pickle.dumps(batch)
    assert len(pickled) < 10_000
    again = pickle.loads(pickled)
    assert list(again.forest) == [forest[3]]
    assert isinstance(again.schedule, Schedule)
    assert again.example_ids.tolist() == [3]


@needs_dgl
def test_a_pickled_batch_of_a_graph_takes_its_graph_along() -> None:
    assert pickle.loads(pickle.dumps(TreeBatch.from_dgl(dgl.graph(([0], [1]))))).graph.num_nodes() == 2


@needs_dgl
def test_numbers_are_leaves_of_their_own_kind() -> None:
    batch = TreeBatch.from_trees([Tree("add", [Tree(NUMBER, value=2.5), Tree("x")])], VOCABULARY)
    assert batch.schedule.symbol.tolist() == [0, -1]
    assert batch.schedule.value.tolist()[1] == 2.5
    again = TreeBatch.from_dgl(batch.graph, VOCABULARY)
    assert again.schedule.value.tolist()[1] == 2.5
    with pytest.raises(VocabularyError, match="node 0: the number leaf 'Number' needs a value"):
        TreeBatch.from_dgl(with_fields(dgl.graph(PAIR), label=[4, 0, VOCABULARY.labels.index("add")]), VOCABULARY)


@pytest.mark.parametrize("text", [" + ".join("x" * 5_000), "-" * 5_000 + "x"], ids=["sum", "minus signs"])
def test_5000_terms_or_signs_run_from_text_to_encoding(text: str) -> None:
    tree = parse_expression(text)
    vocabulary = Vocabulary.from_forest(Forest.from_trees([tree]))
    batch = TreeBatch.from_trees([tree], vocabulary)
    assert len(batch.schedule.levels) == tree.height + 1 >= 5_000
    with torch.no_grad():
        encoding = TreeLSTM(2, vocabulary)(batch).root
    assert encoding.shape == (1, 1, 2)
    assert torch.isfinite(encoding).all()
