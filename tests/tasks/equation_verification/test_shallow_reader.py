from __future__ import annotations

from treemem.tasks.equation_verification.shallow_reader import TokenReader, token_counts
from treemem.trees.forest import Forest
from treemem.trees.formats.equations.parser import parse_equation


def _forest(texts: list[str], labels: list[int]) -> Forest:
    return Forest.from_trees([parse_equation(text) for text in texts], tree_data={"label": labels})


def test_counts_are_of_tokens_lengths_and_depths_of_the_longer_and_the_shorter_side() -> None:
    labels = ["Symbol:var_0", "sin", "Add"]
    counts = token_counts(_forest(["x = sin(x) + 1", "sin(x) + 1 = x"], [1, 1]), labels)
    longer, shorter = [1, 1, 1, 4, 2], [1, 0, 0, 1, 0]
    assert counts.tolist() == [[*longer, *shorter, 0, 1, 1, 3, 2]] * 2


def test_a_reader_judges_equations_of_other_files() -> None:
    texts = [f"x + {leaf} = x" for leaf in ("1", "2") for _ in range(60)]
    reader = TokenReader(_forest(texts, [1] * 60 + [0] * 60))
    other = _forest(["y + 2 = y", "x + 1 = x", "sin(x) + 1 = sin(x)"], [0, 1, 1])
    assert other.labels != _forest(texts, [0] * 120).labels
    assert reader.predict(other).tolist() == [False, True, True]
