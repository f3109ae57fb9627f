from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree_strategies import VOCABULARY, forests, random_forest

from treemem.errors import GraphError, VocabularyError
from treemem.trees.forest import SEQUENCE, Forest
from treemem.trees.reductions import token_reductions
from treemem.trees.tokens import TokenForm, ambiguous_label, flat_tokens, forest_tokens, token_table
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

FORMS: list[TokenForm] = ["preorder", "infix", "function", "brackets", "bracketed leaves", "leaves"]


Nested = str | list["Nested"]


def parts(tree: Tree, form: TokenForm) -> Nested:
    """A node as the list of its parts in the order in which they are written."""
    children: list[Nested] = [parts(child, form) for child in tree.children]
    if not children:
        return tree.label
    if form == "leaves":
        return children
    if form == "preorder":
        return [tree.label, *children]
    if form == "bracketed leaves":
        return ["(", *children, ")"]
    if form == "brackets":
        return ["(", tree.label, *children, ")"]
    if form == "infix" and len(children) == 2:
        return ["(", children[0], tree.label, children[1], ")"]
    with_commas = [each for child in children for each in (",", child)][1:]
    return [tree.label, "(", *with_commas, ")"]


def flattened(nested: Nested) -> list[str]:
    return [nested] if isinstance(nested, str) else [token for part in nested for token in flattened(part)]


@given(forests(), st.sampled_from(FORMS))
def test_tokens_are_those_that_a_recursion_writes(forest: Forest, form: TokenForm) -> None:
    expected = [flattened(parts(tree, form)) for tree in forest]
    assert forest.tokens(form).strings() == expected
    encoded = forest_tokens(forest, form, VOCABULARY)
    assert encoded.strings() == expected
    assert encoded.tokens == token_table(VOCABULARY, form)


@given(forests(), st.sampled_from(FORMS))
def test_every_label_stands_at_its_node_once(forest: Forest, form: TokenForm) -> None:
    sequences = forest.tokens(form)
    spelled = sequences.node[sequences.node >= 0]
    expected = np.flatnonzero(forest.arity == 0) if form.endswith("leaves") else np.arange(forest.num_nodes)
    assert sorted(spelled.tolist()) == expected.tolist()
    words = [sequences.tokens[token] for token in sequences.token[sequences.node >= 0]]
    assert words == [forest.labels[label] for label in forest.label[spelled]]


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("preorder", "f add x max g y 1 x"),
        ("function", "f ( add ( x , max ( g ( y ) , 1 , x ) ) )"),
        ("infix", "f ( ( x add max ( g ( y ) , 1 , x ) ) )"),
        ("brackets", "( f ( add x ( max ( g y ) 1 x ) ) )"),
        ("bracketed leaves", "( ( x ( ( y ) 1 x ) ) )"),
        ("leaves", "x y 1 x"),
    ],
)
def test_each_form_by_example(form: TokenForm, expected: str) -> None:
    inner = Tree("max", [Tree("g", [Tree("y")]), Tree("1"), Tree("x")])
    forest = Forest.from_trees([Tree("f", [Tree("add", [Tree("x"), inner])])])
    assert " ".join(forest.tokens(form).strings()[0]) == expected


def test_leaves_keep_their_ids_and_labels_come_before_punctuation() -> None:
    vocabulary = Vocabulary(["x", "f"], [("f", 1), ("add", 2)], number="Number")
    assert token_table(vocabulary, "function") == ("x", "f", "Number", "add", "(", ",", ")")
    assert token_table(vocabulary, "brackets") == ("x", "f", "Number", "add", "(", ")")
    assert token_table(vocabulary, "leaves") == ("x", "f", "Number")


def test_unknown_leaves_are_read_as_the_unknown_leaf() -> None:
    vocabulary = Vocabulary(["x", "<unk>"], [("add", 2)], unknown="<unk>")
    forest = Forest.from_trees([Tree("add", [Tree("z"), Tree("add", [Tree("x"), Tree("add")])])])
    assert forest_tokens(forest, "preorder", vocabulary).strings() == [["add", "<unk>", "add", "x", "<unk>"]]
    with pytest.raises(VocabularyError, match="unknown leaf 'z'"):
        forest_tokens(forest, "preorder", Vocabulary(["x"], [("add", 2)]))


def test_padding() -> None:
    forest = Forest.from_trees([Tree("x"), Tree("add", [Tree("x"), Tree("y")])])
    table, length = forest_tokens(forest, "leaves", VOCABULARY).padded(padding=-1)
    assert table.tolist() == [[0, -1], [0, 1]]
    assert length.tolist() == [1, 2]
    table, length = forest[:0].tokens("leaves").padded()
    assert table.shape == (0, 0)
    assert length.shape == (0,)


@given(st.lists(st.lists(st.sampled_from(["a", "b", "Sequence", "c d"]), max_size=5), max_size=6))
def test_sequences_come_back_as_tokens(sequences: list[list[str]]) -> None:
    forest = Forest.from_sequences(sequences)
    assert forest == Forest.from_trees(Tree(SEQUENCE, map(Tree, words)) for words in sequences)
    assert forest.tokens("leaves").strings() == sequences
    vocabulary = Vocabulary(["c d", "b", "a", "Sequence"], [])
    encoded = forest_tokens(forest, "leaves", vocabulary)
    assert encoded.strings() == sequences
    assert encoded.tokens == token_table(vocabulary, "leaves") == ("c d", "b", "a", "Sequence")
    by_mapping = flat_tokens(forest, {"b": 1, "c d": 0, "Sequence": 3, "a": 2})
    assert all(map(np.array_equal, by_mapping, encoded))


