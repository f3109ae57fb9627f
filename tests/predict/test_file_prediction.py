from __future__ import annotations

import csv
import errno
import gzip
import io
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from models import small_model
from pyarrow import parquet

from treemem.errors import ParseError, RecipeError
from treemem.predict import TreePredictor, chunks, file_prediction, partial_output, predict_file
from treemem.predict.partial_output import PartialOutput
from treemem.records import format_of, read_records, write_records
from treemem.tasks.listops import ListOps
from treemem.trees.bridges.dgl import forest_to_dgl
from treemem.trees.forest import Forest
from treemem.trees.formats.brackets import parse_brackets

TEXTS = ["x + y = y + x", "x =", "sin(x)^2 = 1 - cos(x)^2", "x = -x", "log(x, 2) = x", "2*x = x + x", "x = y", "y = y"]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_RECORDS", 3)
    monkeypatch.setattr(chunks, "MOST_PROCESSES", 1)


@pytest.fixture(scope="module")
def predictor() -> TreePredictor:
    return TreePredictor(small_model())


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "equations.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    return path


def answers_in(path: Path) -> list[dict[str, Any]]:
    return [record.fields for record in read_records(path, text_fields=file_prediction.FIELDS)]


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"equations.txt"}


def test_answers_stand_in_the_order_of_the_records_and_are_counted(
    tmp_path: Path, text: Path, predictor: TreePredictor
) -> None:
    counts = predict_file(predictor, text, tmp_path / "out.jsonl")
    assert (counts.records, counts.predicted, counts.rejected) == (8, 7, 1)
    assert answers_in(tmp_path / "out.jsonl") == list(predictor.predict(TEXTS))
    assert left_in(tmp_path) == {"out.jsonl"}


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("in.csv.gz", "out.parquet"),
        ("in.jsonl", "out.csv.gz"),
        ("in.parquet", "out.parquet"),
        ("in.txt.gz", "out.csv.gz"),
    ],
)
def test_every_format_is_read_and_written(tmp_path: Path, predictor: TreePredictor, name: str, output: str) -> None:
    source, records = tmp_path / name, [{"equation": text} for text in TEXTS]
    if "txt" not in name:
        records = [{**record, "id": f"e{number}", "label": 1} for number, record in enumerate(records)]
    write_records(source, records)
    predict_file(predictor, source, tmp_path / output)
    expected = list(predictor.predict(TEXTS if "txt" in name else records))
    for answer, record in zip(answers_in(tmp_path / output), expected, strict=True):
        if "csv" in name:
            record["error"] = record["error"] and record["error"].replace("line 2", "line 3")
        if "csv" in output:
            record = {name: "" if value is None else str(value) for name, value in record.items()}
        assert answer == record
    assert left_in(tmp_path) == {name, output}


def test_parquet_has_one_type_for_a_column(tmp_path: Path, predictor: TreePredictor) -> None:
    source = tmp_path / "in.jsonl"
    for ids, kind in (([7, 8], "int64"), ([7, "b"], "string"), ([7, 2**70], "string")):
        source.write_text("".join(json.dumps({"id": each, "equation": "x ="}) + "\n" for each in ids))
        predict_file(predictor, source, tmp_path / "out.parquet", overwrite=True)
        table = parquet.read_table(tmp_path / "out.parquet")
        assert [str(column) for column in table.schema.types] == [kind, "int64", "double", "string", "string"]
        assert [str(each) for each in table["id"].to_pylist()] == [str(each) for each in ids]


def test_text_has_one_line_for_an_answer(tmp_path: Path, text: Path, predictor: TreePredictor) -> None:
    predict_file(predictor, text, tmp_path / "out.tsv")
    lines = (tmp_path / "out.tsv").read_text().splitlines()
    assert len(lines) == 8
    assert lines[1].startswith("2\t\t\tline 2, column 4: unexpected end")
    source = tmp_path / "in.jsonl"
    source.write_text('{"equation": "x = x", "id": "a\\tb"}\n')
    with pytest.raises(RecipeError, match=r"the id 'a\\tb' has a tab or line end; write CSV or JSONL"):
        predict_file(predictor, source, tmp_path / "out.txt")


