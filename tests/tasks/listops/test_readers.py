from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from treemem.errors import ParseError, RecipeError
from treemem.tasks.listops import read_listops
from treemem.tasks.listops.readers import ListOpsRecords
from treemem.trees import Forest, parse_listops

NINE, ZERO = "[MAX 2 9 ]", "( ( ( ( [SM 6 ) 5 ) 9 ) ] )"


def write(folder: Path, text: str, name: str = "file.tsv") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def test_the_published_file_is_read_whole(shared_data: Path) -> None:
    path = shared_data / "listops" / "d20s_sample.tsv.gz"
    with gzip.open(path, "rt") as stream:
        lines = [line.rstrip("\n").split("\t") for line in stream]
    forest = read_listops(path)
    assert len(forest) == len(lines) == 5000
    assert forest.tree_data["label"].tolist() == [int(label) for label, _ in lines]
    assert forest.tree_data["line"].tolist() == list(range(1, 5001))
    assert [" ".join(words) for words in forest.tokens("bracketed leaves").strings()] == [tree for _, tree in lines]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("file.tsv", f"9\t{NINE}\n0\t{ZERO}\n"),
        ("file.txt", f"9\t{NINE}\r\n0\t{ZERO}"),
        ("file.tsv", f"Source\tTarget\n{NINE}\t9\n{ZERO}\t0\n"),
        ("file.tsv", f"label\ttree\n9\t{NINE}\n0\t{ZERO}\n"),
        ("file.csv", f"label,tree\n9,{NINE}\n0,{ZERO}\n"),
        ("file.jsonl", json.dumps({"label": 9, "tree": NINE}) + "\n" + json.dumps({"tree": ZERO, "label": "0"})),
    ],
)
def test_all_forms_of_files_hold_the_same(tmp_path: Path, name: str, text: str) -> None:
    for form in ("binary", "nary"):
        forest = read_listops(write(tmp_path, text, name), form)  # type: ignore[arg-type]
        expected = Forest.from_trees([parse_listops(NINE, form), parse_listops(ZERO, form)])  # type: ignore[arg-type]
        assert forest.with_data() == expected
        assert forest.tree_data["label"].tolist() == [9, 0]


def test_an_empty_file_holds_no_tree_and_a_missing_one_is_named(tmp_path: Path) -> None:
    forest = read_listops(write(tmp_path, ""))
    assert len(forest) == 0
    assert forest.tree_data["label"].dtype == np.int8
    with pytest.raises(RecipeError, match=r"cannot read .*none.tsv"):
        read_listops(tmp_path / "none.tsv")


LINE, RECORD = "a digit from 0 to 9", "label<TAB>tree, or fields of these names"


@pytest.mark.parametrize(
    ("line", "problem", "expected"),
    [
        (f"8\t{NINE}", "the label is 8, and the expression comes to 9", "the label 9, or another expression"),
        (f"10\t{NINE}", "the label is '10'", LINE),
        (f"\t{NINE}", "the label is missing", LINE),
        (NINE, f"a single column, '{NINE}'", "label<TAB>tree"),
        (f"9\t{NINE}\t9", "3 parts between tabs", "label<TAB>tree"),
        ("9\t[MAX 2 9", "the list '[MAX' of column 1 is not closed", "an argument or ']'"),
        ({"label": 9, "text": NINE}, "no tree", RECORD),
        ({"tree": NINE, "id": 3}, "no label", RECORD),
        ({"label": 9, "tree": ["[MAX", 2, 9]}, "the tree is ['[MAX', 2, 9]", "a text such as [MAX 2 9 ]"),
        ({"label": True, "tree": "1"}, "the label is True", LINE),
        ({"label": ""}, "no tree", RECORD),
    ],
)
def test_a_wrong_line_or_record_is_named(
    tmp_path: Path, line: str | dict[str, object], problem: str, expected: str
) -> None:
    if isinstance(line, dict):
        right = json.dumps({"label": 9, "tree": NINE})
        path = write(tmp_path, f"{right}\n\n{right}\n{json.dumps(line)}", "file.jsonl")
    else:
        path = write(tmp_path, f"9\t{NINE}\n\n0\t{ZERO}\n{line}\n5\t[MAX\n")
    with pytest.raises(ParseError) as caught:
        read_listops(path)
    assert (caught.value.source, caught.value.line) == (str(path), 4)
    assert problem in caught.value.problem
    assert caught.value.expected.startswith(expected)


