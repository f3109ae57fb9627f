from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trees.listops_strategies import nary_expressions, plain_text

from treemem.errors import GraphError
from treemem.tasks.listops import evaluate_expressions
from treemem.trees import Forest, Tree, parse_listops
from treemem.trees.formats.listops_arrays import expressions_of_lines

OPERATION = {
    "[MIN": min,
    "[MAX": max,
    "[FIRST": lambda values: values[0],
    "[LAST": lambda values: values[-1],
    "[MED": lambda values: int(statistics.median(values)),
    "[SM": lambda values: sum(values) % 10,
    "[PM": lambda values: math.prod(values) % 10,
    "[FLSUM": lambda values: sum(values[:2]) % 10,
}


def value(tree: Tree) -> int:
    return OPERATION[tree.label]([value(child) for child in tree.children]) if tree.children else int(tree.label)


@given(st.lists(nary_expressions(20), max_size=5))
def test_values_are_those_of_a_recursion_in_both_forms(trees: list[Tree]) -> None:
    expected = [value(tree) for tree in trees]
    assert evaluate_expressions(Forest.from_trees(trees)).tolist() == expected
    binary = [parse_listops(plain_text(tree)) for tree in trees]
    assert evaluate_expressions(Forest.from_trees(binary)).tolist() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("[MED 1 2 ]", 1), ("[PM " + "9 " * 21 + "]", 9), ("( ( ( ( [FLSUM 4 ) 7 ) 3 ) ] )", 1), ("7", 7)],
)
def test_worked_examples(text: str, expected: int) -> None:
    assert evaluate_expressions(expressions_of_lines([text]).forest()).tolist() == [expected]


def test_other_trees_have_no_value() -> None:
    with pytest.raises(GraphError, match="tree 2: this tree is no expression"):
        evaluate_expressions(Forest.from_trees([Tree("1"), Tree("x")]))
