from __future__ import annotations

import csv
import errno
import gzip
import io
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from treemem.errors import ParseError, RecipeError
from treemem.records import json_line, open_source, read_records, replacing, source, write_records

RECORDS = [
    {"id": 1, "text": "x = x", "note": "plain"},
    {"id": 2, "text": 'sin("ä") = 1', "note": "a, b"},
    {"id": 3, "text": "", "note": "naïve"},
]


def fields_of(path: Path, **options: object) -> list[dict[str, object]]:
    return [record.fields for record in read_records(path, **options)]  # type: ignore[arg-type]


@given(
    records=st.lists(
        st.fixed_dictionaries({"id": st.integers(-9, 9), "text": st.text('xä,"\t\r\n \u2028', max_size=4)}), max_size=4
    ),
    suffix=st.sampled_from(["jsonl", "jsonl.gz", "ndjson", "parquet", "parquet.gz", "csv", "csv.gz"]),
)
def test_records_come_back_as_they_were_and_those_of_csv_as_text(records: list[dict[str, Any]], suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"records.{suffix}"
        assert write_records(path, iter(records), fields=["text", "id"]) == len(records)
        assert write_records(path.with_name(f"header.{suffix}"), [{"a\rb": "1", "c": "2"}]) == 1
        assert fields_of(path.with_name(f"header.{suffix}")) == [{"a\rb": "1", "c": "2"}]
        found = list(read_records(path))
    as_text = suffix.startswith("csv")
    for record in records if as_text else ():
        record["text"] = record["text"].replace("\r\n", "\n")  # an end of a line within a cell is read as one
    assert [record.fields for record in found] == [
        {**record, "id": str(record["id"])} if as_text else record for record in records
    ]
    if not as_text:
        assert [record.line for record in found] == [*range(1, len(records) + 1)]


@pytest.mark.parametrize("name", ["records.txt", "records.tsv", "records", "records.txt.gz"])
def test_text_lines_are_parts_between_tabs(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_records(path, [{"a": "x = x", "b": 1}, {"a": "y", "b": None}])
    assert fields_of(path, text_fields=("a", "b")) == [{"a": "x = x", "b": "1"}, {"a": "y", "b": ""}]


@pytest.mark.parametrize(
    ("name", "skipped", "content", "expected"),
    [
        ("a.jsonl", False, '\ufeff\n{"a": 1}\r\n\r\n \t\n{"a": 2}\n\n', [(2, {"a": 1}), (5, {"a": 2})]),
        ("a.txt", True, "\nx\n  \n\r\ny\t\n", [(2, {"a": "x"}), (5, {"a": "y", "b": ""})]),
        ("a.txt", False, "x\n\n", [(1, {"a": "x"}), (2, {"a": ""})]),
        (
            "a.csv",
            False,
            '\na,b\n1,2\n\n  \n"3\n\n3",4\n\n',
            [(3, {"a": "1", "b": "2"}), (6, {"a": "3\n\n3", "b": "4"})],
        ),
        ("b.csv", False, 'a\n1\n\n""\n', [(2, {"a": "1"}), (4, {"a": ""})]),
    ],
)
def test_blank_lines_are_no_records_but_in_text_unless_they_are_skipped(
    tmp_path: Path, name: str, skipped: bool, content: str, expected: list[Any]
) -> None:
    (tmp_path / name).write_bytes(content.encode())
    found = read_records(tmp_path / name, text_fields=("a", "b"), skip_blank_lines=skipped)
    assert [(record.line, record.fields) for record in found] == expected


def test_blank_cells_beyond_the_header_and_columns_without_a_name_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,,\n1,2,,\n3,4,,5\n6,7,,,\n")
    assert fields_of(tmp_path / "a.csv") == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}, {"a": "6", "b": "7"}]
    (tmp_path / "b.csv").write_text("a,b\n1,2,\n1,2,3\n")
    assert [record.error is None for record in read_records(tmp_path / "b.csv", strict=False)] == [True, False]