def test_tokens_of_sequences_are_those_of_a_leaf_vocabulary() -> None:
    forest = Forest.from_sequences([["the", "cat"], [], ["the", "dog"]])
    assert Vocabulary.from_forest(forest) == Vocabulary(["cat", "dog", "the"], [])
    with pytest.raises(VocabularyError, match=r"tree 3, node 2 \(in post-order\): unknown token 'dog'"):
        forest_tokens(forest, "leaves", Vocabulary(["the", "cat"], []))
    known = Vocabulary(["the", "cat", "?"], [], unknown="?")
    assert forest_tokens(forest, "leaves", known).strings() == [["the", "cat"], [], ["the", "?"]]
    with pytest.raises(GraphError, match="is no sequence"):
        flat_tokens(Forest.from_trees([Tree("f", [Tree("x")])]))


@pytest.mark.parametrize("form", ["brackets", "function", "infix", "bracketed leaves"])
def test_labels_that_are_brackets_or_commas_are_other_tokens_than_the_punctuation(form: TokenForm) -> None:
    trees = {
        "brackets": (Tree("f", ["(", "g", "x", ")"]), Tree("f", [Tree("g", ["x"])])),
        "bracketed leaves": (Tree("f", ["(", "x", ")"]), Tree("f", [Tree("g", ["x"])])),
        "function": (Tree("f", [Tree("(", ["x"]), "y"]), Tree("(", [Tree("f", ["x"]), "y"])),
        "infix": (Tree(",", ["x", "y"]), Tree("(", ["x", "y"])),
    }[form]
    forest = Forest.from_trees(trees)
    vocabulary = Vocabulary.from_forest(forest)
    for sequences in (forest.tokens(form), forest_tokens(forest, form, vocabulary)):
        first, second = (
            sequences.token[begin:end].tolist()
            for begin, end in zip(sequences.begin[:-1], sequences.begin[1:], strict=True)
        )
        assert first != second
        is_label = sequences.node >= 0
        assert not set(sequences.token[is_label]) & set(sequences.token[~is_label])
    assert forest_tokens(forest, form, vocabulary).tokens == token_table(vocabulary, form)


def trees_of(vocabulary: Vocabulary, height: int) -> list[Tree]:
    below = trees_of(vocabulary, height - 1) if height else []
    inner = [
        Tree(label, children)
        for label, arity in vocabulary.functions
        for children in itertools.product(below, repeat=arity)
    ]
    return [*map(Tree, vocabulary.leaves), *inner]


@pytest.mark.parametrize(
    ("leaves", "functions", "ambiguous"),
    [
        (["x", "y"], [("f", 2), ("g", 1)], None),
        (["x"], [("f", 2), ("f", 1)], "f"),
        (["x", "f"], [("f", 2)], "f"),
    ],
)
def test_tokens_tell_the_tree_unless_a_label_in_preorder_has_several_arities(
    leaves: list[str], functions: list[tuple[str, int]], ambiguous: str | None
) -> None:
    vocabulary = Vocabulary(leaves, functions)
    trees = trees_of(vocabulary, 2)
    for form in FORMS[:4]:
        texts = {" ".join(words) for words in forest_tokens(Forest.from_trees(trees), form, vocabulary).strings()}
        assert ambiguous_label(vocabulary, form) == (ambiguous if form == "preorder" else None)
        assert (len(texts) == len(trees)) is (ambiguous_label(vocabulary, form) is None)


def test_an_unknown_function_has_the_token_of_the_unknown_leaf() -> None:
    vocabulary = Vocabulary(["x", "<unk>"], [("f", 2)], kinds="arity", unknown="<unk>")
    assert ambiguous_label(vocabulary, "preorder") == "<unk>"


def compositions(nested: Nested, found: list[int]) -> None:
    """Append a number for each token; a part that is not the first one is composed with what is before it."""
    if isinstance(nested, str):
        found.append(0)
        return
    for place, part in enumerate(nested):
        compositions(part, found)
        found[-1] += place > 0


@pytest.mark.parametrize("form", FORMS)
def test_the_parts_of_a_node_are_composed_from_left_to_right(form: TokenForm) -> None:
    forest = random_forest(seed=3, num_trees=30, size=14)
    found, begin = token_reductions(forest, form)
    expected: list[int] = []
    for tree in forest:
        compositions(parts(tree, form), expected)
    assert found.tolist() == expected
    assert begin.tolist() == forest.tokens(form).begin.tolist()
    length = np.diff(begin)
    np.testing.assert_array_equal(np.add.reduceat(found, begin[:-1]), length - 1)


def test_sequences_are_composed_from_left_to_right() -> None:
    found, begin = token_reductions(Forest.from_sequences([["a", "b", "c"], [], ["a"]]), "leaves")
    assert found.tolist() == [0, 1, 1, 0]
    assert begin.tolist() == [0, 3, 3, 4]
    assert token_reductions(Forest.from_trees([]), "function")[0].tolist() == []
