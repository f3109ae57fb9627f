from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trees.formats.test_logic import formulas, written

from treemem.errors import GraphError
from treemem.tasks.logical_inference import RELATIONS, relations, truth_tables
from treemem.tasks.logical_inference.generation.operator_form import with_operators
from treemem.trees.forest import Forest
from treemem.trees.formats.logic import VARIABLES, parse_logic
from treemem.trees.tree import Tree


def is_true(formula: Tree, world: dict[str, bool]) -> bool:
    parts = [is_true(child, world) for child in formula.children]
    if not parts:
        return world[formula.label]
    return {"not": not parts[0], "and": all(parts), "or": any(parts)}[formula.label]


def relation_by_worlds(left: Tree, right: Tree) -> str:
    worlds = [dict(zip(VARIABLES, values, strict=True)) for values in itertools.product((False, True), repeat=6)]
    pairs = {(is_true(left, world), is_true(right, world)) for world in worlds}
    if all(one == other for one, other in pairs):
        return "="
    if (True, False) not in pairs:
        return "<"
    if (False, True) not in pairs:
        return ">"
    never_both, always_one = (True, True) not in pairs, (False, False) not in pairs
    return {(True, True): "^", (True, False): "|", (False, True): "v", (False, False): "#"}[never_both, always_one]


@given(st.lists(st.tuples(formulas(), formulas()), min_size=1, max_size=4))
def test_relations_are_those_of_all_worlds_in_both_forms(pairs: list[tuple[Tree, Tree]]) -> None:
    sides = [side for pair in pairs for side in pair]
    expected = [relation_by_worlds(*pair) for pair in pairs]
    binary = Forest.from_trees(parse_logic(written(side)) for side in sides)
    for forest in (Forest.from_trees(sides), binary):
        left, right = truth_tables(forest).reshape(-1, 2).T
        assert [RELATIONS[number] for number in relations(left, right)] == expected
    assert with_operators(binary) == Forest.from_trees(sides)


@pytest.mark.parametrize("tree", [Tree("g"), Tree("and", [Tree("a")]), Tree("X", [Tree("a"), Tree("b")]), Tree("not")])
def test_a_tree_that_is_no_formula_is_named(tree: Tree) -> None:
    with pytest.raises(GraphError, match="tree 2 is no formula"):
        truth_tables(Forest.from_trees([Tree("a"), tree]))


def test_a_variable_is_true_in_half_of_the_worlds() -> None:
    tables = truth_tables(Forest.from_trees([Tree(name) for name in VARIABLES]))
    assert [int(table).bit_count() for table in tables] == [32] * 6
    assert len(np.unique(tables)) == 6
