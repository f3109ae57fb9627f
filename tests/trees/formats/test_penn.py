"""Penn Treebank files: the published filter, and errors with file, line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from treemem.errors import ParseError, RecipeError
from treemem.trees.formats.penn import WORD_TAGS, read_penn_trees

TEXT = """
( (S
    (NP-SBJ-1 (NNP Pierre) (NNP Vinken) (, ,))
    (VP (MD will)
      (VP (VB pay)
        (NP ($ $) (CD 1,250) (-NONE- *U*))
        (S (NP-SBJ (-NONE- *-1))
           (VP (TO to) (VP (VB leave))))))
    (. .)))
(TOP (FRAG (. .)))
( (NP (NN Trade)) )
( (NP|X=2 (DT The) (-LRB- -LRB-) (NN end)) (VP (VBZ is)) )
"""


def written(folder: Path, text: str, name: str = "wsj.mrg") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    assert [str(tree) for tree in read_penn_trees(written(tmp_path, "\ufeff(S (PRP I) (VBP go))"))] == ["(S i go)"]


def test_the_published_filter_keeps_words_and_phrases_of_several(tmp_path: Path) -> None:
    assert len(WORD_TAGS) == 36
    assert [str(tree) for tree in read_penn_trees(written(tmp_path, TEXT))] == [
        "(S (NP pierre vinken) (VP will (VP pay N,N (S (VP to leave)))))",
        "trade",
        "(X (NP the end) is)",
    ]


def test_all_words_can_stay_as_they_are(tmp_path: Path) -> None:
    found = read_penn_trees(written(tmp_path, TEXT), tags=None, normalize=False)
    assert " ".join(leaf.label for leaf in found[0].leaves()) == "Pierre Vinken , will pay $ 1,250 to leave ."
    assert str(found[1]) == "."
    assert str(found[3]) == "(X (NP The -LRB- end) is)"


def test_a_folder_is_all_its_files_in_order(tmp_path: Path) -> None:
    (tmp_path / "01").mkdir()
    written(tmp_path / "01", "(NP (NN b))", "b.mrg")
    written(tmp_path, "(NP (NN a))", "00.mrg")
    written(tmp_path, "no tree", "readme.txt")
    assert [str(tree) for tree in read_penn_trees(tmp_path)] == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("(S (NP (NN a))\n   (VP (VBZ b))\n", "line 1, column 1", "the bracket is not closed"),
        ("(S (NN a))\n)", "line 2, column 1", "'\\)' closes no node"),
        ("(S (NN a))\nword", "line 2, column 1", "a word outside of all brackets"),
        ("(S\n (NP))", "line 2, column 2", "without words or nodes"),
        ("()\n", "line 1, column 1", "without words or nodes"),
        ("(S (NN a b))", "column 10", "the node 'NN' has a second word"),
        ("(S (NN a) b)", "column 11", "the node 'S' has a second word, or one beside nodes"),
        ("(S (NN a (NP b)))", "column 10", "a bracket after the word of a node"),
    ],
)
def test_what_is_no_tree_is_told_with_its_place(text: str, place: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ParseError, match=problem) as error:
        read_penn_trees(written(tmp_path, text))
    assert "wsj.mrg" in str(error.value)
    assert place in str(error.value)


def test_files_without_sentences_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"no \.mrg file below"):
        read_penn_trees(tmp_path)
    with pytest.raises(
        RecipeError,
        match=r"no sentence with a word whose part of speech .* ends in \.txt",
    ):
        read_penn_trees(written(tmp_path, "(S (. .))"))
    with pytest.raises(RecipeError, match="cannot read"):
        read_penn_trees(tmp_path / "nowhere.mrg")