def test_the_first_line_of_a_text_file_may_name_its_columns(tmp_path: Path) -> None:
    def header_of(parts: Sequence[str]) -> Sequence[str] | None:
        return parts if "a" in parts else None

    path = tmp_path / "a.tsv"
    path.write_bytes(b"\xef\xbb\xbf\n b \ta\t\r\n1\t2\r\n3\n4\t5\t\t\n")
    found = list(read_records(path, text_fields=("a", "b"), header_of=header_of, skip_blank_lines=True))
    assert [(record.line, record.fields) for record in found] == [
        (3, {"b": "1", "a": "2"}), (4, {"b": "3"}), (5, {"b": "4", "a": "5"}),
    ]  # fmt: skip
    assert not any(record.by_place for record in found)
    path.write_text("1\t2\na\tb\n")
    found = list(read_records(path, text_fields=("a", "b"), header_of=header_of))
    assert [record.fields for record in found] == [{"a": "1", "b": "2"}, {"a": "a", "b": "b"}]
    assert all(record.by_place for record in found)
    path.write_text("a\tb\n1\t2\t3\n")
    with pytest.raises(ParseError, match=r"line 2.*3 parts between tabs; expected a<TAB>b"):
        list(read_records(path, text_fields=("a",), header_of=header_of))
    path.write_text("a\ta\n1\t2\n")
    with pytest.raises(ParseError, match="two columns have one name, 'a'"):
        list(read_records(path, text_fields=("a",), header_of=header_of))


@pytest.mark.parametrize("header", ["tree;label", "tree;a,b", "tree\tlabel", "sep=;\ntree;label", "other;label"])
def test_a_table_with_another_separator_is_refused_with_the_one_it_has(tmp_path: Path, header: str) -> None:
    (tmp_path / "a.csv").write_text(f"{header}\n(f x);1\n")
    with pytest.raises(RecipeError, match=r"it seems to be separated by '(;|\\t)'"):
        list(read_records(tmp_path / "a.csv", one_of=("tree",)))


def test_a_line_that_is_not_utf8_is_an_error_of_that_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes(b"x = x\nsin(\xff) = 1\ny = y\n")
    records = list(read_records(path, strict=False))
    assert [record.line for record in records] == [1, 2, 3]
    assert [record.fields for record in records] == [{"text": "x = x"}, {}, {"text": "y = y"}]
    error = records[1].error
    assert error is not None
    assert (error.line, error.column, error.source) == (2, 5, str(path))
    with pytest.raises(ParseError, match=r"lines\.txt, line 2, column 5: byte 0xff is not UTF-8"):
        list(read_records(path))


@pytest.mark.parametrize(
    ("name", "content", "line", "problem"),
    [
        ("a.txt", "x\ty\tz\n", 1, "3 parts between tabs"),
        ("a.jsonl", '{"a": 1}\n{"a": \n', 2, "no JSON here"),
        ("a.jsonl", "[1]\n", 1, "a JSON array"),
        ("a.jsonl", "[" * 100_000 + "\n", 1, "nested too deep"),
        ("a.csv", "a,b\n1,2\n3\n", 3, "1 cells, and the header names 2"),
        ("a.csv", 'a,b\n1,"2\n', 2, "no row of CSV"),
        ("a.csv", "a,a\n1,2\n", 1, "two columns have one name"),
        ("a.csv", "\n,\n1,2\n", 2, "no column has a name"),
        ("a.csv", 'a,b\n1, "2"\n', 2, "a quote after a space; expected a quote right after the comma"),
    ],
)
def test_a_bad_record_names_file_and_line(tmp_path: Path, name: str, content: str, line: int, problem: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ParseError, match=problem) as caught:
        list(read_records(path, text_fields=("a", "b")))
    assert caught.value.line == line
    assert caught.value.source == str(path)


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("a.jsonl", b'{"a": "1"}\n{"a\n{"a": "2"}\n', [1, 2, 3]),
        ("a.csv", b'a,b\n1,2\n1\n"3\n3",4\n\xff,1\n5,6\n', [2, 3, 4, 6, 7]),
    ],
)
def test_no_record_is_lost_when_not_strict(tmp_path: Path, name: str, content: bytes, lines: list[int]) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    records = list(read_records(path, strict=False))
    assert [record.line for record in records] == lines
    assert all(bool(record.fields) == (record.error is None) for record in records)
    assert sum(record.error is None for record in records) == len(lines) - (1 if name == "a.jsonl" else 2)


