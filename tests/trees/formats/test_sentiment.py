"""The sentiment treebank: trees with a class at every node."""

from __future__ import annotations

from pathlib import Path

import pytest

from treemem.errors import ParseError, RecipeError
from treemem.trees.formats.sentiment import read_sentiment_trees


def test_words_and_phrases_have_their_classes(tmp_path: Path) -> None:
    path = tmp_path / "dev.txt"
    path.write_text("(3 (2 It) (4 (2 works) (1 a=2)))\n\n(0 bad)\n(1 (2 ``) (0 6\xa03))\n", encoding="utf-8")
    forest = read_sentiment_trees(path)
    words = [[leaf.label for leaf in tree.leaves()] for tree in forest]
    assert words == [["It", "works", "a=2"], ["bad"], ["``", "6\xa03"]]
    assert forest[0].label == "X"
    assert forest[0].children[1].arity == 2
    assert forest.node_data["class"].tolist() == [2, 2, 1, 4, 3, 0, 2, 0, 1]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("(3 (2 It) (4 works)", "not closed"),
        ("(3 (2 It) (4 works)))", "after the end of the tree"),
        ("(5 (2 It) (4 works))", "the node '5' has 2 parts"),
        ("(3 (2 It))", "the node '3' has 1 parts"),
        ("(3 (2 It) works)", "2 words, and 1 of them have a class"),
        ("It works", "after the end of the tree"),
        ("( 3 (2 It) (4 works))", "the node '' has 3 parts"),
        ("It", "1 words, and 0 of them have a class"),
    ],
)
def test_a_wrong_line_is_told_with_its_number(line: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "dev.txt"
    path.write_text(f"(2 fine)\n{line}\n")
    with pytest.raises(ParseError, match=problem) as error:
        read_sentiment_trees(path)
    assert "dev.txt, line 2" in str(error.value)


def test_a_file_without_trees_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dev.txt").write_text("\n")
    with pytest.raises(RecipeError, match=r"no tree in .*dev\.txt"):
        read_sentiment_trees(tmp_path / "dev.txt")
