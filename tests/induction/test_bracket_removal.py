from __future__ import annotations

import pytest
from hypothesis import assume, given
from induction.random_trees import ANY_TREES, BINARY_TREES, leaves

from treemem.errors import GraphError
from treemem.induction import remove_brackets, tree_spans
from treemem.trees.formats.brackets import parse_brackets
from treemem.trees.tree import Tree


@given(tree=ANY_TREES)
def test_no_bracket_and_no_node_of_one_child_is_left(tree: Tree) -> None:
    words = [word for word in leaves(tree) if word not in "()"]
    assume(words)
    bare = remove_brackets(tree)
    assert leaves(bare) == words
    assert all(node.arity != 1 for node in bare.preorder())
    assert remove_brackets(bare) == bare


@given(tree=BINARY_TREES)
def test_a_binary_tree_stays_binary_and_keeps_the_spans_of_its_words(tree: Tree) -> None:
    words = leaves(tree)
    assume(any(word not in "()" for word in words))
    bare = remove_brackets(tree)
    assert all(node.arity in (0, 2) for node in bare.preorder())
    place = [sum(word not in "()" for word in words[:end]) for end in range(len(words) + 1)]
    moved = {(place[begin], place[end]) for begin, end in tree_spans(tree)}
    assert set(tree_spans(bare)) == {(begin, end) for begin, end in moved if end - begin > 1}


def test_other_tokens_can_be_brackets_and_none_may_be() -> None:
    tree = parse_brackets("(S (NP (DT the) (NN cat)) (VP sat) .)")
    assert remove_brackets(tree, ["."]) == parse_brackets("(S (NP the cat) sat)")
    assert remove_brackets(tree, []) == parse_brackets("(S (NP the cat) sat .)")


def test_a_chain_of_20000_brackets_is_removed() -> None:
    tree = Tree("a")
    for _ in range(20_000):
        tree = Tree("X", [Tree("("), tree])
    assert remove_brackets(tree) == Tree("a")


def test_a_sentence_of_brackets_alone_is_told() -> None:
    with pytest.raises(GraphError, match=r"every leaf is one of '\(', '\)'; nothing is left"):
        remove_brackets(parse_brackets('(X "(" (X ")" "("))'))
    with pytest.raises(GraphError, match="several labels"):
        remove_brackets(Tree("a"), "()")