@pytest.mark.parametrize(
    ("rows", "good", "bad"),
    [
        (['1,"x', "2,y", "3,z"], {3: "y", 4: "z"}, [2]),
        (["0,w", '1,"x', "2,y", '3,"z', '4,"v"', "5,u"], {2: "w", 4: "y", 6: "v", 7: "u"}, [3, 5]),
        (['1,"x', "2,y", '3,"z', 'w"', "4,v"], {3: "y", 4: "z\nw", 6: "v"}, [2]),
        (['1,"x","y'] + ['x","y'] * 3 + ["2,z"], {6: "z"}, [2, 3, 4, 5]),
    ],
)
def test_an_open_quote_costs_its_own_line_only(
    tmp_path: Path, rows: list[str], good: dict[int, str], bad: list[int]
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["a,b", *rows, ""]))
    records = list(read_records(path, strict=False))
    assert {record.line: record.fields["b"] for record in records if record.error is None} == good
    assert [record.line for record in records if record.error is not None] == bad


def test_many_open_quotes_are_read_in_linear_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + 'x","y\n' * 3000)
    work = 0
    reader = csv.reader

    def counting(lines: Iterator[str], **options: bool) -> Iterator[list[str]]:
        def counted() -> Iterator[str]:
            nonlocal work
            for line in lines:
                work += 1
                yield line

        return reader(counted(), **options)

    monkeypatch.setattr("treemem.records.reader.csv.reader", counting)
    records = list(read_records(path, strict=False))
    assert [record.line for record in records if record.error] == list(range(2, 3002))
    assert work <= 2 * 3001


def test_a_parquet_text_that_is_not_utf8_is_an_error_of_its_row_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = pyarrow.array([b"x", b"s\xff", b"y"]).cast(pyarrow.binary()).view(pyarrow.string())
    parquet.write_table(pyarrow.table({"text": texts}), path)
    records = list(read_records(path, strict=False))
    assert [record.fields for record in records] == [{"text": "x"}, {}, {"text": "y"}]
    with pytest.raises(ParseError, match=r"a\.parquet, line 2.*byte 0xff is not UTF-8"):
        list(read_records(path))


def test_a_parquet_value_that_python_cannot_hold_is_an_error_of_its_row_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    days = pyarrow.array([0, 10**8, 1], pyarrow.date32())  # the second is of a year beyond 9999
    parquet.write_table(pyarrow.table({"text": ["x", "y", "z"], "day": days}), path)
    records = list(read_records(path, strict=False))
    assert [record.fields.get("text") for record in records] == ["x", None, "z"]
    with pytest.raises(
        ParseError, match=r"a\.parquet, line 2.*a value that cannot be read .*; expected texts, numbers"
    ):
        list(read_records(path))
    assert fields_of(path, columns=["other", "text"]) == [{"text": "x"}, {"text": "y"}, {"text": "z"}]


