from __future__ import annotations

import numpy as np
import pytest

from treemem.errors import ParseError, RecipeError
from treemem.tasks.equation_verification.completion import fill, filling_scores, make_candidates
from treemem.tasks.equation_verification.completion.blanks import Blanks
from treemem.tasks.equation_verification.completion.suggestions import parse_blanked
from treemem.trees import parse_equation
from treemem.trees.forest import Forest
from treemem.trees.tree import Tree


@pytest.mark.parametrize(
    "text",
    [
        *("sin(x)^2 + ? = 1", "? = x", "x = ?", "x + y = y - ?", "sin(?)*2 = z", "v4^? = v4*w", "0 + x = ? + x"),
        *("-? = x", "2/? = y", "?/2 = y", "?^2 = w", "log(x, ?) = z", "x*y =\n?"),
    ],
)
def test_the_blank_stands_where_it_is_written(text: str) -> None:
    tree, node = parse_blanked(text)
    forest = Forest.from_trees([tree])
    assert forest.labels[forest.label[node]] == "Integer:0"
    assert tree == parse_equation(text.replace("?", "(0)"), variables="indexed")
    marked = Forest.from_trees([parse_equation(text.replace("?", "v9"), variables="indexed")])
    assert marked.labels[marked.label[node]] == "Symbol:var_9"


@pytest.mark.parametrize(
    ("text", "problem", "column"),
    [
        ("x + 1 = 1 + x", "there is no '\\?'", 14),
        ("x + ? = ? + x", "a second '\\?'", 9),
        ("x + ? = (x", "the '\\(' at column 9 is not closed", 11),
        ("?", "unexpected end of the text", 2),
        ("x + 2? = x", "unexpected '\\?' right after number '2'", 6),
        ("sin? = x", "unexpected '\\?' right after name 'sin'", 4),
        ("?y = x", "unexpected name 'y' right after '\\?'", 2),
        ("? (x) = x", r"unexpected '\(' right after '\?'", 3),
        ("a + ? = x", "unknown variable 'a'", 1),
        ("x*blank = ?", "unknown variable 'blank'", 3),
        ("x + ? = blan(x)", "unknown function 'blan'; expected", 9),
    ],
)
def test_a_mistake_is_shown_in_the_users_own_text(text: str, problem: str, column: int) -> None:
    with pytest.raises(ParseError, match=problem) as caught:
        parse_blanked(text)
    assert caught.value.text == text
    assert caught.value.column == column


def test_the_best_fillings_come_first_and_say_their_probability(untrained) -> None:
    model, candidates = untrained(), make_candidates()
    found = fill(model, "x + ? = x + y", top=2000)
    assert len(found) == len(np.unique(candidates.reading))
    scores = [filling.score for filling in found]
    assert scores == sorted(scores, reverse=True)
    tree, node = parse_blanked("x + ? = x + y")
    blanks = Blanks(np.array([0]), np.array([node]), np.array([-1]))
    (all_scores,) = filling_scores(model, Forest.from_trees([tree]), blanks, engine="whole")
    assert found[0].score == pytest.approx(all_scores.max())
    for filling in found[:3]:
        left = Tree("Add", [Tree("Symbol:var_0"), filling.tree])
        (probability,) = model.predict(Forest.from_trees([Tree("Equality", [left, tree.children[1]])]))
        assert filling.probability == pytest.approx(probability, abs=1e-9)


def test_one_filling_of_each_value_where_asked_for(untrained) -> None:
    candidates = make_candidates()
    found = fill(untrained(), "x + ? = x + y", top=2000, collapse=True)
    assert len(found) == candidates.num_classes
    number = {candidates.text(place): place for place in reversed(range(len(candidates)))}
    classes = [candidates.value_class[number[filling.text]] for filling in found]
    assert len(set(classes)) == len(classes)


@pytest.mark.parametrize("top", [0, 2.5, "3"])
def test_a_number_of_fillings_below_one_is_refused(untrained, top: object) -> None:
    with pytest.raises(RecipeError, match="top must be"):
        fill(untrained(), "x + ? = 1", top=top)
