from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from treemem.cli import main
from treemem.trees.formats.forms import FORMS


def test_a_tree_is_drawn_with_its_brackets_size_height_and_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parse", "equation_verification", "x + 1 = 2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Equality",
        "  Add",
        "    Symbol:var_0",
        "    Integer:1",
        "  Integer:2",
        "brackets: (Equality (Add Symbol:var_0 Integer:1) Integer:2)",
        "size: 5, height: 2",
        "tokens: Add ( Symbol:var_0 , Integer:1 )",
        "tokens: Integer:2",
    ]


def write_to_standard_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))


def test_lines_of_standard_input_are_read_and_blank_ones_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_to_standard_input(monkeypatch, b"a\t( not a )\r\n\n( a ( and b ) )\tb\n")
    assert main(["parse", "--task", "logical_inference", "-", "--set", "task_options.form=operators"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("size: ") == 2
    assert "tokens: and ( a , b )\ntokens: b\n" in printed


def test_a_wrong_text_is_told_with_its_line(
    failing: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "error: line 1, column 7: " in failing("parse", "listops", "[MAX 2")
    write_to_standard_input(monkeypatch, b"[MAX 2 9 ]\n[MXA 2 9 ]\n")
    assert main(["parse", "listops", "-"]) == 2
    said = capsys.readouterr()
    assert "size: " in said.out
    assert "error: line 2, column 1: " in said.err
    assert "unknown" in failing("parse", "more_x", "(f x z)")
    write_to_standard_input(monkeypatch, b"x = x\n\xff = 1\n")
    assert "error: line 2, column 1: byte 0xff is not UTF-8" in failing("parse", "equation_verification", "-")


def test_a_text_that_begins_as_an_option_does_is_read_after_two_dashes(
    failing: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "unrecognized arguments: -x=y; see treemem parse --help" in failing("parse", "equation_verification", "-x=y")
    assert main(["parse", "equation_verification", "--", "-x=y"]) == 0
    assert "size: 5" in capsys.readouterr().out


def test_a_deep_tree_is_drawn_to_a_depth(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parse", "equation_verification", "sin(" * 3000 + "x" + ")" * 3000 + " = 1"]) == 0
    printed = capsys.readouterr().out
    assert "nodes below" in printed
    assert "size: 3003, height: 3001" in printed


def test_a_text_of_words_is_printed_and_an_unknown_word_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parse", "language_modeling", "the boy laughs"]) == 0
    assert "tokens: the boy laughs <eos>" in capsys.readouterr().out
    assert main(["parse", "language_modeling", "the boi"]) == 2
    assert "unknown token 'boi'; did you mean boy" in capsys.readouterr().err


def test_a_file_in_place_of_a_text_is_told_how_to_be_read(failing: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "a.nwk").write_text("(A,B);")
    name = str(tmp_path / "a.nwk")
    assert f"{name} is a file; write treemem parse --form newick - < {name}" in failing(
        "parse", "--form", "newick", name
    )


def test_texts_in_a_form_are_read_without_a_task(
    failing: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_to_standard_input(monkeypatch, b"(A,\nB);(C,D);\n(E\n")
    assert main(["parse", "--form", "newick", "(F,G)H;", "-"]) == 2
    said = capsys.readouterr()
    brackets = [line for line in said.out.splitlines() if line.startswith("brackets: ")]
    assert brackets == ["brackets: (H F G)", "brackets: (X A B)", "brackets: (X C D)"]
    assert said.err.startswith("error: -, line 3")
    assert "there is no form 'newik'; did you mean newick?" in failing("parse", "--form", "newik", "(A,B);")
    assert "without a task" in failing("parse", "--form", "newick", "--task", "listops", "(A,B);")


@pytest.mark.parametrize("command", ["parse", "predict"])
def test_all_forms_are_listed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--form", "help"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(FORMS)
