from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tree_strategies import trees

from treemem.trees.forest import Forest
from treemem.trees.formats.equations.tokens import read_tokens, split_tokens
from treemem.trees.tree import Tree, tree_nodes

TEXTS = ["x = 1", "-sqrt(y)^-2/5 = log(x) - log(y, 17)", "a*-3 - 1/2 = -(b/c) + 0.7", "sin(x)^2 + cos(x)^2 = 1"]


@given(st.lists(trees(), max_size=5))
def test_a_forest_of_nodes_is_the_forest_of_the_trees(given_trees: list[Tree]) -> None:
    assert Forest.from_nodes([tree_nodes(tree) for tree in given_trees]) == Forest.from_trees(given_trees)


@given(st.text(alphabet=st.one_of(st.sampled_from("xe1.+-*/^(),= \t\u00a0\n_"), st.characters()), max_size=20))
def test_tokens_without_offsets_are_the_tokens(text: str) -> None:
    tokens = read_tokens(text)
    assert split_tokens(text) == ([token.sort for token in tokens], [token.text for token in tokens])