def test_csv_rows_without_quotes_are_those_of_the_csv_module(tmp_path: Path) -> None:
    texts = ["".join(each) for each in itertools.product("a ,\r", repeat=4)]
    rows = [text + "," * (5 - text.count(",")) for text in texts]
    (tmp_path / "a.csv").write_bytes("\n".join(["a,b,c,d,e,f", *rows, ""]).encode())
    for record, row in zip(read_records(tmp_path / "a.csv", strict=False), rows, strict=True):
        try:
            cells = next(csv.reader([row], strict=True))
        except csv.Error:
            assert record.error is not None
        else:
            assert record.fields == dict(zip("abcdef", cells, strict=True))


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.txt.gz", gzip.compress(b"".join(b"%d = x\n" % number for number in range(5000)))[:-2000], "are damaged"),
        ("a.txt.gz", b"not gzip at all", r"no packed data, though the name ends in \.gz"),
        ("a.jsonl.gz", b"", "no packed data"),
    ],
)
def test_damaged_gzip_is_an_error_even_when_not_strict(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ParseError, match=problem):
        list(read_records(tmp_path / name, strict=False))
    with pytest.raises(ParseError, match=rf"{name}.*packed data"), open_source(tmp_path / name) as stream:
        stream.read()
    (tmp_path / name).write_bytes(gzip.compress(b""))
    assert list(read_records(tmp_path / name)) == []


@pytest.mark.parametrize("change", [-9, 9])
@pytest.mark.parametrize("suffix", ["txt", "csv", "jsonl", "jsonl.gz", "parquet"])
def test_a_file_whose_size_changes_while_it_is_read_is_an_error(tmp_path: Path, suffix: str, change: int) -> None:
    path = tmp_path / f"a.{suffix}"
    write_records(path, [{"text": f"x{number} = x", "note": "n"} for number in range(50_000)])
    before = path.stat().st_size
    records = read_records(path, text_fields=("text", "note"), strict=False)
    next(records)
    os.truncate(path, before + change)
    with pytest.raises((RecipeError, ParseError)) as caught:
        list(records)
    assert str(path) in str(caught.value)
    if suffix in ("txt", "csv", "jsonl"):
        assert "changed while it was read" in str(caught.value) or "cut off" in str(caught.value)


@pytest.mark.parametrize("suffix", ["txt", "csv", "jsonl", "txt.gz", "csv.gz", "jsonl.gz", "parquet"])
def test_a_file_that_is_cut_anywhere_is_an_error_or_ends_with_a_whole_record(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    write_records(path, [{"text": text, "note": "n"} for text in ("x = ä", "y, z", 'sin("x")\u20ac')])
    content, whole = path.read_bytes(), fields_of(path, text_fields=("text", "note"))
    ends = {len(line) for line in itertools.accumulate(content.splitlines(keepends=True))}
    first = min(ends) if suffix == "txt" else 0  # nothing tells how many parts the first line has
    refused = 0
    for size in range(first, len(content)):
        path.write_bytes(content[:size])
        try:
            records = list(read_records(path, text_fields=("text", "note"), strict=False))
        except ParseError:
            refused += 1
            continue
        assert not suffix.endswith(("gz", "parquet"))
        assert [record.fields for record in records] == whole[: len(records)]
        assert size in ends or size + 1 in ends or not records
    assert refused > len(content) // 2


def test_a_last_record_without_a_line_end_is_read_if_it_is_whole(tmp_path: Path) -> None:
    for name, content in (("a.jsonl", '{"a": "1"}\n{"a": "2"}'), ("a.csv", "a\n1\n2"), ("a.txt", "1\n2")):
        (tmp_path / name).write_text(content)
        assert fields_of(tmp_path / name, text_fields=("a",)) == [{"a": "1"}, {"a": "2"}]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", b'{"a": "1"}\n{"a": "'),
        ("a.csv", b"a,b\n1,2\n3"),
        ("a.csv", b'a,b\n1,2\n3,"4'),
        ("a.txt", b"1\t2\n3"),
        ("a.txt", b"1\t2\n3\t\xe2\x82"),
    ],
)
def test_a_file_that_ends_in_the_middle_of_a_record_is_refused_even_when_not_strict(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    records = read_records(tmp_path / name, text_fields=("a", "b"), strict=False)
    assert not next(records).error
    with pytest.raises(ParseError, match=rf"{name}, line [23], column .*it seems to be cut off"):
        next(records)


@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl", "a.txt.gz"])
def test_a_line_that_is_too_long_is_an_error_of_its_own_only(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "LONGEST_LINE", 50)
    write_records(tmp_path / name, [{"a": "x"}, {"a": "y" * 1000}, {"a": "z"}])
    first, second, third = read_records(tmp_path / name, text_fields=("a",), strict=False)
    assert (first.fields, third.fields) == ({"a": "x"}, {"a": "z"})
    assert f"{name}, line {second.line}, column 1: the line has more than 50 bytes" in str(second.error)


def test_what_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for act, named in (
        (lambda: list(read_records(tmp_path / "missing.txt")), r"cannot read .*missing\.txt: No such file"),
        (lambda: list(read_records(tmp_path / "a.xlsx")), r"cannot tell the format of .*a\.xlsx"),
        (lambda: list(read_records(tmp_path / "a", format="json")), r"no format 'json'.*did you mean jsonl"),
        (lambda: write_records(tmp_path / "missing" / "a.csv", []), "there is no folder"),
        (lambda: replacing(tmp_path).__enter__(), "it is a folder"),
        (lambda: write_records(tmp_path / "pipe.csv", RECORDS), "it is a device or a pipe"),
    ):
        with pytest.raises(RecipeError, match=named):
            act()


def test_dash_is_standard_input_and_output(monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"x = x\ny = y\n")))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=output))
    records = ({"line": record.line, **record.fields} for record in read_records("-"))
    assert write_records("-", records, format="jsonl") == 2
    assert [json.loads(line) for line in output.getvalue().splitlines()] == [
        {"line": 1, "text": "x = x"},
        {"line": 2, "text": "y = y"},
    ]


