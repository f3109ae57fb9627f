from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from treemem.cli import main
from treemem.cli.command import Command
from treemem.cli.program import COMMANDS, parse_words
from treemem.networks import NETWORKS

ROOT = Path(__file__).parent.parent.parent


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    for command in COMMANDS.values():
        assert f"    {command.name}" in printed
        assert command.summary in " ".join(printed.split())


@pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))
def test_help_of_a_command_shows_its_examples(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command.name, "--help"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"usage: treemem {command.name}")
    for example in command.examples:
        assert f"\n  {example}\n" in printed


def test_debug_shows_where_an_error_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["validate", "none", "--debug"], ["--debug", "validate", "none"]):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert said.startswith("Traceback")
        assert "\nerror: no recipe 'none'" in said


def test_a_terminal_that_knows_few_characters_is_shown_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(shown, encoding="ascii"))
    assert main(["tasks", "describe", "listops"]) == 0
    assert b"71.50 \\xb1 1.50" in shown.getvalue()


def test_overrides_may_stand_anywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["validate", "data.count=7", "toy.yaml", "--networks", "sum", "training.epochs=5", "--set", "seeds=[4]"])
        == 0
    )
    printed = capsys.readouterr().out
    assert "count: 7" in printed
    assert "epochs: 5" in printed
    assert "small sum" not in printed
    assert main(["validate", "toy.yaml", "networks.small sum.options.hidden_size=2"]) == 0
    assert "hidden_size: 2" in capsys.readouterr().out


def test_values_of_options_existing_places_and_words_after_two_dashes_are_not_overrides(
    folder: Path,
) -> None:
    for words, recipe, fields, output in [
        (["lr=0.1", "own"], "own", ["lr=0.1"], None),
        (["own", "-o", "-", "lr=0.1"], "own", ["lr=0.1"], "-"),
        (["own", "-o", "lr=0.1", "size=3"], "own", ["size=3"], "lr=0.1"),
        (["own", "--overwrite", "lr=0.1", "--output=a=b", "size=3"], "own", ["lr=0.1", "size=3"], "a=b"),
        (["size=3", "--", "lr=0.1"], "lr=0.1", ["size=3"], None),
        (["own", "data.sets=" + 300 * "a"], "own", ["data.sets=" + 300 * "a"], None),
    ]:
        _, options = parse_words(["train", *words])
        assert (options.recipe, options.set, options.output) == (recipe, fields, output)
    (folder / "lr=0.1").touch()
    _, options = parse_words(["train", "lr=0.1", "lr=0.2", "--set", "lr=0.1"])
    assert (options.recipe, options.set) == ("lr=0.1", ["lr=0.2", "lr=0.1"])


def test_help_comes_without_torch_and_a_closed_pipe_is_quiet() -> None:
    code = "import sys; from treemem.cli import main; main(['--help']); sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.DEVNULL, check=False).returncode
        == 0
    )
    command = [sys.executable, "-m", "treemem", "--help"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141
    assert said == b""


@pytest.mark.parametrize(
    "line",
    [
        "predict MODEL own.txt -o new.jsonl",
        "evaluate MODEL own.txt --json new.json",
        "generate equation_verification -o new.jsonl data.size=20 data.max_depth=3",
    ],
)
def test_commands_work_with_a_closed_standard_error(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "own.txt").write_text("x = x\t1\nx = 2*x\t0\n")
    monkeypatch.setattr(sys, "stderr", None)
    model = ROOT / "tests" / "checkpoints" / "stack_tree_lstm"
    assert main(line.replace("MODEL", str(model)).split()) == 0
    assert any(path.read_text() for path in folder.glob("new.*"))
    sys.stderr.close()


@pytest.mark.skipif(os.name != "posix", reason="streams are closed as in POSIX shells")
@pytest.mark.parametrize(
    ("closed", "code", "said"),
    [
        ("<&- 2>&-", 0, ""),
        (">&-", 2, "error: standard output is closed; redirect it"),
        (">&- 2>&-", 2, ""),
    ],
)
def test_closed_standard_streams_cause_no_traceback(closed: str, code: int, said: str) -> None:
    command = f"{sys.executable} -m treemem validate listops/small {closed}"
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[: len(said)]) == (code, said)
    assert "Traceback" not in done.stderr
    assert bool(done.stdout) == (code == 0)


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
def test_a_run_that_ctrl_c_stopped_goes_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "toy.yaml", "--networks", "sum", "-o", "run"]
    heard = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # what a shell runs in the background ignores it
    code = f"import signal, sys, toy_task; from treemem.cli import main; {heard}; sys.exit(main(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    command = [sys.executable, "-c", code, *words, "training.epochs=100000"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = ""
    while "epoch 3/" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    said += process.stderr.read()
    process.stderr.close()
    assert process.wait() == 130
    assert "stopped; run the same command without --overwrite to resume" in said
    assert "Traceback" not in said
    done = len((folder / "run" / "sum" / "seed-12093" / "metrics.jsonl").read_text().splitlines())
    assert main([*words, f"training.epochs={done + 1}"]) == 0
    assert "resuming run/sum/seed-12093 in epoch" in capsys.readouterr().err


def test_a_file_with_own_networks_can_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(NETWORKS, "_registered", dict(NETWORKS._registered))
    (tmp_path / "own_networks_of_a_test.py").write_text(
        "from treemem.networks import NETWORKS\nfrom treemem.nn import TreeRNN\n"
        "class Mine(TreeRNN):\n    pass\nNETWORKS.register('Mine', Mine)\n"
    )
    (tmp_path / "own.yaml").write_text(
        "task: equation_verification\nnetworks: {Mine: {network: Mine, options: {hidden_size: 3}}}\n"
    )
    recipe = str(tmp_path / "own.yaml")
    assert main(["validate", recipe]) == 2
    assert "no network 'Mine'" in capsys.readouterr().err
    assert main(["validate", recipe, "--import", str(tmp_path / "own_networks_of_a_test.py")]) == 0
    assert "network: Mine" in capsys.readouterr().out
    (tmp_path / "broken_module_of_a_test.py").write_text("1 / 0\n")
    for name, problem in (
        ("none.py", "there is no file"),
        ("none.txt", "needs a file of Python"),
        ("broken_module_of_a_test.py", "ZeroDivisionError"),
    ):
        assert main(["--import", str(tmp_path / name), "tasks", "list"]) == 2
        assert problem in capsys.readouterr().err
