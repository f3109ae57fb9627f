from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from treemem.errors import GraphError, RecipeError
from treemem.tasks.equation_verification.completion import make_candidates, read_blanked
from treemem.trees.formats.preorder import format_preorder


def test_blanks_of_a_file_stand_where_it_says_spelled_as_they_were(write) -> None:
    file = write(
        "equations.jsonl",
        {"id": "a", "preorder": "Equality Add Symbol:var_0 Rational:0 Symbol:var_0", "blank_node": 3, "label": 1},
        {"id": "false", "preorder": "Equality Symbol:var_0 Integer:2", "blank_node": 1, "label": 0},
        {"id": "root", "preorder": "Equality Symbol:var_0 Symbol:var_0", "blank_node": 0, "label": 1},
        {"id": "none", "preorder": "Equality Symbol:var_0 Symbol:var_0", "label": 1},
        {"id": "b", "equation": "z + sin(y) = z + sin(y)", "blank_node": 3},
    )
    candidates = make_candidates()
    found = read_blanked(file, candidates)
    assert found.ids == ["a", "b"]
    assert [format_preorder(candidates.forest[number]) for number in found.blanks.original.tolist()] == [
        "Rational:0",
        "sin Symbol:var_1",
    ]
    assert found.forest.begin[found.blanks.tree].tolist() == [0, 5]
    assert found.blanks.node.tolist() == [1, 7]


def test_a_file_without_blanks_gets_them_drawn(tmp_path: Path) -> None:
    file = tmp_path / "equations.txt"
    file.write_text("x + 1 = 1 + x\t1\nx = y\t0\nsin(x) = sin(x)\t1\n")
    found = read_blanked(file, make_candidates(), seed=1)
    assert found.ids == [1, 3]
    assert found.digest == read_blanked(file, make_candidates(), seed=1).digest
    others = [read_blanked(file, make_candidates(), seed=seed) for seed in range(2, 12)]
    for other in others:
        same = other.blanks.node.tolist() == found.blanks.node.tolist()
        assert (other.digest == found.digest) == same
    assert len({other.digest for other in others}) > 1


FALSE = {"preorder": "Equality Symbol:var_0 Integer:2", "blank_node": 1, "label": 0}
SINES = {"id": "b", "equation": "x + sin(y) = sin(y) + x"}


@pytest.mark.parametrize(
    ("records", "error", "problem"),
    [
        ([], RecipeError, "no equations in"),
        ([FALSE], RecipeError, r"no equation of .* is true and has a blank"),
        ([{**FALSE, "blank_node": "left"}], GraphError, "record 1: blank_node is 'left'"),
        ([{**SINES, "blank_node": 99}], GraphError, "'b', blank at place 99 in preorder: it has no such node"),
        ([{**SINES, "blank_node": 1}], GraphError, "'b', blank at place 1 .*: it is none of the 1470 candidates"),
        ([{**SINES, "blank_node": -1}], GraphError, "'b': blank_node is '-1'; it must be a place, from 0"),
        ([{**SINES, "blank_node": 10**30}], GraphError, "'b': blank_node is '10{30}'; it must be a place, from 0"),
    ],
)
def test_wrong_files_say_what_is_wrong_and_where(
    write, records: list[Any], error: type[Exception], problem: str
) -> None:
    good = [{"equation": "x = x", "blank_node": 1}, FALSE] if "'b'" in problem else []
    with pytest.raises(error, match=f"(?s)wrong.jsonl.*{problem}" if good else problem):
        read_blanked(write("wrong.jsonl", *good, *records), make_candidates())


def test_a_missing_file_is_named_and_a_record_by_its_line_in_the_file(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"missing\.jsonl"):
        read_blanked(tmp_path / "missing.jsonl", make_candidates())
    wrong = {"equation": SINES["equation"], "blank_node": 1}
    lines = [json.dumps({"equation": "x = x", "blank_node": 1}), "", json.dumps(FALSE), "no record", json.dumps(wrong)]
    (tmp_path / "lines.jsonl").write_text("\n".join(lines))
    with pytest.raises(GraphError, match=r"lines\.jsonl, record 5, blank at place 1"):
        read_blanked(tmp_path / "lines.jsonl", make_candidates())