@pytest.mark.parametrize("suffix", ["txt", "csv", "jsonl", "parquet", "jsonl.gz"])
def test_a_full_disk_is_told_and_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, request: pytest.FixtureRequest, suffix: str
) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"old")
    request.getfixturevalue("full_disk")
    with pytest.raises(RecipeError, match=rf"cannot write .*a\.{suffix}: No space left on device; free some space"):
        write_records(path, [{"a": 1}])
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_standard_output_that_cannot_be_written_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=full))
    with full, pytest.raises(RecipeError, match="cannot write standard output: No space left"):
        write_records("-", [{"a": 1}], format="jsonl")


@pytest.mark.parametrize("suffix", ["txt", "csv", "jsonl", "parquet"])
def test_records_that_cannot_be_read_are_not_told_as_a_place_that_cannot_be_written(
    tmp_path: Path, suffix: str
) -> None:
    def unreadable() -> Iterator[dict[str, int]]:
        yield {"a": 1}
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(RecipeError, match=r"^record 2 could not be made or read: Input/output error"):
        write_records(tmp_path / f"a.{suffix}", unreadable())


@pytest.mark.parametrize(
    ("suffix", "records", "problem"),
    [
        ("csv", [{"a": 1}, {"b": 2}], "record 2 has the fields"),
        ("txt", [{"a": "x\ty"}], "record 1 has a tab"),
        ("parquet", [{"a": 1}, {"a": "x"}], "Parquet cannot hold these records"),
        ("parquet", [{"a": 1}] * 8192 + [{"a": "x"}], "Field a has incompatible types"),
        ("parquet", [{"a": 10**30}], "Parquet cannot hold these records"),
        ("jsonl", [{"a": 1}, {"a": b"x"}], "record 2: JSONL cannot hold a value of .*bytes"),
    ],
)
def test_records_that_do_not_fit_are_refused(
    tmp_path: Path, suffix: str, records: list[dict[str, object]], problem: str
) -> None:
    with pytest.raises(RecipeError, match=problem):
        write_records(tmp_path / f"a.{suffix}", records)


@pytest.mark.parametrize("planted", [".a.csv.tmp", ".a.csv.lock"])
def test_what_a_planted_link_leads_to_is_not_written(tmp_path: Path, planted: str) -> None:
    (tmp_path / "precious").write_text("precious")
    for target in ("precious", "new"):
        (tmp_path / planted).symlink_to(target)
        write_records(tmp_path / "a.csv", RECORDS)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "precious"]
        assert (tmp_path / "precious").read_text() == "precious"
        assert not (tmp_path / "a.csv").is_symlink()


