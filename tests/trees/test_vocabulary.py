from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tree_strategies import FUNCTIONS, LEAVES, NUMBER, VOCABULARY, forests, subtrees

from treemem.errors import VocabularyError
from treemem.trees.forest import Forest
from treemem.trees.tokens import forest_tokens
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Kind, Vocabulary


def test_kinds_are_ordered_by_arity_then_as_given() -> None:
    vocabulary = Vocabulary(["x"], [("add", 2), ("sin", 1), ("cos", 1), ("mul", 2)])
    assert vocabulary.kinds == (
        Kind("symbol", 0),
        Kind("sin", 1),
        Kind("cos", 1),
        Kind("add", 2),
        Kind("mul", 2),
    )
    assert vocabulary.kinds_of_arity == {1: (1, 2), 2: (3, 4)}
    assert [vocabulary.kind_index(kind) for kind in range(1, 5)] == [0, 1, 0, 1]
    assert (vocabulary.num_kinds, vocabulary.num_leaves) == (5, 1)


def test_number_leaves_are_kind_1_where_they_are_known() -> None:
    vocabulary = Vocabulary(["x"], [("sin", 1)], number="Number")
    assert vocabulary.kinds == (Kind("symbol", 0), Kind("number", 0), Kind("sin", 1))
    assert vocabulary.find("Number", 0) == (1, -1)
    assert vocabulary.find("Number", 1) is None


def test_kinds_by_arity_are_shared_by_labels() -> None:
    vocabulary = Vocabulary(["x"], [("add", 2), ("sin", 1), ("mul", 2), ("max", 7)], kinds="arity")
    assert vocabulary.kinds == (Kind("symbol", 0), Kind("*", 1), Kind("*", 2), Kind("*", 7))
    assert [vocabulary.find(label, 2) for label in ("add", "mul")] == [(2, 1), (2, 3)]
    assert vocabulary.labels == ("x", "add", "sin", "mul", "max")
    assert vocabulary.labels_of_kind == ((), ("sin",), ("add", "mul"), ("max",))
    assert vocabulary.find("add", 7) is None


@given(forests(), st.sampled_from(["label", "arity"]))
def test_encoding_is_that_of_every_node(forest: Forest, kinds: Any) -> None:
    vocabulary = Vocabulary(LEAVES, FUNCTIONS, kinds=kinds, number=NUMBER)
    encoded = vocabulary.encode(forest)
    assert encoded.kind.dtype == encoded.symbol.dtype == np.int32
    expected = [vocabulary.find(node.label, node.arity) for node in subtrees(forest)]
    assert list(zip(encoded.kind.tolist(), encoded.symbol.tolist(), strict=True)) == expected
    for node, kind, symbol in zip(subtrees(forest), encoded.kind, encoded.symbol, strict=True):
        assert vocabulary.kinds[kind].arity == node.arity
        assert vocabulary.kinds[kind].label in (node.label, "*", "symbol", "number")
        assert node.label == (NUMBER if symbol == -1 else vocabulary.labels[symbol])


@given(forests())
def test_the_vocabulary_of_a_forest_knows_it_and_does_not_depend_on_order(forest: Forest) -> None:
    vocabulary = Vocabulary.from_forest(forest, number=NUMBER)
    vocabulary.encode(forest)
    assert vocabulary == Vocabulary.from_forest(forest[::-1], number=NUMBER)
    labels = {(node.label, node.arity) for node in subtrees(forest)}
    assert {(label, 0) for label in vocabulary.leaves} | set(vocabulary.functions) == labels - {(NUMBER, 0)}


def test_the_vocabulary_of_a_forest_with_an_unknown_leaf() -> None:
    forest = Forest.from_trees([Tree("x")])
    assert Vocabulary.from_forest(forest, unknown="<unk>").leaves == ("x", "<unk>")
    assert Vocabulary.from_forest(forest, unknown="x").leaves == ("x",)


def test_encoding_labels_of_many_arities() -> None:
    forest = Forest.from_trees([Tree(f"f{i}", [Tree("x")] * (i * 500 + 1)) for i in range(60)])
    vocabulary = Vocabulary.from_forest(forest)
    roots = vocabulary.encode(forest).kind[forest.begin[1:] - 1]
    assert [vocabulary.kinds[kind] for kind in roots] == [Kind(f"f{i}", i * 500 + 1) for i in range(60)]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (Tree("sinn", [Tree("x1")]), "2 .*: unknown function 'sinn'; did you mean sin"),
        (Tree("sin", [Tree("X1")]), "1 .*: unknown leaf 'X1'; did you mean x1"),
        (Tree("sin", [Tree("x1"), Tree("x1")]), "3 .*: 'sin' is known with 1 child and has 2 here"),
        (Tree("log", [Tree("x1")] * 3), "'log' is known with 1 or 2 children and has 3 here"),
        (Tree("sin", [Tree("sin")]), "1 .*: 'sin' is known with 1 child and has none here"),
        (Tree("x1", [Tree("x1")]), "'x1' is known as a leaf and has 1 child here"),
        (Tree("Number"), "the number leaf 'Number' needs a value"),
        (Tree("x1", value=2.5), "'x1' has the value 2.5, which this vocabulary would lose; its number leaves are"),
    ],
)
def test_what_is_unknown_is_named_with_its_place(tree: Tree, message: str) -> None:
    vocabulary = Vocabulary(["x1"], [("sin", 1), ("log", 1), ("log", 2)], number="Number")
    with pytest.raises(VocabularyError, match="tree 2, node .*" + message):
        vocabulary.encode(Forest.from_trees([Tree("x1"), tree]))


