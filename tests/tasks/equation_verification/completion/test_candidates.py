from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from treemem.errors import GraphError, ParseError, RecipeError
from treemem.tasks.equation_verification.completion import Candidates, make_candidates, read_candidates
from treemem.tasks.equation_verification.completion.candidates import value_classes
from treemem.trees import parse_expression
from treemem.trees.forest import Forest
from treemem.trees.formats.preorder import format_preorder


def texts_in_class_of(candidates: Candidates, text: str) -> set[str]:
    texts = [candidates.text(number) for number in range(len(candidates))]
    return {
        texts[number] for number in np.flatnonzero(candidates.value_class == candidates.value_class[texts.index(text)])
    }


def test_there_are_21_leaves_126_functions_and_1323_pairs_all_different() -> None:
    candidates = make_candidates()
    root = candidates.forest.begin[1:] - 1
    assert np.bincount(candidates.forest.arity[root]).tolist() == [21, 126, 1323]
    assert len({format_preorder(tree) for tree in candidates.forest}) == len(candidates) == 1470


def test_classes_hold_what_is_equal_and_nothing_else() -> None:
    candidates = make_candidates()
    assert texts_in_class_of(candidates, "x + y") == {"x + y", "y + x"}
    assert {"sin(pi)", "tan(0)", "(-1) + 1", "0*w", "0^2"} <= texts_in_class_of(candidates, "0")
    assert {"1^x", "cos(0)", "x^0", "0^0", "2 + (-1)", "2*(1/2)", "sqrt(1)"} <= texts_in_class_of(candidates, "1")
    assert "0^x" not in texts_in_class_of(candidates, "0"), "it has no value where x is negative"


def test_whatever_divides_by_zero_everywhere_is_one_class_even_where_rounding_hides_it() -> None:
    found = texts_in_class_of(make_candidates(), "0^(-1)")
    assert {"csc(pi)", "cot(pi)", "csc(0)", "cot(0)"} <= found
    assert len(found) == 8
    assert "tan(pi)" not in found


def test_candidates_that_networks_read_alike_are_told_from_others() -> None:
    candidates = make_candidates()
    assert len(np.unique(candidates.reading)) == 19 + 6 * 19 + 3 * 19**2
    places = {format_preorder(tree): number for number, tree in enumerate(candidates.forest)}
    one, same, other = (candidates.reading[places[name]] for name in ("One:1", "Integer:1", "Integer:2"))
    assert one == same != other


def test_the_classes_of_users_expressions() -> None:
    trees = [parse_expression(text, variables="indexed") for text in ("x*y", "x", "y*x", "x^1", "x + 0.7")]
    assert value_classes(Forest.from_trees(trees)).tolist() == [0, 1, 0, 1, 2]


def test_the_candidates_are_the_published_ones_and_the_classes_too_but_for_one_pair(shared_data: Path) -> None:
    file = shared_data / "equations" / "completion_candidates.jsonl"
    if not file.exists():
        pytest.skip(f"there is no {file}")
    published, made = read_candidates(file), make_candidates()
    assert published.forest == made.forest
    assert (published.num_classes, made.num_classes) == (602, 601)
    pairs = set(zip(made.value_class.tolist(), published.value_class.tolist(), strict=True))
    twofold = [own for own in range(made.num_classes) if sum(pair[0] == own for pair in pairs) > 1]
    assert len(pairs) == 602, "no published class is divided"
    assert [texts_in_class_of(made, "(1/2)*(2/5)")] == [
        {made.text(number) for number in np.flatnonzero(made.value_class == own)} for own in twofold
    ]
    assert "(-1/2) + 0.7" in texts_in_class_of(made, "(1/2)*(2/5)")


def test_a_file_of_candidates_says_where_it_is_wrong(write, tmp_path: Path) -> None:
    good = {"preorder": "One:1", "class": 0}
    for wrong, problem in (
        ({"preorder": "sin", "class": 1}, "line 2.*sin has 0 of its 1 arguments"),
        ({"class": 1}, "line 2.*'preorder' is None"),
        ({"preorder": "Integer:2", "class": "a"}, "line 2.*'class' is 'a'"),
        ({"preorder": "Integer:2", "class": 10**20}, "line 2.*'class' is 1000.*expected from 0 to"),
        ({"preorder": "Equality Pi:pi Pi:pi", "class": 1}, "line 2.*is an equation"),
    ):
        with pytest.raises(ParseError, match=f"(?s){problem}"):
            read_candidates(write("wrong.jsonl", good, wrong))
    with pytest.raises(GraphError, match="numbered from 0 without a gap"):
        read_candidates(write("gap.jsonl", good, {"preorder": "Integer:2", "class": 2}))
    with pytest.raises(RecipeError, match="no candidates"):
        read_candidates(write("none.jsonl"))
    with pytest.raises(RecipeError, match=r"missing\.jsonl"):
        read_candidates(tmp_path / "missing.jsonl")