def test_a_json_line_has_no_nan_and_spells_lone_surrogates_by_escapes() -> None:
    assert json_line({"a": float("nan"), "b": float("inf"), "c": 0.5}) == '{"a": null, "b": null, "c": 0.5}\n'
    assert json_line({"a": [float("nan"), {"b": (1, -float("inf"))}]}) == '{"a": [null, {"b": [1, null]}]}\n'
    assert json_line({"a": "\ud800"}) == '{"a": "\\ud800"}\n'


def test_text_is_read_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(io.RawIOBase):
        """A stream without an end: reading it as a whole would never return."""

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
            line = b'{"a": 1}\n'
            buffer[: len(line)] = line
            return len(line)

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(Endless())))
    records = read_records("-", format="jsonl")
    assert [next(records).line for _ in range(3)] == [1, 2, 3]


def test_parquet_of_given_types_holds_columns_without_values(tmp_path: Path) -> None:
    path, types = tmp_path / "a.parquet", {"a": int, "b": str, "c": float}
    records = [{"a": None, "b": None, "c": 0.5 * number} for number in range(10_000)]
    assert write_records(path, iter(records), types=types) == 10_000
    assert fields_of(path) == records
    assert [str(column) for column in parquet.read_schema(path).types] == ["int64", "string", "double"]
    assert parquet.ParquetFile(path).num_row_groups > 1
    write_records(path, [], fields=["a", "b", "c"], types=types)
    assert parquet.read_schema(path).names == ["a", "b", "c"]
    with pytest.raises(RecipeError, match="Parquet cannot hold these records"):
        write_records(path, [{"a": 2**70, "b": None, "c": None}], types=types)
    write_records(path, [{"a": None, "b": "ä\ud800", "c": None}], types=types)
    assert [fields["b"] for fields in fields_of(path)] == ["ä\\ud800"]


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("Equation,n", r"\['Equation', 'n'\], and none of equation, tree; did you mean Equation for equation\?"),
        ("equation;n", r"seems to be separated by ';', and CSV is by ','"),
        ("a,b", r"none of equation, tree$"),
    ],
)
def test_a_table_without_any_of_the_columns_is_refused_as_a_whole(tmp_path: Path, header: str, told: str) -> None:
    (tmp_path / "a.csv").write_text(header + "\n")
    parquet.write_table(pyarrow.table({name: [1] for name in header.split(",")}), tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        with pytest.raises(RecipeError, match=told):
            list(read_records(tmp_path / name, one_of=("equation", "tree"), strict=False))
    assert len(list(read_records(tmp_path / "a.parquet", one_of=header.split(",")))) == 1


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("id,a,b\n7,x\n8,x,y,z\n", ["7", "8"]),
        ("a,b,id\nx,7\nx,y,z,8\n", [None, "8"]),
        ("a,id,b\nx,7\nx,y,8,z\n", [None] * 2),
    ],
)
def test_a_row_of_other_than_the_headers_cells_keeps_an_id_that_is_sure(
    tmp_path: Path, text: str, ids: list[str | None]
) -> None:
    (tmp_path / "a.csv").write_text(text)
    found = list(read_records(tmp_path / "a.csv", strict=False))
    assert [record.fields for record in found] == [{} if each is None else {"id": each} for each in ids]
    assert all(record.error for record in found)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        '{"a":{"b":1,"b":2}}',
        '{"a":"}","a":"{"}',
        '{"\\u0061":1,"a":2}',
        '{"b":"\\":","a" :1,"a":2}',
    ],
)
def test_two_fields_of_one_name_are_refused_however_they_are_written(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(text + "\n")
    with pytest.raises(ParseError, match="two fields have one name"):
        fields_of(tmp_path / "a.jsonl")