def published_record(blank: str) -> dict[str, Any]:
    """sin(x)*1 = 1*sin(x), its nodes numbered level by level."""
    equation = {
        "func": "Equality,Mul,sin,Symbol,#,#,#,One,#,#,Mul,One,#,#,sin,Symbol,#,#,#",
        "vars": ",,,var_0,#,#,#,1,#,#,,1,#,#,,var_0,#,#,#",
        "nodeNum": "0,1,3,7,#,#,#,4,#,#,2,5,#,#,6,8,#,#,#",
    }
    return {"equation": equation, "label": "1", "blankNodeNum": blank}


def test_published_blanks_are_looked_up_by_their_number(tmp_path: Path) -> None:
    file, candidates = tmp_path / "published.json", make_candidates()
    file.write_text(json.dumps([[], [published_record("4"), published_record("6")]]))
    found = read_blanked(file, candidates)
    assert found.ids == ["depth 1, record 1", "depth 1, record 2"]
    originals = [format_preorder(candidates.forest[number]) for number in found.blanks.original.tolist()]
    assert originals == ["One:1", "sin Symbol:var_0"]
    file.write_text(json.dumps([[], [published_record("9")]]))
    with pytest.raises(GraphError, match="depth 1, record 1': blank_node is 'number 9, which no node has'"):
        read_blanked(file, candidates)
    file.write_text(json.dumps([[], [published_record("4")], [published_record("6"), published_record("0")]]))
    assert len(read_blanked(file, candidates)) == 2, "a blank root is left out"
    no_candidate = {
        "equation": {
            "func": "Equality,sin,sin,Symbol,#,#,#,#,Symbol,#,#",
            "vars": ",,,var_0,#,#,#,#,var_0,#,#",
            "nodeNum": "0,1,3,4,#,#,#,#,2,#,#",
        },
        "blankNodeNum": "1",
    }
    file.write_text(json.dumps([[], [published_record("4")], [published_record("6"), no_candidate]]))
    with pytest.raises(
        GraphError, match=r"published\.json, record 'depth 2, record 2', blank at place 1 .*none of the 1470"
    ):
        read_blanked(file, candidates)


def test_published_records_that_are_no_equations_or_numeric_are_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    no_equation = {"equation": {"func": "Equality,sin", "vars": ",", "nodeNum": "0,1"}, "blankNodeNum": "1"}
    numeric = {
        "equation": {"func": "Equality,Number,#,#,Number,#,#", "vars": ",2.5,#,#,2.5,#,#", "nodeNum": "0,1,#,#,2,#,#"},
        "label": "1",
        "blankNodeNum": "1",
    }
    file = tmp_path / "published.json"
    file.write_text(json.dumps([[], [no_equation, published_record("4"), numeric]]))
    with caplog.at_level("INFO"):
        assert read_blanked(file, make_candidates()).ids == ["depth 1, record 2"]
    assert "1 of 3 records are no equations; first" in caplog.text
    assert "1 numeric equations left out" in caplog.text


def test_published_blanks_are_candidates(shared_data: Path) -> None:
    file = shared_data / "equations" / "published_sample.jsonl"
    if not file.exists():
        pytest.skip(f"there is no {file}")
    found, candidates = read_blanked(file, make_candidates()), make_candidates()
    assert len(found) == 1040
    for line, original in zip(file.read_text().splitlines(), found.blanks.original.tolist(), strict=True):
        record = json.loads(line)
        rest = " ".join(record["preorder"].split()[record["blank_node"] :])
        assert f"{rest} ".startswith(f"{format_preorder(candidates.forest[original])} ")