def test_a_line_to_predict_has_a_label_beside_its_expression_or_nothing() -> None:
    reader = ListOpsRecords()
    for parts in (["[MAX 2 9 ]"], ["9", "[MAX 2 9 ]"], ["[MAX 2 9 ]", "9"], ["[MAX 2 9 ]", ""]):
        assert reader.fields_of_line(parts) == {"tree": "[MAX 2 9 ]"}
    for first in ("xyz", "12", "[MIN 1 2 ]"):
        with pytest.raises(ParseError, match="two columns, and neither is a label"):
            reader.fields_of_line([first, "[MAX 2 9 ]"])


def test_the_first_of_several_wrong_lines_is_named(tmp_path: Path) -> None:
    for first, second in ((f"8\t{NINE}", "9"), ("9\t[MAX", f"x\t{NINE}"), (f"8\t{NINE}", "\udcff")):
        path = tmp_path / "file.tsv"
        path.write_bytes(f"9\t{NINE}\n{first}\n".encode() + second.encode("utf-8", "surrogateescape") + b"\n")
        with pytest.raises(ParseError) as caught:
            read_listops(path)
        assert caught.value.line == 2


@pytest.mark.parametrize(
    ("name", "text", "labels"),
    [
        ("file.txt", f"{NINE}\n9\t{NINE}\n", [-1, 9]),
        ("file.txt", f"\t{NINE}\n", [-1]),
        ("file.tsv", f"Source\tTarget\n{NINE}\n{NINE}\t9\n", [-1, 9]),
        ("file.csv", f"tree\n{NINE}\n", [-1]),
        ("file.csv", f"label,tree\n,{NINE}\n9,{NINE}\n", [-1, 9]),
        ("file.jsonl", json.dumps({"tree": NINE, "label": None}), [-1]),
    ],
)
def test_labels_may_be_missing_where_that_is_said(tmp_path: Path, name: str, text: str, labels: list[int]) -> None:
    path = write(tmp_path, text, name)
    assert read_listops(path, labelled=False).tree_data["label"].tolist() == labels
    with pytest.raises(ParseError, match=rf"{name}, line [12]"):
        read_listops(path)


def test_where_labels_may_be_missing_a_given_one_must_be_right_and_so_must_the_expression(tmp_path: Path) -> None:
    path = write(tmp_path, f"{NINE}\n8\t{NINE}\n")
    with pytest.raises(ParseError, match="line 2, column 1: the label is 8, and the expression comes to 9"):
        read_listops(path, labelled=False)
    path = write(tmp_path, json.dumps({"label": "7"}), "file.jsonl")
    with pytest.raises(ParseError, match=r"file\.jsonl, line 1: no tree"):
        read_listops(path, labelled=False)


def test_labels_may_be_floats_as_in_a_column_with_gaps(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(",Source,Target\n0,[MAX 2 9 ],9.0\n1,[MIN 2 9 ],2.0\n")
    (tmp_path / "b.jsonl").write_text('{"tree": "[MAX 2 9 ]", "label": 9.0}\n{"tree": "[MIN 2 9 ]", "label": 2}\n')
    for name in ("a.csv", "b.jsonl"):
        assert read_listops(tmp_path / name).tree_data["label"].tolist() == [9, 2]
    for line in ("9.0\t[MAX 2 9 ]", "[MAX 2 9 ]\t9.0"):
        assert ListOpsRecords().fields_of_line(line.split("\t")) == {"tree": "[MAX 2 9 ]"}
    with pytest.raises(ParseError, match=r"the label is '9\.5'"):
        read_listops(write(tmp_path, f"9.5\t{NINE}\n"))
