from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tree_strategies import trees

from treemem.trees.equation_parser import equation_nodes, parse_equation, parse_equation_sides
from treemem.trees.equation_tokens import read_tokens, split_tokens
from treemem.trees.forest import Forest
from treemem.trees.postorder_nodes import forest_of_nodes, tree_nodes
from treemem.trees.tree import Tree

TEXTS = ["x = 1", "-sqrt(y)^-2/5 = log(x) - log(y, 17)", "a*-3 - 1/2 = -(b/c) + 0.7", "sin(x)^2 + cos(x)^2 = 1"]


@given(st.lists(trees(), max_size=5))
def test_a_forest_of_nodes_is_the_forest_of_the_trees(given_trees: list[Tree]) -> None:
    assert forest_of_nodes([tree_nodes(tree) for tree in given_trees]) == Forest.from_trees(given_trees)


def test_no_trees_make_an_empty_forest() -> None:
    forest = forest_of_nodes([])
    assert len(forest) == 0
    assert forest.begin.dtype == np.int64
    assert forest.label.dtype == forest.arity.dtype == np.int32


def test_the_nodes_of_an_equation_are_those_of_its_tree() -> None:
    for numeric in (False, True):
        expected = Forest.from_trees([parse_equation(text, numeric=numeric) for text in TEXTS])
        assert forest_of_nodes([equation_nodes(text, numeric=numeric) for text in TEXTS]) == expected
    assert forest_of_nodes([equation_nodes("y", "x")])[0] == parse_equation_sides("y", "x")


@given(st.text(alphabet=st.one_of(st.sampled_from("xe1.+-*/^(),= \t\u00a0\n_"), st.characters()), max_size=20))
def test_tokens_without_offsets_are_the_tokens(text: str) -> None:
    tokens = read_tokens(text)
    assert split_tokens(text) == ([token.sort for token in tokens], [token.text for token in tokens])
