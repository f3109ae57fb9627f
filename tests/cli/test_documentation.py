"""What the page of the command line shows is what the commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch
from published_state_dicts import whole_equation_network

from treemem.cli import main
from treemem.cli.program import COMMANDS, parse_words

PAGES = Path(__file__).parents[2] / "docs"
PAGE = PAGES.joinpath("command_line.md").read_text(encoding="utf-8")
SHOWN = [
    (command, output)
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, flags=re.MULTILINE)
]
QUICK = ("tasks", "parse", "validate", "trian", "convert")


@pytest.mark.parametrize(
    ("command", "output"),
    [each for each in SHOWN if each[0].split()[1] in QUICK or "\nerror: " in f"\n{each[1]}"],
    ids=str,
)
def test_the_commands_of_the_page_print_what_it_shows(
    command: str, output: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if " convert " in command:
        torch.save(whole_equation_network(50), folder / "model-97.checkpoint")
    main(shlex.split(command)[1:])
    said = capsys.readouterr()
    pattern = ".*".join(re.escape(part) for part in re.split(r"^\.\.\.\n", output, flags=re.MULTILINE))
    assert re.fullmatch(pattern, said.out + said.err, flags=re.DOTALL)


def test_the_packaged_model_has_the_scores_that_the_page_shows(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (generate,) = [command for command, _ in SHOWN if command.split()[1] == "generate"]
    ((evaluate, output),) = [each for each in SHOWN if each[0].split()[1] == "evaluate"]
    main(shlex.split(generate)[1:])
    capsys.readouterr()
    main(shlex.split(evaluate)[1:])
    assert capsys.readouterr().out == output


def test_the_commands_of_the_page_on_clusters_are_commands() -> None:
    page = PAGES.joinpath("cluster.md").read_text(encoding="utf-8").replace("\\\n", " ")
    scripts = re.findall(r"^```sh\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    lines = [line for script in scripts for line in script.splitlines()]
    commands = [line for line in lines if line.startswith("treemem ")]
    commands += [words[-1] for words in map(shlex.split, lines) if words and words[0] == "sbatch" and "--wrap" in words]
    assert len(commands) > 5
    names = set()
    for command in commands:
        name, options = parse_words(shlex.split(command.replace("$SLURM_ARRAY_TASK_ID", "3"))[1:])
        names.add(name.name)
        assert options is not None
    assert names == {"train", "reproduce", "merge", "queue"}


def test_the_page_shows_every_command() -> None:
    for name in COMMANDS:
        assert f"treemem {name}" in PAGE
    assert {words.split()[0] for words, _ in SHOWN} == {"treemem", "head", "cat"}
