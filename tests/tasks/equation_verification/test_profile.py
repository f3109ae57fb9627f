from __future__ import annotations

import json
from pathlib import Path

import pytest
from treemem.tasks.equation_verification.generation.profile import comparison, profile, read_profile

from treemem.errors import RecipeError
from treemem.tasks.equation_verification.generation.generator import generate_equations
from treemem.trees.equation_parser import parse_equation
from treemem.trees.forest import Forest


def test_a_profile_counts_true_equations_and_tokens_of_deep_ones() -> None:
    deep = "sin(sin(sin(sin(sin(sin(sin(x))))))) = y"
    forest = Forest.from_trees(
        [parse_equation(text) for text in ("x = x", "x + 1 = 1 + x", deep, "2 = 3")], tree_data={"label": [1, 1, 1, 0]}
    )
    found = profile(forest)
    assert found.nodes == {1: 3, 2: 7, 8: 10}
    assert found.equations == {1: 1, 2: 1, 8: 1}
    assert found.tokens == {"sin": 0.7, "Equality": 0.1, "Symbol:var_0": 0.1, "Symbol:var_1": 0.1}
    assert found.variables == {2: 1.0}


def test_generated_equations_look_like_the_published_ones(shared_data: Path) -> None:
    published = read_profile(shared_data / "equations" / "published_profile.json")
    generated = profile(generate_equations(6000, seed=1).forest)
    for depth in range(8, 14):
        assert generated.nodes[depth] == pytest.approx(published.nodes[depth], rel=0.1)
    for token in {*published.tokens, *generated.tokens}:
        assert generated.tokens.get(token, 0) == pytest.approx(published.tokens.get(token, 0), abs=0.03), token
    for number, share in ((1, 0.12), (2, 0.12), (3, 0.06), (4, 0.06)):
        assert generated.variables.get(number, 0) == pytest.approx(published.variables[number], abs=share)
    text = comparison(generated, published)
    assert "| Integer:1 | " in text
    assert "One:1" not in text
    assert text.count("\n| 8 | ") == 1


@pytest.mark.parametrize("content", ["", "[]", '{"tokens": {}}', '{"by_depth": {"8": 3}, "tokens": {"a": 1}}'])
def test_what_is_no_profile_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(content)
    with pytest.raises(RecipeError, match="is no profile"):
        read_profile(path)
    with pytest.raises(RecipeError, match="No such file"):
        read_profile(tmp_path / "missing.json")


def test_one_and_integer_1_are_one_token(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    tokens = {"One:1": 2, "Integer:1": 1, "Rational:0": 1}
    path.write_text(json.dumps({"by_depth": {}, "tokens": tokens, "distinct_variables_per_equation": {"1": 4}}))
    assert read_profile(path).tokens == {"Integer:1": 0.75, "Integer:0": 0.25}
