from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treemem.errors import GraphError, ParseError, RecipeError, TreememError, VocabularyError
from treemem.records import write_records
from treemem.tasks.equation_verification import EquationVerification
from treemem.tasks.equation_verification.readers import read_equations, read_published
from treemem.trees.formats.equations.parser import parse_equation
from treemem.trees.formats.preorder import format_preorder
from treemem.trees.tree import Tree


def test_text_lines_may_have_a_label_after_a_tab(tmp_path: Path) -> None:
    path = tmp_path / "equations.txt"
    path.write_text("x = x\t1\ny = z\nx = -x\tfalse\n")
    read = read_equations(path)
    assert read.forest.tree_data["label"].tolist() == [1, -1, 0]
    assert read.ids == [1, 2, 3]


@pytest.mark.parametrize(
    "record",
    [
        {"lhs": "y + sin(-x)", "rhs": "y*x"},
        {"preorder": "Equality Add Symbol:var_0 sin Mul Integer:-1 Symbol:var_1 Mul Symbol:var_0 Symbol:var_1"},
        {"tree": "(Equality (Add Symbol:var_0 (sin (Mul Integer:-1 Symbol:var_1))) (Mul Symbol:var_0 Symbol:var_1))"},
    ],
)
def test_an_equation_may_be_two_sides_a_preorder_or_a_tree(tmp_path: Path, record: dict[str, str]) -> None:
    path = tmp_path / "equations.jsonl"
    record = {name: text.replace("Integer:-1", "NegativeOne:-1") for name, text in record.items()}
    write_records(path, [record])
    assert list(read_equations(path).forest) == [parse_equation("y + sin(-x) = y*x")]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        *((line, ParseError) for line in ("sin(x = 1", "", "x = y = z", "x = 1\t7", "x = 1\t1\t1", "sim(x) = 1")),
        ("__import__('os').system('id') = 1", ParseError),
        ("a+b+c+d+f+g+h+i+j+k+l = 1", VocabularyError),
    ],
)
def test_a_bad_line_is_collected_with_its_place_or_raised(
    tmp_path: Path, line: str, error: type[TreememError], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "equations.txt"
    path.write_text(f"x = x\n{line}\ny = y\n")
    with caplog.at_level(logging.WARNING):
        read = read_equations(path)
    (bad,) = read.bad
    assert (read.ids, bad.place, bad.id) == ([1, 3], "line 2", 2)
    assert isinstance(bad.error, error)
    assert str(bad.error).count("line 2") == 1
    assert "equations.txt, line 2" in str(bad.error)
    assert "1 of 3 records are no equations" in caplog.text
    with pytest.raises(error, match=r"equations\.txt, line 2"):
        read_equations(path, strict=True)


def test_leaves_of_equal_meaning_are_unified_in_each_form(tmp_path: Path) -> None:
    path = tmp_path / "equations.jsonl"
    tree = Tree("Equality", [Tree("Add", [Tree("One:1"), Tree("Rational:0")]), Tree("One:1")])
    write_records(path, [{"tree": str(tree)}, {"tree": "(Equality Integer:1 Integer:1)"}])
    read = [*read_equations(path).forest, EquationVerification().forest_of([tree])[0]]
    unified = parse_equation("1 + 0 = 1")
    assert read == [unified, parse_equation("1 = 1"), unified]


def test_the_first_of_wrong_records_of_two_sorts_is_raised(tmp_path: Path) -> None:
    path = tmp_path / "equations.jsonl"
    path.write_text('{"tree": "(Equality Onne:1 One:1)"}\n{"equation": "x ="}\n')
    with pytest.raises(VocabularyError, match=r"equations\.jsonl, line 1.*Onne:1"):
        read_equations(path, strict=True)
    assert [bad.id for bad in read_equations(path).bad] == [1, 2]


@pytest.mark.parametrize(
    ("record", "error", "problem"),
    [
        ({"id": "q", "text": "x = 1"}, ParseError, "no equation among the fields 'id', 'text'"),
        ({"id": "q", "equation": 3}, ParseError, "the field 'equation' is 3"),
        ({"id": "q", "lhs": "x"}, ParseError, "'rhs' is missing or empty; expected a text in both lhs and rhs"),
        ({"id": "q", "tree": "(Add x y)"}, GraphError, "the root is 'Add' with 2 children"),
        ({"id": "q", "tree": "(Equality Symbol:var_0 Symbol:vra_1)"}, VocabularyError, "unknown leaf 'Symbol:vra_1'"),
        ({"id": "q", "tree": "(Equality (Equality One:1 One:1) One:1)"}, VocabularyError, "unknown function 'Equal"),
        ({"id": "q", "tree": "(Equality Pi:pi=2 One:1)"}, VocabularyError, "has the value 2.0"),
        ({"id": "q", "equation": "x = 1", "label": "perhaps"}, ParseError, "the label is 'perhaps'"),
        ({"id": "q", "equation": "x = 1", "label": 2}, ParseError, "the label is 2"),
        ({"id": "q", "equation": "x = 1", "label": [1]}, ParseError, "the label is"),
    ],
)
def test_a_bad_record_is_collected_with_its_id(
    tmp_path: Path, record: dict[str, Any], error: type[TreememError], problem: str
) -> None:
    path = tmp_path / "equations.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in ({"equation": "x = 1"}, record)))
    read = read_equations(path)
    (bad,) = read.bad
    assert (bad.place, bad.id) == ("line 2", "q")
    assert isinstance(bad.error, error)
    assert problem in str(bad.error)
    with pytest.raises(error, match="line 2"):
        read_equations(path, strict=True)


@pytest.mark.parametrize(
    ("label", "expected"),
    [(True, 1), (False, 0), ("True", 1), ("0", 0), (1.0, 1), (None, -1), ("", -1), (-1, -1), (float("nan"), -1)],
)
def test_labels_may_be_spelled_in_several_ways(tmp_path: Path, label: Any, expected: int) -> None:
    path = tmp_path / "equations.parquet"
    write_records(path, [{"equation": "x = 1", "label": label}])
    assert read_equations(path).forest.tree_data["label"].tolist() == [expected]


def published_record(functions: str, variables: str, label: str = "1", **others: Any) -> dict[str, Any]:
    return {"equation": {"func": functions, "vars": variables, **others}, "label": label}


def published_file(tmp_path: Path, *records: Any) -> Path:
    path = tmp_path / "equations.json"
    path.write_text(json.dumps([[], list(records)]))
    return path


GOOD = published_record("Equality,sin,Symbol,#,#,#,One,#,#", ",,var_0,#,#,#,1,#,#")


def test_a_published_record_is_read_with_unified_leaves(tmp_path: Path) -> None:
    read = read_equations(published_file(tmp_path, GOOD))
    assert [format_preorder(tree) for tree in read.forest] == ["Equality sin Symbol:var_0 Integer:1"]
    assert read.forest.tree_data["label"].tolist() == [1]
    assert read.ids == ["depth 1, record 1"]


NUMERIC = published_record("Equality,sin,Number,#,#,#,Number,#,#", ",,2.5,#,#,#,0.6,#,#")
FALSE_NUMERIC = published_record("Equality,Number,#,#,Number,#,#", ",2.5,#,#,0.6,#,#", "0")


def test_numeric_records_are_dropped_unless_asked_for_and_false_ones_always(tmp_path: Path) -> None:
    path = published_file(tmp_path, GOOD, NUMERIC, FALSE_NUMERIC)
    symbolic, numeric = read_published(path), read_published(path, numeric=True)
    assert (len(symbolic.forest), symbolic.dropped, symbolic.bad) == (1, 2, [])
    assert (len(numeric.forest), numeric.dropped) == (2, 1)
    assert [leaf.value for leaf in numeric.forest[1].leaves()] == [2.5, 0.6]


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ({}, "no field 'equation'"),
        (published_record("Equality,One,#,#", ",1,#,#,#"), "'func' has 4 entries and 'vars' 5"),
        (published_record("Equality,One,#,#,One,#", ",1,#,#,1,#"), "3 nodes have 4 missing children; 'func' has 3 '#'"),
        (published_record("Equality,One,#,#,#", ",1,#,#,#"), "Equality has 1 of its 2 arguments"),
        (published_record("Equality,One,#,#,Onne,#,#", ",1,#,#,1,#,#"), "unknown label 'Onne:1'; did you mean One"),
        (published_record("Equality,One,#,#,Integer,#,#", ",1,#,#,17,#,#"), "unknown leaf 'Integer:17'"),
        (published_record("Equality,One,#,#,Number,#,#", ",1,#,#,many,#,#"), "unknown label 'Number:many'"),
        (published_record("sin,One,#,#,#", ",1,#,#,#"), "the root is 'sin'"),
        (published_record("Equality,One,#,#,One,#,#", ",1,#,#,1,#,#", "2"), "the label is '2'"),
    ],
)
def test_a_bad_published_record_is_named(tmp_path: Path, record: Any, problem: str) -> None:
    path = published_file(tmp_path, GOOD, record, GOOD)
    read = read_published(path)
    assert len(read.forest) == 2
    (bad,) = read.bad
    assert bad.place == "depth 1, record 2"
    assert "equations.json, depth 1, record 2" in str(bad.error)
    assert problem in str(bad.error)
    with pytest.raises(TreememError, match="depth 1, record 2"):
        read_published(path, strict=True)


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[3]", b"\xff", b"[" * 100_000])
def test_a_file_that_is_not_in_the_published_format_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "equations.json"
    path.write_bytes(content)
    with pytest.raises(ParseError, match=r"equations\.json.*a list over depth"):
        read_published(path)
    with pytest.raises(RecipeError, match="cannot read"):
        read_published(tmp_path / "missing.json")


def test_real_equations_read_the_same_from_infix_and_preorder(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "equations" / "published_dev.jsonl"
    infix = read_equations(source, variables="indexed", strict=True).forest
    records = [json.loads(line) for line in source.read_text().splitlines()]
    write_records(tmp_path / "p.jsonl", [{"preorder": each["preorder"], "label": each["label"]} for each in records])
    assert infix == read_equations(tmp_path / "p.jsonl", strict=True).forest
    assert np.bincount(infix.tree_data["label"]).tolist() == [809, 809]


def test_other_fields_are_kept_as_text(tmp_path: Path) -> None:
    path = tmp_path / "equations.jsonl"
    path.write_text('{"equation": "x = x", "holds": "all"}\n{"equation": "x ="}\n{"equation": "x = 2"}\n')
    file = read_equations(path, keep=["holds"])
    assert file.forest.tree_data["holds"].tolist() == ["all", ""]
    assert len(file.bad) == 1


def test_the_published_format_has_no_other_fields_and_no_labels_but_its_own(shared_data: Path) -> None:
    path = shared_data / "equations" / "published_raw_records.json"
    assert read_equations(path, keep=["holds"]).forest.tree_data["holds"].tolist() == [""] * 3
