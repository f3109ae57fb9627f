"""Files of trees in any form."""

from __future__ import annotations

import gzip
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from treemem.errors import GraphError, ParseError, RecipeError
from treemem.nn import ChildSumTreeLSTM
from treemem.schedule import TreeBatch
from treemem.trees import Forest, Vocabulary, format_text, parse_text, read_trees
from treemem.trees.formats import newick
from treemem.trees.formats.forms import FORMS, TEXT_FORMS, TextForm


def read(tmp_path: Path, text: str, form: TextForm, name: str = "trees") -> list[str]:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return [str(tree) for tree in read_trees(file, form)]


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_a_file_of_examples_is_read_text_by_text(form: TextForm, tmp_path: Path) -> None:
    example, between = FORMS[form].example, "\n\n" if form.startswith("conllu") else "\n"
    texts = [example] if form == "python" else [example] * 3
    expected = [str(parse_text(example, form))] * len(texts)
    if form == "brackets":
        expected = expected[:1] * 3
    assert read(tmp_path, between.join(texts) + "\n", form) == expected


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("newick", "(A,\n[;]B)';';(C\n,D); E;\n", ["(; A B)", "(X C D)", "E"]),
        ("newick", "(A,\n[;\n';]B);[\n](C,'d;e'\n) f\n;", ["(X A B)", "(f C d;e)"]),
        ("smtlib", '; (a)\n(f "(\n")(g |)|\n x) y\n\n', ['(f "\\"(\\n\\"")', '(g ")" x)', "y"]),
        ("lisp", '(f #\\) "\\")")\n; (\n\'x', ['(f "#\\\\)" "\\"\\\\\\")\\"")', "(quote x)"]),
        ("lisp", "#| (\n( |#\n(f\n #| ( |# x)\n|a\nb|\n(g) #| |#", ["(f x)", r'"a\nb"', '"g()"']),
        ("tree_sitter", "(f\n  \"(\") (g '\\')')", ['(f "(")', "(g \"'\\\\')'\")"]),
        ("penn", "( (S (NN a)\n (NN ;)) )((NP (NN b) (NN c)))\n", ["(S a ;)", "(NP b c)"]),
        ("json", '["f",\n "x"]\n', ["(f x)"]),
        ("json", '["f"]\n\n["g"]', ["f", "g"]),
        ("estree", '{"type": "Program",\n"body": []}', ["Program"]),
        ("xml", '<?xml version="1.0"?>\n<a/>\n', ['"a()"']),
        ("xml", '<?xml version="1.0"?>\n<a>\n<b/></a>\n', ['(a "b()")']),
        ("prefix", "1|sin x\tcos x\nY\n", ["(sin x)", "(cos x)", "Y"]),
        ("conllu", "\n# c\n\n1\ta" + "\t_" * 4 + "\t0" + "\t_" * 3 + "\n# end\n\n", ["a"]),
        ("python", "x = 1\n\ny\n", ["(Module (Assign x (value 1)) y)"]),
        ("parents", "a b\n2 0\n\nc\n0\n", ["(b a)", "c"]),
    ],
)
def test_a_file_is_divided_as_its_form_says(form: TextForm, text: str, expected: list[str], tmp_path: Path) -> None:
    assert read(tmp_path, text, form) == expected


@pytest.mark.parametrize(
    ("form", "text", "line"),
    [
        ("brackets", "(f x)\n\n(f x\n", 3),
        ("newick", "(A,B);\n\n(A,\nB;\n", 3),
        ("smtlib", "(f)\n(g\n", 2),
        ("json", '["f"]\n["g"', 2),
        ("json", '["f"\n["g"]', 1),
        ("conllu", "1\ta" + "\t_" * 4 + "\t0" + "\t_" * 3 + "\n\n# c\n1\ta\n", 3),
        ("parents", "a b\n2 0\nc\n", 3),
    ],
)
def test_a_bad_text_is_refused_with_file_and_line(form: TextForm, text: str, line: int, tmp_path: Path) -> None:
    with pytest.raises(ParseError) as caught:
        read(tmp_path, text, form)
    assert (caught.value.line, caught.value.source) == (line, str(tmp_path / "trees"))


def test_each_line_of_a_tree_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = 0

    class Counting:
        def search(self, line: str, place: int) -> re.Match[str] | None:
            nonlocal searched
            searched += len(line) - place
            return mark.search(line, place)

    mark = newick._MARK
    monkeypatch.setattr(newick, "_MARK", Counting())
    lines = ["(", *["a,"] * 500, "b);"]
    (text,) = (text for _, text in newick.newick_texts(enumerate(lines, start=1)))
    assert text.count(",") == 500
    assert searched <= len("".join(lines))