def test_unknown_leaves_become_the_unknown_leaf_and_unknown_functions_do_not() -> None:
    vocabulary = Vocabulary(["x", "<unk>"], [("sin", 1)], unknown="<unk>")
    assert vocabulary.encode(Forest.from_trees([Tree("sin", [Tree("sin")])])).symbol.tolist() == [1, 2]
    with pytest.raises(VocabularyError, match="unknown function 'cos'"):
        vocabulary.encode(Forest.from_trees([Tree("cos", [Tree("z")])]))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((["x", "x"], []), {}, "the leaf 'x' is given twice"),
        (([], [("f", 1), ("f", 1)]), {}, "the function 'f' of 1 child is given twice"),
        (([], [("f", 0)]), {}, "the function 'f' needs at least one child, not 0"),
        (("xy", []), {}, "leaves must be several labels, not the string 'xy'"),
        ((["x"], []), {"number": "x"}, "'x' is the label of number leaves and cannot be a symbol leaf too"),
        ((["unknown"], []), {"unknown": "unknwn"}, "is none of the leaves; did you mean unknown"),
        ((["x"], []), {"kinds": "labels"}, 'kinds must be "label" or "arity", not \'labels\''),
    ],
)
def test_contradictions_are_refused(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(VocabularyError, match=message):
        Vocabulary(*arguments, **options)


@pytest.mark.parametrize(
    "vocabulary",
    [
        VOCABULARY,
        Vocabulary([], []),
        Vocabulary(["é", '"'], [("f", 3)], kinds="arity", unknown="é"),
    ],
)
def test_files_dictionaries_and_pickles_keep_everything(vocabulary: Vocabulary, tmp_path: Path) -> None:
    vocabulary.save(tmp_path / "vocabulary.json")
    for again in (
        Vocabulary.load(tmp_path / "vocabulary.json"),
        Vocabulary.from_dict(vocabulary.to_dict()),
        pickle.loads(pickle.dumps(vocabulary)),
    ):
        assert again == vocabulary
        assert again.kinds == vocabulary.kinds
        assert again.digest == vocabulary.digest
        assert hash(again) == hash(vocabulary)


def test_the_digest_tells_vocabularies_apart() -> None:
    vocabularies = [
        Vocabulary(["x", "y"], [("f", 1)]),
        Vocabulary(["y", "x"], [("f", 1)]),
        Vocabulary(["x", "y"], [("f", 2)]),
        Vocabulary(["x", "y"], [("f", 1)], kinds="arity"),
        Vocabulary(["x", "y"], [("f", 1)], number="Number"),
        Vocabulary(["x", "y"], [("f", 1)], unknown="y"),
    ]
    assert len({vocabulary.digest for vocabulary in vocabularies}) == len(vocabularies)
    assert vocabularies[0] != vocabularies[1]
    assert vocabularies[0] != "a vocabulary"


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"format": 1, "leaves": ["x"]}', '{"format": 99}', "null", "\xff"),
        *(
            json.dumps({**VOCABULARY.to_dict(), **changes})
            for changes in ({"functions": [["f"]]}, {"functions": [["f", "two"]]}, {"leaves": 3})
        ),
    ],
)
def test_a_file_that_holds_no_vocabulary_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(VocabularyError, match=r"vocabulary\.json"):
        Vocabulary.load(path)


def test_unknown_functions_share_the_parameters_of_their_arity_if_asked() -> None:
    known = Forest.from_trees(["(f x y)", "(g x)"])
    vocabulary = Vocabulary.from_forest(known, kinds="arity", unknown="<unk>")
    new = Forest.from_trees(["(h x new)", "(f x y)"])
    kind, symbol = vocabulary.encode(new)
    assert kind[2] == kind[5]
    assert [vocabulary.labels[each] for each in symbol] == ["x", "<unk>", "<unk>", "x", "y", "f"]
    words = forest_tokens(new, "function", vocabulary)
    assert [words.tokens[token] for token in words.token[:4]] == ["<unk>", "(", "x", ","]
    with pytest.raises(VocabularyError, match="unknown function 'h'"):
        Vocabulary.from_forest(known, unknown="<unk>").encode(new)
    with pytest.raises(VocabularyError, match="'f' has 3 children; only functions with 1 or 2 children are known"):
        vocabulary.encode(Forest.from_trees(["(f x y x)"]))
