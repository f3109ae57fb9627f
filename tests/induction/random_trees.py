"""Random sentences and trees over them."""

from __future__ import annotations

from hypothesis import strategies as st

from treemem.induction import random_branching
from treemem.trees.formats.brackets import CONSTITUENT
from treemem.trees.tree import Tree

WORDS = st.sampled_from(["a", "b", "the", "(", ")", "X", "]"])
SENTENCES = st.lists(WORDS, min_size=1, max_size=12)
BINARY_TREES = st.builds(random_branching, SENTENCES, st.integers(0, 10_000))
ANY_TREES = st.recursive(
    st.builds(Tree, WORDS),
    lambda children: st.builds(Tree, st.just(CONSTITUENT), st.lists(children, min_size=1, max_size=4)),
    max_leaves=12,
)


def leaves(tree: Tree) -> list[str]:
    return [leaf.label for leaf in tree.leaves()]


@st.composite
def pairs_of_trees(draw: st.DrawFn) -> tuple[Tree, Tree]:
    """Two binary trees over the same words."""
    words = draw(SENTENCES)
    first, second = draw(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)))
    return random_branching(words, first), random_branching(words, second)


@st.composite
def pairs_of_any_trees(draw: st.DrawFn) -> tuple[Tree, Tree]:
    """A tree with nodes of any arity, one included, and a binary tree over the same words."""
    tree = draw(ANY_TREES)
    return tree, random_branching(leaves(tree), draw(st.integers(0, 10_000)))
