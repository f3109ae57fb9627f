from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from treemem.errors import ParseError, RecipeError
from treemem.tasks.study_command import check_studies, run_command, study_parser

STUDIES = ("first", "second")


def options(*arguments: str) -> argparse.Namespace:
    return study_parser("a_task", "What it does.", STUDIES).parse_args(arguments)


def test_places_are_named_by_the_task_unless_they_are_given() -> None:
    found = options()
    assert (found.studies, found.processes, found.runs) == ([], 1, Path("runs/reproduce"))
    assert (found.results, found.page) == (Path("docs/results/a_task"), Path("docs/results/a_task.md"))
    own = options("second", "first", "--results", "r", "--page", "p.md", "--runs", "q", "--processes", "3")
    assert (own.studies, own.results, own.page, own.runs) == (["second", "first"], Path("r"), Path("p.md"), Path("q"))
    assert own.processes == 3


def test_the_help_says_what_the_command_is_called_and_which_studies_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="0"):
        options("--help")
    said = " ".join(capsys.readouterr().out.split())
    for part in ("python -m treemem.tasks.a_task.reproduce", "What it does.", "of first, second; none: the page alone"):
        assert part in said


@pytest.mark.parametrize("error", [RecipeError("no such study"), ParseError("no formula", "a b")])
def test_an_error_of_the_user_is_told_on_standard_error_and_makes_the_command_exit_with_2(
    capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fail(given: argparse.Namespace) -> None:
        raise error

    assert run_command(fail, options("first")) == 2
    assert capsys.readouterr() == ("", f"error: {error}\n")


def test_an_interrupted_command_says_that_it_goes_on_and_exits_as_shells_expect(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(given: argparse.Namespace) -> None:
        raise KeyboardInterrupt

    assert run_command(stop, options()) == 130
    assert capsys.readouterr() == ("", "\nstopped; the same command goes on\n")


def test_a_command_that_did_its_work_exits_with_0_and_was_given_the_options() -> None:
    seen: list[argparse.Namespace] = []
    assert run_command(seen.append, options("second")) == 0
    assert seen == [options("second")]


def test_a_mistake_in_the_program_is_not_taken_for_one_of_the_user() -> None:
    def fail(given: argparse.Namespace) -> None:
        raise KeyError("row")

    with pytest.raises(KeyError):
        run_command(fail, options())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["third"], "^no study is called 'third'; there are first, second$"),
        (["first", "thrid"], "no study is called 'thrid'"),
        (["first", "--processes", "0"], "--processes must be at least 1, not 0"),
        (["--processes", "-2"], "--processes must be at least 1, not -2"),
        ([], "there are no records in .*results; name studies to run: first, second"),
    ],
)
def test_what_no_run_could_come_of_is_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        check_studies(options(*arguments, "--results", str(tmp_path / "results")), STUDIES)
    assert not list(tmp_path.iterdir())


def test_studies_can_be_run_without_records_and_a_page_made_of_those_of_any_study(tmp_path: Path) -> None:
    here = ("--results", str(tmp_path))
    check_studies(options("second", *here), STUDIES)
    (tmp_path / "third.jsonl").write_text("")
    with pytest.raises(RecipeError, match="no records"):
        check_studies(options(*here), STUDIES)
    (tmp_path / "second.jsonl").write_text("")
    check_studies(options(*here), STUDIES)


def test_a_page_in_a_missing_folder_is_refused_unless_the_records_come_into_that_folder(tmp_path: Path) -> None:
    results = ("--results", str(tmp_path / "results" / "task"))
    check_studies(options("second", *results, "--page", str(tmp_path / "results" / "task.md")), STUDIES)
    with pytest.raises(RecipeError, match=r"task\.md: there is no folder .*pages"):
        check_studies(options("second", *results, "--page", str(tmp_path / "pages" / "task.md")), STUDIES)
    assert not list(tmp_path.iterdir())