BAD_LINES = {
    "in.txt": b"x = x\nsin(\xff) = 1\nx =\n\n" + b"x + " * 2_500_000 + b"x = x\ny = y",
    "in.jsonl": b'{"equation": "x = x"}\n{"equation": \n[1]\n{"label": 1}\n{"equation": "\xff"}\n{"equation": "y = y"}',
    "in.csv": b'id,equation\n1,x = x\n2\n3,"x\n4,\xff\n5,x =\n6,y = y\n',
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_no_bad_record_stops_a_run(tmp_path: Path, predictor: TreePredictor, name: str) -> None:
    (tmp_path / name).write_bytes(BAD_LINES[name])
    counts = predict_file(predictor, tmp_path / name, tmp_path / "out.jsonl")
    answers = answers_in(tmp_path / "out.jsonl")
    assert (counts.records, counts.rejected) == (6, 4) == (len(answers), sum(bool(each["error"]) for each in answers))
    assert [answer["error"] is None for answer in answers] == [True, False, False, False, False, True]
    assert all(answer["error"] is None or str(tmp_path) not in answer["error"] for answer in answers)


@pytest.mark.parametrize("texts", [["x = x", "x =", "y = y"], ["x = x"] * 4 + ["x ="]])
def test_strict_stops_at_the_first_bad_record(tmp_path: Path, predictor: TreePredictor, texts: list[str]) -> None:
    (tmp_path / "in.txt").write_text("\n".join(texts))
    line = texts.index("x =") + 1
    with pytest.raises(ParseError, match=rf"in\.txt, line {line}, column 4: unexpected end"):
        predict_file(predictor, tmp_path / "in.txt", tmp_path / "out.jsonl", strict=True)
    assert not (tmp_path / "out.jsonl").exists()
    assert len((tmp_path / "out.jsonl.partial").read_text().splitlines()) == line - 1
    assert predict_file(predictor, tmp_path / "in.txt", tmp_path / "out.jsonl", resume=True).rejected == 1


def test_an_empty_input_gives_an_empty_output(tmp_path: Path, predictor: TreePredictor) -> None:
    (tmp_path / "in.txt").write_text("")
    for name in ("out.jsonl", "out.csv", "out.parquet"):
        assert predict_file(predictor, tmp_path / "in.txt", tmp_path / name).records == 0
        assert answers_in(tmp_path / name) == []


def test_a_row_of_too_few_cells_is_rejected_under_its_own_id(tmp_path: Path, predictor: TreePredictor) -> None:
    (tmp_path / "in.csv").write_text("id,equation,label\na,x = x,1\nb,x = x\nc,x = x,1\n")
    predict_file(predictor, tmp_path / "in.csv", tmp_path / "out.jsonl")
    answers = answers_in(tmp_path / "out.jsonl")
    assert [(answer["id"], answer["error"] is None) for answer in answers] == [("a", True), ("b", False), ("c", True)]


def test_a_header_may_stand_below_blank_lines_which_are_bad_records(tmp_path: Path) -> None:
    for name, lines, ids in (
        ("in.tsv", ["", "  ", "Source\tTarget", "[MAX 2 9 ]\t9"], [1, 2, 4]),
        ("late.tsv", ["9\t[MAX 2 9 ]", "", "label\ttree"], [1, 2, 3]),
        ("after.tsv", ["1\t2\t3", "label\ttree"], [1, 2]),
    ):
        (tmp_path / name).write_text("\n".join(lines))
        entries = file_prediction._record_entries(str(tmp_path / name), "text", ListOps().reader)
        assert [entry.id for entry in entries] == ids


def test_nothing_is_overwritten_unless_asked_for(tmp_path: Path, text: Path, predictor: TreePredictor) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("precious\n")
    with pytest.raises(RecipeError, match=r"out\.jsonl exists; choose another name, or replace it with overwrite"):
        predict_file(predictor, text, out)
    assert out.read_text() == "precious\n"
    predict_file(predictor, text, out, overwrite=True)
    assert len(answers_in(out)) == 8
    with pytest.raises(RecipeError, match="is the input"):
        predict_file(predictor, out, out, overwrite=True)
    with pytest.raises(RecipeError, match="contradict"):
        predict_file(predictor, text, out, overwrite=True, resume=True)


def test_what_a_link_leads_to_is_written_in_the_form_of_the_links_name(
    tmp_path: Path, text: Path, predictor: TreePredictor
) -> None:
    predict_file(predictor, text, tmp_path / "plain.csv")
    (tmp_path / "data").mkdir()
    link = tmp_path / "out.csv.gz"
    link.symlink_to(tmp_path / "data" / "answers")
    for options in ({}, {"overwrite": True}):
        predict_file(predictor, text, link, **options)
        assert link.is_symlink()
        assert gzip.decompress((tmp_path / "data" / "answers").read_bytes()) == (tmp_path / "plain.csv").read_bytes()
    assert predict_file(predictor, text, link, resume=True).was_complete
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["answers"]


@pytest.mark.parametrize(
    ("source", "output", "options", "match"),
    [
        ("equations.txt", "none/out.jsonl", {}, "there is no folder"),
        ("equations.txt", ".", {"output_format": "jsonl"}, "it is a folder"),
        ("equations.txt", "pipe.jsonl", {"overwrite": True}, "it is a device or a pipe"),
        ("none.txt", "out.jsonl", {}, "cannot read .*none.txt"),
        ("equations.txt", "-", {"resume": True}, "standard output cannot be resumed"),
    ],
)
def test_places_that_cannot_be_are_told(
    tmp_path: Path, text: Path, predictor: TreePredictor, source: str, output: str, options: dict[str, Any], match: str
) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    to = output if output == "-" else tmp_path / output
    with pytest.raises(RecipeError, match=match):
        predict_file(predictor, tmp_path / source, to, **options)
    assert left_in(tmp_path) == {"pipe.jsonl"}
    assert (tmp_path / "pipe.jsonl").is_fifo()


class HalfTaken(io.FileIO):
    """A file on a disk that is full halfway through the second part that is written to it."""

    parts = 0

    def write(self, content: Any) -> int:
        self.parts += 1
        if self.parts > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(content if self.parts == 1 else content[: len(content) // 2])


def test_a_run_that_finds_the_disk_full_halfway_through_an_answer_goes_on_to_the_same_output(
    tmp_path: Path, text: Path, predictor: TreePredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    predict_file(predictor, text, tmp_path / "whole.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(partial_output, "append_to", lambda path: HalfTaken(path, "ab"))
        with pytest.raises(RecipeError, match=r"cannot write .*out\.jsonl\.partial: No space left on device; free"):
            predict_file(predictor, text, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl.partial").read_bytes().endswith(b"\n")
    predict_file(predictor, text, tmp_path / "out.jsonl", resume=True)
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


class Left(NamedTuple):
    """What a run has in ``<output>.partial`` and in ``<output>.partial.json``."""

    answers: bytes
    about: bytes

    def put(self, output: Path) -> None:
        output.with_name(f"{output.name}.partial").write_bytes(self.answers)
        output.with_name(f"{output.name}.partial.json").write_bytes(self.about)


def broken_off(predictor: TreePredictor, source: Path, output: Path, overwrite: bool = False) -> list[Left]:
    """What a run leaves beside ``output`` when it has begun, and when it has written each part; the last stays."""
    run = file_prediction._Run(
        predictor, source, format_of(source.name, None), strict=False, progress=False, threshold=None
    )
    left: list[Left] = []

    class Noted(PartialOutput):
        def _save(self) -> None:
            super()._save()
            answers = self.path.read_bytes() if self.path.exists() else b""
            left.append(Left(answers, output.with_name(f"{output.name}.partial.json").read_bytes()))

    with Noted(output, run.settings(), resume=False, overwrite=overwrite) as partial:
        run.write_to(partial, "jsonl")
    return left


def test_resume_begins_a_run_and_leaves_a_complete_one(tmp_path: Path, text: Path, predictor: TreePredictor) -> None:
    for name in ("out.jsonl", "out.csv", "out.parquet", "out.txt"):
        out = tmp_path / name
        counts = predict_file(predictor, text, out, resume=True)
        before = out.read_bytes(), out.stat().st_mtime_ns
        again = predict_file(predictor, tmp_path / "equations.txt", out, resume=True)
        assert (again.records, again.predicted, again.rejected) == (counts.records, counts.predicted, counts.rejected)
        assert (out.read_bytes(), out.stat().st_mtime_ns) == before


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv"])
def test_an_output_that_appears_during_a_run_is_not_replaced(
    tmp_path: Path, text: Path, predictor: TreePredictor, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    out, append = tmp_path / name, PartialOutput.append

    def another_comes(self: PartialOutput, *arguments: Any, **counts: Any) -> None:
        append(self, *arguments, **counts)
        out.write_text("another's\n")

    predict_file(predictor, text, tmp_path / f"whole{out.suffix}")
    monkeypatch.setattr(PartialOutput, "append", another_comes)
    for options in ({}, {"resume": True}):
        with pytest.raises(RecipeError, match="exists now and may not be replaced; move it away"):
            predict_file(predictor, text, out, **options)
        assert out.read_text() == "another's\n"
    out.unlink()
    monkeypatch.setattr(PartialOutput, "append", append)
    predict_file(predictor, text, out, resume=True)
    assert out.read_bytes() == (tmp_path / f"whole{out.suffix}").read_bytes()
    assert left_in(tmp_path) == {name, f"whole{out.suffix}"}


@pytest.mark.parametrize(("name", "target"), [("out.jsonl", "precious"), ("out.csv", "new")])
def test_what_planted_links_lead_to_is_not_written(
    tmp_path: Path, text: Path, predictor: TreePredictor, name: str, target: str
) -> None:
    (tmp_path / "precious").write_text("precious")
    for planted in (f"{name}.partial", f"{name}.partial.json", f".{name}.tmp", f".{name}.partial.json.tmp"):
        (tmp_path / planted).symlink_to(target)
    predict_file(predictor, text, tmp_path / name, overwrite=True)
    assert (tmp_path / "precious").read_text() == "precious"
    assert left_in(tmp_path) - {f".{name}.tmp"} == {name, "precious"}
    assert not (tmp_path / name).is_symlink()


def test_a_run_is_not_resumed_with_another_model_threshold_or_input(
    tmp_path: Path, text: Path, predictor: TreePredictor
) -> None:
    out = tmp_path / "out.jsonl"
    left = broken_off(predictor, text, out)[-1]
    other = small_model()
    with torch.no_grad():
        next(other.parameters()).add_(1e-3)
    (tmp_path / "other.txt").write_bytes(text.read_bytes())
    resume: dict[str, Any] = {"resume": True}
    for model, source, options, problem in (
        (predictor, text, {}, "interrupted run; continue it with resume"),
        (other, text, resume, r"the model was .* and is now .*; use the same"),
        (predictor, text, {**resume, "threshold": 0.7}, r"the threshold was 0\.5 and is now 0\.7"),
        (TreePredictor(predictor.model, batch_size=7), text, resume, "the batch size was 1024 and is now 7"),
        (predictor, tmp_path / "other.txt", resume, r"the input file was equations\.txt and is now other\.txt"),
    ):
        with pytest.raises(RecipeError, match=problem):
            predict_file(model, source, out, **options)
    Left(left.answers, left.about.replace(b'"cpu"', b'"cuda"')).put(out)
    with pytest.raises(RecipeError, match="the device was cuda and is now cpu"):
        predict_file(predictor, text, out, resume=True)
    left.put(out)
    text.write_text("x = x\n")
    with pytest.raises(RecipeError, match="the size of the input file was"):
        predict_file(predictor, text, out, resume=True)
    assert (tmp_path / "out.jsonl.partial").read_bytes() == left.answers
    assert predict_file(predictor, text, out, overwrite=True).records == 1


@pytest.mark.parametrize("name", ["in.txt", "in.jsonl", "in.csv"])
def test_an_input_of_the_same_size_and_ids_that_has_changed_is_noticed(
    tmp_path: Path, predictor: TreePredictor, name: str
) -> None:
    source, out = tmp_path / name, tmp_path / "out.jsonl"
    if name == "in.txt":
        source.write_text("\n".join(TEXTS))
    else:
        write_records(source, [{"id": number, "equation": text} for number, text in enumerate(TEXTS)])
    broken_off(predictor, source, out)[1].put(out)
    before = source.read_text()
    source.write_text(before.replace("x + y = y + x", "x + y = z + x"))
    with pytest.raises(RecipeError, match=r"the first 3 records of .*in\.\w+ have changed; start over"):
        predict_file(predictor, source, out, resume=True)
    source.write_text(before)
    assert predict_file(predictor, source, out, resume=True).records == 8


def test_records_or_answers_that_changed_are_noticed(tmp_path: Path, predictor: TreePredictor) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [json.dumps({"id": name, "equation": "x = x"}) + "\n" for name in "abcd"]
    source.write_text("".join(lines))
    left = broken_off(predictor, source, out)[-1]
    for changed in ([lines[0], lines[2], lines[1], lines[3]], [*lines[:2], "\n" * (2 * len(lines[2]))]):
        source.write_text("".join(changed))
        with pytest.raises(RecipeError, match=r"the first 4 records of .*in\.jsonl have changed"):
            predict_file(predictor, source, out, resume=True)
    Left(left.answers[:-1], left.about).put(out)
    with pytest.raises(RecipeError, match="is damaged: it has less than 4 answers"):
        predict_file(predictor, source, out, resume=True)
    (tmp_path / "out.jsonl.partial.json").write_text("{")
    with pytest.raises(RecipeError, match=r"partial\.json is damaged"):
        predict_file(predictor, source, out, resume=True)


@pytest.mark.parametrize("change", [lambda size: size - 30, lambda size: size + 30])
def test_an_input_that_is_cut_off_or_grows_while_it_is_read_is_told_and_its_answers_stay(
    tmp_path: Path, text: Path, predictor: TreePredictor, monkeypatch: pytest.MonkeyPatch, change: Callable[[int], int]
) -> None:
    append, out = PartialOutput.append, tmp_path / "out.jsonl"

    def changed(self: PartialOutput, *arguments: Any, **counts: Any) -> None:
        append(self, *arguments, **counts)
        os.truncate(text, change(size))

    monkeypatch.setattr(chunks, "CHUNK_RECORDS", 500)
    text.write_text("\n".join(TEXTS * 200) + "\n")
    size = text.stat().st_size
    monkeypatch.setattr(PartialOutput, "append", changed)
    with pytest.raises(RecipeError, match=rf"equations\.txt changed while it was read, from {size} to"):
        predict_file(predictor, text, out)
    assert not out.exists()
    assert len((tmp_path / "out.jsonl.partial").read_bytes().splitlines()) > 1_500


@pytest.mark.parametrize("name", ["in.txt", "in.jsonl"])
def test_a_record_of_too_many_nodes_is_a_bad_record(tmp_path: Path, name: str) -> None:
    text = "x = " + "-" * 1_000_000 + "x"
    write_records(tmp_path / name, [{"equation": text}, {"equation": "x = x"}])
    assert predict_file(small_model(), tmp_path / name, tmp_path / "out.jsonl").rejected == 1
    first, second = answers_in(tmp_path / "out.jsonl")
    assert "most_nodes" in first["error"]
    assert second["error"] is None
    few = TreePredictor(small_model(), most_nodes=4)
    assert [answer["error"] is None for answer in few.predict(["x = x", "x = y + z"])] == [True, False]


@pytest.mark.parametrize("name", ["in.txt.gz", "in.parquet"])
def test_answers_before_the_damage_of_an_input_are_kept(tmp_path: Path, predictor: TreePredictor, name: str) -> None:
    source = tmp_path / name
    if name.endswith(".gz"):
        source.write_bytes(gzip.compress("".join(f"x + {n}*y = x\n" for n in range(40)).encode(), 0)[:-200])
    else:
        write_records(source, [{"equation": f"x = {n}"} for n in range(20_000)])
        content = bytearray(source.read_bytes())
        content[len(content) // 4 :: 97] = b"\xff" * len(content[len(content) // 4 :: 97])
        content[-4:] = b"PAR1"
        source.write_bytes(content)
    with pytest.raises(ParseError, match=r"damaged after this line|no Parquet data"):
        predict_file(predictor, source, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()
    if name.endswith(".gz"):
        kept = (tmp_path / "out.jsonl.partial").read_text().splitlines()
        assert 10 < len(kept) < 40
        assert [json.loads(line)["id"] for line in kept] == [*range(1, len(kept) + 1)]


def test_standard_input_and_output(tmp_path: Path, predictor: TreePredictor, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = list(predictor.predict(TEXTS))
    for format in (None, "csv"):
        out = io.BytesIO()
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("\n".join(TEXTS).encode())))
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=out))
        assert predict_file(predictor, "-", "-", output_format=format).records == 8
        lines = out.getvalue().decode().splitlines()
        if format is None:
            assert [json.loads(line) for line in lines] == expected
        else:
            assert [row["id"] for row in csv.DictReader(lines)] == [str(answer["id"]) for answer in expected]


def graph_of(*trees: str) -> Any:
    model = small_model()
    forest = Forest.from_trees([parse_brackets(tree) for tree in trees])
    known = {label: number for number, label in enumerate(model.vocabulary.labels)}
    return forest_to_dgl(forest, torch.tensor([known[label] for label in forest.labels]).numpy()[forest.label])


def test_graphs_of_dgl_hold_the_trees_of_examples(tmp_path: Path, predictor: TreePredictor) -> None:
    dgl = pytest.importorskip("dgl")
    source = tmp_path / "graphs.bin"
    left, right = "(Add Symbol:var_0 Symbol:var_1)", "(Add Symbol:var_1 Symbol:var_0)"
    cycle = dgl.graph(([0, 1], [1, 0]))
    cycle.ndata["label"] = torch.zeros(2, dtype=torch.int64)
    dgl.save_graphs(str(source), [graph_of(left, right), cycle, graph_of(left), graph_of(right, left, left, left)])
    counts = predict_file(predictor, source, tmp_path / "out.jsonl")
    answers = answers_in(tmp_path / "out.jsonl")
    assert (counts.records, counts.rejected) == (5, 2)
    assert [answer["id"] for answer in answers] == [1, 2, 3, 4, 5]
    records = [{"tree": f"(Equality {one} {other})"} for one, other in ((left, right), (right, left), (left, left))]
    expected = [answer["probability"] for answer in predictor.predict(records)]
    assert [answers[place]["probability"] for place in (0, 3, 4)] == pytest.approx(expected, abs=1e-6)
    assert "cycle" in answers[1]["error"]
    assert answers[2]["error"] == "line 3: the graph holds 1 trees, and an example has 2"
    content = source.read_bytes()
    source.write_bytes(content[: len(content) // 2])
    with pytest.raises(ParseError, match=r"graphs\.bin, line 1.*: it holds no graphs, or is damaged"):
        predict_file(predictor, source, tmp_path / "torn.jsonl")
    assert left_in(tmp_path) == {"graphs.bin", "out.jsonl"}


def test_no_record_is_lost_when_a_process_that_reads_dies(
    tmp_path: Path, text: Path, predictor: TreePredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = PartialOutput.append

    def killing(self: PartialOutput, *arguments: Any, **counts: Any) -> None:
        append(self, *arguments, **counts)
        for child in multiprocessing.active_children():
            child.kill()

    with monkeypatch.context() as patch:
        patch.setattr(PartialOutput, "append", killing)
        with pytest.raises(RecipeError, match=r"a process that reads records died: .* read in one process"):
            predict_file(TreePredictor(predictor.model, processes=2), text, tmp_path / "out.jsonl")
    predict_file(predictor, text, tmp_path / "out.jsonl", resume=True)
    predict_file(predictor, text, tmp_path / "whole.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_a_file_is_read_as_it_is_needed(
    tmp_path: Path, text: Path, predictor: TreePredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def counted(*arguments: Any, **options: Any) -> Iterator[Any]:
        for record in read_records(*arguments, **options):
            taken.append(record.line)
            yield record

    monkeypatch.setattr(file_prediction, "read_records", counted)
    seen = []
    append = PartialOutput.append

    def noted(self: PartialOutput, *arguments: Any, **counts: Any) -> None:
        seen.append(len(taken))
        append(self, *arguments, **counts)

    monkeypatch.setattr(PartialOutput, "append", noted)
    predict_file(predictor, text, tmp_path / "out.jsonl")
    assert seen == [3, 6, 8]
