from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from tree_strategies import FUNCTIONS, LEAVES, NUMBER, VOCABULARY, chain, forests, random_forest, subtrees

from treemem.errors import VocabularyError
from treemem.schedule import subtree_index
from treemem.schedule.subtree_index import SubtreeIndex
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary


def check_index(index: SubtreeIndex) -> None:
    """The numbers are those of a dictionary of subtrees, and in order."""
    nodes = subtrees(index.forest)
    number = index.number.tolist()
    tree_of_number = dict(zip(number, nodes, strict=True))
    assert sorted(tree_of_number) == list(range(index.num_distinct))
    assert len(set(nodes)) == index.num_distinct
    assert [tree_of_number[each] for each in number] == nodes

    keys = []
    for distinct in range(index.num_distinct):
        tree = tree_of_number[distinct]
        children = index.child[index.child_pointer[distinct] : index.child_pointer[distinct + 1]].tolist()
        kind, symbol = index.vocabulary.find(tree.label, tree.arity) or (-1, -1)
        assert (index.height[distinct], index.arity[distinct]) == (tree.height, tree.arity)
        assert (index.kind[distinct], index.symbol[distinct]) == (kind, symbol)
        assert np.array_equal(index.value[distinct], np.nan if tree.value is None else tree.value, equal_nan=True)
        assert [tree_of_number[child] for child in children] == list(tree.children)
        keys.append((tree.height, tree.arity, kind, symbol, tree.value or 0.0, children))
    assert keys == sorted(keys)
    runs = sorted({key[:3] for key in keys})
    assert index.segment.tolist() == [runs.index(key[:3]) for key in keys]


@given(forests())
def test_numbers_are_equal_exactly_where_subtrees_are(forest: Forest) -> None:
    check_index(SubtreeIndex(forest, VOCABULARY))


@pytest.mark.parametrize("narrow", [0, 1, 10, 10**9])
def test_levels_numbered_at_once_and_node_by_node_agree(narrow: int, monkeypatch: pytest.MonkeyPatch) -> None:
    forest = random_forest(5, 300, 25)
    expected = SubtreeIndex(forest, VOCABULARY).number
    monkeypatch.setattr(subtree_index, "_NARROW", narrow)
    index = SubtreeIndex(forest, VOCABULARY)
    check_index(index)
    assert np.array_equal(index.number, expected)


@pytest.mark.parametrize("narrow", [0, 10**9])
@pytest.mark.parametrize("arity", [3, 4, 6, 9, 33])
def test_nodes_of_many_children(arity: int, narrow: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subtree_index, "_NARROW", narrow)
    generator = np.random.default_rng(arity)
    trees = [Tree("g", [Tree(leaf)]) for leaf in "xy"] + [Tree("x")]
    columns = generator.integers(0, 3, (40, arity)) * (generator.random((40, arity)) < 0.2)
    forest = Forest.from_trees([Tree("max", [trees[place] for place in row]) for row in [*columns, *columns[::3]]])
    check_index(SubtreeIndex(forest, Vocabulary.from_forest(forest)))


@pytest.mark.parametrize("narrow", [0, 10**9])
def test_labels_that_share_a_kind_share_no_subtrees(narrow: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subtree_index, "_NARROW", narrow)
    by_arity = Vocabulary(LEAVES, FUNCTIONS, kinds="arity", number=NUMBER)
    check_index(SubtreeIndex(random_forest(5, 100, 25), by_arity))


def test_unknown_labels_share_subtrees() -> None:
    vocabulary = Vocabulary(["x"], [("f", 1)], kinds="arity", unknown="x")
    forest = Forest.from_trees(["(g y)", "(h z)", "(f y)"])
    assert SubtreeIndex(forest, vocabulary).number.tolist() == [0, 1, 0, 1, 0, 2]


def test_values_tell_number_leaves_apart() -> None:
    forest = Forest.from_trees([Tree(NUMBER, value=value) for value in (2.5, -1.0, 2.5, 0.0)] + [Tree("x")])
    index = SubtreeIndex(forest, VOCABULARY)
    assert index.number.tolist() == [3, 1, 3, 2, 0]
    assert index.value[1:].tolist() == [-1.0, 0.0, 2.5]


def test_nothing_to_number() -> None:
    index = SubtreeIndex(Forest.from_trees([]), VOCABULARY)
    assert index.num_distinct == 0
    assert index.child_pointer.tolist() == [0]


def test_long_chains_and_wide_nodes() -> None:
    forest = Forest.from_trees([chain(100_000), Tree("max", [Tree("x"), Tree("y")] * 25_000), chain(99_999)])
    index = SubtreeIndex(forest, Vocabulary.from_forest(forest))
    assert index.num_distinct == 100_000 + 3
    root = forest.begin[1:] - 1
    assert index.number[root[2]] == index.number[root[0] - 1]


def test_an_unknown_label_is_refused() -> None:
    with pytest.raises(VocabularyError, match=r"tree 1, node 1 .*: unknown leaf 'z'"):
        SubtreeIndex(Forest.from_trees([Tree("z")]), VOCABULARY)


@given(forests())
def test_pickling(forest: Forest) -> None:
    index = SubtreeIndex(forest, VOCABULARY)
    again = pickle.loads(pickle.dumps(index))
    assert np.array_equal(again.number, index.number)
    assert again.vocabulary == VOCABULARY
    assert again.forest == forest
