from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treemem.errors import GraphError, RecipeError
from treemem.induction import (
    RunTrees,
    baseline_trees,
    differing_sentences,
    random_branching,
    right_branching,
    sentence_f1,
    tree_spans,
    tree_svg,
    write_tree_page,
)
from treemem.trees.tree import Tree

SENTENCES = [list("abcdef"), list("ab"), list("abcdef"), list("uvwxyz"), list("klmnop")]
GOLD = baseline_trees(SENTENCES, "balanced")
LEFT, RIGHT = baseline_trees(SENTENCES, "left"), baseline_trees(SENTENCES, "right")
ALL = [True] * 5
RUNS = {
    "seed 0": RunTrees(LEFT, [True, True, True, False, True]),
    "seed 1": RunTrees(RIGHT, ALL),
    "seed 2": RunTrees(LEFT, ALL),
}


def tree_page(gold: Sequence[Tree], runs: Mapping[str, RunTrees], **options: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        write_tree_page(Path(folder) / "page.html", gold, runs, **options)
        return (Path(folder) / "page.html").read_text(encoding="utf-8")


class Page(HTMLParser):
    """The tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_sentences_differ_where_all_are_right_with_other_trees_and_count_once() -> None:
    # 1 has one tree only, 2 repeats 0, 3 is predicted wrong by one run.
    assert differing_sentences(RUNS) == [0, 4]


def test_the_page_shows_gold_and_runs_with_f1_and_verdicts() -> None:
    page = Page(tree_page(GOLD, RUNS))
    text = " ".join(page.text)
    assert page.tags.count("section") == 2
    assert page.tags.count("svg") == 2 * 3  # gold, seeds 0 and 2 together, seed 1
    assert [line for line in page.text if line.startswith("Sentence")] == [
        "Sentence 0: a b c d e f",
        "Sentence 4: k l m n o p",
    ]
    assert "Of 5 sentences, 2 (each counted once)" in text
    assert text.count("seed 0: correct seed 2: correct") == 2
    assert f"F1 {100 * sentence_f1(GOLD[0], LEFT[0]):.1f} %" in text
    assert "wrong" not in text.split("without the span")[1]


def test_sentences_can_be_chosen_and_wrong_predictions_show() -> None:
    page = Page(tree_page(GOLD, {**RUNS, "perfect": RunTrees(GOLD, ALL)}, sentences=[3]))
    assert page.tags.count("section") == 1
    assert page.text.count("wrong") == 1
    assert "F1 100.0 %, the gold tree" in page.text
    assert "1 of 5 sentences were chosen." in " ".join(page.text)


def test_runs_that_predict_nothing_have_trees_without_verdicts() -> None:
    runs = {"layer 1": RunTrees(LEFT), "layer 2": RunTrees(RIGHT)}
    page = Page(tree_page(GOLD, runs, sentences=[0]))
    assert {"layer 1", "layer 2"} <= {*page.text}
    assert not {"correct", "wrong"} & {*" ".join(page.text).replace(":", " ").split()}
    with pytest.raises(RecipeError, match=r"layer 2 has no predictions; name the sentences to show \(sentences=\)"):
        differing_sentences({"seed 0": RUNS["seed 0"], "layer 2": runs["layer 2"]})


MARKUP = ["<script>alert(1)</script>", '"><img src=x onerror=y>', "&amp;", "'", "]]>", "<!--"]
AWKWARD = [*MARKUP, "", " ", "\x00", "\ud800", "\u202eabc"]


def test_whatever_users_write_stays_text(tmp_path: Path) -> None:
    gold = [random_branching(AWKWARD, 0)]
    runs = {name: RunTrees([random_branching(AWKWARD, seed)], [True]) for seed, name in enumerate(AWKWARD, 1)}
    write_tree_page(tmp_path / "page.html", gold, runs, title="</title><script>")
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    known = "html head meta title style body h1 p section h2 div figure figcaption b details summary code"
    assert set(page.tags) <= {*known.split(), "svg", "g", "path", "circle", "text"}
    assert not {name for name, _ in page.attributes} & {"src", "href", "onerror", "style"}
    for word in MARKUP:
        assert any(word in text for text in page.text), word
    assert not any(character in text for text in page.text for character in "\x00\ud800\u202e")


def test_the_page_needs_nothing_else_and_is_the_same_each_time() -> None:
    text = tree_page(GOLD, RUNS)
    assert text == tree_page(GOLD, RUNS)
    assert set(re.findall(r"https?://[^\"' ]*", text)) == {"http://www.w3.org/2000/svg"}
    assert "<script" not in text
    assert "url(" not in text


@given(words=st.lists(st.text(max_size=30), min_size=1, max_size=70), seed=st.integers(0, 1000))
def test_a_picture_has_a_line_a_word_and_stays_inside_its_frame(words: list[str], seed: int) -> None:
    tree = random_branching(words, seed)
    svg = ElementTree.fromstring(tree_svg(tree))  # well-formed
    name = "{http://www.w3.org/2000/svg}"
    width, height = float(svg.attrib["width"]), float(svg.attrib["height"])
    lines = [float(text.attrib["y"]) for text in svg.iter(f"{name}text")]
    assert len(lines) == len(words)
    assert all(below - above >= 16 for above, below in pairwise(lines))
    assert max(lines) < height
    circles = list(svg.iter(f"{name}circle"))
    assert len(circles) == len(words) - 1
    assert all(0 < float(circle.attrib["cx"]) < width for circle in circles)
    places = {(circle.attrib["cx"], circle.attrib["cy"]) for circle in circles}
    assert len(places) == len(circles)


def test_nodes_that_the_gold_tree_lacks_are_dashed() -> None:
    gold, tree = GOLD[0], right_branching(SENTENCES[0])
    odd = set(tree_spans(tree)) - set(tree_spans(gold))
    assert tree_svg(tree, tree_spans(gold)).count("stroke-dasharray") == len(odd) > 0
    assert "stroke-dasharray" not in tree_svg(tree)


def test_pages_that_cannot_be_made_are_told(tmp_path: Path) -> None:
    odd = RunTrees([LEFT[3], *LEFT[1:]], ALL)
    for runs, options, error, named in (
        ({"seed 0": RUNS["seed 0"]}, {}, RecipeError, "at least two runs; there are 1"),
        ({}, {}, RecipeError, "no runs"),
        ({**RUNS, "short": RunTrees(LEFT, ALL[:4])}, {}, RecipeError, "short has 5 trees and 4 predictions"),
        ({**RUNS, "odd": odd}, {}, GraphError, "odd: the trees of sentence 0 .*: 'a' against 'u' at word 0"),
        (RUNS, {"sentences": [5]}, RecipeError, "there is no sentence 5; there are 5, from 0"),
        (RUNS, {"most": 0}, RecipeError, "most must be at least 1"),
    ):
        with pytest.raises(error, match=named):
            tree_page(GOLD, runs, **options)
    with pytest.raises(RecipeError, match=r"cannot write .*: there is no folder"):
        write_tree_page(tmp_path / "missing" / "page.html", GOLD, RUNS)


def test_a_page_that_is_there_is_replaced_only_where_that_is_said(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("mine")
    with pytest.raises(RecipeError, match=r"page\.html exists; .*overwrite"):
        write_tree_page(page, GOLD, RUNS)
    assert page.read_text() == "mine"
    write_tree_page(page, GOLD, RUNS, overwrite=True)
    assert "<html" in page.read_text()
