from __future__ import annotations

import pytest

from treemem.errors import RecipeError
from treemem.tasks.equation_verification.shallow_reader import TokenReader, shallow_results, token_counts
from treemem.trees.equation_parser import parse_equation
from treemem.trees.forest import Forest

LABELS = ("1", "x")


def _forest(texts: list[str], labels: list[int]) -> Forest:
    return Forest.from_trees([parse_equation(text) for text in texts], tree_data={"label": labels})


def test_counts_are_of_tokens_lengths_and_depths() -> None:
    forest = _forest(["x = sin(x) + 1", "sin(x) + 1 = x"], [1, 1])
    total, sides = token_counts(forest)
    assert total[0].tolist() == total[1].tolist()
    assert sides[0].tolist() == sides[1].tolist()
    by_label = dict(zip(forest.labels, total[0].tolist(), strict=False))
    assert by_label == {"Symbol:var_0": 2, "sin": 1, "Integer:1": 1, "Add": 1, "Equality": 0}
    assert total[0, -2:].tolist() == [5, 2]
    assert sides.shape == (2, 3 * (5 + 2))


def test_a_token_that_gives_the_label_away_is_found() -> None:
    shallow, deep = "x + {} = x", "sin(sin(sin(sin(sin(sin(sin(x + {}))))))) = x"
    texts = [text.format(leaf) for text in (shallow, deep) for leaf in ("1", "2") for _ in range(60)]
    for result in shallow_results(_forest(texts, ([1] * 60 + [0] * 60) * 2)):
        assert (result.accuracy, result.majority, result.training_accuracy) == (1.0, 0.5, 1.0)


def test_both_labels_are_needed_at_both_depths() -> None:
    with pytest.raises(RecipeError, match="beyond depth 7"):
        shallow_results(_forest(["x = x", "x = 1"], [1, 0]))
    with pytest.raises(RecipeError, match="to depth 0"):
        shallow_results(_forest(["x = x", "x = 1"], [1, 0]), training_depth=0)


def test_a_reader_judges_equations_of_other_files() -> None:
    texts = [f"x + {leaf} = x" for leaf in ("1", "2") for _ in range(60)]
    reader = TokenReader(_forest(texts, [1] * 60 + [0] * 60))
    other = _forest(["y + 2 = y", "x + 1 = x", "sin(x) + 1 = sin(x)"], [0, 1, 1])
    assert other.labels != _forest(texts, [0] * 120).labels
    assert reader.predict(other).tolist() == [False, True, True]
    with pytest.raises(RecipeError, match="to learn from"):
        TokenReader(_forest(texts, [1] * 120))
