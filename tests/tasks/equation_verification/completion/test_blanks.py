from __future__ import annotations

import numpy as np
import pytest

from treemem.errors import GraphError, RecipeError
from treemem.tasks.equation_verification.completion import draw_blanks, make_candidates, place_blanks
from treemem.tasks.equation_verification.generation.generator import generate_equations
from treemem.trees import parse_equation
from treemem.trees.forest import Forest
from treemem.trees.formats.preorder import format_preorder, parse_preorder
from treemem.trees.tree import Tree


def forest_of(*texts: str, **data: list[int]) -> Forest:
    return Forest.from_trees([parse_equation(text, variables="indexed") for text in texts], tree_data=data)


def subtree_at(forest: Forest, node: int) -> str:
    begin = int(forest.subtree_begin()[node])
    part = slice(begin, node + 1)
    labels = [forest.labels[label] for label in forest.label[part]]
    whole = Forest.from_arrays(
        sorted(set(labels)),
        [sorted(set(labels)).index(label) for label in labels],
        forest.arity[part],
        [0, len(labels)],
    )
    return format_preorder(whole[0])


def test_every_blank_is_a_candidate_and_no_root() -> None:
    forest, candidates = generate_equations(300, seed=5), make_candidates()
    blanks = draw_blanks(forest, candidates, seed=1)
    texts = [format_preorder(tree) for tree in candidates.unified]
    assert len(blanks) == (forest.tree_data["label"] == 1).sum()
    for tree, node, original in zip(blanks.tree, blanks.node, blanks.original, strict=True):
        assert forest.tree_data["label"][tree] == 1
        assert forest.begin[tree] <= node < forest.begin[tree + 1] - 1
        assert subtree_at(forest, node) == texts[original]


def test_all_nodes_that_are_candidates_are_blank_equally_often() -> None:
    forest = forest_of(*["x + sin(y) = 1"] * 6000)
    blanks = draw_blanks(forest, make_candidates(), seed=2)
    counts = np.bincount(blanks.node - forest.begin[:-1], minlength=6)
    assert counts[[3, 5]].tolist() == [0, 0], "the sum has height 2, and the root is none"
    assert (np.abs(counts[[0, 1, 2, 4]] - 1500) < 150).all()


def test_the_first_equations_of_a_larger_forest_have_the_blanks_that_they_have_alone() -> None:
    forest, candidates = generate_equations(200, seed=5), make_candidates()
    whole, part = draw_blanks(forest, candidates, seed=3), draw_blanks(forest[:50], candidates, seed=3)
    assert whole.node[: len(part)].tolist() == part.node.tolist()
    assert draw_blanks(forest, candidates, seed=4).node.tolist() != whole.node.tolist()


def test_false_equations_and_those_with_decimal_numbers_get_no_blank() -> None:
    numeric = Tree("Equality", [Tree("Symbol:var_0"), Tree("Number", value=2.5)])
    plain = parse_equation("x = x")
    forest = Forest.from_trees([plain, numeric, plain, plain], tree_data={"label": [0, 1, -1, 1]})
    assert draw_blanks(forest, make_candidates()).tree.tolist() == [2, 3]
    with pytest.raises(RecipeError, match="none of the 2 equations can have a blank"):
        draw_blanks(forest[:2], make_candidates())


def test_places_in_preorder_are_those_of_the_tree() -> None:
    forest = forest_of("sin(x + y)*z = 2^(x + 1)", "x = sin(x)")
    candidates = make_candidates()
    for tree in range(2):
        for place, node in enumerate(forest[tree].preorder()):
            if place and node.height <= 1:
                blanks = place_blanks(forest[tree : tree + 1], candidates, [place])
                assert candidates.unified[int(blanks.original[0])] == node


def test_the_original_is_the_one_that_was_spelled_or_the_first_that_says_the_same() -> None:
    text = "Equality Add Integer:1 One:1 Integer:2"
    forest = Forest.from_trees([parse_preorder(text)] * 2)
    spelled = Forest.from_trees([parse_preorder(text, unify=False)] * 2)
    candidates = make_candidates()
    labels = [tree.label if tree.is_leaf else "" for tree in candidates.forest]
    one, integer = labels.index("One:1"), labels.index("Integer:1")
    assert one < integer
    assert place_blanks(forest, candidates, [2, 3]).original.tolist() == [one, one]
    assert place_blanks(forest, candidates, [2, 3], spelled=spelled).original.tolist() == [integer, one]


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        (0, "the root cannot be blank"),
        (6, "it has no such node"),
        (-1, "it has no such node"),
        (1, "none of the 1470 candidates"),
    ],
)
def test_a_wrong_place_is_named(place: int, problem: str) -> None:
    forest = forest_of("x = x", "x + sin(y) = 1")
    with pytest.raises(GraphError, match=f"equation 1.* blank at place {place} in preorder.* {problem}"):
        place_blanks(forest, make_candidates(), [1, place])


def test_false_equations_and_ones_that_are_not_there_cannot_be_blanked() -> None:
    forest = forest_of("x = x", "x = y", label=[1, 0])
    with pytest.raises(GraphError, match=r"equation 1.*it is false"):
        place_blanks(forest, make_candidates(), [1, 1])
    with pytest.raises(GraphError, match="1 places for 2 equations"):
        place_blanks(forest, make_candidates(), [1])