def test_an_apostrophe_spoils_the_trees_of_its_own_line_only() -> None:
    lines = enumerate(["(O'x,y);", "(A,B);", "('a;b',C);"], start=1)
    assert [*newick.newick_texts(lines)] == [(1, "(O'x,y);"), (2, "(A,B);"), (3, "('a;b',C);")]


def test_words_stand_beside_a_file_of_parent_pointers(tmp_path: Path) -> None:
    (tmp_path / "a.toks").write_text("the cats sleep\n\nx\n")
    assert read(tmp_path, "2 3 0\n\n0\n", "parents", "a.parents") == ["(sleep (cats the))", "x"]
    (tmp_path / "SOStr.txt").write_text("a|b|c\n")
    assert read(tmp_path, "5|4|4|5|0\n", "parents", "STree.txt") == ["(X a (X b c))"]
    with pytest.raises(RecipeError, match="have different numbers of lines"):
        read(tmp_path, "2 3 0\n\n0\n0\n", "parents", "a.parents")
    with pytest.raises(ParseError, match=r"a.parents, line 2: an empty line beside one of .*a.toks"):
        read(tmp_path, "2 3 0\n0\n0\n", "parents", "a.parents")


def test_pointers_without_their_file_of_words_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"a.parents, line 1: numbers where .* one of a.toks, sents.toks, SOStr"):
        read(tmp_path, "2 0\n2 0\n", "parents", "a.parents")


def test_a_head_that_is_no_word_is_named_as_in_the_file_with_edges_too() -> None:
    words = "1\ta" + "\t_" * 4 + "\t0\troot" + "\t_" * 2 + "\n2\tb" + "\t_" * 4 + "\t9\tobj" + "\t_" * 2
    for form in ("conllu", "conllu:edges"):
        with pytest.raises(ParseError, match="the head of node 2 is 9,"):
            parse_text(words, form)  # type: ignore[arg-type]


def test_blank_lines_of_a_json_file_count_in_errors(tmp_path: Path) -> None:
    with pytest.raises(ParseError, match="line 1, line 5 of the text"):
        read(tmp_path, '["f",\n\n"x",\n\n"y" "z"]\n', "json")


def test_a_file_without_trees_is_refused_and_so_is_one_that_looks_unlabelled(tmp_path: Path) -> None:
    for form in ("brackets", "newick", "conllu", "json", "smtlib"):
        with pytest.raises(RecipeError, match=f"there is no tree in .*trees; the form '{form}' needs texts such as"):
            read(tmp_path, "\n \n", form)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match="look unlabelled"):
        read(tmp_path, "( - ( -4 6 ) )\n( + ( -10 9 ) )\n", "brackets")
    with pytest.raises(GraphError, match="trees, line 1: NaN is no tree"):
        read(tmp_path, '["f", NaN]', "json")
    with pytest.raises(RecipeError, match="cannot read"):
        list(read_trees(tmp_path / "absent", "newick"))


def test_a_large_packed_file_is_read_tree_by_tree(tmp_path: Path) -> None:
    file = tmp_path / "trees.nwk.gz"
    with gzip.open(file, "wt") as stream:
        stream.writelines("(A,B);\n" for _ in range(1500))
        stream.write("(A,")
    trees = read_trees(file, "newick")
    assert len(list(itertools.islice(trees, 1500))) == 1500
    with pytest.raises(ParseError, match="line 1501"):
        next(trees)


def test_a_child_sum_network_reads_the_words_of_a_real_treebank(shared_data: Path) -> None:
    file = shared_data / "dependencies" / "en_ewt-ud-dev.conllu.gz"
    trees = list(read_trees(file, "conllu:upos"))
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        words = [line.split("\t") for line in stream if line[0].isdecimal()]
    words = [cells for cells in words if cells[0].isdecimal()]
    assert len(trees) == sum(cells[6] == "0" for cells in words) == 2001
    forest = Forest.from_trees(trees)
    assert forest.num_nodes == len(words)
    assert sorted(forest.labels[label] for label in forest.label) == sorted(cells[3] for cells in words)
    assert trees[0] == parse_text(format_text(trees[0], "conllu:upos"), "conllu:upos")
    heads = [cells[3] for cells in words if cells[6] == "0"]
    assert [tree.label for tree in trees] == heads
    vocabulary = Vocabulary.from_forest(forest)
    batch = TreeBatch.from_forest(forest[:50], vocabulary)
    root = ChildSumTreeLSTM(4, vocabulary)(batch).root
    assert root.shape == (50, 1, 4)
    assert torch.isfinite(root).all()
    assert np.unique(forest.arity).max() > 5
